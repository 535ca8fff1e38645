//! Completions that are reaped: one queue for the lending calls of many sockets, without a system call per
//! completion, and beside the sockets' error queues.
//!
//! Contract of [`send_lent`]: what is lent stays mapped and readable until its completion has been reaped.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::thread::futex;
use stack::skb::{Completion, ErrorQueue, Reason};
use stack::{MSG_ZEROCOPY, Stack};

use crate::calls;
use crate::errno::{Errno, Result};
use crate::table;
use crate::user::{self, SendBuf};
use crate::wait::{Deadline, timespec};

/// Wakes threads that wait for completions.
#[derive(Debug, Default)]
struct Bell {
    rung: AtomicU32,
    waiting: AtomicU32,
}

impl Bell {
    fn ring(&self) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _ = futex::wake(&self.rung, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }

    /// Sleeps unless it has rung since `seen`, until it rings.
    fn wait(&self, seen: u32, limit: Option<Duration>) -> Result<()> {
        // Pairs with `ring`: it sees us waiting, or the kernel sees that `rung` has changed.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let slept = futex::wait(&self.rung, futex::Flags::PRIVATE, seen, limit.map(timespec).as_ref());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        match slept {
            Ok(()) | Err(Errno::AGAIN | Errno::TIMEDOUT) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// A call that has completed: its memory is the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped<T> {
    /// The call's number on its ring.
    pub ticket: u32,
    /// What was given along with the call.
    pub tag: T,
    /// Why bytes were copied; [`Reason::Device`] is no copy of the stack's.
    pub reason: Option<Reason>,
}

struct Calls<T> {
    /// Calls begun, or about to, that were not reaped.
    taken: usize,
    tags: HashMap<u32, T>,
    /// The rest of a range of which a part was reaped.
    rest: Option<Completion>,
}

/// Completions of the calls of one stack's sockets that were told to complete here. It outlives sockets and
/// stack, and what they leave behind.
pub struct CompletionRing<T> {
    stack: u64,
    capacity: usize,
    queue: Arc<ErrorQueue>,
    bell: Arc<Bell>,
    calls: Mutex<Calls<T>>,
}

impl<T> CompletionRing<T> {
    /// An empty ring for sockets of `stack` and up to `capacity` calls that are not reaped.
    pub fn new(stack: &Stack, capacity: usize) -> Self {
        let bell = Arc::new(Bell::default());
        let queue = stack.completion_queue({
            let bell = bell.clone();
            move || bell.ring()
        });
        let calls = Calls { taken: 0, tags: HashMap::new(), rest: None };
        Self { stack: stack.number(), capacity, queue, bell, calls: Mutex::new(calls) }
    }

    /// Room for one more call; `ENOBUFS` when as many calls as there is room for were not reaped.
    fn reserve(&self) -> Result<()> {
        let mut calls = self.calls.lock();
        if calls.taken >= self.capacity {
            return Err(Errno::NOBUFS);
        }
        calls.taken += 1;
        Ok(())
    }

    /// Hands up to `max` completions to `sink`, oldest first, with the ring locked; how many. Never waits.
    pub fn reap(&self, max: usize, mut sink: impl FnMut(Reaped<T>)) -> usize {
        let mut calls = self.calls.lock();
        let mut n = 0;
        while n < max {
            let Some(range) = calls.rest.take().or_else(|| self.queue.pop()) else { break };
            let ticket = range.first;
            if range.first != range.last {
                calls.rest = Some(Completion { first: ticket.wrapping_add(1), ..range });
            }
            let reason = range.copied.or(range.device.then_some(Reason::Device));
            if let Some(tag) = calls.tags.remove(&ticket) {
                sink(Reaped { ticket, tag, reason });
                calls.taken -= 1;
                n += 1;
            }
        }
        n
    }

    /// Whether there is something to reap.
    pub fn is_ready(&self) -> bool {
        self.queue.is_ready() || self.calls.lock().rest.is_some()
    }

    /// Calls begun that were not reaped, complete or not.
    pub fn unreaped(&self) -> usize {
        self.calls.lock().taken
    }

    /// Calls that have not completed.
    pub fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }

    /// Sleeps until there is something to reap, or `enough`, which is asked again after each
    /// [`ring`](Self::ring).
    ///
    /// # Errors
    /// `EAGAIN` when `timeout` is over first, `EINTR` when a signal handler ran.
    pub fn wait(&self, timeout: Option<Duration>, enough: impl Fn() -> bool) -> Result<()> {
        let deadline = Deadline::after(timeout);
        loop {
            let seen = self.bell.rung.load(Ordering::SeqCst);
            if self.is_ready() || enough() {
                return Ok(());
            }
            self.bell.wait(seen, deadline.left()?)?;
        }
    }

    /// Makes threads in [`wait`](Self::wait) look again.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Starts the numbers of calls at `ticket`: for tests of programs against the wrap at 2^32.
    pub fn set_next_ticket(&self, ticket: u32) {
        self.queue.set_next_id(ticket);
    }
}

/// Lends the pieces of `iov`, whether or not `SO_ZEROCOPY` is on: bytes queued, and the number under which
/// `ring` reports that they are the caller's again, with `tag`. As `sendmsg(2)` it waits for room, and queues a
/// part if it may not wait; a call that queued nothing has no completion. `MSG_DONTWAIT`, `MSG_MORE` and
/// `MSG_NOSIGNAL` are the flags. `None` if `fd` is no socket of ours.
///
/// # Errors
/// As `sendmsg(2)`; `EINVAL` also if there is nothing to send, or the ring is of another stack; `ENOBUFS` if
/// the ring is full, or the stack's limit on lent memory is reached; `EOPNOTSUPP` if the stack is another
/// process's.
///
/// # Safety
/// `iov` points at `count` pieces that are readable until the completion is reaped.
pub unsafe fn send_lent<T>(
    fd: RawFd,
    iov: *const libc::iovec,
    count: usize,
    flags: i32,
    ring: &CompletionRing<T>,
    tag: T,
) -> Option<Result<(usize, u32)>> {
    const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_MORE | libc::MSG_NOSIGNAL;
    let socket = table::socket(fd)?;
    let endpoint = socket.endpoint();
    let sent = || {
        if flags & !FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller's promise. Test: crates/capi/tests/c_programs.rs.
        let pieces = unsafe { user::pieces(iov, count) }?;
        if pieces.is_empty() {
            return Err(Errno::INVAL);
        }
        match endpoint.tcp_socket() {
            Some(tcp) if tcp.stack_number() == ring.stack => {}
            Some(_) => return Err(Errno::INVAL),
            None => return Err(socket.no_stack()),
        }
        ring.reserve()?;
        // SAFETY: as above.
        let mut buf = unsafe { SendBuf::new(pieces, flags | MSG_ZEROCOPY as i32) };
        buf.complete_on(ring.queue.clone());
        let result = calls::send_on(&socket, &mut buf, flags);
        // The call cannot complete before `buf` is dropped.
        let mut calls = ring.calls.lock();
        match buf.ticket() {
            Some(ticket) => {
                calls.tags.insert(ticket, tag);
                result.map(|n| (n, ticket))
            }
            None => {
                calls.taken -= 1;
                result.and(Err(Errno::INVAL))
            }
        }
    };
    Some(sent())
}
