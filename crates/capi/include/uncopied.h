/*
 * Sockets on the uncopied stack, and what POSIX lacks: lending with completion rings and callbacks, received
 * bytes that are not copied, stacks by handle.
 *
 * Calls answer as POSIX's do: -1 (or NULL) and errno. Where a handle is needed, NULL is EFAULT and one that was
 * freed, or never was, is EBADF; where memory is needed, NULL is EFAULT. What a wrong pointer that is not NULL
 * does is what it does in C. A fault inside the library is EIO. Any number of threads may call, on the same
 * descriptors and handles too.
 *
 * Descriptors are real ones, and all calls take the kernel's too. A stack's socket is to be used through the
 * functions here: to the kernel its descriptor is a socket that was never connected.
 */

#ifndef UNCOPIED_H
#define UNCOPIED_H

/* Made from crates/capi/src by cbindgen (`BLESS=1 cargo test -p uncopied-capi --test header`). */

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct mmsghdr;

/* What a uc_config begins as. */
#define UC_CONFIG_INIT { sizeof(uc_config), NULL, NULL, NULL, NULL, 0, 0 }

/**
 * How many numbers there are: the length of `uc_counters.calls_by_reason`.
 */
#define UC_REASONS 13

/**
 * What a completion says about copying (`uc_completion.reason`): 0 is not copied by anybody.
 */
typedef enum uc_reason {
  /**
   * Nobody copied the bytes.
   */
  UC_REASON_NONE = 0,
  /**
   * The device takes only linear packets.
   */
  UC_REASON_NO_SCATTER_GATHER = 1,
  /**
   * The device does not checksum: copied and summed in one pass.
   */
  UC_REASON_NO_CHECKSUM = 2,
  /**
   * The packet went back to a socket of the same stack.
   */
  UC_REASON_LOOPBACK = 3,
  /**
   * A capture saw the packet.
   */
  UC_REASON_TAP = 4,
  /**
   * A filter that reads payload ran on it.
   */
  UC_REASON_FILTER = 5,
  /**
   * An encrypting transform took it.
   */
  UC_REASON_TRANSFORM = 6,
  /**
   * The packet had to be linear for the device or for software segmentation.
   */
  UC_REASON_LINEARIZE = 7,
  /**
   * Data sent with a SYN.
   */
  UC_REASON_SYN_DATA = 8,
  /**
   * Too small to be worth lending.
   */
  UC_REASON_SMALL = 9,
  /**
   * The memory was unmapped while it was lent.
   */
  UC_REASON_UNMAPPED = 10,
  /**
   * The stack copied nothing; the device itself read the memory once at its boundary (a write to a TAP).
   */
  UC_REASON_DEVICE = 11,
  /**
   * The stack is another process's.
   */
  UC_REASON_PROCESS = 12,
} uc_reason;

/**
 * Completions of lending calls, of any number of sockets of one stack, to be reaped without system calls. A
 * handle: it is never followed, and using it after `uc_ring_free` is `EBADF`. Any number of threads may use it.
 */
typedef struct uc_ring uc_ring;

/**
 * A TCP/IP stack of this process, with threads of its own that run it. A handle: it is never followed, and
 * using it after `uc_stack_free` is `EBADF`.
 */
typedef struct uc_stack uc_stack;

/**
 * Where a stack meets the network. Begin with `UC_CONFIG_INIT`, so that what is not set is zero. Strings are
 * read during the call and not kept; lists are separated by commas; null is an empty string.
 */
