use super::*;
use crate::{Frag, Lent, Span};
use std::sync::atomic::AtomicU32;

fn queue(optmem: usize, memlock: u64) -> Arc<ErrorQueue> {
    ErrorQueue::new(optmem, Arc::new(MemLock::new(memlock)), Box::new(()))
}

fn lend(q: &Arc<ErrorQueue>, bytes: &'static [u8]) -> Frag {
    let lent = Lent::from(bytes).into_bytes();
    let span = Span::of(&lent);
    q.begin(bytes.len() as u64, &mut Some(lent)).unwrap().frag(span)
}

fn plain(first: u32, last: u32) -> Completion {
    Completion { first, last, copied: None, device: false }
}

#[test]
fn a_call_completes_once_when_its_last_reference_is_dropped() {
    let q = queue(1 << 20, u64::MAX);
    let a = lend(&q, b"hello");
    let b = a.slice(1, 2);
    let c = b.clone();
    drop((a, b));
    assert!(!q.is_ready());
    drop(c);
    assert_eq!(q.pop(), Some(plain(0, 0)));
    assert_eq!(q.pop(), None);
    assert_eq!(q.outstanding(), 0);
}

#[test]
fn completions_in_order_merge_and_those_out_of_order_stay_exact() {
    let q = queue(1 << 20, u64::MAX);
    let mut f: Vec<_> = (0..6).map(|_| Some(lend(&q, b"x"))).collect();
    for i in [0, 1, 3, 4, 2, 5] {
        f[i] = None;
    }
    assert_eq!(q.pop(), Some(plain(0, 1)));
    assert_eq!(q.pop(), Some(plain(3, 4)));
    assert_eq!(q.pop(), Some(plain(2, 2)));
    assert_eq!(q.pop(), Some(plain(5, 5)));
}

#[test]
fn ranges_merge_across_the_wrap_of_the_counter() {
    let q = queue(1 << 20, u64::MAX);
    q.set_next_id(u32::MAX - 1);
    let f: Vec<_> = (0..4).map(|_| lend(&q, b"x")).collect();
    drop(f);
    let c = q.pop().unwrap();
    assert_eq!((c.first, c.last, c.calls()), (u32::MAX - 1, 1, 4));
    assert_eq!(c.ids().collect::<Vec<_>>(), [u32::MAX - 1, u32::MAX, 0, 1]);
    assert!(c.contains(u32::MAX) && c.contains(0) && !c.contains(2));
    assert_eq!(q.pop(), None);
}

#[test]
fn copied_and_uncopied_calls_do_not_merge_nor_do_different_reasons() {
    let q = queue(1 << 20, u64::MAX);
    let marks = [None, Some(Reason::Tap), Some(Reason::Tap), Some(Reason::NoChecksum), Some(Reason::Device)];
    let f: Vec<_> = marks.iter().map(|_| lend(&q, b"x")).collect();
    for (f, m) in f.iter().zip(marks) {
        if let Some(m) = m {
            f.ubuf().unwrap().mark(m);
        }
    }
    drop(f);
    assert_eq!(q.pop(), Some(plain(0, 0)));
    assert_eq!(q.pop(), Some(Completion { first: 1, last: 2, copied: Some(Reason::Tap), device: false }));
    let c = q.pop().unwrap();
    assert_eq!((c.first, c.ee_code(), c.ee_pad()), (3, 1, Reason::NoChecksum as u8));
    let c = q.pop().unwrap();
    assert_eq!((c.first, c.ee_code(), c.ee_pad(), c.device), (4, 0, Reason::Device as u8, true));
}

#[test]
fn a_copy_outweighs_the_device_and_the_first_cause_stays() {
    let q = queue(1 << 20, u64::MAX);
    let f = lend(&q, b"x");
    let u = f.ubuf().unwrap().clone();
    u.mark(Reason::Device);
    u.mark(Reason::Tap);
    u.mark(Reason::NoChecksum);
    u.mark(Reason::Device);
    assert_eq!(u.reason(), Some(Reason::Tap));
}

#[test]
fn the_limits_refuse_with_nothing_taken_and_draining_makes_room() {
    let q = queue(2 * OPTMEM_PER_CALL, 10);
    let a = lend(&q, b"12345");
    assert_eq!(q.begin(6, &mut None).err(), Some(LendError::MemLock));
    let b = lend(&q, b"12345");
    assert_eq!(q.begin(0, &mut None).err(), Some(LendError::OptMem));
    assert_eq!(q.next_id(), 2, "failed calls take no number");
    drop(a);
    assert_eq!(
        q.begin(0, &mut None).err(),
        Some(LendError::OptMem),
        "an unread notification holds option memory"
    );
    assert_eq!(q.pop(), Some(plain(0, 0)));
    drop(q.begin(5, &mut None).unwrap());
    drop(b);
    assert_eq!(q.outstanding(), 0);
    while q.pop().is_some() {}
    let all: Vec<_> = (0..2).map(|_| lend(&q, b"12345")).collect();
    assert_eq!(all.len(), 2);
}

