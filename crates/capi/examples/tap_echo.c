/*
 * A stack on a TAP, and ordinary peers on the other side of it.
 *
 *     tap_echo TAP ADDRESS/PREFIX client IP PORT    sends 4 MiB, lent, to an echo server and checks what returns
 *     tap_echo TAP ADDRESS/PREFIX server PORT N     echoes what N connections send, and ends
 *
 * A TAP that needs no privileges: sudo ip tuntap add tap0 mode tap user $USER &&
 * sudo ip addr add 10.0.0.1/24 dev tap0 && sudo ip link set tap0 up
 *
 *     cc tap_echo.c $(pkg-config --cflags --libs uncopied) -o tap_echo
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uncopied.h>

enum { SIZE = 4 << 20 };

static struct sockaddr_in address(const char *ip, const char *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (ip && inet_pton(AF_INET, ip, &a.sin_addr) != 1) errx(2, "`%s` is no address", ip);
    return a;
}

/* Sends and receives at once, as an echo demands: who only sends fills both directions and waits for ever. */
static void client(uc_stack *stack, const char *ip, const char *port) {
    struct sockaddr_in to = address(ip, port);
    int fd = uc_socket_on(stack, AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || uc_connect(fd, (struct sockaddr *)&to, sizeof to)) err(1, "connect to %s:%s", ip, port);
    uc_ring *ring = uc_ring_create(stack, 1024);
    if (!ring) err(1, "ring");

    unsigned char *out = malloc(SIZE), *back = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) out[i] = (unsigned char)(i * 7 / 5);
    size_t sent = 0, got = 0, calls = 0, completed = 0;
    int copied = 0, reason = 0;
    while (got < SIZE) {
        struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (sent < SIZE ? POLLOUT : 0))};
        if (uc_poll(&p, 1, 10000) <= 0) errx(1, "nothing happens");
        if (p.revents & POLLOUT) {
            size_t part = SIZE - sent < 256 * 1024 ? SIZE - sent : 256 * 1024;
            ssize_t n = uc_ring_send(ring, fd, out + sent, part, MSG_DONTWAIT, NULL, NULL);
            if (n > 0) sent += (size_t)n, calls++;
            else if (errno != EAGAIN) err(1, "send");
        }
        if (p.revents & (POLLIN | POLLHUP)) {
            ssize_t n = uc_recv(fd, back + got, SIZE - got, MSG_DONTWAIT);
            if (n == 0) errx(1, "the peer closed after %zu bytes", got);
            if (n > 0) got += (size_t)n;
            else if (errno != EAGAIN) err(1, "receive");
        }
    }
    while (completed < calls) {
        uc_completion done[64];
        if (uc_ring_wait(ring, 10000) != 1) errx(1, "%zu of %zu calls completed", completed, calls);
        ssize_t n = uc_ring_reap(ring, done, 64);
        for (ssize_t i = 0; i < n; i++) copied += done[i].copied, reason = done[i].reason;
        completed += (size_t)n;
    }
    if (memcmp(out, back, SIZE)) errx(1, "what came back differs");
    printf("%d bytes there and back, %zu calls, %d copied (%s)\n", SIZE, calls, copied, uc_strreason(reason));
    free(out), free(back);
    uc_close(fd);
    if (uc_ring_free(ring)) err(1, "ring free");
}

static void server(uc_stack *stack, const char *port, int connections) {
    struct sockaddr_in at = address(NULL, port);
    int listener = uc_socket_on(stack, AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || uc_bind(listener, (struct sockaddr *)&at, sizeof at) || uc_listen(listener, 16))
        err(1, "listen on port %s", port);
    puts("listening"), fflush(stdout);
    while (connections-- > 0) {
        int fd = uc_accept4(listener, NULL, NULL, 0);
        if (fd < 0) err(1, "accept");
        static char buf[64 * 1024];
        ssize_t n;
        while ((n = uc_read(fd, buf, sizeof buf)) > 0)
            if (uc_send(fd, buf, (size_t)n, MSG_NOSIGNAL) != n) err(1, "send");
        if (n < 0) err(1, "read");
        uc_close(fd);
    }
    uc_close(listener);
}

int main(int argc, char **argv) {
    if (argc != 6) errx(2, "usage: tap_echo TAP ADDRESS/PREFIX client IP PORT | server PORT CONNECTIONS");
    uc_config config = UC_CONFIG_INIT;
    config.tap = argv[1];
    config.addresses = argv[2];
    uc_stack *stack = uc_stack_new(&config);
    if (!stack) errx(1, "no stack: %s", uc_last_error());
    if (!strcmp(argv[3], "client")) client(stack, argv[4], argv[5]);
    else server(stack, argv[4], atoi(argv[5]));
    /* What was sent goes out first. */
    if (uc_stack_drain(stack, 5000)) warn("drain");
    if (uc_stack_free(stack)) err(1, "stack free");
    return 0;
}