typedef struct uc_config {
  /**
   * `sizeof(uc_config)`: how a library that knows more fields tells which of them its caller knows.
   */
  size_t size;
  /**
   * Name of the TAP. One that is there is attached to (which needs no privileges if it is the user's: `ip
   * tuntap add NAME mode tap user $USER`); another is created (`CAP_NET_ADMIN`).
   */
  const char *tap;
  /**
   * The stack's addresses with their prefix lengths: `"10.0.0.2/24,fd00::2/64"`.
   */
  const char *addresses;
  /**
   * Default gateways, at most one of each family: `"10.0.0.1"`. May be null.
   */
  const char *gateways;
  /**
   * Networks whose connections stay with the kernel, for sockets of `uc_socket` only; loopback always does.
   * May be null.
   */
  const char *bypass;
  /**
   * Largest packet, in bytes, from 68 to 65535; setting that of a TAP needs `CAP_NET_ADMIN`. 0: what the TAP
   * has, 1500 for a link.
   */
  uint32_t mtu;
  /**
   * Not 0: compare lent memory at completion with what it held at the send, and count changes
   * (`uc_counters.changed_buffers`). It reads every byte twice.
   */
  uint32_t check_lent;
} uc_config;

/**
 * One lending call is complete: its memory is the caller's again.
 */
typedef struct uc_completion {
  /**
   * As it was given with the call.
   */
  void *user_data;
  /**
   * The call's number: on its ring the n-th call that queued something has n - 1. It wraps at 2^32. With a
   * callback calls are counted by stack.
   */
  uint32_t ticket;
  /**
   * What was copied and why: a `uc_reason`; see `uc_strreason`.
   */
  uint8_t reason;
  /**
   * 1 if the stack copied bytes of the call. 0 for reasons `UC_REASON_NONE` and `UC_REASON_DEVICE`.
   */
  uint8_t copied;
  /**
   * 0.
   */
  uint16_t reserved;
} uc_completion;

/**
 * Is told that a call's memory is free. It runs in a thread of the library's, one call at a time for each stack,
 * with no lock held: it may call any function but `uc_stack_free` of the same stack, and what it waits for delays
 * other callbacks. The completion is valid during the call.
 */
typedef void (*uc_callback)(const struct uc_completion *completion);

/**
 * Received bytes, in the memory that they arrived in. They are the caller's to read until `uc_release`, also
 * after the socket and its stack are gone.
 */
typedef struct uc_buffer {
  /**
   * The bytes. Not to be written.
   */
  const void *data;
  /**
   * How many.
   */
  size_t len;
  /**
   * What to release.
   */
  uint64_t handle;
} uc_buffer;

/**
 * What a stack has counted since it was made. A GSO or GRO packet counts once.
 */
typedef struct uc_counters {
  /**
   * Connections begun, from either side.
   */
  uint64_t connections;
  /**
   * Packets received.
   */
  uint64_t rx_packets;
  /**
   * Bytes of those, IP header on.
   */
  uint64_t rx_bytes;
  /**
   * Packets handed to devices.
   */
  uint64_t tx_packets;
  /**
   * Bytes of those, IP header on.
   */
  uint64_t tx_bytes;
  /**
   * Packets dropped, for any reason.
   */
  uint64_t dropped_packets;
  /**
   * Send calls that lent memory.
   */
  uint64_t lent_calls;
  /**
   * Bytes lent.
   */
  uint64_t lent_bytes;
  /**
   * Bytes that are lent now.
   */
  uint64_t lent_now;
  /**
   * Bytes copied by copying sends.
   */
  uint64_t copied_bytes;
  /**
   * Lending calls completed.
   */
  uint64_t completions;
  /**
   * Those by `uc_reason`; `[0]` counts the calls whose bytes nobody copied.
   */
  uint64_t calls_by_reason[UC_REASONS];
  /**
   * Changes to lent bytes that `uc_config.check_lent` found.
   */
  uint64_t changed_buffers;
} uc_counters;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Says where the sockets of `uc_socket` go: to one stack on the TAP named, started by the first of them.
 * Without it `uc_socket` makes sockets of the kernel. Processes with the same TAP share the stack of the first
 * of them: the others' bytes are copied on the way, they cannot use rings, callbacks and `uc_recv_owned`
 * (`EOPNOTSUPP`), and a child of `fork` is such a process.
 *
 * 0, or -1: `EFAULT` null, `EINVAL` or `E2BIG` not to be understood (`uc_last_error` says why), `EBUSY` the
 * stack is running.
 */
