/* The POSIX-shaped calls on a stack's sockets, and on the kernel's. */
#include "common.h"

#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>

static char buf[64];

static void messages(struct world *w) {
    struct iovec two[2] = {{"ab", 2}, {"cd", 2}}, in[2] = {{buf, 3}, {buf + 3, 1}};
    CHECK(uc_writev(w->tx, two, 2) == 4 && uc_recv(w->rx, buf, 4, MSG_WAITALL) == 4 && !memcmp(buf, "abcd", 4));
    CHECK(uc_write(w->tx, "wxyz", 4) == 4);
    CHECK(uc_recv(w->rx, buf, 4, MSG_WAITALL | MSG_PEEK) == 4 && uc_readv(w->rx, in, 2) == 4);
    CHECK(!memcmp(buf, "wxyz", 4));
    struct msghdr out = {.msg_iov = two, .msg_iovlen = 2}, back = {.msg_iov = in, .msg_iovlen = 2};
    CHECK(uc_sendmsg(w->tx, &out, 0) == 4 && uc_recvmsg(w->rx, &back, MSG_WAITALL) == 4);
    struct mmsghdr many[2] = {{.msg_hdr = out}, {.msg_hdr = out}}, got[1] = {{.msg_hdr = back}};
    CHECK(uc_sendmmsg(w->tx, many, 2, 0) == 2 && many[1].msg_len == 4);
    CHECK(uc_recvmmsg(w->rx, got, 1, MSG_WAITALL, NULL) == 1 && got[0].msg_len == 4);
    socklen_t len = 16;
    struct sockaddr_in from;
    CHECK(uc_recvfrom(w->rx, buf, 4, MSG_WAITALL, (struct sockaddr *)&from, &len) == 4 && len == 0);
    CHECK(uc_sendto(w->tx, "q", 1, 0, NULL, 0) == 1 && uc_read(w->rx, buf, 1) == 1 && buf[0] == 'q');
}

