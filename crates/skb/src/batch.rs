//! Completions of one thread, gathered so that those of one acknowledgment cost one lock and one wake.
//!
//! Gathering ends with the outermost [`completing_together`], and before that whenever a completion does not
//! continue the range gathered so far. The memory is given up at once; only the word of it waits.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::UbufInfo;
use crate::errqueue::{MOST_SPARE, Notification};

/// Completed calls of one socket whose numbers follow each other.
struct Gathered {
    notification: Notification,
    calls: usize,
    pinned: u64,
    /// Their records; never empty.
    records: Vec<Arc<UbufInfo>>,
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static GATHERED: RefCell<Option<Gathered>> = const { RefCell::new(None) };
    /// An empty list, so that gathering allocates nothing.
    static SPARE: Cell<Vec<Arc<UbufInfo>>> = const { Cell::new(Vec::new()) };
}

/// Runs `f`; the calls that complete meanwhile on this thread are reported together, at the latest when it
/// is done (or panics).
pub fn completing_together<R>(f: impl FnOnce() -> R) -> R {
    struct Scope;
    impl Drop for Scope {
        fn drop(&mut self) {
            let outermost = DEPTH.try_with(|d| d.replace(d.get() - 1) == 1).unwrap_or(false);
            if outermost {
                flush();
            }
        }
    }
    DEPTH.with(|d| d.set(d.get() + 1));
    let _scope = Scope;
    f()
}

/// A call is complete.
pub(crate) fn add(record: Arc<UbufInfo>, notification: Notification, pinned: u64) {
    let mut record = Some(record);
    let joined = GATHERED.try_with(|g| {
        let mut g = g.borrow_mut();
        let Some(g) = g.as_mut() else { return false };
        let same =
            g.records.first().zip(record.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a.queue(), b.queue()));
        if !same || !g.notification.extend(notification) {
            return false;
        }
        g.calls += 1;
        g.pinned += pinned;
        if g.records.len() < MOST_SPARE {
            g.records.extend(record.take());
        }
        true
    });
    if joined == Ok(true) {
        return;
    }
    flush();
    let Some(record) = record else { return };
    let mut records = SPARE.try_with(Cell::take).unwrap_or_default();
    records.push(record);
    let one = Gathered { notification, calls: 1, pinned, records };
    if DEPTH.try_with(Cell::get).unwrap_or(0) == 0 {
        report(one);
        return;
    }
    // The cells of a thread that is ending are gone: then nothing is gathered.
    let mut one = Some(one);
    let _ = GATHERED.try_with(|g| *g.borrow_mut() = one.take());
    if let Some(one) = one {
        report(one);
    }
}

/// Reports what was gathered.
pub(crate) fn flush() {
    if let Some(gathered) = GATHERED.try_with(|g| g.borrow_mut().take()).ok().flatten() {
        report(gathered);
    }
}

fn report(mut g: Gathered) {
    let Some(queue) = g.records.first().map(|r| r.queue().clone()) else { return };
    queue.complete(g.notification, g.calls, g.pinned, &mut g.records);
    // What the socket has no use for is freed here, with no lock held.
    g.records.clear();
    let _ = SPARE.try_with(|s| s.set(g.records));
}

#[cfg(test)]
mod tests;
