/* Null, dangling and nonsense: each call has a defined error, and nothing crashes. */
#include "common.h"

static void done(const uc_completion *completion) {
    (void)completion;
    abort();
}

static void handles_that_are_none(void) {
    uc_stack *null_stack = NULL, *wild_stack = (uc_stack *)0x1234, *odd = (uc_stack *)-1;
    uc_ring *null_ring = NULL, *wild_ring = (uc_ring *)0x1234;
    uc_counters counters;
    uc_completion completion;
    uint32_t ticket;
    FAILS(uc_stack_free(null_stack), EFAULT);
    FAILS(uc_stack_free(wild_stack), EBADF);
    FAILS(uc_stack_free(odd), EBADF);
    FAILS(uc_stack_drain(wild_stack, 0), EBADF);
    FAILS(uc_socket_on(null_stack, AF_INET, SOCK_STREAM, 0), EFAULT);
    FAILS(uc_socket_on(wild_stack, AF_INET, SOCK_STREAM, 0), EBADF);
    FAILS(uc_stats(null_stack, &counters, sizeof counters), EFAULT);
    FAILS(uc_stats(wild_stack, &counters, sizeof counters), EBADF);
    NULLS(uc_ring_create(null_stack, 1), EFAULT);
    NULLS(uc_ring_create(wild_stack, 1), EBADF);
    FAILS(uc_ring_free(null_ring), EFAULT);
    FAILS(uc_ring_free(wild_ring), EBADF);
    FAILS(uc_ring_send(wild_ring, 0, "x", 1, 0, NULL, &ticket), EBADF);
    FAILS(uc_ring_reap(wild_ring, &completion, 1), EBADF);
    FAILS(uc_ring_reap(null_ring, &completion, 1), EFAULT);
    FAILS(uc_ring_wait(wild_ring, 0), EBADF);
    FAILS(uc_ring_outstanding(wild_ring), EBADF);
    FAILS(uc_release(0), EFAULT);
    FAILS(uc_release(0x1234), EBADF);
}

static void configurations_that_are_none(void) {
    uc_stack *stacks[2];
    uc_config good = UC_CONFIG_INIT, bad = UC_CONFIG_INIT;
    good.addresses = "10.0.0.1/24";
    NULLS(uc_stack_new(NULL), EFAULT);
    NULLS(uc_stack_new(&good), EINVAL);
    CHECK(strstr(uc_last_error(), "TAP"));
    FAILS(uc_link_pair(NULL, &good, stacks), EFAULT);
    FAILS(uc_link_pair(&good, NULL, stacks), EFAULT);
    FAILS(uc_link_pair(&good, &good, NULL), EFAULT);
    FAILS(uc_link_pair(&good, &bad, stacks), EINVAL);
    CHECK(strstr(uc_last_error(), "no address"));
    bad.addresses = "10.0.0.1/33";
    FAILS(uc_link_pair(&bad, &good, stacks), EINVAL);
    CHECK(strstr(uc_last_error(), "32 bits"));
    bad.addresses = "not an address";
    FAILS(uc_link_pair(&bad, &good, stacks), EINVAL);
    bad.addresses = "\xff\xfe";
    FAILS(uc_link_pair(&bad, &good, stacks), EINVAL);
    bad = good;
    bad.gateways = "192.168.0.1";
    FAILS(uc_link_pair(&bad, &good, stacks), ENETUNREACH);
    bad = good;
    bad.mtu = 9000;
    FAILS(uc_link_pair(&bad, &good, stacks), EINVAL);
    bad = good;
    bad.tap = "tap0";
    FAILS(uc_link_pair(&bad, &good, stacks), EINVAL);
    bad = good;
    bad.size = 8;
    FAILS(uc_link_pair(&bad, &good, stacks), EINVAL);
    bad.size = sizeof bad + 8;
    FAILS(uc_link_pair(&bad, &good, stacks), E2BIG);
    bad = good;
    bad.tap = "a name that is much too long";
    NULLS(uc_stack_new(&bad), ENAMETOOLONG);
    CHECK(*uc_last_error());
    FAILS(uc_configure(NULL), EFAULT);
    FAILS(uc_configure(&good), EINVAL);
}