static void names_and_options(struct world *w) {
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    CHECK(uc_getsockname(w->tx, (struct sockaddr *)&at, &len) == 0 && at.sin_addr.s_addr == inet_addr("10.0.0.1"));
    in_port_t port = at.sin_port;
    CHECK(uc_getpeername(w->rx, (struct sockaddr *)&at, &len) == 0 && at.sin_port == port);
    int on = 1, value = 0;
    len = sizeof value;
    CHECK(uc_setsockopt(w->tx, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    CHECK(uc_getsockopt(w->tx, IPPROTO_TCP, TCP_NODELAY, &value, &len) == 0 && value == 1);
    int fl = uc_fcntl(w->rx, F_GETFL, 0);
    CHECK(uc_fcntl(w->rx, F_SETFL, (unsigned long)(fl | O_NONBLOCK)) == 0);
    FAILS(uc_read(w->rx, buf, 1), EAGAIN);
    CHECK(uc_fcntl(w->rx, F_SETFL, (unsigned long)fl) == 0);
    CHECK(uc_write(w->tx, "12345", 5) == 5 && uc_recv(w->rx, buf, 5, MSG_PEEK | MSG_WAITALL) == 5);
    CHECK(uc_ioctl(w->rx, FIONREAD, &value) == 0 && value == 5);
    CHECK(uc_ioctl(w->tx, SIOCOUTQ, &value) == 0 && value >= 0);
    int other = uc_dup(w->rx);
    CHECK(other >= 0 && uc_read(other, buf, 5) == 5 && uc_close(other) == 0);
    other = uc_fcntl(w->rx, F_DUPFD_CLOEXEC, 100);
    CHECK(other >= 100 && uc_dup2(w->rx, other) == other && uc_dup3(w->rx, other, O_CLOEXEC) == other);
    CHECK(uc_close(other) == 0);
}

/* The same contract as Linux's MSG_ZEROCOPY, on the socket's error queue; rings have no part in it. */
static void the_error_queue(struct world *w) {
    int on = 1;
    CHECK(uc_setsockopt(w->tx, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0);
    CHECK(uc_send(w->tx, "lent", 4, MSG_ZEROCOPY) == 4 && uc_recv(w->rx, buf, 4, MSG_WAITALL) == 4);
    uc_ring *ring = uc_ring_create(w->stacks[0], 4);
    CHECK(uc_ring_send(ring, w->tx, "also", 4, 0, NULL, NULL) == 4 && uc_recv(w->rx, buf, 4, MSG_WAITALL) == 4);
    struct pollfd p = {.fd = w->tx};
    CHECK(uc_poll(&p, 1, 5000) == 1 && p.revents == POLLERR);
    char control[128];
    struct msghdr msg = {.msg_control = control, .msg_controllen = sizeof control};
    CHECK(uc_recvmsg(w->tx, &msg, MSG_ERRQUEUE) == 0);
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    struct sock_extended_err e;
    memcpy(&e, CMSG_DATA(c), sizeof e);
    CHECK(e.ee_origin == SO_EE_ORIGIN_ZEROCOPY && e.ee_info == 0 && e.ee_data == 0 && e.ee_pad == UC_REASON_NONE);
    CHECK(uc_ring_wait(ring, 5000) == 1);
    uc_completion done;
    CHECK(uc_ring_reap(ring, &done, 1) == 1 && done.ticket == 0);
    FAILS(uc_recvmsg(w->tx, &msg, MSG_ERRQUEUE), EAGAIN);
    CHECK(uc_ring_free(ring) == 0);
}

static void files(struct world *w) {
    FILE *f = tmpfile();
    int pipes[2];
    CHECK(f && fputs("of a file", f) >= 0 && fflush(f) == 0 && pipe(pipes) == 0);
    int64_t offset = 3;
    CHECK(uc_sendfile(w->tx, fileno(f), &offset, 6) == 6 && offset == 9);
    CHECK(uc_recv(w->rx, buf, 6, MSG_WAITALL) == 6 && !memcmp(buf, "a file", 6));
    CHECK(write(pipes[1], "piped", 5) == 5 && uc_splice(pipes[0], NULL, w->tx, NULL, 5, 0) == 5);
    CHECK(uc_splice(w->rx, NULL, pipes[1], NULL, 5, 0) == 5 && read(pipes[0], buf, 5) == 5);
    CHECK(!memcmp(buf, "piped", 5));
    fclose(f), close(pipes[0]), close(pipes[1]);
}

/* Loopback of a stack is its own, and copied; that of the kernel is the kernel's. */
static void loopbacks(struct world *w) {
    struct sockaddr_in at = address("127.0.0.1", 4000);
    int l = uc_socket_on(w->stacks[0], AF_INET, SOCK_STREAM, 0), c = uc_socket_on(w->stacks[0], AF_INET, SOCK_STREAM, 0);
    CHECK(uc_bind(l, (struct sockaddr *)&at, sizeof at) == 0 && uc_listen(l, 1) == 0);
    CHECK(uc_connect(c, (struct sockaddr *)&at, sizeof at) == 0);
    int s = uc_accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    uc_ring *ring = uc_ring_create(w->stacks[0], 1);
    uint32_t ticket = 7;
    CHECK(uc_ring_send(ring, c, "lo", 2, 0, buf, &ticket) == 2 && ticket == 0);
    uc_completion done;
    CHECK(uc_ring_wait(ring, 5000) == 1 && uc_ring_reap(ring, &done, 1) == 1);
    CHECK(done.copied == 1 && done.reason == UC_REASON_LOOPBACK && done.user_data == buf && done.ticket == 0);
    CHECK(uc_close(l) == 0 && uc_close(c) == 0 && uc_close(s) == 0 && uc_ring_free(ring) == 0);

    struct sockaddr_in any = address("127.0.0.1", 0);
    socklen_t len = sizeof any;
    l = uc_socket(AF_INET, SOCK_STREAM, 0), c = uc_socket(AF_INET, SOCK_STREAM, 0);
    CHECK(uc_bind(l, (struct sockaddr *)&any, sizeof any) == 0 && uc_listen(l, 1) == 0);
    CHECK(uc_getsockname(l, (struct sockaddr *)&any, &len) == 0);
    CHECK(uc_connect(c, (struct sockaddr *)&any, sizeof any) == 0 && (s = uc_accept(l, NULL, NULL)) >= 0);
    struct iovec one = {"kernel", 6};
    struct msghdr msg = {.msg_iov = &one, .msg_iovlen = 1};
    CHECK(uc_sendmsg(c, &msg, 0) == 6 && uc_recv(s, buf, 6, MSG_WAITALL) == 6 && !memcmp(buf, "kernel", 6));
    CHECK(uc_shutdown(c, SHUT_RDWR) == 0 && uc_read(s, buf, 1) == 0);
    CHECK(uc_close(l) == 0 && uc_close(c) == 0 && uc_close(s) == 0);
}

int main(void) {
    struct world w = make_world();
    messages(&w);
    names_and_options(&w);
    the_error_queue(&w);
    files(&w);
    loopbacks(&w);
    CHECK(uc_shutdown(w.tx, SHUT_WR) == 0 && uc_read(w.rx, buf, 1) == 0);
    end_world(w);
    puts("ok");
    return 0;
}
