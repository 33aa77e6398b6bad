/* Read a stream record by record, in large reads, by its .offsets.
 *
 *   cc -O2 -o records records.c
 *   ./records MNT/worker-0.tfrecord MNT/worker-0.offsets
 *
 * Prints the number of records, their bytes, and the sum of these.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WINDOW ((size_t)4 << 20) /* bytes per read; one record may be larger */

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void read_all(int fd, unsigned char *to, size_t size, uint64_t at, const char *name)
{
	while (size > 0) {
		ssize_t n = pread(fd, to, size, at);
		if (n == 0)
			errno = EIO; /* a stream does not end within a record */
		if (n <= 0 && errno != EINTR)
			die(name);
		if (n > 0)
			to += n, at += n, size -= n;
	}
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: records STREAM OFFSETS\n");
		return 2;
	}
	int stream = open(argv[1], O_RDONLY), index = open(argv[2], O_RDONLY);
	struct stat st;
	if (stream < 0 || index < 0 || fstat(index, &st))
		die(argv[stream < 0 ? 1 : 2]);
	/* n+1 little-endian numbers; big-endian machines have to swap their bytes. */
	const uint64_t *offsets = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, index, 0);
	if (offsets == MAP_FAILED)
		die(argv[2]);
	size_t records = st.st_size / sizeof *offsets - 1, capacity = 0;
	unsigned char *window = NULL;
	uint64_t bytes = 0, sum = 0;

	for (size_t at = 0, end; at < records; at = end) {
		for (end = at + 1; end < records && offsets[end + 1] - offsets[at] <= WINDOW; end++)
			;
		size_t size = offsets[end] - offsets[at];
		if (size > capacity) {
			capacity = size > WINDOW ? size : WINDOW;
			free(window);
			/* Page-aligned, so that 4 MiB are four requests, not five. */
			window = aligned_alloc(4096, (capacity + 4095) / 4096 * 4096);
			if (!window)
				die("memory");
		}
		read_all(stream, window, size, offsets[at], argv[1]);
		for (size_t i = at; i < end; i++) {
			const unsigned char *record = window + (offsets[i] - offsets[at]);
			size_t n = offsets[i + 1] - offsets[i];
			for (size_t j = 0; j < n; j++)
				sum += record[j];
			bytes += n;
		}
	}
	printf("%zu %" PRIu64 " %" PRIu64 "\n", records, bytes, sum);
	free(window);
	return 0;
}
