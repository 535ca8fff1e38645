use super::*;
use crate::{Change, Completion, ErrorQueue, Frag, Lent, MemLock, Notify, Reason};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
struct Count {
    wakes: AtomicUsize,
    calls: AtomicUsize,
}

impl Notify for Arc<Count> {
    fn error_queued(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }
    fn calls_completed(&self, done: Completion, _bytes: u64) {
        let calls = done.calls() as usize;
        self.calls.fetch_add(calls, Ordering::Relaxed);
    }
    fn lent_bytes_changed(&self, change: Change) {
        panic!("{change:?}");
    }
}

fn queue() -> (Arc<ErrorQueue>, Arc<Count>) {
    let count = Arc::<Count>::default();
    let q = ErrorQueue::new(1 << 20, Arc::new(MemLock::new(u64::MAX)), Box::new(count.clone()));
    (q, count)
}

fn lend(q: &Arc<ErrorQueue>) -> Frag {
    Frag::from_lent(q, &mut Some(Lent::from(vec![1; 10]).into_bytes()), false).unwrap()
}

fn record(frag: &Frag) -> *const UbufInfo {
    Arc::as_ptr(frag.ubuf().unwrap())
}

#[test]
fn what_completes_together_is_one_range_and_one_wake() {
    let (q, count) = queue();
    let frags: Vec<_> = (0..10).map(|_| lend(&q)).collect();
    completing_together(|| {
        completing_together(|| drop(frags));
        assert!(!q.is_ready(), "the outermost reports");
    });
    let c = q.pop().unwrap();
    assert_eq!((c.first, c.last, q.pop()), (0, 9, None));
    assert_eq!((count.wakes.load(Ordering::Relaxed), count.calls.load(Ordering::Relaxed)), (1, 10));
    assert_eq!(q.outstanding(), 0);
}

#[test]
fn gaps_and_sockets_are_kept_apart() {
    let (a, _) = queue();
    let (b, _) = queue();
    let mut frags: Vec<_> = [&a, &a, &b, &a, &a].into_iter().map(|q| Some(lend(q))).collect();
    completing_together(|| {
        for i in [0, 2, 1, 4] {
            frags[i] = None;
        }
    });
    let ranges =
        |q: &ErrorQueue| std::iter::from_fn(|| q.pop()).map(|c| (c.first, c.last)).collect::<Vec<_>>();
    assert_eq!((ranges(&a), ranges(&b)), (vec![(0, 1), (3, 3)], vec![(0, 0)]));
}

#[test]
fn a_panic_does_not_lose_completions() {
    let (q, _) = queue();
    let frag = lend(&q);
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        completing_together(|| {
            drop(frag);
            panic!("expected");
        })
    }));
    assert!(failed.is_err());
    assert!(q.is_ready());
}

#[test]
fn a_record_serves_the_next_call_as_long_as_one_is_outstanding() {
    let (q, _) = queue();
    let (first, held) = (lend(&q), lend(&q));
    first.ubuf().unwrap().mark(Reason::Tap);
    let used = record(&first);
    drop(first);
    let again = lend(&q);
    assert_eq!(record(&again), used);
    assert_eq!((again.ubuf().unwrap().id(), again.ubuf().unwrap().reason()), (2, None));
    drop((held, again));
    assert_eq!(Arc::strong_count(&q), 1, "an idle socket's records are gone: they refer to it");
}

/// Two threads that drop the last two references at the same moment.
#[test]
fn a_call_completes_once_whoever_comes_last() {
    const CALLS: u32 = 20_000;
    let (q, count) = queue();
    let (to, from) = std::sync::mpsc::sync_channel::<Frag>(64);
    let other = std::thread::spawn(move || from.into_iter().for_each(drop));
    let mut told = 0;
    for _ in 0..CALLS {
        let frag = lend(&q);
        to.send(frag.clone()).unwrap();
        drop(frag);
        while let Some(c) = q.pop() {
            told += c.calls();
        }
    }
    drop(to);
    other.join().unwrap();
    while let Some(c) = q.pop() {
        told += c.calls();
    }
    assert_eq!((told, q.outstanding()), (u64::from(CALLS), 0));
    assert_eq!(count.calls.load(Ordering::Relaxed), CALLS as usize);
}
