//! Reverting to a copy: Z19 (what makes one), Z20 (only the packet that goes down that way), Z21 (saying
//! why), Z22 (two stacks in one process transfer without a copy on the sender).

mod common;

use common::*;
use stack::netdev::{Direction, Tap};
use stack::skb::SkBuff;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uncopied::{Features, Reason, Stack, TcpListener, TcpStream};

const SECOND: Duration = Duration::from_secs(1);

/// Data packets that are in `a`'s device now.
fn sent(net: &Pair) -> Vec<SkBuff> {
    net.poll_a();
    std::iter::from_fn(|| net.at_a.pop_tx()).filter(|p| seg(p).payload > 0).collect()
}

/// Lends over a device with `features`; the reason told must be `reason`.
fn reverts(features: Features, reason: Reason) {
    let mut net = Pair::with(features, |_| {});
    let (tx, rx, _l) = net.connect();
    let (buffer, back) = Owned::lend(pattern(100_000));
    tx.send_lent(buffer).unwrap();
    let packets = sent(&net);
    assert!(!packets.is_empty() && packets.iter().all(|p| !p.has_lent()), "private copies in the device");
    packets.iter().for_each(|p| net.at_b.push_rx(arriving(p)));
    drop(packets);
    let mut got = Vec::new();
    for _ in 0..20 {
        net.run(SECOND / 10);
        got.extend(drain(&rx));
    }
    assert!(got == pattern(100_000));
    let done = completions(&tx);
    assert_eq!(done.iter().map(|c| c.copied).collect::<Vec<_>>(), [Some(reason)]);
    assert_eq!((done[0].ee_code(), done[0].ee_pad()), (1, reason as u8));
    assert_eq!(net.a.stats().calls_by_reason, [(reason, 1)]);
    assert_eq!(net.a.stats().calls_not_copied, 0);
    assert_eq!(back.load(Ordering::SeqCst), 1);
}

#[test]
fn a_device_without_scatter_gather_gets_a_copy() {
    reverts(Features::all() - Features::SG, Reason::NoScatterGather);
    reverts(Features::empty(), Reason::NoScatterGather);
}

#[test]
fn a_device_without_checksum_offload_gets_a_copy() {
    reverts(Features::all() - Features::CSUM, Reason::NoChecksum);
    reverts(Features::SG, Reason::NoChecksum);
}

#[test]
fn a_device_that_scatters_and_sums_but_cannot_segment_gets_no_copy() {
    let mut net = Pair::with(Features::SG | Features::CSUM, |_| {});
    let (tx, rx, _l) = net.connect();
    tx.send_lent(pattern(100_000)).unwrap();
    let packets = sent(&net);
    assert!(packets.iter().all(|p| p.has_lent() && p.len() <= 1500), "cut without copying");
    packets.iter().for_each(|p| net.at_b.push_rx(arriving(p)));
    drop(packets);
    net.run(SECOND);
    assert!(drain(&rx) == pattern(100_000));
    net.run(SECOND);
    assert!(completions(&tx).iter().all(|c| c.copied.is_none()));
}

fn to_ourselves(address: [u8; 4]) {
    let mut net = Pair::new();
    let listener = TcpListener::bind(&net.a, SocketAddr::from(([0, 0, 0, 0], 99))).unwrap();
    let mut tx = TcpStream::begin_connect(&net.a, SocketAddr::from((address, 99))).unwrap();
    tx.set_nonblocking(true);
    net.pump();
    let (mut rx, _) = listener.try_accept().unwrap();
    rx.set_nonblocking(true);
    tx.send_lent(pattern(50_000)).unwrap();
    let mut got = Vec::new();
    for _ in 0..10 {
        net.run(SECOND / 10);
        got.extend(drain(&rx));
    }
    assert!(got == pattern(50_000));
    assert_eq!(net.at_a.tx_len(), 0, "nothing went to the device");
    let done = completions(&tx);
    assert_eq!(done.iter().map(|c| c.copied).collect::<Vec<_>>(), [Some(Reason::Loopback)]);
    assert_eq!(net.a.stats().calls_by_reason, [(Reason::Loopback, 1)]);
}

#[test]
fn a_packet_to_the_loopback_address_is_copied() {
    to_ourselves([127, 0, 0, 1]);
}

#[test]
fn a_packet_to_an_address_of_our_own_is_copied() {
    to_ourselves(A);
}

/// Keeps what it sees.
#[derive(Default)]
struct Capture(Mutex<Vec<SkBuff>>, AtomicUsize);

impl Tap for Capture {
    fn see(&self, skb: &SkBuff, direction: Direction) {
        assert!(!skb.has_lent());
        if direction == Direction::Sent && seg(skb).payload > 0 {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
        self.0.lock().unwrap().push(skb.clone());
    }
}

#[test]
fn a_packet_seen_by_a_tap_is_copied_and_the_tap_holds_no_lent_memory() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let capture = Arc::new(Capture::default());
    net.a.interfaces()[0].taps().add(capture.clone());
    let (buffer, back) = Owned::lend(pattern(100_000));
    tx.send_lent(buffer).unwrap();
    net.run(SECOND);
    assert!(drain(&rx) == pattern(100_000));
    net.run(SECOND);
    assert!(capture.1.load(Ordering::SeqCst) > 0 && !capture.0.lock().unwrap().is_empty());
    assert_eq!(back.load(Ordering::SeqCst), 1, "though the capture still has its packets");
    assert_eq!(completions(&tx)[0].copied, Some(Reason::Tap));
}