int uc_configure(const struct uc_config *config);

/**
 * As `uc_configure`, from `UNCOPIED_TAP`, `UNCOPIED_ADDR` and the other variables of the preload library, or the
 * file that `UNCOPIED_CONFIG` names.
 *
 * 0, or -1: `ENOENT` none of them is set; otherwise as `uc_configure`.
 */
int uc_configure_from_env(void);

/**
 * A sentence about why the last `uc_stack_new`, `uc_link_pair` or `uc_configure` of this thread failed: what is
 * wrong, and what to do about it. Empty if none has. Valid until the thread's next call of one of them; never
 * null.
 */
const char *uc_last_error(void);

/**
 * A ring for sockets of `stack` with room for `capacity` calls that were not reaped, from 1 to 2^30. Memory is
 * taken as it is needed.
 *
 * The handle, or null and `errno`: `EFAULT`, `EBADF` no stack; `EINVAL` the capacity.
 */
struct uc_ring *uc_ring_create(struct uc_stack *stack,
                               uint32_t capacity);

/**
 * Frees a ring. Completions that were not reaped are dropped.
 *
 * 0, or -1: `EFAULT`, `EBADF` no ring; `EBUSY` calls are outstanding: who would tell when their memory is free?
 */
int uc_ring_free(struct uc_ring *ring);

/**
 * `sendmsg(2)` that lends: bytes are queued and not copied, and when the stack no longer refers to them the ring
 * says so, with `user_data`. `SO_ZEROCOPY` and the socket's error queue have no part in it. It waits for room
 * as the socket does, and queues a part if it may not wait; one call has one completion, however long it took.
 * `flags`: `MSG_DONTWAIT`, `MSG_MORE`, `MSG_NOSIGNAL`.
 *
 * The bytes queued, always more than 0, and the call's number in `*ticket` if that is not null. Or -1, and there
 * will be no completion: as `sendmsg(2)` (`EAGAIN`, `EPIPE`, `ECONNRESET`, `ENOTCONN`, …); `EFAULT` null;
 * `EBADF` no ring, or no descriptor; `EINVAL` nothing to send, another flag, or a socket of another stack than
 * the ring's; `EOPNOTSUPP` not a socket of a stack of this process; `ENOBUFS` the ring is full, or the stack
 * reached `RLIMIT_MEMLOCK`; `ENETDOWN` its stack is gone.
 */
ssize_t uc_ring_sendv(struct uc_ring *ring,
                      int fd,
                      const struct iovec *iov,
                      int iovcnt,
                      int flags,
                      void *user_data,
                      uint32_t *ticket);

/**
 * `uc_ring_sendv` of one buffer.
 */
ssize_t uc_ring_send(struct uc_ring *ring,
                     int fd,
                     const void *buf,
                     size_t len,
                     int flags,
                     void *user_data,
                     uint32_t *ticket);

/**
 * Moves up to `max` completions to `out`, oldest first; calls that complete together are in order. Never waits,
 * and makes no system call.
 *
 * How many, or -1: `EFAULT`, `EBADF` no ring; `EFAULT` null `out`.
 */
ssize_t uc_ring_reap(struct uc_ring *ring,
                     struct uc_completion *out,
                     size_t max);

/**
 * Waits until there is something to reap, at most `timeout_ms` milliseconds, or for ever if that is negative.
 *
 * 1; 0 when the time is over; or -1: `EFAULT`, `EBADF` no ring; `EINTR` a signal handler ran.
 */
int uc_ring_wait(struct uc_ring *ring, int timeout_ms);

/**
 * Calls on the ring that have not completed, or -1: `EFAULT`, `EBADF` no ring.
 */
