//! One lending send call: what its fragments share, and what happens when the last of them is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;

use crate::errqueue::{ErrorQueue, Notification};
use crate::evict::{self, Loan};
use crate::{Frag, Reason, Span, batch};

/// The record of one lending call. Fragments own it; the end of the last of them is the call's completion.
///
/// A record whose call is complete is not freed but given back to its socket, for the next
/// call: else each would be allocated by the thread that sends and freed by the one that reads packets, which
/// costs both a cache line more than the rest of the call together.
#[derive(Debug)]
pub struct UbufInfo {
    id: u32,
    /// The call is not complete. A record that waits for its next call has none.
    live: bool,
    /// Number of the first reason that copied, or of [`Reason::Device`], or 0.
    reason: AtomicU8,
    /// Bytes charged to the memlock bound.
    pinned: u64,
    queue: Arc<ErrorQueue>,
    /// The buffer itself when it was lent by value.
    keep: Option<Bytes>,
    fingerprint: Option<Box<Fingerprint>>,
    /// The memory, when it was lent by address and somebody watches over it.
    loan: Option<Arc<Loan>>,
}

impl UbufInfo {
    pub(crate) fn new(id: u32, pinned: u64, queue: Arc<ErrorQueue>, keep: Option<Bytes>) -> Self {
        let reason = AtomicU8::new(0);
        Self { id, live: true, reason, pinned, queue, keep, fingerprint: None, loan: None }
    }

    /// Begins another call with the record of one that is complete.
    pub(crate) fn begin_again(&mut self, id: u32, pinned: u64, keep: Option<Bytes>) {
        (self.id, self.live, self.pinned, self.keep) = (id, true, pinned, keep);
        *self.reason.get_mut() = 0;
    }

    pub(crate) fn queue(&self) -> &Arc<ErrorQueue> {
        &self.queue
    }

    /// The call's number on its socket.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The call's memory is `spans`, lent by address. Say so before the first fragment is made: afterwards it
    /// does nothing.
    pub fn borrowing(mut self: Arc<Self>, spans: &[Span]) -> Arc<Self> {
        if let Some(call) = Arc::get_mut(&mut self) {
            call.loan = Loan::new(spans);
        }
        self
    }

    /// Where bytes of this call's memory are now.
    pub(crate) fn current(&self, span: Span) -> Span {
        self.loan.as_ref().map_or(span, |loan| loan.current(span))
    }

    /// What has been noted so far.
    pub fn reason(&self) -> Option<Reason> {
        let noted = Reason::from_number(self.reason.load(Ordering::Relaxed));
        let moved = self.loan.as_ref().is_some_and(|loan| loan.is_moved());
        match noted {
            None | Some(Reason::Device) if moved => Some(Reason::Unmapped),
            noted => noted,
        }
    }

    /// Notes why bytes of this call were copied. The first cause of a copy stays; [`Reason::Device`] gives
    /// way to any of them.
    pub fn mark(&self, reason: Reason) {
        // One store per packet would bounce the line between the sender and the device: look first.
        let _ = self.reason.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            let replaces = now == 0 || (now == Reason::Device as u8 && reason.is_copy());
            replaces.then_some(reason as u8)
        });
    }

    /// A fragment over `span`, which is part of this call's memory.
    pub fn frag(self: &Arc<Self>, span: Span) -> Frag {
        Frag::over_lent(span, self.clone())
    }

    /// Remembers what `spans` hold, to be compared at completion (the checking mode). Call it before the
    /// first fragment is made: afterwards it does nothing.
    pub fn remember(self: &mut Arc<Self>, spans: &[Span]) {
        if let Some(call) = Arc::get_mut(self) {
            call.fingerprint = Some(Box::new(Fingerprint::take(spans)));
        }
    }

    /// A reference goes. The last one completes the call and gives its record back to the socket. If two go at
    /// the same moment neither sees that it is the last; then the record is dropped, which completes as well.
    pub(crate) fn give_back(mut this: Arc<Self>) {
        // A look before the swaps that `get_mut` costs.
        if Arc::strong_count(&this) == 1
            && let Some(call) = Arc::get_mut(&mut this)
            && let Some((notification, pinned)) = call.end()
        {
            batch::add(this, notification, pinned);
        }
    }

    /// The memory is the caller's again; what is to be said of it, once.
    fn end(&mut self) -> Option<(Notification, u64)> {
        if !std::mem::take(&mut self.live) {
            return None;
        }
        if let Some(fingerprint) = self.fingerprint.take() {
            for (offset, len) in fingerprint.changes(|span| self.current(span)) {
                self.queue.report_change(Change { id: self.id, offset, len });
            }
        }
        let notification = Notification::of_call(self.id, self.reason());
        if let Some(loan) = self.loan.take() {
            Loan::end(&loan);
        }
        // The buffer goes first: memory that is reported free is free.
        drop(self.keep.take());
        Some((notification, self.pinned))
    }
}

impl Drop for UbufInfo {
    fn drop(&mut self) {
        if let Some((notification, pinned)) = self.end() {
            // What this thread has gathered came first.
            batch::flush();
            self.queue.complete(notification, 1, pinned, &mut Vec::new());
        }
    }
}

/// Lent bytes that were changed before their completion, as found by the checking mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The call's number on its socket.
    pub id: u32,
    /// Where the change begins, in bytes from the start of the call's data, to the granule of 64 bytes.
    pub offset: usize,
    /// How many bytes differ, in whole granules.
    pub len: usize,
}

/// A hash per granule of lent memory.
#[derive(Debug)]
struct Fingerprint {
    spans: Vec<Span>,
    hashes: Vec<u64>,
}

const GRANULE: usize = 64;

impl Fingerprint {
    fn take(spans: &[Span]) -> Self {
        let mut hashes = Vec::new();
        Self::each(spans, |span| span, |_, _, h| hashes.push(h));
        Self { spans: spans.to_vec(), hashes }
    }

    /// The changed ranges, neighbours joined.
    fn changes(&self, current: impl Fn(Span) -> Span) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        let mut old = self.hashes.iter();
        Self::each(&self.spans, current, |offset, len, hash| {
            if old.next() == Some(&hash) {
                return;
            }
            match found.last_mut() {
                Some((at, n)) if *at + *n == offset => *n += len,
                _ => found.push((offset, len)),
            }
        });
        found
    }

    fn each(spans: &[Span], current: impl Fn(Span) -> Span, mut visit: impl FnMut(usize, usize, u64)) {
        let mut base = 0;
        let mut buf = [0u8; GRANULE];
        let _look = evict::touching();
        for span in spans.iter().map(|span| current(*span)) {
            for off in (0..span.len()).step_by(GRANULE) {
                let n = GRANULE.min(span.len() - off);
                // Read through the foreign file: the memory may be changing right now.
                span.copy_to(&span, off, &mut buf[..n]);
                visit(base + off, n, hash(&buf[..n]));
            }
            base += span.len();
        }
    }
}

/// FNV-1a, 64 bits: this looks for accidents, not for forgers.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}
