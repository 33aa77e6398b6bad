/* stdio writes a file to stdout as stdio reads it: with one fread of the whole.
 * With a second argument a timer sends it a signal each 10 ms, whose handler does
 * nothing and has SA_RESTART. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>

static void nothing(int sig) { (void)sig; }

int main(int argc, char **argv) {
	struct stat st;
	if (argc > 2) {
		struct sigaction a = {.sa_handler = nothing, .sa_flags = SA_RESTART};
		struct itimerval each = {{0, 10000}, {0, 10000}};
		sigaction(SIGALRM, &a, NULL);
		setitimer(ITIMER_REAL, &each, NULL);
	}
	FILE *f = fopen(argv[1], "rb");
	if (!f || fstat(fileno(f), &st)) {
		perror(argv[1]);
		return 1;
	}
	char *all = malloc(st.st_size);
	size_t n = fread(all, 1, st.st_size, f);
	if (ferror(f))
		perror("fread");
	return fwrite(all, 1, n, stdout) != n;
}
