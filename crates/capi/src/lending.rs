//! Lending, with a ring of completions or a callback.
//!
//! Contract. What is lent stays mapped and readable until its completion; it may be written, and then the peer
//! gets one or the other.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use posix::embed::{self, CompletionRing};
use posix::errno::{Errno, Result};
use stack::skb::Reason;

use crate::callbacks::{self, Call};
use crate::guard::{guard, status};
use crate::handles::Registry;
use crate::reason::number;
use crate::sockets::not_ours;
use crate::stacks::{self, uc_stack};

/// One lending call is complete: its memory is the caller's again.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct uc_completion {
    /// As it was given with the call.
    pub user_data: *mut c_void,
    /// The call's number: on its ring the n-th call that queued something has n - 1. It wraps at 2^32. With a
    /// callback calls are counted by stack.
    pub ticket: u32,
    /// What was copied and why: a `uc_reason`; see `uc_strreason`.
    pub reason: u8,
    /// 1 if the stack copied bytes of the call. 0 for reasons `UC_REASON_NONE` and `UC_REASON_DEVICE`.
    pub copied: u8,
    /// 0.
    pub reserved: u16,
}

impl uc_completion {
    pub(crate) fn new(ticket: u32, reason: Option<Reason>, user_data: usize) -> Self {
        Self {
            user_data: user_data as *mut c_void,
            ticket,
            reason: number(reason),
            copied: u8::from(reason.is_some_and(Reason::is_copy)),
            reserved: 0,
        }
    }
}

/// Is told that a call's memory is free. It runs in a thread of the library's, one call at a time for each stack,
/// with no lock held: it may call any function but `uc_stack_free` of the same stack, and what it waits for delays
/// other callbacks. The completion is valid during the call.
pub type uc_callback = Option<unsafe extern "C" fn(completion: *const uc_completion)>;

/// Completions of lending calls, of any number of sockets of one stack, to be reaped without system calls. A
/// handle: it is never followed, and using it after `uc_ring_free` is `EBADF`. Any number of threads may use it.
pub struct uc_ring(());

static RINGS: Registry<CompletionRing<usize>> = Registry::new();

/// Calls that a ring may hold: what 32 bits can number, with room to tell old from new.
const LARGEST: u32 = 1 << 30;

fn find(ring: *mut uc_ring) -> Result<Arc<CompletionRing<usize>>> {
    RINGS.get(ring as usize)
}

/// A ring for sockets of `stack` with room for `capacity` calls that were not reaped, from 1 to 2^30. Memory is
/// taken as it is needed.
///
/// The handle, or null and `errno`: `EFAULT`, `EBADF` no stack; `EINVAL` the capacity.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_ring_create(stack: *mut uc_stack, capacity: u32) -> *mut uc_ring {
    guard(std::ptr::null_mut(), || {
        let stack = stacks::stack(stack)?;
        if !(1..=LARGEST).contains(&capacity) {
            return Err(Errno::INVAL);
        }
        Ok(RINGS.insert(Arc::new(CompletionRing::new(&stack, capacity as usize))) as *mut uc_ring)
    })
}

/// Frees a ring. Completions that were not reaped are dropped.
///
/// 0, or -1: `EFAULT`, `EBADF` no ring; `EBUSY` calls are outstanding: who would tell when their memory is free?
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_ring_free(ring: *mut uc_ring) -> c_int {
    status(|| {
        let gone = RINGS.remove(ring as usize)?;
        if gone.outstanding() > 0 {
            RINGS.restore(ring as usize, gone);
            return Err(Errno::BUSY);
        }
        Ok(())
    })
}

