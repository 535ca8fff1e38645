//! Lent memory whose owner unmaps it: a private copy takes its place first.
//!
//! A kernel pins lent pages; a process cannot. So whoever can see unmapping coming (a preload library in front
//! of `munmap` and `free`) [switches this on](enable) and calls [`evict`] before the memory goes. From then on
//! every look at the lent bytes, by way of [`Frag`](crate::Frag), goes to the copy. Looks take a shared lock
//! while they last ([`touching`]); eviction waits for them. Off, which is the default, it costs one load.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::Span;

static ENABLED: AtomicBool = AtomicBool::new(false);
/// Loans alive: nothing needs to be looked up while there are none.
static ALIVE: AtomicUsize = AtomicUsize::new(0);
static LOANS: Mutex<Option<HashMap<usize, Arc<Loan>>>> = Mutex::new(None);
static TOUCHING: RwLock<()> = RwLock::new(());

thread_local! {
    /// This thread is within this file: memory it frees is not the program's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// From now on, memory that is lent by address is remembered until its call completes.
pub fn enable() {
    ENABLED.store(true, Ordering::Relaxed);
}

/// Whether any memory is lent that [`evict`] would find. Cheap.
#[inline]
pub fn is_any_lent() -> bool {
    ALIVE.load(Ordering::Acquire) != 0
}

/// The memory `[start, start + len)` is about to go. What is lent there gets a private copy, and its calls say
/// so ([`Reason::Unmapped`](crate::Reason::Unmapped)). Returns the bytes copied.
pub fn evict(start: usize, len: usize) -> usize {
    if !is_any_lent() || len == 0 {
        return 0;
    }
    inside(|| {
        let end = start.saturating_add(len);
        let hit: Vec<Arc<Loan>> = match &*LOANS.lock() {
            Some(loans) => loans.values().filter(|loan| loan.overlaps(start, end)).cloned().collect(),
            None => Vec::new(),
        };
        if hit.is_empty() {
            return 0;
        }
        let _nobody_looks = TOUCHING.write();
        hit.iter().map(|loan| loan.move_away(start, end)).sum()
    })
    .unwrap_or(0)
}

/// Runs `f` unless this thread is inside already.
fn inside<R>(f: impl FnOnce() -> R) -> Option<R> {
    let entered = INSIDE.try_with(|i| !i.replace(true)).unwrap_or(false);
    if !entered {
        return None;
    }
    let r = f();
    let _ = INSIDE.try_with(|i| i.set(false));
    Some(r)
}

/// Held while lent bytes are looked at: they stay mapped meanwhile.
#[derive(Debug)]
pub struct Touching(
    #[expect(dead_code, reason = "its drop ends the look")] Option<RwLockReadGuard<'static, ()>>,
);

/// Begins a look at lent bytes, by the addresses that fragments give from now on.
#[inline]
pub fn touching() -> Touching {
    // A writer that waits must not stop a thread that looks already.
    Touching(ENABLED.load(Ordering::Relaxed).then(|| TOUCHING.read_recursive()))
}

/// The memory of one lending call, by address.
#[derive(Debug)]
pub(crate) struct Loan {
    parts: Box<[Part]>,
    moved: AtomicBool,
}

/// Memory in one piece: iovec entries that touch are one.
#[derive(Debug)]
struct Part {
    span: Span,
    copy: OnceLock<Box<[u8]>>,
}

impl Part {
    fn start(&self) -> usize {
        self.span.as_ptr() as usize
    }

    fn end(&self) -> usize {
        self.start() + self.span.len()
    }
}

impl Loan {
    /// Remembers the memory of a call; `None` while nobody evicts.
    pub(crate) fn new(spans: &[Span]) -> Option<Arc<Self>> {
        if !ENABLED.load(Ordering::Relaxed) {
            return None;
        }
        inside(|| {
            let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
            for span in spans {
                match merged.last_mut() {
                    Some(last) if last.touches(*span) => *last = last.joined(*span),
                    _ => merged.push(*span),
                }
            }
            let parts = merged.into_iter().map(|span| Part { span, copy: OnceLock::new() }).collect();
            let loan = Arc::new(Self { parts, moved: AtomicBool::new(false) });
            LOANS.lock().get_or_insert_default().insert(Arc::as_ptr(&loan) as usize, loan.clone());
            ALIVE.fetch_add(1, Ordering::AcqRel);
            loan
        })
    }

    /// The call is complete.
    pub(crate) fn end(loan: &Arc<Self>) {
        inside(|| {
            let key = Arc::as_ptr(loan) as usize;
            let ended = LOANS.lock().as_mut().and_then(|loans| loans.remove(&key));
            ALIVE.fetch_sub(1, Ordering::AcqRel);
            drop(ended);
        });
    }

    /// Whether any of it had to be copied.
    pub(crate) fn is_moved(&self) -> bool {
        self.moved.load(Ordering::Acquire)
    }

    fn overlaps(&self, start: usize, end: usize) -> bool {
        self.parts.iter().any(|p| p.start() < end && start < p.end())
    }

    fn move_away(&self, start: usize, end: usize) -> usize {
        let mut copied = 0;
        for part in self.parts.iter().filter(|p| p.start() < end && start < p.end()) {
            part.copy.get_or_init(|| {
                let mut bytes = vec![0; part.span.len()];
                part.span.copy_to(self, 0, &mut bytes);
                copied += bytes.len();
                bytes.into()
            });
        }
        self.moved.store(true, Ordering::Release);
        copied
    }

    /// Where the bytes of `span`, a part of this call's memory, are now.
    pub(crate) fn current(&self, span: Span) -> Span {
        if !self.is_moved() {
            return span;
        }
        let at = span.as_ptr() as usize;
        match self.parts.iter().find(|p| p.start() <= at && at < p.end()) {
            Some(part) => match part.copy.get() {
                Some(copy) => Span::of(copy).slice(at - part.start(), span.len()),
                None => span,
            },
            None => span,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorQueue, MemLock, Reason};

    fn queue() -> Arc<ErrorQueue> {
        ErrorQueue::new(1 << 20, Arc::new(MemLock::new(u64::MAX)), Box::new(()))
    }

    #[test]
    fn evicted_memory_is_read_from_its_copy_and_said_to_be_unmapped() {
        enable();
        let queue = queue();
        let memory = vec![7u8; 3000];
        let spans = [Span::of(&memory[..1000]), Span::of(&memory[1000..])];
        let call = queue.begin(3000, &mut None).unwrap().borrowing(&spans);
        let frag = call.frag(spans[1]);
        drop(call);
        assert!(is_any_lent());
        assert_eq!(evict(memory.as_ptr() as usize + 2999, 1), 3000);
        assert_eq!(evict(memory.as_ptr() as usize, 3000), 0, "once");
        // The memory is gone for all the stack knows.
        drop(memory);
        let _other = vec![9u8; 3000];
        let mut out = [0; 2000];
        assert!(frag.copy_to(0, &mut out));
        assert_eq!(out, [7; 2000]);
        let (ptr, len) = frag.slice(500, 100).as_iovec();
        assert!(!ptr.is_null() && len == 100);
        drop(frag);
        assert_eq!(queue.pop().unwrap().copied, Some(Reason::Unmapped));
    }

    #[test]
    fn other_memory_is_left_alone() {
        enable();
        let queue = queue();
        let (lent, other) = (vec![1u8; 100], vec![2u8; 100]);
        let span = Span::of(&lent);
        let call = queue.begin(100, &mut None).unwrap().borrowing(&[span]);
        let frag = call.frag(span);
        drop(call);
        assert_eq!(evict(other.as_ptr() as usize, 100), 0);
        assert_eq!(frag.as_iovec().0, lent.as_ptr());
        drop(frag);
        assert_eq!(queue.pop().unwrap().copied, None);
    }
}