#[test]
fn merging_gives_option_memory_back() {
    let q = queue(4 * OPTMEM_PER_CALL, u64::MAX);
    for _ in 0..1000 {
        drop(lend(&q, b"x"));
    }
    assert_eq!(q.pop(), Some(plain(0, 999)));
}

#[test]
fn a_closed_queue_drops_what_completes_later() {
    let q = queue(1 << 20, 100);
    let f = lend(&q, b"12345");
    q.close();
    drop(f);
    assert!(!q.is_ready());
    assert_eq!(q.outstanding(), 0);
    assert_eq!(q.memlock.used(), 0);
}

#[derive(Default)]
struct Count(AtomicU32, Mutex<Vec<Change>>);
impl Notify for Arc<Count> {
    fn error_queued(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn lent_bytes_changed(&self, change: Change) {
        self.1.lock().push(change);
    }
}

#[test]
fn whoever_waits_is_told_once_per_notification() {
    let count = Arc::new(Count::default());
    let q = ErrorQueue::new(1 << 20, Arc::new(MemLock::new(100)), Box::new(count.clone()));
    drop(lend(&q, b"x"));
    drop(lend(&q, b"x"));
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "the second merged into the first");
    q.pop();
    drop(lend(&q, b"x"));
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
}

#[test]
fn the_checking_mode_reports_where_lent_bytes_were_changed() {
    let count = Arc::new(Count::default());
    let q = ErrorQueue::new(1 << 20, Arc::new(MemLock::new(1 << 20)), Box::new(count.clone()));
    let cells: Vec<std::sync::atomic::AtomicU8> = (0..1000).map(|_| 7.into()).collect();
    let head = [0u8; 10];
    let cells_span = Span::of_atomics(&cells);
    let mut u = q.begin(1010, &mut None).unwrap();
    u.remember(&[Span::of(&head), cells_span]);
    let f = Arc::new(u).frag(cells_span);
    cells[130].store(8, Ordering::Relaxed);
    cells[999].store(8, Ordering::Relaxed);
    drop(f);
    let expect = [Change { id: 0, offset: 10 + 128, len: 64 }, Change { id: 0, offset: 10 + 960, len: 40 }];
    assert_eq!(*count.1.lock(), expect);
}

#[test]
fn the_state_of_one_call_is_small() {
    const { assert!(OPTMEM_PER_CALL <= 128) };
    assert_eq!(size_of::<Frag>(), 32);
}

fn refused() -> ExtendedError {
    ExtendedError {
        errno: 111,
        origin: ErrorOrigin::Icmp,
        kind: 3,
        code: 3,
        info: 0,
        offender: Some([192, 0, 2, 1].into()),
        destination: ([192, 0, 2, 1], 9).into(),
        payload: b"x".to_vec(),
    }
}

#[test]
fn an_error_keeps_its_place_and_ranges_do_not_merge_across_it() {
    let q = queue(1 << 20, u64::MAX);
    drop(lend(&q, b"a"));
    assert!(q.push_error(refused()));
    drop(lend(&q, b"b"));
    drop(lend(&q, b"c"));
    assert_eq!(q.pop_any(), Some(Queued::Completion(plain(0, 0))));
    assert_eq!(q.pop(), Some(plain(1, 2)), "completions alone can be asked for");
    assert!(q.is_ready());
    assert_eq!(q.pop_any(), Some(Queued::Error(Box::new(refused()))));
    assert_eq!(q.pop_any(), None);
}

#[test]
fn errors_are_bounded_and_take_no_room_from_completions() {
    let q = queue(2 * OPTMEM_PER_CALL, u64::MAX);
    let (a, b) = (lend(&q, b"a"), lend(&q, b"b"));
    let queued = (0..1000).filter(|_| q.push_error(refused())).count();
    assert_eq!(queued, usize::from(MAX_ERRORS));
    drop(b);
    drop(a);
    let all: Vec<_> = std::iter::from_fn(|| q.pop_any()).collect();
    let calls = all.iter().filter(|e| matches!(e, Queued::Completion(_))).count();
    assert_eq!((calls, all.len()), (2, queued + 2));
}
