// The cost of a call on a descriptor of the kernel's, in nanoseconds: read(2) of a byte from /dev/zero.
// Run with and without the preload library, in turns.
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
	enum { CALLS = 2000000 };
	int fd = open("/dev/zero", O_RDONLY);
	struct timespec a, b;
	char c;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < CALLS; i++)
		if (read(fd, &c, 1) != 1)
			return 1;
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("%.1f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / CALLS);
	return 0;
}