ssize_t uc_ring_outstanding(struct uc_ring *ring);

/**
 * As `uc_ring_send`, but `callback` is called with the completion, exactly once for each call that queued
 * something: it may be before this returns, and at the latest before `uc_stack_free` does.
 *
 * The bytes queued, or -1 and no callback: as `uc_ring_sendv`; `EFAULT` also for a null callback, `EAGAIN` also
 * if the thread for callbacks cannot be started.
 */
ssize_t uc_send_lent(int fd,
                     const void *buf,
                     size_t len,
                     int flags,
                     uc_callback callback,
                     void *user_data);

/**
 * `recv(2)` without the copy: takes up to `max` bytes in up to `*count` pieces. `bufs[0 .. *count]` is filled in
 * stream order, and `*count` set to how many there are; each is to be released. Unreleased buffers hold memory
 * of the stack's, up to a page of 64 KB for each, and the peer may go on sending. `flags`: `MSG_DONTWAIT`.
 *
 * The bytes in all pieces; 0 with no pieces at the end of the stream; or -1: as `recv(2)`; `EFAULT` null;
 * `EINVAL` another flag, or a `max` or `*count` of 0; `EOPNOTSUPP` not a socket of a stack of this process.
 */
ssize_t uc_recv_owned(int fd,
                      struct uc_buffer *bufs,
                      size_t *count,
                      size_t max,
                      int flags);

/**
 * Gives a buffer back: its bytes must not be looked at any more.
 *
 * 0, or -1: `EBADF` not a buffer, or released already; `EFAULT` 0.
 */
int uc_release(uint64_t handle);

/**
 * The name of a reason, for logs: `"device"`, `"loopback"`, …; `"not copied"` for 0, and `"unknown"` for
 * numbers that were never given. Never null, and never to be freed.
 */
const char *uc_strreason(int reason);

/**
 * `socket(2)`. After `uc_configure` stream sockets of `AF_INET` and `AF_INET6` are the stack's, and become the
 * kernel's again when they are bound or connected to loopback or to a network that is bypassed. All others are the
 * kernel's. `ENETDOWN`: the stack could not be started.
 */
int uc_socket(int domain,
              int kind,
              int protocol);

/**
 * `bind(2)`.
 */
int uc_bind(int fd, const struct sockaddr *addr, socklen_t len);

/**
 * `listen(2)`.
 */
int uc_listen(int fd, int backlog);

/**
 * `accept4(2)`. The new socket is on the listener's stack, and inherits `SO_ZEROCOPY`.
 */
int uc_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);

/**
 * `accept(2)`: `uc_accept4` without flags.
 */
int uc_accept(int fd, struct sockaddr *addr, socklen_t *len);

/**
 * `connect(2)`. `AF_UNSPEC` drops the connection and its send queue, which completes what was lent.
 */
int uc_connect(int fd, const struct sockaddr *addr, socklen_t len);

/**
 * `getsockname(2)`.
 */
int uc_getsockname(int fd, struct sockaddr *addr, socklen_t *len);

/**
 * `getpeername(2)`.
 */
int uc_getpeername(int fd, struct sockaddr *addr, socklen_t *len);

/**
 * `shutdown(2)`.
 */
int uc_shutdown(int fd, int how);

/**
 * `close(2)`. What was sent still goes out. Calls that lent with a ring or a callback complete there as ever;
 * notifications of `MSG_ZEROCOPY` are dropped with the error queue. `EBADF` also for descriptors that the
 * library itself lives on.
 */
int uc_close(int fd);

/**
 * `dup(2)`.
 */
int uc_dup(int fd);

/**
 * `dup2(2)`.
 */
int uc_dup2(int old, int target);

/**
 * `dup3(2)`.
 */
int uc_dup3(int old, int target, int flags);

/**
 * `fcntl(2)`. The argument is not optional: 0 where there is none, a pointer cast to `unsigned long` where there is.
 */