static void descriptors_that_are_none(struct world *w, uc_ring *ring) {
    uc_buffer buffer;
    size_t one = 1, none = 0;
    int kernels = socket(AF_INET, SOCK_STREAM, 0), pipes[2];
    CHECK(kernels >= 0 && pipe(pipes) == 0);
    FAILS(uc_read(-1, &buffer, 1), EBADF);
    FAILS(uc_close(-1), EBADF);
    FAILS(uc_close(1 << 21), EBADF);
    FAILS(uc_send_lent(-1, "x", 1, 0, done, NULL), EBADF);
    FAILS(uc_send_lent(kernels, "x", 1, 0, done, NULL), EOPNOTSUPP);
    FAILS(uc_send_lent(pipes[1], "x", 1, 0, done, NULL), EOPNOTSUPP);
    FAILS(uc_ring_send(ring, -1, "x", 1, 0, NULL, NULL), EBADF);
    FAILS(uc_ring_send(ring, kernels, "x", 1, 0, NULL, NULL), EOPNOTSUPP);
    FAILS(uc_recv_owned(-1, &buffer, &one, 1, 0), EBADF);
    FAILS(uc_recv_owned(kernels, &buffer, &one, 1, 0), EOPNOTSUPP);
    /* Null memory, and nonsense. */
    FAILS(uc_send_lent(w->tx, NULL, 1, 0, done, NULL), EFAULT);
    FAILS(uc_send_lent(w->tx, "x", 1, 0, NULL, NULL), EFAULT);
    FAILS(uc_send_lent(w->tx, "x", 0, 0, done, NULL), EINVAL);
    FAILS(uc_send_lent(w->tx, "x", 1, MSG_OOB, done, NULL), EINVAL);
    FAILS(uc_ring_send(ring, w->tx, NULL, 1, 0, NULL, NULL), EFAULT);
    FAILS(uc_ring_send(ring, w->tx, "x", 0, 0, NULL, NULL), EINVAL);
    FAILS(uc_ring_sendv(ring, w->tx, NULL, 1, 0, NULL, NULL), EFAULT);
    FAILS(uc_ring_sendv(ring, w->tx, NULL, -1, 0, NULL, NULL), EINVAL);
    FAILS(uc_ring_send(ring, w->rx, "x", 1, 0, NULL, NULL), EINVAL); /* the other stack's */
    FAILS(uc_ring_send(ring, w->listener, "x", 1, 0, NULL, NULL), EINVAL);
    FAILS(uc_ring_reap(ring, NULL, 1), EFAULT);
    FAILS(uc_recv_owned(w->rx, NULL, &one, 1, 0), EFAULT);
    FAILS(uc_recv_owned(w->rx, &buffer, NULL, 1, 0), EFAULT);
    FAILS(uc_recv_owned(w->rx, &buffer, &none, 1, 0), EINVAL);
    FAILS(uc_recv_owned(w->rx, &buffer, &one, 0, 0), EINVAL);
    FAILS(uc_recv_owned(w->rx, &buffer, &one, 1, MSG_PEEK), EINVAL);
    FAILS(uc_recv_owned(w->rx, &buffer, &one, 1, MSG_DONTWAIT), EAGAIN);
    FAILS(uc_stats(w->stacks[0], NULL, 8), EFAULT);
    FAILS(uc_stats(w->stacks[0], (uc_counters *)&buffer, sizeof(uc_counters) + 8), E2BIG);
    FAILS(uc_send(w->tx, NULL, 1, 0), EFAULT);
    FAILS(uc_read(w->rx, NULL, 1), EFAULT);
    FAILS(uc_sendmsg(w->tx, NULL, 0), EFAULT);
    FAILS(uc_recvmsg(w->rx, NULL, 0), EFAULT);
    FAILS(uc_bind(w->tx, NULL, sizeof(struct sockaddr_in)), EFAULT);
    FAILS(uc_connect(w->tx, NULL, sizeof(struct sockaddr_in)), EFAULT);
    FAILS(uc_getsockname(w->tx, NULL, NULL), EFAULT);
    FAILS(uc_getsockopt(w->tx, SOL_SOCKET, SO_ERROR, NULL, NULL), EFAULT);
    FAILS(uc_setsockopt(w->tx, SOL_SOCKET, SO_REUSEADDR, NULL, 4), EFAULT);
    FAILS(uc_setsockopt(w->tx, SOL_SOCKET, 9999, &one, 4), ENOPROTOOPT);
    FAILS(uc_writev(w->tx, NULL, 1), EFAULT);
    FAILS(uc_socket_on(w->stacks[0], AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILS(uc_socket_on(w->stacks[0], AF_INET, SOCK_SEQPACKET, 0), ESOCKTNOSUPPORT);
    FAILS(uc_socket_on(w->stacks[0], AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
    NULLS(uc_ring_create(w->stacks[0], 0), EINVAL);
    close(kernels), close(pipes[0]), close(pipes[1]);
}

int main(void) {
    handles_that_are_none();
    configurations_that_are_none();
    FAILS(uc_configure_from_env(), ENOENT);
    CHECK(!strcmp(uc_strreason(UC_REASON_NONE), "not copied"));
    CHECK(!strcmp(uc_strreason(UC_REASON_DEVICE), "device"));
    CHECK(!strcmp(uc_strreason(99), "unknown") && !strcmp(uc_strreason(-1), "unknown"));

    struct world w = make_world();
    uc_ring *ring = uc_ring_create(w.stacks[0], 2);
    CHECK(ring);
    descriptors_that_are_none(&w, ring);

    /* A ring is full until it is reaped, and what failed left nothing in it. */
    uc_completion done_calls[4];
    CHECK(uc_ring_reap(ring, done_calls, 4) == 0 && uc_ring_wait(ring, 10) == 0);
    CHECK(uc_ring_send(ring, w.tx, "a", 1, 0, NULL, NULL) == 1);
    CHECK(uc_ring_send(ring, w.tx, "b", 1, 0, NULL, NULL) == 1);
    FAILS(uc_ring_send(ring, w.tx, "c", 1, 0, NULL, NULL), ENOBUFS);
    ssize_t reaped = 0;
    while (reaped < 2) {
        CHECK(uc_ring_wait(ring, 5000) == 1);
        reaped += uc_ring_reap(ring, done_calls, 1);
    }
    CHECK(uc_ring_outstanding(ring) == 0 && uc_ring_reap(ring, done_calls, 4) == 0);

    /* Freed handles. */
    uc_ring *again = ring;
    CHECK(uc_ring_free(ring) == 0);
    FAILS(uc_ring_free(again), EBADF);
    FAILS(uc_ring_send(again, w.tx, "a", 1, 0, NULL, NULL), EBADF);
    FAILS(uc_ring_reap(again, done_calls, 1), EBADF);
    int closed = w.tx;
    uc_stack *gone = w.stacks[0];
    end_world(w);
    FAILS(uc_send_lent(closed, "x", 1, 0, done, NULL), EBADF);
    FAILS(uc_stack_free(gone), EBADF);
    FAILS(uc_socket_on(gone, AF_INET, SOCK_STREAM, 0), EBADF);
    NULLS(uc_ring_create(gone, 1), EBADF);
    puts("ok");
    return 0;
}
