//! The socket's error queue: completions in, ranges out.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{Change, MemLock, Reason, UbufInfo};

/// Bytes of option memory one outstanding call takes until its notification has been read or merged.
pub const OPTMEM_PER_CALL: usize = size_of::<UbufInfo>() + 2 * size_of::<usize>() + size_of::<Notification>();

/// Records of completed calls that a socket with calls outstanding keeps for its next ones.
pub(crate) const MOST_SPARE: usize = 1024;

/// A list of so many records is kept though it is empty: most connections lend now and then, and a few at once.
const FEW: usize = 16;

/// Calls `first..=last` (which may wrap past 2^32) are complete: their memory is the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// First call of the range (`ee_info`).
    pub first: u32,
    /// Last call of the range (`ee_data`).
    pub last: u32,
    /// Why the stack copied these calls' bytes; `None` if it did not.
    pub copied: Option<Reason>,
    /// The device read the memory at its boundary ([`Reason::Device`]); the stack copied nothing.
    pub device: bool,
}

impl Completion {
    /// Why the calls' bytes were read by the stack or by a device; `None` if by nobody.
    pub fn reason(&self) -> Option<Reason> {
        self.copied.or(self.device.then_some(Reason::Device))
    }

    /// How many calls the range names. 2^32 of them count as `u64`.
    pub fn calls(&self) -> u64 {
        u64::from(self.last.wrapping_sub(self.first)) + 1
    }

    /// The calls' numbers, in order, across the wrap.
    pub fn ids(&self) -> impl Iterator<Item = u32> + use<> {
        let first = self.first;
        (0..self.calls()).map(move |n| first.wrapping_add(n as u32))
    }

    /// Whether call `id` is in the range.
    pub fn contains(&self, id: u32) -> bool {
        id.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }

    /// `ee_code`: 1 (`SO_EE_CODE_ZEROCOPY_COPIED`) if the stack copied.
    pub fn ee_code(&self) -> u8 {
        u8::from(self.copied.is_some())
    }

    /// `ee_pad`: the reason's number, 0 if nothing was copied by anyone.
    pub fn ee_pad(&self) -> u8 {
        match self.copied {
            Some(r) => r as u8,
            None if self.device => Reason::Device as u8,
            None => 0,
        }
    }
}

/// A queued range. Calls are told apart by what they say about copying and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    first: u32,
    last: u32,
    reason: u8,
}

impl Notification {
    pub(crate) fn of_call(id: u32, reason: Option<Reason>) -> Self {
        Self { first: id, last: id, reason: reason.map_or(0, |r| r as u8) }
    }

    /// Extends this range by `next` if it directly follows and says the same.
    pub(crate) fn extend(&mut self, next: Notification) -> bool {
        let follows = self.last.wrapping_add(1) == next.first;
        // A range of all 2^32 numbers would look like an empty one.
        let fits = next.last != self.first.wrapping_sub(1);
        if !(follows && fits && self.reason == next.reason) {
            return false;
        }
        self.last = next.last;
        true
    }

    fn completion(self) -> Completion {
        let reason = Reason::from_number(self.reason);
        let copied = reason.filter(|r| r.is_copy());
        Completion { first: self.first, last: self.last, copied, device: reason == Some(Reason::Device) }
    }
}

/// Who reported an error (`ee_origin`, with its numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ErrorOrigin {
    /// This stack (`SO_EE_ORIGIN_LOCAL`).
    Local = 1,
    /// An ICMP message (`SO_EE_ORIGIN_ICMP`).
    Icmp = 2,
    /// An ICMPv6 message (`SO_EE_ORIGIN_ICMP6`).
    Icmp6 = 3,
}

/// An error about something that was sent (`struct sock_extended_err` and what comes with it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedError {
    /// `ee_errno`, Linux's number.
    pub errno: i32,
    /// `ee_origin`.
    pub origin: ErrorOrigin,
    /// `ee_type`: that of the ICMP message, else 0.
    pub kind: u8,
    /// `ee_code`: that of the ICMP message, else 0.
    pub code: u8,
    /// `ee_info`: the MTU in bytes of an error about size, else 0.
    pub info: u32,
    /// Who reported it (`SO_EE_OFFENDER`); `None` for a local error.
    pub offender: Option<IpAddr>,
    /// Where the packet in question was going (`msg_name`).
    pub destination: SocketAddr,
    /// What of its payload is known: the packet was quoted, or never left.
    pub payload: Vec<u8>,
}

/// What an error queue holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queued {
    /// Calls are complete.
    Completion(Completion),
    /// Something sent met an error.
    Error(Box<ExtendedError>),
}

/// Errors that wait to be read. More are dropped: they come from the network, and must not take the room
/// of completions.
const MAX_ERRORS: u16 = 64;

