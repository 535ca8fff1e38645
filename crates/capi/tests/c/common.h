/* What the test programs share: a check that says what failed, and a connection over a link. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <uncopied.h>
#include <unistd.h>

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno,              \
                    strerror(errno));                                                                          \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

/* The call fails with this errno. */
#define FAILS(call, number)                                                                                    \
    do {                                                                                                       \
        errno = 0;                                                                                             \
        long result = (long)(call);                                                                            \
        if (result != -1 || errno != (number)) {                                                               \
            fprintf(stderr, "%s:%d: %s is %ld, errno %d (%s), not %s\n", __FILE__, __LINE__, #call, result,   \
                    errno, strerror(errno), #number);                                                          \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

/* As FAILS, for calls that answer NULL. */
#define NULLS(call, number)                                                                                    \
    do {                                                                                                       \
        errno = 0;                                                                                             \
        void *result = (call);                                                                                 \
        if (result || errno != (number)) {                                                                     \
            fprintf(stderr, "%s:%d: %s is %p, errno %d (%s), not %s\n", __FILE__, __LINE__, #call, result,    \
                    errno, strerror(errno), #number);                                                          \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

struct world {
    uc_stack *stacks[2];
    int listener, tx, rx;
};

static inline struct sockaddr_in address(const char *ip, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    CHECK(inet_pton(AF_INET, ip, &a.sin_addr) == 1);
    return a;
}

/* Two stacks; a connection from 10.0.0.1 (`tx`) to 10.0.0.2 (`rx`). */
static inline struct world make_world(void) {
    struct world w;
    uc_config left = UC_CONFIG_INIT, right = UC_CONFIG_INIT;
    left.addresses = "10.0.0.1/24";
    right.addresses = "10.0.0.2/24";
    CHECK(uc_link_pair(&left, &right, w.stacks) == 0);
    struct sockaddr_in to = address("10.0.0.2", 9000);
    CHECK((w.listener = uc_socket_on(w.stacks[1], AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(uc_bind(w.listener, (struct sockaddr *)&to, sizeof to) == 0 && uc_listen(w.listener, 8) == 0);
    CHECK((w.tx = uc_socket_on(w.stacks[0], AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(uc_connect(w.tx, (struct sockaddr *)&to, sizeof to) == 0);
    CHECK((w.rx = uc_accept(w.listener, NULL, NULL)) >= 0);
    return w;
}

static inline void end_world(struct world w) {
    CHECK(uc_close(w.tx) == 0 && uc_close(w.rx) == 0 && uc_close(w.listener) == 0);
    CHECK(uc_stack_free(w.stacks[0]) == 0 && uc_stack_free(w.stacks[1]) == 0);
}

static inline void pause_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}
