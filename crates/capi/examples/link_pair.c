/*
 * Two stacks in one process, on the two ends of a link. One thread lends 256 buffers to the stack and reaps their
 * completions from a ring; another receives and checks every byte. No privileges, no network.
 *
 *     cc link_pair.c $(pkg-config --cflags --libs uncopied) -pthread -o link_pair && ./link_pair
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uncopied.h>

enum { BUFFERS = 8, SIZE = 64 * 1024, CALLS = 256 };

/* What byte `at` of the stream is. */
static unsigned char expected(size_t at) {
    return (unsigned char)(at % 251);
}

static struct sockaddr_in address(const char *ip) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9000)};
    inet_pton(AF_INET, ip, &a.sin_addr);
    return a;
}

/* Receives the whole stream; returns how many bytes there were. */
static void *receiver(void *arg) {
    int listener = *(int *)arg;
    int fd = uc_accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) err(1, "accept");
    static unsigned char buf[32 * 1024];
    size_t total = 0;
    for (;;) {
        ssize_t n = uc_read(fd, buf, sizeof buf);
        if (n < 0) err(1, "read");
        if (n == 0) break;
        for (ssize_t i = 0; i < n; i++, total++)
            if (buf[i] != expected(total)) errx(1, "byte %zu is wrong", total);
    }
    uc_close(fd);
    return (void *)total;
}

/* Reaps at least one completion; returns how many. Each says which buffer is free again. */
static size_t reap(uc_ring *ring, unsigned char **unused, size_t *free_count) {
    uc_completion done[BUFFERS];
    ssize_t n;
    while ((n = uc_ring_reap(ring, done, BUFFERS)) == 0)
        if (uc_ring_wait(ring, -1) < 0 && errno != EINTR) err(1, "ring wait");
    if (n < 0) err(1, "reap");
    for (ssize_t i = 0; i < n; i++) {
        if (done[i].copied) errx(1, "call %u was copied: %s", done[i].ticket, uc_strreason(done[i].reason));
        unused[(*free_count)++] = done[i].user_data;
    }
    return (size_t)n;
}

int main(void) {
    uc_config left = UC_CONFIG_INIT, right = UC_CONFIG_INIT;
    left.addresses = "10.0.0.1/24";
    right.addresses = "10.0.0.2/24";
    uc_stack *stacks[2];
    if (uc_link_pair(&left, &right, stacks)) errx(1, "link pair: %s", uc_last_error());

    struct sockaddr_in to = address("10.0.0.2");
    int listener = uc_socket_on(stacks[1], AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || uc_bind(listener, (struct sockaddr *)&to, sizeof to) || uc_listen(listener, 1))
        err(1, "listen");
    pthread_t thread;
    if (pthread_create(&thread, NULL, receiver, &listener)) errx(1, "no thread");

    int fd = uc_socket_on(stacks[0], AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || uc_connect(fd, (struct sockaddr *)&to, sizeof to)) err(1, "connect");
    uc_ring *ring = uc_ring_create(stacks[0], BUFFERS);
    if (!ring) err(1, "ring");

    unsigned char *unused[BUFFERS];
    size_t free_count = 0, completed = 0, sent = 0;
    for (; free_count < BUFFERS; free_count++) unused[free_count] = malloc(SIZE);
    for (int call = 0; call < CALLS; call++) {
        if (free_count == 0) completed += reap(ring, unused, &free_count);
        unsigned char *buf = unused[--free_count];
        for (size_t i = 0; i < SIZE; i++) buf[i] = expected(sent + i);
        /* From here to its completion the buffer is the stack's. A blocking socket queues all of it. */
        if (uc_ring_send(ring, fd, buf, SIZE, 0, buf, NULL) != SIZE) err(1, "send");
        sent += SIZE;
    }
    uc_close(fd);
    while (completed < CALLS) completed += reap(ring, unused, &free_count);

    void *received;
    pthread_join(thread, &received);
    if ((size_t)received != sent) errx(1, "%zu of %zu bytes arrived", (size_t)received, sent);

    uc_counters counters;
    if (uc_stats(stacks[0], &counters, sizeof counters)) err(1, "stats");
    printf("%zu bytes in %d calls, %llu of them not copied\n", sent, CALLS,
           (unsigned long long)counters.calls_by_reason[UC_REASON_NONE]);

    for (size_t i = 0; i < BUFFERS; i++) free(unused[i]);
    uc_close(listener);
    if (uc_ring_free(ring)) err(1, "ring free");
    for (int i = 0; i < 2; i++)
        if (uc_stack_free(stacks[i])) err(1, "stack free");
    return 0;
}
