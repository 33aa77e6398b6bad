/* Read a stream record by record, by its .offsets.
 *
 *   cc -O2 -o records records.c
 *   ./records MNT/worker-0.tfrecord MNT/worker-0.offsets
 *
 * Prints the number of records, their bytes, and the sum of these.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* The next little-endian number of an .offsets file; 0 at its end. */
static int next_offset(FILE *f, uint64_t *offset)
{
	unsigned char b[8];
	if (fread(b, 1, sizeof b, f) != sizeof b)
		return 0;
	*offset = 0;
	for (int i = 7; i >= 0; i--)
		*offset = *offset << 8 | b[i];
	return 1;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: records STREAM OFFSETS\n");
		return 2;
	}
	FILE *stream = fopen(argv[1], "rb"), *offsets = fopen(argv[2], "rb");
	if (!stream || !offsets)
		die(argv[stream ? 2 : 1]);
	/* stdio's own 4 KiB would be a request each. */
	setvbuf(stream, NULL, _IOFBF, 1 << 20);

	uint64_t begin, end, records = 0, bytes = 0, sum = 0;
	unsigned char *record = NULL;
	if (!next_offset(offsets, &begin))
		die(argv[2]);
	while (next_offset(offsets, &end)) {
		size_t size = end - begin;
		record = realloc(record, size ? size : 1);
		if (!record || fread(record, 1, size, stream) != size)
			die(argv[1]);
		for (size_t i = 0; i < size; i++)
			sum += record[i];
		records++;
		bytes += size;
		begin = end;
	}
	if (ferror(offsets))
		die(argv[2]);
	printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", records, bytes, sum);
	free(record);
	return 0;
}