#[test]
fn only_the_packet_that_was_seen_is_copied_and_the_retransmission_is_lent() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let buffer = pattern(1000);
    let at = buffer.as_ptr().addr();
    let id = net.a.interfaces()[0].taps().add(Arc::new(Capture::default()));
    tx.send_lent(buffer).unwrap();
    assert!(sent(&net).iter().all(|p| !p.has_lent()), "copied, and lost");
    assert_eq!(tx.outstanding(), 1, "the send queue still refers to the caller's memory");
    net.a.interfaces()[0].taps().remove(id);
    net.clock.advance(2 * SECOND);
    let again = sent(&net);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].frags()[0].as_iovec().0.addr(), at);
    again.iter().for_each(|p| net.at_b.push_rx(arriving(p)));
    drop(again);
    net.run(SECOND);
    assert_eq!(drain(&rx), pattern(1000));
    assert_eq!(completions(&tx)[0].copied, Some(Reason::Tap), "one of its packets was");
}

#[test]
fn the_mark_belongs_to_the_calls_in_that_packet() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    tx.set_nodelay(true);
    tx.send_lent(vec![0; 100]).unwrap();
    net.poll_a();
    let id = net.a.interfaces()[0].taps().add(Arc::new(Capture::default()));
    tx.set_cork(true);
    tx.send_lent(vec![1; 100]).unwrap();
    tx.send_lent(vec![2; 100]).unwrap();
    tx.set_cork(false);
    net.poll_a();
    net.a.interfaces()[0].taps().remove(id);
    tx.send_lent(vec![3; 100]).unwrap();
    net.run(SECOND);
    let told: Vec<_> = completions(&tx).iter().map(|c| (c.first, c.last, c.copied)).collect();
    assert_eq!(told, [(0, 0, None), (1, 2, Some(Reason::Tap)), (3, 3, None)]);
    assert_eq!((net.a.stats().calls_not_copied, net.a.stats().calls_by_reason), (2, vec![(Reason::Tap, 2)]));
}

#[test]
fn the_first_cause_of_a_copy_is_the_one_told() {
    let mut net = Pair::with(Features::empty(), |_| {});
    let (tx, _rx, _l) = net.connect();
    net.a.interfaces()[0].taps().add(Arc::new(Capture::default()));
    tx.send_lent(vec![0; 100]).unwrap();
    net.run(SECOND);
    assert_eq!(completions(&tx)[0].copied, Some(Reason::Tap));
}

#[test]
fn plain_sends_are_no_copied_calls() {
    let mut net = Pair::with(Features::empty(), |_| {});
    let (tx, rx, _l) = net.connect();
    tx.send_all(&pattern(10_000)).unwrap();
    net.run(SECOND);
    assert_eq!(drain(&rx).len(), 10_000);
    let s = net.a.stats();
    assert_eq!((s.completions, s.calls_by_reason.len(), s.copied_bytes), (0, 0, 10_000));
}

#[test]
fn two_stacks_over_a_link_transfer_without_a_copy_on_the_sender() {
    let (left, right, engine) = uncopied::link::pair(uncopied::link::LinkConfig::default());
    let engine = engine.spawn("nic").unwrap();
    let build = |dev, addr: [u8; 4]| {
        let s = Stack::builder().device(dev, &[(addr.into(), 24)]);
        let s = s.configure(|c| c.memlock = u64::MAX).build().unwrap();
        s.spawn().unwrap();
        s
    };
    let (a, b) = (build(left, A), build(right, B));
    let listener = TcpListener::bind(&b, SocketAddr::from((B, 80))).unwrap();
    let tx = TcpStream::connect(&a, listener.local_addr()).unwrap();
    let (rx, _) = listener.accept().unwrap();
    const CALLS: usize = 64;
    const LEN: usize = 1 << 20;
    let reader = std::thread::spawn(move || {
        let (mut sum, mut buf) = (0_u64, vec![0; 1 << 18]);
        let mut left = CALLS * LEN;
        while left > 0 {
            let n = rx.recv(&mut buf).unwrap();
            assert!(n > 0);
            sum += buf[..n].iter().map(|b| u64::from(*b)).sum::<u64>();
            left -= n;
        }
        sum
    });
    for n in 0..CALLS {
        tx.send_lent(vec![n as u8; LEN]).unwrap();
    }
    assert_eq!(reader.join().unwrap(), (0..CALLS as u64).map(|n| n * LEN as u64).sum::<u64>());
    let mut calls = 0;
    while let Some(done) = tx.wait_completion(Some(Duration::from_secs(20))).unwrap() {
        assert!(done.copied.is_none() && !done.device);
        calls += done.calls();
    }
    assert_eq!(calls, CALLS as u64);
    let s = a.stats();
    assert_eq!((s.calls_not_copied, s.calls_by_reason.len(), s.copied_bytes), (CALLS as u64, 0, 0));
    drop((tx, listener, a, b, engine));
}
