/* fork: a child has descriptors and handles that say what they are worth, and the parent's stacks go on. */
#include "common.h"

#include <sys/wait.h>

static void ends_well(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void crosses(struct world *w, char c) {
    char got;
    CHECK(uc_write(w->tx, &c, 1) == 1 && uc_read(w->rx, &got, 1) == 1 && got == c);
}

int main(void) {
    struct world w = make_world();
    crosses(&w, 'a');
    uc_ring *ring = uc_ring_create(w.stacks[0], 4);
    pid_t child = fork();
    if (child == 0) {
        char c;
        FAILS(uc_write(w.tx, "x", 1), ENETDOWN);
        FAILS(uc_read(w.rx, &c, 1), ENETDOWN);
        FAILS(uc_accept(w.listener, NULL, NULL), ENETDOWN);
        FAILS(uc_socket_on(w.stacks[0], AF_INET, SOCK_STREAM, 0), EBADF);
        FAILS(uc_ring_send(ring, w.tx, "x", 1, 0, NULL, NULL), EBADF);
        FAILS(uc_ring_free(ring), EBADF);
        FAILS(uc_stack_free(w.stacks[0]), EBADF);
        CHECK(uc_close(w.tx) == 0 && uc_close(w.rx) == 0 && uc_close(w.listener) == 0);
        exit(0);
    }
    ends_well(child);
    crosses(&w, 'c');

    /* By _exit, and again and again. */
    for (int i = 0; i < 20; i++) {
        child = fork();
        if (child == 0) {
            FAILS(uc_write(w.tx, "x", 1), ENETDOWN);
            CHECK(uc_close(w.tx) == 0);
            _exit(0);
        }
        ends_well(child);
        crosses(&w, 'd');
    }
    CHECK(uc_ring_free(ring) == 0);
    end_world(w);
    puts("ok");
    return 0;
}
