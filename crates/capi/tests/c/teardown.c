/* Stacks that are freed while everything is in use: lent memory comes back, waiting calls end, nothing hangs. */
#include "common.h"

#include <stdatomic.h>

static atomic_int called;
static _Atomic(uc_stack *) own;
static atomic_int own_error;

static void count(const uc_completion *completion) {
    if (completion->user_data == &own) {
        errno = 0;
        own_error = uc_stack_free(own) == -1 ? errno : -1;
    }
    called++;
}

struct call {
    int fd;
    ssize_t (*f)(int);
    ssize_t result;
    int number;
};

static ssize_t receive(int fd) {
    char c;
    return uc_recv(fd, &c, 1, 0);
}

static ssize_t accept_one(int fd) {
    return uc_accept(fd, NULL, NULL);
}

static ssize_t fill(int fd) {
    static char block[1 << 20];
    ssize_t n;
    while ((n = uc_send(fd, block, sizeof block, MSG_NOSIGNAL)) > 0) {}
    return n;
}

static void *run(void *arg) {
    struct call *c = arg;
    errno = 0;
    c->result = c->f(c->fd);
    c->number = errno;
    return NULL;
}

static void outstanding_calls_complete(void) {
    struct world w = make_world();
    static char lent[64 * 1024];
    uc_ring *ring = uc_ring_create(w.stacks[0], 1000);
    /* Nobody reads, so the window closes and the rest stays lent. */
    int calls = 0, by_ring = 0;
    while (uc_send_lent(w.tx, lent, sizeof lent, MSG_DONTWAIT, count, NULL) > 0) {
        calls++;
        if (uc_ring_send(ring, w.tx, lent, sizeof lent, MSG_DONTWAIT, NULL, NULL) <= 0) break;
        by_ring++;
    }
    CHECK(errno == EAGAIN && calls > 10 && uc_ring_outstanding(ring) > 0);
    FAILS(uc_ring_free(ring), EBUSY);
    FAILS(uc_stack_drain(w.stacks[0], 20), ETIMEDOUT);
    CHECK(uc_stack_free(w.stacks[0]) == 0);
    CHECK(called == calls);

    /* The ring survives the stack. */
    uc_completion done[16];
    ssize_t n, reaped = 0;
    while ((n = uc_ring_reap(ring, done, 16)) > 0) reaped += n;
    CHECK(reaped == by_ring && uc_ring_outstanding(ring) == 0);
    CHECK(uc_ring_wait(ring, 0) == 0);

    /* So do descriptors, with an error for everything. */
    FAILS(uc_ring_send(ring, w.tx, lent, 1, 0, NULL, NULL), ENETDOWN);
    FAILS(uc_send_lent(w.tx, lent, 1, 0, count, NULL), ENETDOWN);
    FAILS(uc_send(w.tx, lent, 1, 0), ENETDOWN);
    FAILS(uc_recv(w.tx, lent, 1, 0), ENETDOWN);
    struct pollfd p = {.fd = w.tx, .events = POLLIN};
    CHECK(uc_poll(&p, 1, 1000) == 1 && p.revents & POLLHUP);
    CHECK(uc_ring_free(ring) == 0);
    CHECK(uc_close(w.tx) == 0);

    /* The peer learns of it. */
    char buf[4096];
    while ((n = uc_read(w.rx, buf, sizeof buf)) > 0) {}
    CHECK(n == -1 && errno == ECONNRESET);
    CHECK(uc_close(w.rx) == 0 && uc_close(w.listener) == 0);
    CHECK(uc_stack_free(w.stacks[1]) == 0);
}

static void waiting_calls_end(void) {
    struct world w = make_world();
    struct call calls[] = {{w.listener, accept_one, 0, 0}, {w.tx, fill, 0, 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, run, &calls[i]) == 0);
    pause_ms(100);
    CHECK(uc_stack_free(w.stacks[1]) == 0);
    CHECK(uc_stack_free(w.stacks[0]) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(calls[0].result == -1 && (calls[0].number == EINVAL || calls[0].number == ENETDOWN));
    CHECK(calls[1].result == -1);
    CHECK(uc_close(w.tx) == 0 && uc_close(w.rx) == 0 && uc_close(w.listener) == 0);

    /* A receiver that waits for a peer that says nothing. */
    w = make_world();
    struct call waiting = {w.rx, receive, 0, 0};
    CHECK(pthread_create(&threads[0], NULL, run, &waiting) == 0);
    pause_ms(100);
    CHECK(uc_stack_free(w.stacks[1]) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    CHECK(waiting.result == -1 && waiting.number == ECONNABORTED);
    CHECK(uc_close(w.tx) == 0 && uc_close(w.rx) == 0 && uc_close(w.listener) == 0);
    CHECK(uc_stack_free(w.stacks[0]) == 0);
}

static void a_callback_cannot_free_its_stack(void) {
    struct world w = make_world();
    own = w.stacks[0];
    int before = called;
    CHECK(uc_send_lent(w.tx, "x", 1, 0, count, &own) == 1);
    while (called == before) pause_ms(1);
    CHECK(own_error == EDEADLK);
    end_world(w);
}

static void many_stacks_come_and_go(void) {
    for (int i = 0; i < 20; i++) {
        struct world w = make_world();
        CHECK(uc_send_lent(w.tx, "x", 1, 0, count, NULL) == 1);
        if (i % 2) {
            /* Freed in the other order, with descriptors open. */
            CHECK(uc_stack_free(w.stacks[1]) == 0 && uc_stack_free(w.stacks[0]) == 0);
            CHECK(uc_close(w.tx) == 0 && uc_close(w.rx) == 0 && uc_close(w.listener) == 0);
        } else {
            end_world(w);
        }
    }
}

int main(void) {
    outstanding_calls_complete();
    waiting_calls_end();
    a_callback_cannot_free_its_stack();
    many_stacks_come_and_go();
    puts("ok");
    return 0;
}
