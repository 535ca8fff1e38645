/*
 * Lending with a callback, which is told when each buffer is free, and receiving without a copy. Two stacks on a
 * link, as in link_pair.c; everything that is sent was allocated for one call and is freed by its callback.
 *
 *     cc callbacks.c $(pkg-config --cflags --libs uncopied) -pthread -o callbacks && ./callbacks
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uncopied.h>

enum { SIZE = 100 * 1000, CALLS = 20 };

static atomic_int freed, copied;

/* Runs in a thread of the library's. */
static void done(const uc_completion *completion) {
    free(completion->user_data);
    copied += completion->copied;
    freed++;
}

int main(void) {
    uc_config left = UC_CONFIG_INIT, right = UC_CONFIG_INIT;
    left.addresses = "fd00::1/64";
    right.addresses = "fd00::2/64";
    uc_stack *stacks[2];
    if (uc_link_pair(&left, &right, stacks)) errx(1, "link pair: %s", uc_last_error());

    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(9000)};
    inet_pton(AF_INET6, "fd00::2", &to.sin6_addr);
    int listener = uc_socket_on(stacks[1], AF_INET6, SOCK_STREAM, 0);
    if (listener < 0 || uc_bind(listener, (struct sockaddr *)&to, sizeof to) || uc_listen(listener, 1))
        err(1, "listen");
    int tx = uc_socket_on(stacks[0], AF_INET6, SOCK_STREAM, 0);
    if (tx < 0 || uc_connect(tx, (struct sockaddr *)&to, sizeof to)) err(1, "connect");
    int rx = uc_accept(listener, NULL, NULL);
    if (rx < 0) err(1, "accept");

    for (int call = 0; call < CALLS; call++) {
        char *buf = malloc(SIZE);
        memset(buf, call, SIZE);
        if (uc_send_lent(tx, buf, SIZE, 0, done, buf) != SIZE) err(1, "send");
    }
    uc_close(tx);

    size_t total = 0;
    for (;;) {
        uc_buffer pieces[16];
        size_t count = 16;
        ssize_t n = uc_recv_owned(rx, pieces, &count, 256 * 1024, 0);
        if (n < 0) err(1, "receive");
        if (n == 0) break;
        for (size_t i = 0; i < count; i++) {
            const unsigned char *bytes = pieces[i].data;
            for (size_t at = 0; at < pieces[i].len; at++, total++)
                if (bytes[at] != total / SIZE) errx(1, "byte %zu is wrong", total);
            if (uc_release(pieces[i].handle)) err(1, "release");
        }
    }
    if (total != (size_t)SIZE * CALLS) errx(1, "%zu bytes arrived", total);
    uc_close(rx);
    uc_close(listener);

    /* Every callback has run when the stack is gone. */
    for (int i = 0; i < 2; i++)
        if (uc_stack_free(stacks[i])) err(1, "stack free");
    if (freed != CALLS) errx(1, "%d callbacks of %d", freed, CALLS);
    printf("%zu bytes, %d buffers freed by callbacks, %d copied\n", total, freed, copied);
    return copied != 0;
}
