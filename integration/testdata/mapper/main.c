/* mapper maps files, and touches the first byte of each in a thread of its own. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *touch(void *path) {
	struct stat st;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || fstat(fd, &st)) {
		perror(path);
		exit(1);
	}
	volatile char *map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	return (void *)(long)map[0];
}

int main(int argc, char **argv) {
	pthread_t *threads = calloc(argc, sizeof *threads);
	for (int i = 1; i < argc; i++)
		pthread_create(&threads[i], NULL, touch, argv[i]);
	for (int i = 1; i < argc; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