#[derive(Debug)]
enum Entry {
    Calls(Notification),
    Error(Box<ExtendedError>),
}

impl Entry {
    /// Extends the range of a notification at the tail.
    fn extend(&mut self, next: Notification) -> bool {
        match self {
            Entry::Calls(tail) => tail.extend(next),
            Entry::Error(_) => false,
        }
    }
}

/// Who is told that the queue is no longer empty (`POLLERR`). Called without any lock of this crate held,
/// from whichever thread dropped the last reference.
pub trait Notify: Send + Sync {
    /// A notification was queued.
    fn error_queued(&self);
    /// The checking mode found lent bytes changed before their completion.
    fn lent_bytes_changed(&self, _change: Change) {}
    /// Calls that had lent so many bytes in all are complete; each is told of once, before `error_queued`.
    fn calls_completed(&self, _done: Completion, _bytes: u64) {}
}

/// A notify that does nothing, for queues that are only read by polling.
impl Notify for () {
    fn error_queued(&self) {}
}

/// Why a call could not be begun. Both are `ENOBUFS`: nothing was queued and no number taken. Reading the
/// error queue, or waiting for completions, makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LendError {
    /// The bytes would exceed `RLIMIT_MEMLOCK` over all sockets of the stack.
    MemLock,
    /// The socket's option memory (`optmem_max`) is taken by notifications not yet read.
    OptMem,
}

impl core::fmt::Display for LendError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            LendError::MemLock => "lent bytes would exceed the memlock limit; wait for completions",
            LendError::OptMem => "too many unread completions for optmem_max; read the error queue",
        })
    }
}

impl std::error::Error for LendError {}

/// Records of completed calls. They refer to their queue.
#[derive(Debug, Default)]
struct Spare(Vec<Arc<UbufInfo>>);

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Entry>,
    /// Of which errors.
    errors: u16,
    /// Calls begun whose notification is neither read nor merged: each holds option memory.
    charged: u32,
    /// Calls begun and not complete.
    outstanding: u32,
    /// Bytes charged to `memlock` that belong to no call: what completed calls left for the next ones, so
    /// that a busy socket does not touch the stack's counter for each.
    credit: u64,
    next_id: u32,
    /// Records for the next calls, as long as any is outstanding. Made when several calls are outstanding: a
    /// socket that lends one by one needs none.
    spare: Option<Box<Spare>>,
    /// The socket is closed: nobody can read any more.
    dead: bool,
}

impl Inner {
    /// Keeps records for the next calls; gives all of them back when nothing is outstanding, since a socket
    /// that sends no more should hold nothing.
    fn keep_or_return(&mut self, records: &mut Vec<Arc<UbufInfo>>) {
        let Some(Spare(spare)) = self.spare.as_deref_mut() else { return };
        if self.outstanding == 0 {
            records.append(spare);
            if spare.capacity() > FEW {
                *spare = Vec::new();
            }
            return;
        }
        let room = MOST_SPARE.saturating_sub(spare.len());
        let from = records.len().saturating_sub(room);
        spare.extend(records.drain(from..));
    }
}

/// Completions of one socket, in order of arrival, directly following ranges merged.
pub struct ErrorQueue {
    inner: Mutex<Inner>,
    /// Length of the queue, readable without the lock: the `POLLERR` test.
    pending: AtomicUsize,
    optmem_max: usize,
    memlock: Arc<MemLock>,
    notify: Box<dyn Notify>,
}

impl core::fmt::Debug for ErrorQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ErrorQueue").field("inner", &*self.inner.lock()).finish_non_exhaustive()
    }
}

