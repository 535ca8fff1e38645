//! What a lending call allocates: its own record, and nothing on the way to the device and back (Z9: the
//! notification is allocated in the send call, so that completing cannot fail).

#[path = "common/alloc_count.rs"]
mod alloc_count;
mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use common::pattern;
use uncopied::reflector::{Reflector, ReflectorConfig};
use uncopied::{Clock, Instant, ManualClock, Stack, TcpStream};

#[global_allocator]
static COUNTING: alloc_count::Counting = alloc_count::Counting;

const ROUNDS: u64 = 1000;

/// A connection into a peer that acknowledges everything, polled by hand.
fn connected() -> (Stack, TcpStream) {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Instant::from_secs(1)));
    let device = Reflector::new(ReflectorConfig::default());
    let stack = Stack::builder().device(device, &[("10.0.0.1".parse().unwrap(), 24)]).clock(clock);
    let stack = stack.configure(|c| c.memlock = u64::MAX).build().unwrap();
    let to: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let mut tx = TcpStream::connect(&stack, to).unwrap();
    tx.set_nonblocking(true);
    (stack, tx)
}

/// Allocations of this thread by `rounds` of `f`, when everything is warm.
fn allocations(mut f: impl FnMut()) -> u64 {
    (0..ROUNDS).for_each(|_| f());
    let before = alloc_count::calls();
    (0..ROUNDS).for_each(|_| f());
    alloc_count::calls() - before
}

#[test]
fn a_lent_64_kb_call_allocates_its_record_and_nothing_else() {
    let (stack, tx) = connected();
    let buffer = Bytes::from(pattern(65536));
    let mut calls = 0;
    let n = allocations(|| {
        tx.send_lent(buffer.clone()).unwrap();
        stack.poll_all(stack.now());
        let done = tx.completion().unwrap();
        assert!(done.copied.is_none());
        calls += done.calls();
    });
    assert_eq!(calls, 2 * ROUNDS, "each call complete when its poll returned");
    assert!(n <= ROUNDS, "{n} allocations for {ROUNDS} calls");
}

#[test]
fn many_calls_in_flight_still_allocate_once_each() {
    let (stack, tx) = connected();
    let buffer = Bytes::from(pattern(4096));
    let n = allocations(|| {
        for _ in 0..16 {
            tx.send_lent(buffer.clone()).unwrap();
        }
        stack.poll_all(stack.now());
        while tx.completion().is_some() {}
        assert_eq!(tx.outstanding(), 0);
    });
    assert!(n <= 16 * ROUNDS, "{n} allocations for {} calls", 16 * ROUNDS);
}

#[test]
fn acknowledgments_allocate_nothing() {
    let (stack, tx) = connected();
    let buffer = Bytes::from(pattern(65536));
    let mut by_acks = 0;
    for round in 0..2 * ROUNDS {
        tx.send_lent(buffer.clone()).unwrap();
        let before = alloc_count::calls();
        stack.poll_all(stack.now());
        assert!(tx.completion().is_some());
        if round >= ROUNDS {
            by_acks += alloc_count::calls() - before;
        }
    }
    assert_eq!(by_acks, 0);
}

#[test]
fn a_plain_send_allocates_only_pages() {
    let (stack, tx) = connected();
    let bytes = pattern(65536);
    let n = allocations(|| {
        assert_eq!(tx.send(&bytes).unwrap(), bytes.len());
        stack.poll_all(stack.now());
    });
    assert!(n <= 2 * ROUNDS, "{n} allocations for {ROUNDS} pages");
}
