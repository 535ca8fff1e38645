// Round trips of one byte, in microseconds: half of them take at most the first number, 99 % the second.
//
//   pingpong serve PORT
//   pingpong ADDRESS PORT [IDLE]    through epoll, with IDLE more connections in the set; without, blocking reads
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 20000, WARM = 2000 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void *echo(void *arg)
{
	int fd = (int)(long)arg;
	char c;

	while (read(fd, &c, 1) == 1)
		if (write(fd, &c, 1) != 1)
			break;
	close(fd);
	return NULL;
}

static void serve(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	pthread_attr_t small;
	pthread_t t;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 * 1024);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (void *)&at, sizeof(at)) || listen(fd, 4096))
		die("listen");
	for (;;) {
		int c = accept(fd, NULL, NULL);

		if (c < 0)
			die("accept");
		setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (pthread_create(&t, &small, echo, (void *)(long)c))
			die("thread");
		pthread_detach(t);
	}
}

static int dial(const char *address, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	inet_pton(AF_INET, address, &to.sin_addr);
	if (fd < 0 || connect(fd, (void *)&to, sizeof(to)))
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static int by_time(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return d < 0 ? -1 : d > 0;
}

int main(int argc, char **argv)
{
	static double took[ROUNDS];
	struct rlimit files = { 30000, 30000 };
	int fd, ep = -1;
	char c = 'x';

	setrlimit(RLIMIT_NOFILE, &files);
	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "serve"))
		serve(atoi(argv[2]));
	if (argc == 4) {
		ep = epoll_create1(0);
		for (int n = atoi(argv[3]); n > 0; n--) {
			int idle = dial(argv[1], atoi(argv[2]));
			struct epoll_event e = { .events = EPOLLIN, .data.fd = idle };

			if (epoll_ctl(ep, EPOLL_CTL_ADD, idle, &e))
				die("epoll_ctl");
		}
	}
	fd = dial(argv[1], atoi(argv[2]));
	if (ep >= 0) {
		struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };

		if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e))
			die("epoll_ctl");
	}
	for (int n = -WARM; n < ROUNDS; n++) {
		struct timespec a, b;

		clock_gettime(CLOCK_MONOTONIC, &a);
		if (write(fd, &c, 1) != 1)
			die("write");
		if (ep >= 0) {
			struct epoll_event e;

			if (epoll_wait(ep, &e, 1, -1) != 1 || e.data.fd != fd)
				die("epoll_wait");
		}
		if (read(fd, &c, 1) != 1)
			die("read");
		clock_gettime(CLOCK_MONOTONIC, &b);
		if (n >= 0)
			took[n] = (b.tv_sec - a.tv_sec) * 1e6 + (b.tv_nsec - a.tv_nsec) / 1e3;
	}
	qsort(took, ROUNDS, sizeof(*took), by_time);
	printf("%.1f %.1f\n", took[ROUNDS / 2], took[ROUNDS * 99 / 100]);
	return 0;
}