impl ErrorQueue {
    /// An empty queue that may hold `optmem_max` bytes of records and whose calls charge `memlock`.
    pub fn new(optmem_max: usize, memlock: Arc<MemLock>, notify: Box<dyn Notify>) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), pending: AtomicUsize::new(0), optmem_max, memlock, notify })
    }

    /// Begins a lending call of `bytes` bytes, takes its number and reserves everything its completion
    /// will need. Call it when bytes are certain to be queued: there is no taking back a number.
    ///
    /// `keep` is the buffer when it is lent by value; a borrowed buffer is kept by its caller.
    ///
    /// On error `keep` stays where it is.
    pub fn begin(self: &Arc<Self>, bytes: u64, keep: &mut Option<Bytes>) -> Result<Arc<UbufInfo>, LendError> {
        let mut inner = self.inner.lock();
        if (inner.charged as usize + 1) * OPTMEM_PER_CALL > self.optmem_max {
            return Err(LendError::OptMem);
        }
        match inner.credit.checked_sub(bytes) {
            Some(left) => inner.credit = left,
            None if self.memlock.charge(bytes - inner.credit) => inner.credit = 0,
            None => return Err(LendError::MemLock),
        }
        inner.charged += 1;
        inner.outstanding += 1;
        let room = inner.charged as usize + usize::from(inner.errors) - inner.queue.len();
        inner.queue.reserve(room);
        let id = inner.next_id;
        inner.next_id = id.wrapping_add(1);
        if inner.outstanding > 1 && inner.spare.is_none() {
            inner.spare = Some(Box::default());
        }
        let spare = inner.spare.as_mut().and_then(|spare| spare.0.pop());
        drop(inner);
        if let Some(mut record) = spare
            && let Some(call) = Arc::get_mut(&mut record)
        {
            call.begin_again(id, bytes, keep.take());
            return Ok(record);
        }
        Ok(Arc::new(UbufInfo::new(id, bytes, self.clone(), keep.take())))
    }

    /// Whether a notification waits to be read (`POLLERR`).
    pub fn is_ready(&self) -> bool {
        self.pending.load(Ordering::Acquire) != 0
    }

    /// Calls begun and not yet complete.
    pub fn outstanding(&self) -> usize {
        self.inner.lock().outstanding as usize
    }

    /// Takes the oldest range; `None` (`EAGAIN`) when there is none. Errors stay where they are.
    pub fn pop(&self) -> Option<Completion> {
        match self.take(|entry| matches!(entry, Entry::Calls(_)))? {
            Queued::Completion(c) => Some(c),
            Queued::Error(_) => None,
        }
    }

    /// Takes the oldest entry of either kind.
    pub fn pop_any(&self) -> Option<Queued> {
        self.take(|_| true)
    }

    fn take(&self, wanted: impl Fn(&Entry) -> bool) -> Option<Queued> {
        if !self.is_ready() {
            return None;
        }
        let mut inner = self.inner.lock();
        let at = inner.queue.iter().position(wanted)?;
        let entry = inner.queue.remove(at)?;
        self.pending.store(inner.queue.len(), Ordering::Release);
        Some(match entry {
            Entry::Calls(n) => {
                inner.charged -= 1;
                Queued::Completion(n.completion())
            }
            Entry::Error(e) => {
                inner.errors -= 1;
                Queued::Error(e)
            }
        })
    }

    /// Queues an error; false if too many wait already, or nobody can read any more.
    pub fn push_error(&self, error: ExtendedError) -> bool {
        {
            let mut inner = self.inner.lock();
            if inner.dead || inner.errors >= MAX_ERRORS {
                return false;
            }
            inner.errors += 1;
            inner.queue.push_back(Entry::Error(Box::new(error)));
            // The calls that are outstanding keep their room.
            let room = inner.charged as usize + usize::from(inner.errors) - inner.queue.len();
            inner.queue.reserve(room);
            self.pending.store(inner.queue.len(), Ordering::Release);
        }
        self.notify.error_queued();
        true
    }

    /// Starts the counter at `id`, for tests of the wrap at 2^32 and for restored sockets.
    pub fn set_next_id(&self, id: u32) {
        self.inner.lock().next_id = id;
    }

    /// The number the next call will take.
    pub fn next_id(&self) -> u32 {
        self.inner.lock().next_id
    }

    /// The socket is closed: what is queued goes, and what completes later is dropped.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        inner.dead = true;
        inner.queue = VecDeque::new();
        self.pending.store(0, Ordering::Release);
    }

    /// `calls` calls are complete, all those of `n`. Of their records, those that can be used again are taken
    /// out of `records`; the rest is for the caller to drop.
    pub(crate) fn complete(
        &self,
        n: Notification,
        calls: usize,
        pinned: u64,
        records: &mut Vec<Arc<UbufInfo>>,
    ) {
        self.notify.calls_completed(n.completion(), pinned);
        {
            let mut inner = self.inner.lock();
            // No more calls complete than were begun, which fitted.
            let counted = calls as u32;
            inner.outstanding -= counted;
            inner.credit += pinned;
            if inner.outstanding == 0 || inner.credit > self.memlock.most_credit() {
                self.memlock.release(std::mem::take(&mut inner.credit));
            }
            inner.keep_or_return(records);
            if inner.dead {
                return;
            }
            let Inner { queue, charged, .. } = &mut *inner;
            if queue.back_mut().is_some_and(|tail| tail.extend(n)) {
                *charged -= counted;
                // Whoever saw the tail has been told already, but may have read up to it since: the
                // wake below is once per new notification, and a merge is none.
                return;
            }
            *charged -= counted - 1;
            debug_assert!(queue.len() < queue.capacity(), "room was reserved when the call began");
            queue.push_back(Entry::Calls(n));
            self.pending.store(queue.len(), Ordering::Release);
        }
        self.notify.error_queued();
    }

    pub(crate) fn report_change(&self, change: Change) {
        self.notify.lent_bytes_changed(change);
    }
}

#[cfg(test)]
mod tests;
