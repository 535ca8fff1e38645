/* poll, select and epoll over sockets of a stack and pipes of the kernel, in one call. */
#include "common.h"

static struct timespec ms(long n) {
    return (struct timespec){n / 1000, n % 1000 * 1000000};
}

static void watch(fd_set *set, int a, int b) {
    FD_ZERO(set);
    FD_SET(a, set);
    FD_SET(b, set);
}

static void by_poll(struct world *w, const int *pipes) {
    struct pollfd p[2] = {{.fd = w->rx, .events = POLLIN}, {.fd = pipes[0], .events = POLLIN}};
    char c;
    CHECK(uc_poll(p, 2, 10) == 0);
    CHECK(uc_write(w->tx, "a", 1) == 1);
    CHECK(uc_poll(p, 2, 5000) == 1 && p[0].revents == POLLIN && p[1].revents == 0);
    CHECK(uc_write(pipes[1], "b", 1) == 1);
    struct timespec limit = ms(5000);
    CHECK(uc_ppoll(p, 2, &limit, NULL) == 2);
    CHECK(uc_read(w->rx, &c, 1) == 1 && c == 'a' && uc_read(pipes[0], &c, 1) == 1 && c == 'b');
    /* The kernel's alone. */
    CHECK(uc_poll(p + 1, 1, 0) == 0);
}

static void by_select(struct world *w, const int *pipes) {
    int top = (w->rx > pipes[0] ? w->rx : pipes[0]) + 1;
    char c;
    fd_set in;
    struct timeval soon = {0, 10000};
    watch(&in, w->rx, pipes[0]);
    CHECK(uc_select(top, &in, NULL, NULL, &soon) == 0);
    CHECK(uc_write(w->tx, "c", 1) == 1);
    struct timeval later = {5, 0};
    watch(&in, w->rx, pipes[0]);
    CHECK(uc_select(top, &in, NULL, NULL, &later) == 1 && FD_ISSET(w->rx, &in) && !FD_ISSET(pipes[0], &in));
    CHECK(later.tv_sec < 5);
    struct timespec limit = ms(0);
    CHECK(uc_pselect(top, &in, NULL, NULL, &limit, NULL) == 1);
    CHECK(uc_read(w->rx, &c, 1) == 1 && c == 'c');
    struct timeval over = {0, 1000};
    watch(&in, pipes[0], pipes[0]);
    CHECK(uc_select(pipes[0] + 1, &in, NULL, NULL, &over) == 0);
}

static void by_epoll(struct world *w, const int *pipes) {
    int ep = uc_epoll_create1(EPOLL_CLOEXEC);
    CHECK(ep >= 0);
    struct epoll_event a = {.events = EPOLLIN, .data.u32 = 1}, b = {.events = EPOLLIN, .data.u32 = 2}, out[4];
    CHECK(uc_epoll_ctl(ep, EPOLL_CTL_ADD, w->rx, &a) == 0);
    CHECK(uc_epoll_ctl(ep, EPOLL_CTL_ADD, pipes[0], &b) == 0);
    FAILS(uc_epoll_ctl(ep, EPOLL_CTL_ADD, w->rx, &a), EEXIST);
    FAILS(uc_epoll_ctl(ep, EPOLL_CTL_ADD, -1, &a), EBADF);
    CHECK(uc_epoll_wait(ep, out, 4, 10) == 0);
    CHECK(uc_write(w->tx, "d", 1) == 1);
    CHECK(uc_epoll_wait(ep, out, 4, 5000) == 1 && out[0].data.u32 == 1 && out[0].events == EPOLLIN);
    CHECK(uc_write(pipes[1], "e", 1) == 1);
    CHECK(uc_epoll_pwait(ep, out, 4, 5000, NULL) == 2);
    CHECK(uc_epoll_ctl(ep, EPOLL_CTL_DEL, w->rx, NULL) == 0);
    CHECK(uc_epoll_wait(ep, out, 4, 0) == 1 && out[0].data.u32 == 2);
    char c;
    CHECK(uc_read(w->rx, &c, 1) == 1 && uc_read(pipes[0], &c, 1) == 1);
    CHECK(uc_close(ep) == 0);
}

int main(void) {
    struct world w = make_world();
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    by_poll(&w, pipes);
    by_select(&w, pipes);
    by_epoll(&w, pipes);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    end_world(w);
    puts("ok");
    return 0;
}