/// `sendmsg(2)` that lends: bytes are queued and not copied, and when the stack no longer refers to them the ring
/// says so, with `user_data`. `SO_ZEROCOPY` and the socket's error queue have no part in it. It waits for room
/// as the socket does, and queues a part if it may not wait; one call has one completion, however long it took.
/// `flags`: `MSG_DONTWAIT`, `MSG_MORE`, `MSG_NOSIGNAL`.
///
/// The bytes queued, always more than 0, and the call's number in `*ticket` if that is not null. Or -1, and there
/// will be no completion: as `sendmsg(2)` (`EAGAIN`, `EPIPE`, `ECONNRESET`, `ENOTCONN`, …); `EFAULT` null;
/// `EBADF` no ring, or no descriptor; `EINVAL` nothing to send, another flag, or a socket of another stack than
/// the ring's; `EOPNOTSUPP` not a socket of a stack of this process; `ENOBUFS` the ring is full, or the stack
/// reached `RLIMIT_MEMLOCK`; `ENETDOWN` its stack is gone.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_ring_sendv(
    ring: *mut uc_ring,
    fd: c_int,
    iov: *const libc::iovec,
    iovcnt: c_int,
    flags: c_int,
    user_data: *mut c_void,
    ticket: *mut u32,
) -> libc::ssize_t {
    guard(-1, || {
        let ring = find(ring)?;
        let count = usize::try_from(iovcnt).map_err(|_| Errno::INVAL)?;
        // SAFETY: the caller's promise, here and below. Test: crates/capi/examples/link_pair.c.
        let sent = unsafe { embed::send_lent(fd, iov, count, flags, &ring, user_data as usize) };
        let (n, id) = sent.unwrap_or_else(|| Err(not_ours(fd)))?;
        if !ticket.is_null() {
            // SAFETY: as above.
            unsafe { ticket.write_unaligned(id) };
        }
        Ok(n as libc::ssize_t)
    })
}

/// `uc_ring_sendv` of one buffer.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_ring_send(
    ring: *mut uc_ring,
    fd: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    user_data: *mut c_void,
    ticket: *mut u32,
) -> libc::ssize_t {
    let iov = libc::iovec { iov_base: buf.cast_mut(), iov_len: len };
    // SAFETY: one piece, the caller's; the array itself is read during the call. Test: as above.
    unsafe { uc_ring_sendv(ring, fd, &raw const iov, 1, flags, user_data, ticket) }
}

/// Moves up to `max` completions to `out`, oldest first; calls that complete together are in order. Never waits,
/// and makes no system call.
///
/// How many, or -1: `EFAULT`, `EBADF` no ring; `EFAULT` null `out`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_ring_reap(
    ring: *mut uc_ring,
    out: *mut uc_completion,
    max: usize,
) -> libc::ssize_t {
    guard(-1, || {
        let ring = find(ring)?;
        if out.is_null() && max > 0 {
            return Err(Errno::FAULT);
        }
        let mut next = out;
        let n = ring.reap(max, |done| {
            let completion = uc_completion::new(done.ticket, done.reason, done.tag);
            // SAFETY: there is room for `max`, and no more than that are reaped.
            // Test: crates/capi/examples/link_pair.c.
            unsafe {
                next.write_unaligned(completion);
                next = next.add(1);
            }
        });
        Ok(n as libc::ssize_t)
    })
}

/// Waits until there is something to reap, at most `timeout_ms` milliseconds, or for ever if that is negative.
///
/// 1; 0 when the time is over; or -1: `EFAULT`, `EBADF` no ring; `EINTR` a signal handler ran.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_ring_wait(ring: *mut uc_ring, timeout_ms: c_int) -> c_int {
    guard(-1, || {
        let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        match find(ring)?.wait(limit, || false) {
            Ok(()) => Ok(1),
            Err(Errno::AGAIN) => Ok(0),
            Err(e) => Err(e),
        }
    })
}

/// Calls on the ring that have not completed, or -1: `EFAULT`, `EBADF` no ring.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_ring_outstanding(ring: *mut uc_ring) -> libc::ssize_t {
    guard(-1, || Ok(find(ring)?.outstanding() as libc::ssize_t))
}

/// As `uc_ring_send`, but `callback` is called with the completion, exactly once for each call that queued
/// something: it may be before this returns, and at the latest before `uc_stack_free` does.
///
/// The bytes queued, or -1 and no callback: as `uc_ring_sendv`; `EFAULT` also for a null callback, `EAGAIN` also
/// if the thread for callbacks cannot be started.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_send_lent(
    fd: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    callback: uc_callback,
    user_data: *mut c_void,
) -> libc::ssize_t {
    guard(-1, || {
        let function = callback.ok_or(Errno::FAULT)?;
        let iov = libc::iovec { iov_base: buf.cast_mut(), iov_len: len };
        let number = match embed::stack_number(fd) {
            Some(number) => number,
            None if posix::is_ours(fd) => return Err(embed::why_no_stack(fd)),
            None => return Err(not_ours(fd)),
        };
        let call = Call { function, user_data: user_data as usize };
        let sent = callbacks::with_ring(
            number,
            || stacks::by_number(number),
            // SAFETY: the caller's promise. Test: crates/capi/examples/callbacks.c.
            |ring| unsafe { embed::send_lent(fd, &raw const iov, 1, flags, ring, call) },
        )?;
        let (n, _) = sent.unwrap_or_else(|| Err(not_ours(fd)))?;
        Ok(n as libc::ssize_t)
    })
}