int uc_fcntl(int fd,
             int command,
             unsigned long argument);

/**
 * `ioctl(2)`: `FIONREAD`, `SIOCINQ`, `SIOCOUTQ`, `SIOCOUTQNSD` and `FIONBIO` are answered for sockets of a stack,
 * the rest is the kernel's.
 */
int uc_ioctl(int fd,
             unsigned long request,
             void *argument);

/**
 * `getsockopt(2)`.
 */
int uc_getsockopt(int fd, int level, int name, void *value, socklen_t *len);

/**
 * `setsockopt(2)`. What a stack does not have is `ENOPROTOOPT`.
 */
int uc_setsockopt(int fd, int level, int name, const void *value, socklen_t len);

/**
 * `read(2)`.
 */
ssize_t uc_read(int fd, void *buf, size_t len);

/**
 * `readv(2)`.
 */
ssize_t uc_readv(int fd, const struct iovec *iov, int iovcnt);

/**
 * `write(2)`.
 */
ssize_t uc_write(int fd, const void *buf, size_t len);

/**
 * `writev(2)`.
 */
ssize_t uc_writev(int fd, const struct iovec *iov, int iovcnt);

/**
 * `send(2)`. With `MSG_ZEROCOPY` and `SO_ZEROCOPY` it lends as Linux does, and the socket's error queue has the
 * notifications; `ee_pad` carries the `uc_reason`.
 */
ssize_t uc_send(int fd,
                const void *buf,
                size_t len,
                int flags);

/**
 * `sendto(2)`. As on every stream, the address is not looked at.
 */
ssize_t uc_sendto(int fd,
                  const void *buf,
                  size_t len,
                  int flags,
                  const struct sockaddr *addr,
                  socklen_t addr_len);

/**
 * `sendmsg(2)`; `MSG_ZEROCOPY` as `uc_send`.
 */
ssize_t uc_sendmsg(int fd, const struct msghdr *msg, int flags);

/**
 * `sendmmsg(2)`.
 */
int uc_sendmmsg(int fd, struct mmsghdr *msgs, unsigned int count, int flags);

/**
 * `recv(2)`.
 */
ssize_t uc_recv(int fd, void *buf, size_t len, int flags);

/**
 * `recvfrom(2)`. A stream names no sender: `*addr_len` becomes 0.
 */
ssize_t uc_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addr_len);

/**
 * `recvmsg(2)`; with `MSG_ERRQUEUE` the next notification of `MSG_ZEROCOPY`.
 */
ssize_t uc_recvmsg(int fd, struct msghdr *msg, int flags);

/**
 * `recvmmsg(2)`.
 */
int uc_recvmmsg(int fd, struct mmsghdr *msgs, unsigned int count, int flags, struct timespec *timeout);

/**
 * `sendfile(2)`. The file's bytes are copied once, into the stack.
 */
ssize_t uc_sendfile(int out, int file, int64_t *offset, size_t count);

/**
 * `splice(2)` between a pipe and a socket.
 */
ssize_t uc_splice(int from, int64_t *off_in, int to, int64_t *off_out, size_t len, unsigned int flags);

/**
 * Starts a stack on the TAP that `config` names. It is the program's own: unlike that of `uc_configure` it
 * serves no other processes. In a child of `fork` its handle, and all others, are `EBADF`, and calls on its
 * descriptors `ENETDOWN`.
 *
 * The handle, or null and `errno`: `EFAULT` null; `EINVAL`, `E2BIG` not to be understood; `ENODEV`, `EPERM`,
 * `EBUSY`, `EEXIST`, `ENAMETOOLONG` the TAP cannot be had; `ENETUNREACH` a gateway on no network of the stack.
 * `uc_last_error` says it in a sentence.
 */
struct uc_stack *uc_stack_new(const struct uc_config *config);

