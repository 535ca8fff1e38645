// Lends memory and takes it away at once, in one of several ways, under load.
//
//   takeaway recv PORT                  reads everything, slowly at times; prints how much, and its hash
//   takeaway send ADDRESS PORT HOW      HOW: munmap, mremap, dontneed, remap, free, realloc; prints the same,
//                                       and how many calls said that the memory was unmapped
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif
#define CALLS 400
#define SIZE (256 * 1024)

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t hash = 0xcbf29ce484222325u;

static void add(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ p[i]) * 0x100000001b3u;
}

static void fill(unsigned char *p, unsigned seed)
{
	uint32_t x = seed * 2654435761u + 1;

	for (size_t i = 0; i < SIZE; i++) {
		x = x * 1664525u + 1013904223u;
		p[i] = x >> 24;
	}
}

static unsigned char *map(void)
{
	void *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void take_away(unsigned char *p, const char *how)
{
	if (!strcmp(how, "munmap")) {
		if (munmap(p, SIZE))
			die("munmap");
	} else if (!strcmp(how, "mremap")) {
		void *q = mremap(p, SIZE, 2 * SIZE, MREMAP_MAYMOVE);

		if (q == MAP_FAILED)
			die("mremap");
		memset(q, 0xee, 2 * SIZE);
		munmap(q, 2 * SIZE);
	} else if (!strcmp(how, "dontneed")) {
		if (madvise(p, SIZE, MADV_DONTNEED))
			die("madvise");
		munmap(p, SIZE);
	} else if (!strcmp(how, "remap")) {
		if (mmap(p, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != p)
			die("mmap fixed");
		memset(p, 0xee, SIZE);
		munmap(p, SIZE);
	} else if (!strcmp(how, "free")) {
		free(p);
		// What free gives out again is written to.
		p = malloc(SIZE);
		memset(p, 0xee, SIZE);
		free(p);
	} else if (!strcmp(how, "realloc")) {
		p = realloc(p, 8 * SIZE);
		if (!p)
			die("realloc");
		memset(p, 0xee, 8 * SIZE);
		free(p);
	} else {
		fprintf(stderr, "no such way: %s\n", how);
		exit(2);
	}
}

static unsigned completed, unmapped;

static int reap(int fd)
{
	char control[256];
	struct msghdr msg = { .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *cm;
	struct sock_extended_err *err;

	if (recvmsg(fd, &msg, MSG_ERRQUEUE) < 0)
		return -1;
	cm = CMSG_FIRSTHDR(&msg);
	if (!cm || cm->cmsg_level != SOL_IP || cm->cmsg_type != IP_RECVERR) {
		fprintf(stderr, "unexpected control message\n");
		exit(1);
	}
	err = (struct sock_extended_err *)CMSG_DATA(cm);
	completed += err->ee_data - err->ee_info + 1;
	if (err->ee_pad == 10)
		unmapped += err->ee_data - err->ee_info + 1;
	return 0;
}

static void sender(const char *address, int port, const char *how)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	int allocates = !strcmp(how, "free") || !strcmp(how, "realloc");

	inet_pton(AF_INET, address, &to.sin_addr);
	if (connect(fd, (void *)&to, sizeof(to)))
		die("connect");
	if (setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)))
		die("SO_ZEROCOPY");
	for (unsigned i = 0; i < CALLS; i++) {
		unsigned char *p = allocates ? malloc(SIZE) : map();
		size_t sent = 0;

		fill(p, i);
		add(p, SIZE);
		while (sent < SIZE) {
			ssize_t n = send(fd, p + sent, SIZE - sent, MSG_ZEROCOPY);

			if (n < 0 && errno == ENOBUFS) {
				struct pollfd pfd = { .fd = fd };

				poll(&pfd, 1, 1000);
				while (!reap(fd))
					;
				continue;
			}
			if (n < 0)
				die("send");
			sent += n;
		}
		take_away(p, how);
	}
	while (completed < CALLS) {
		struct pollfd pfd = { .fd = fd };

		if (poll(&pfd, 1, 20000) != 1) {
			fprintf(stderr, "only %u of %d calls completed\n", completed, CALLS);
			exit(1);
		}
		while (!reap(fd))
			;
	}
	printf("%llu %016llx\n", (unsigned long long)CALLS * SIZE, (unsigned long long)hash);
	fprintf(stderr, "unmapped %u of %u\n", unmapped, completed);
	shutdown(fd, SHUT_WR);
	close(fd);
}

static void receiver(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, conn;
	static unsigned char buf[65536];
	unsigned long long total = 0;
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (void *)&at, sizeof(at)) || listen(fd, 1))
		die("listen");
	conn = accept(fd, NULL, NULL);
	if (conn < 0)
		die("accept");
	while ((n = read(conn, buf, sizeof(buf))) > 0) {
		add(buf, n);
		total += n;
		if (total % (1 << 20) < sizeof(buf))
			usleep(2000);
	}
	if (n < 0)
		die("read");
	printf("%llu %016llx\n", total, (unsigned long long)hash);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "recv"))
		receiver(atoi(argv[2]));
	else if (argc == 5 && !strcmp(argv[1], "send"))
		sender(argv[2], atoi(argv[3]), argv[4]);
	else
		return 2;
	return 0;
}
