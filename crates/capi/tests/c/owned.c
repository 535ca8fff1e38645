/* Received buffers: in order, few at a time, alive after their socket and stack, released once. */
#include "common.h"

enum { SIZE = 300 * 1000 };

int main(void) {
    struct world w = make_world();
    static unsigned char sent[SIZE], got[SIZE];
    for (size_t i = 0; i < SIZE; i++) sent[i] = (unsigned char)(i * 31 / 7);
    CHECK(uc_send(w.tx, sent, SIZE, 0) == SIZE);
    CHECK(uc_shutdown(w.tx, SHUT_WR) == 0);

    uc_buffer kept[4096];
    size_t pieces = 0, total = 0;
    for (;;) {
        size_t count = 2;
        ssize_t n = uc_recv_owned(w.rx, kept + pieces, &count, 70 * 1000, 0);
        CHECK(n >= 0 && n <= 70 * 1000 && count <= 2);
        if (n == 0) {
            CHECK(count == 0);
            break;
        }
        size_t sum = 0;
        for (size_t i = 0; i < count; i++) sum += kept[pieces + i].len;
        CHECK(count > 0 && sum == (size_t)n);
        pieces += count, total += sum;
    }
    CHECK(total == SIZE);
    end_world(w);

    size_t at = 0;
    for (size_t i = 0; i < pieces; at += kept[i].len, i++) memcpy(got + at, kept[i].data, kept[i].len);
    CHECK(!memcmp(sent, got, SIZE));
    for (size_t i = 0; i < pieces; i++) CHECK(uc_release(kept[i].handle) == 0);
    FAILS(uc_release(kept[0].handle), EBADF);
    puts("ok");
    return 0;
}
