/* uc_configure: sockets of uc_socket on one stack, whose children and neighbours are its guests.
 * Arguments: TAP, address, and IP and port of an echo server on the kernel's side. */
#include "common.h"

#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int reason = -1;

static void note(const uc_completion *completion) {
    reason = completion->reason;
}

static int connected(const char *ip, const char *port) {
    struct sockaddr_in to = address(ip, atoi(port));
    int fd = uc_socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && uc_connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

static void echoes(int fd, const char *word) {
    char back[16];
    size_t len = strlen(word);
    CHECK(uc_write(fd, word, len) == (ssize_t)len);
    CHECK(uc_recv(fd, back, len, MSG_WAITALL) == (ssize_t)len && !memcmp(back, word, len));
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    uc_config config = UC_CONFIG_INIT;
    config.tap = argv[1];
    config.addresses = argv[2];
    CHECK(uc_configure(&config) == 0);
    int fd = connected(argv[3], argv[4]);
    FAILS(uc_configure(&config), EBUSY);
    echoes(fd, "copied");

    static char lent[] = "lent", back[4];
    CHECK(uc_send_lent(fd, lent, 4, 0, note, NULL) == 4 && uc_recv(fd, back, 4, MSG_WAITALL) == 4);
    for (int i = 0; reason < 0 && i < 5000; i++) pause_ms(1);
    CHECK(reason == UC_REASON_DEVICE);

    /* A stack of the program's own cannot have the same TAP. */
    NULLS(uc_stack_new(&config), EBUSY);
    CHECK(strstr(uc_last_error(), argv[1]));

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        echoes(fd, "of a child");
        uc_buffer buffer;
        size_t one = 1;
        FAILS(uc_send_lent(fd, lent, 4, 0, note, NULL), EOPNOTSUPP);
        FAILS(uc_recv_owned(fd, &buffer, &one, 1, 0), EOPNOTSUPP);
        int other = connected(argv[3], argv[4]);
        echoes(other, "its own");
        CHECK(uc_close(other) == 0 && uc_close(fd) == 0);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    echoes(fd, "and after");
    CHECK(uc_close(fd) == 0);
    puts("ok");
    return 0;
}