/**
 * Starts two stacks of this process on the two ends of a link in it, which does what a network card does:
 * lent memory goes over it without a copy of the sender's. The configurations name no TAP, and the same MTU.
 *
 * 0, and the handles in `stacks[0]` and `stacks[1]`; or -1: `EFAULT`, `EINVAL`, `E2BIG`, `ENETUNREACH` as
 * `uc_stack_new`.
 */
int uc_link_pair(const struct uc_config *left, const struct uc_config *right, struct uc_stack **stacks);

/**
 * Stops a stack: resets its connections, waits until no byte is lent any more, which is immediate but for
 * packets that wait for a neighbour's answer, and calls the callbacks of all calls on it. Calls that wait in it
 * end with an error: `ECONNABORTED`, `accept` with `EINVAL` or `ENETDOWN`. Its descriptors stay open, and calls on them are `ENETDOWN`;
 * close them as ever. Rings can still be reaped. To deliver first what was sent: `uc_close` the sockets, then
 * `uc_stack_drain`.
 *
 * 0, or -1: `EFAULT`, `EBADF` no stack; `EDEADLK` from a callback of the same stack; `EBUSY` a device would not
 * let go of lent memory within 5 seconds, and the stack is still there to be freed.
 */
int uc_stack_free(struct uc_stack *stack);

/**
 * Waits until the peers have acknowledged everything that closed sockets of the stack have sent, and nothing
 * is lent any more; at most `timeout_ms` milliseconds, or for ever if that is negative.
 *
 * 0, or -1: `EFAULT`, `EBADF` no stack; `ETIMEDOUT`.
 */
int uc_stack_drain(struct uc_stack *stack, int timeout_ms);

/**
 * `socket(2)` on a given stack: `AF_INET` or `AF_INET6`, `SOCK_STREAM` with `SOCK_NONBLOCK` and
 * `SOCK_CLOEXEC`, protocol 0 or `IPPROTO_TCP`. It stays on the stack whatever it is bound or connected to;
 * 127.0.0.1 is the stack's own.
 *
 * The descriptor, or -1: `EFAULT`, `EBADF` no stack; `EAFNOSUPPORT`, `ESOCKTNOSUPPORT`, `EPROTONOSUPPORT`,
 * `EMFILE`, `ENFILE`.
 */
int uc_socket_on(struct uc_stack *stack, int domain, int kind, int protocol);

/**
 * Reads a stack's counters. `size` is `sizeof *counters`: a caller that knows fewer fields gets fewer.
 *
 * 0, or -1: `EFAULT` null; `EBADF` no stack; `E2BIG` more fields than this library has.
 */
int uc_stats(struct uc_stack *stack, struct uc_counters *counters, size_t size);

/**
 * `poll(2)`.
 */
int uc_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

/**
 * `ppoll(2)`.
 */
int uc_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask);

/**
 * `select(2)`. As on Linux, `*timeout` is set to the time that was left.
 */
int uc_select(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout);

/**
 * `pselect(2)`.
 */
int uc_pselect(int nfds,
               fd_set *readfds,
               fd_set *writefds,
               fd_set *exceptfds,
               const struct timespec *timeout,
               const sigset_t *mask);

/**
 * `epoll_create1(2)`. The set is the kernel's; sockets of a stack are added to it by `uc_epoll_ctl`.
 */
int uc_epoll_create1(int flags);

/**
 * `epoll_ctl(2)`.
 */
int uc_epoll_ctl(int ep, int op, int fd, struct epoll_event *event);

/**
 * `epoll_wait(2)`. Sets with sockets of a stack are to be waited on by this, and not by the kernel's call.
 */
int uc_epoll_wait(int ep, struct epoll_event *events, int max, int timeout_ms);

/**
 * `epoll_pwait(2)`.
 */
int uc_epoll_pwait(int ep, struct epoll_event *events, int max, int timeout_ms, const sigset_t *mask);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNCOPIED_H */
