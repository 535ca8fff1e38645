//! Completing: Z11 (with the last reference), Z12 (exactly once on every path), Z13 (purge), Z14 (not
//! delivery), Z15 (what a notification says), Z16 (readiness), Z17 (merging), Z18 (exact per call).

mod common;

use common::*;
use stack::skb::SkBuff;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;
use uncopied::{Completion, Error, Features, Ready, Reason, Shutdown, TcpStream};

const SECOND: Duration = Duration::from_secs(1);

/// Data packets that are in `a`'s device now.
fn sent(net: &Pair) -> Vec<SkBuff> {
    net.poll_a();
    std::iter::from_fn(|| net.at_a.pop_tx()).filter(|p| seg(p).payload > 0).collect()
}

/// `b`'s answers to what has arrived, delayed acknowledgments included.
fn answers(net: &Pair) -> Vec<SkBuff> {
    net.poll_b();
    net.clock.advance(Duration::from_millis(50));
    net.poll_b();
    std::iter::from_fn(|| net.at_b.pop_tx()).collect()
}

fn completed(back: &AtomicUsize) -> usize {
    back.load(Ordering::SeqCst)
}

#[test]
fn an_acknowledged_packet_in_the_device_ring_does_not_complete() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    tx.send_lent(pattern(5000)).unwrap();
    net.hold = true;
    net.run(SECOND);
    assert_eq!(tx.queued().1, 0, "all acknowledged");
    assert_eq!((tx.outstanding(), tx.completion()), (1, None));
    net.ring.clear();
    assert_eq!(completed_ids(&tx), [0]);
}

#[test]
fn an_ack_while_a_retransmitted_clone_is_in_the_ring_does_not_complete() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    tx.send_lent(pattern(1000)).unwrap();
    let original: Vec<_> = sent(&net).iter().map(arriving).collect();
    net.clock.advance(2 * SECOND);
    let clones = sent(&net);
    assert_eq!(clones.len(), 1, "sent again, and in the ring");
    original.into_iter().for_each(|p| net.at_b.push_rx(p));
    answers(&net).into_iter().for_each(|p| net.at_a.push_rx(arriving(&p)));
    net.poll_a();
    assert_eq!(tx.queued().1, 0, "the original was acknowledged");
    assert_eq!((tx.outstanding(), tx.completion()), (1, None));
    drop(clones);
    assert_eq!(completed_ids(&tx), [0]);
    assert_eq!(drain(&rx), pattern(1000));
}

#[test]
fn a_spoofed_ack_beyond_what_was_sent_does_not_complete() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    let (buffer, back) = Owned::lend(pattern(1000));
    tx.send_lent(buffer).unwrap();
    sent(&net).iter().for_each(|p| net.at_b.push_rx(arriving(p)));
    let acks = answers(&net);
    let real = acks.last().unwrap();
    for beyond in [1, 1000, 1_000_000, 0x4000_0000] {
        net.at_a.push_rx(with_ack(real, seg(real).ack.wrapping_add(beyond)));
        net.poll_a();
        assert_eq!((tx.outstanding(), completed(&back)), (1, 0), "{beyond}");
        assert_eq!(tx.queued().1, 1000);
    }
    net.at_a.push_rx(arriving(real));
    net.poll_a();
    assert_eq!((completed_ids(&tx), completed(&back)), (vec![0], 1));
}

#[test]
fn an_ack_of_half_a_call_does_not_complete_it_and_one_of_half_a_packet_completes_its_calls() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    tx.set_cork(true);
    for _ in 0..3 {
        tx.send_lent(vec![1; 400]).unwrap();
    }
    tx.set_cork(false);
    let packets = sent(&net);
    assert_eq!(packets.len(), 1, "three calls in one packet");
    let first = seg(&packets[0]).seq;
    packets.iter().for_each(|p| net.at_b.push_rx(arriving(p)));
    drop(packets);
    let acks = answers(&net);
    let real = acks.last().unwrap();
    for (upto, done) in [(399, vec![]), (400, vec![0]), (799, vec![]), (900, vec![1])] {
        net.at_a.push_rx(with_ack(real, first.wrapping_add(upto)));
        net.poll_a();
        assert_eq!(completed_ids(&tx), done, "{upto}");
    }
    net.at_a.push_rx(arriving(real));
    net.poll_a();
    assert_eq!(completed_ids(&tx), [2]);
}

#[test]
fn a_call_waits_for_its_own_bytes_and_no_others() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    tx.set_nodelay(true);
    tx.send_lent(vec![1; 100]).unwrap();
    tx.send_lent(vec![2; 200_000]).unwrap();
    net.poll_a();
    let first = net.at_a.pop_tx().unwrap();
    assert_eq!(seg(&first).payload, 100);
    net.at_b.push_rx(arriving(&first));
    drop(first);
    answers(&net).into_iter().for_each(|p| net.at_a.push_rx(arriving(&p)));
    net.poll_a();
    assert_eq!((completed_ids(&tx), tx.outstanding()), (vec![0], 1));
}

/// Lends three buffers over a wire that loses everything; the count of those given back.
fn three_in_flight(net: &Pair, tx: &TcpStream) -> Vec<Arc<AtomicUsize>> {
    let back = (0..3).map(|n| {
        let (buffer, back) = Owned::lend(vec![n; 30_000]);
        tx.send_lent(buffer).unwrap();
        back
    });
    let back = back.collect();
    drop(sent(net));
    back
}

fn assert_each_back_once(net: &Pair, back: &[Arc<AtomicUsize>]) {
    assert!(back.iter().all(|b| completed(b) == 1), "{back:?}");
    assert_eq!(net.a.lent_bytes(), 0);
    assert_eq!(net.a.stats().completions, back.len() as u64);
}

#[test]
fn calls_complete_once_by_acknowledgment() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let back = three_in_flight(&net, &tx);
    net.run(10 * SECOND);
    assert_eq!(drain(&rx).len(), 90_000);
    assert_eq!(completed_ids(&tx), [0, 1, 2]);
    assert_each_back_once(&net, &back);
}

#[test]
fn calls_complete_once_when_the_peer_resets() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let back = three_in_flight(&net, &tx);
    rx.abort();
    net.pump();
    assert_each_back_once(&net, &back);
    assert_eq!(completed_ids(&tx), [0, 1, 2]);
    assert_eq!(tx.take_error(), Some(Error::Reset));
    assert_eq!(tx.completion(), None);
}

#[test]
fn calls_complete_once_when_the_peer_closes() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let back = three_in_flight(&net, &tx);
    rx.shutdown(Shutdown::Write).unwrap();
    net.run(10 * SECOND);
    assert_eq!(drain(&rx).len(), 90_000, "the other direction still works");
    drop(rx);
    net.run(SECOND);
    assert_eq!(completed_ids(&tx), [0, 1, 2]);
    assert_each_back_once(&net, &back);
}

#[test]
fn calls_complete_once_when_the_peer_is_gone_and_data_arrives() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    drop(rx);
    net.pump();
    let back = three_in_flight(&net, &tx);
    net.run(10 * SECOND);
    assert_each_back_once(&net, &back);
    assert_eq!(completed_ids(&tx), [0, 1, 2]);
}

#[test]
fn calls_complete_once_when_the_connection_times_out() {
    let mut net = Pair::with(Features::all(), |c| c.tcp.retries = 3);
    let (tx, _rx, _l) = net.connect();
    let back = three_in_flight(&net, &tx);
    for _ in 0..600 {
        net.clock.advance(SECOND);
        drop(sent(&net));
    }
    assert_each_back_once(&net, &back);
    assert_eq!(completed_ids(&tx), [0, 1, 2]);
    assert_eq!(tx.take_error(), Some(Error::TimedOut));
}

#[test]
fn calls_complete_once_by_an_abort_and_nobody_is_told() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    let back = three_in_flight(&net, &tx);
    tx.abort();
    assert_each_back_once(&net, &back);
    net.run(SECOND);
    assert_eq!(net.a.stats().notifications, 0);
    assert_eq!(net.a.connections(), 0);
}

#[test]
fn a_closed_socket_sends_what_was_lent_and_then_gives_it_back() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let (buffer, back) = Owned::lend(pattern(100_000));
    tx.send_lent(buffer).unwrap();
    drop(tx);
    assert_eq!(completed(&back), 0, "still needed");
    let mut got = Vec::new();
    for _ in 0..50 {
        net.run(SECOND / 10);
        got.extend(drain(&rx));
    }
    assert!(got == pattern(100_000));
    assert_each_back_once(&net, &[back]);
}

#[test]
fn calls_complete_once_when_stack_and_device_go() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    let (buffer, back) = Owned::lend(vec![1; 500_000]);
    tx.send_lent(buffer).unwrap();
    net.poll_a();
    assert!(net.at_a.tx_len() > 0, "in the ring and in the send queue");
    let Pair { a, at_a, .. } = net;
    drop(tx);
    drop(a);
    assert_eq!(completed(&back), 0, "the ring still refers to it");
    while at_a.pop_tx().is_some() {}
    assert_eq!(completed(&back), 1);
}

#[test]
fn a_purge_completes_what_was_queued_keeps_the_error_queue_and_lets_connect_again() {
    let mut net = Pair::new();
    let (mut tx, _rx, listener) = net.connect();
    tx.set_write_timeout(Some(Duration::ZERO));
    let back = three_in_flight(&net, &tx);
    assert_eq!(tx.completion(), None);
    tx.purge().unwrap();
    assert_each_back_once(&net, &back);
    assert!(tx.ready().contains(Ready::ERR));
    assert_eq!(completed_ids(&tx), [0, 1, 2]);
    assert_eq!(tx.take_error(), None);
    net.pump();
    let _ = tx.reconnect(listener.local_addr()); // begins; this test moves the packets
    net.pump();
    let (rx, _) = std::iter::from_fn(|| listener.try_accept().ok()).last().unwrap();
    assert_eq!(tx.send_lent(vec![5; 10]).unwrap().id, 3, "the counter goes on");
    net.pump();
    assert_eq!(drain_one(&rx), [5; 10]);
    assert_eq!(completed_ids(&tx), [3]);
}

fn drain_one(rx: &TcpStream) -> Vec<u8> {
    let mut buf = [0; 100];
    let n = rx.recv(&mut buf).unwrap();
    buf[..n].to_vec()
}

#[test]
fn what_was_purged_completes_only_when_the_ring_has_let_go() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    tx.send_lent(vec![1; 1000]).unwrap();
    net.poll_a();
    tx.purge().unwrap();
    assert_eq!((tx.outstanding(), tx.completion()), (1, None));
    while net.at_a.pop_tx().is_some() {}
    assert_eq!(completed_ids(&tx), [0]);
}

#[test]
fn a_copied_packet_in_the_ring_holds_no_call_up() {
    let mut net = Pair::with(Features::empty(), |_| {});
    let (tx, _rx, _l) = net.connect();
    tx.send_lent(pattern(1000)).unwrap();
    net.hold = true;
    net.run(SECOND);
    assert!(net.ring.iter().any(|p| seg(p).payload > 0), "the copy has not left the ring");
    assert_eq!(completed_ids(&tx), [0]);
}

#[test]
fn a_notification_says_code_1_and_the_reason_when_copied_and_0_when_not() {
    let c = |copied, device| Completion { first: 4, last: 6, copied, device };
    assert_eq!((c(None, false).ee_code(), c(None, false).ee_pad()), (0, 0));
    assert_eq!((c(Some(Reason::Tap), false).ee_code(), c(Some(Reason::Tap), false).ee_pad()), (1, 4));
    assert_eq!(
        (c(None, true).ee_code(), c(None, true).ee_pad()),
        (0, 11),
        "the device read it: not our copy"
    );
    assert_eq!(c(None, false).calls(), 3);
    assert_eq!(c(None, false).ids().collect::<Vec<_>>(), [4, 5, 6]);
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_notification_raises_err_and_wakes_those_who_did_not_ask_for_it() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    tx.register(Ready::IN, &waker);
    tx.send_lent(vec![1; 100]).unwrap();
    assert!(!tx.ready().contains(Ready::ERR));
    assert_eq!(bell.0.load(Ordering::SeqCst), 0);
    net.pump();
    net.run(SECOND / 10);
    assert!(tx.ready().contains(Ready::ERR));
    assert_eq!(bell.0.load(Ordering::SeqCst), 1);
    assert!(tx.wait_ready(Ready::ERR, Some(Duration::ZERO)), "level: still on");
    tx.register(Ready::IN, &waker);
    net.run(SECOND);
    assert_eq!(bell.0.load(Ordering::SeqCst), 1, "once per notification");
    assert!(tx.completion().is_some());
    assert!(!tx.ready().contains(Ready::ERR), "off when drained");
    tx.send_lent(vec![1; 100]).unwrap();
    net.run(SECOND / 10);
    assert_eq!(bell.0.load(Ordering::SeqCst), 2, "and once for the next");
}

#[test]
fn a_sleeper_is_woken_by_a_notification() {
    let (left, right, engine) = uncopied::link::pair(uncopied::link::LinkConfig::default());
    let engine = engine.spawn("nic").unwrap();
    let build = |dev, addr: [u8; 4]| {
        let s = uncopied::Stack::builder().device(dev, &[(addr.into(), 24)]);
        let s = s.configure(|c| c.memlock = u64::MAX).build().unwrap();
        s.spawn().unwrap();
        s
    };
    let (a, b) = (build(left, A), build(right, B));
    let listener = uncopied::TcpListener::bind(&b, (std::net::Ipv4Addr::from(B), 80).into()).unwrap();
    let tx = TcpStream::connect(&a, listener.local_addr()).unwrap();
    let (_rx, _) = listener.accept().unwrap();
    for n in 0..20 {
        let ticket = tx.send_lent(vec![n; 5000]).unwrap();
        assert!(tx.wait_ready(Ready::ERR, Some(Duration::from_secs(20))));
        assert!(tx.completion().unwrap().contains(ticket.id));
    }
    drop((tx, listener, a, b, engine));
}

#[test]
fn a_pending_notification_blocks_no_call_and_is_no_error() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    tx.send_lent(vec![1; 100]).unwrap();
    net.run(SECOND / 10);
    assert!(tx.ready().contains(Ready::ERR));
    assert_eq!(tx.take_error(), None, "not in SO_ERROR");
    assert_eq!(tx.send(&[2; 100]).unwrap(), 100);
    rx.send(&[3; 10]).unwrap();
    net.pump();
    assert_eq!(drain(&tx), [3; 10]);
    assert!(tx.ready().contains(Ready::OUT));
    assert_eq!(drain(&rx).len(), 200);
    assert_eq!(completed_ids(&tx), [0]);
}

#[test]
fn reading_an_empty_error_queue_never_blocks() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    assert_eq!(tx.completion(), None);
    assert_eq!(tx.wait_completion(None).unwrap(), None, "nothing outstanding, so nothing to wait for");
}

#[test]
fn calls_completed_in_order_are_told_as_one_range() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    for _ in 0..100 {
        tx.send_lent(vec![1; 50]).unwrap();
        net.run(Duration::from_millis(100));
    }
    let done = completions(&tx);
    assert_eq!(done, [Completion { first: 0, last: 99, copied: None, device: false }]);
    assert_eq!((net.a.stats().completions, net.a.stats().notifications), (100, 1));
}

struct Watch;

impl stack::netdev::Tap for Watch {
    fn see(&self, _: &SkBuff, _: stack::netdev::Direction) {}
}

#[test]
fn ranges_merge_only_when_they_say_the_same_about_copying() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    for round in 0..4 {
        let watched = (round % 2 == 1).then(|| net.a.interfaces()[0].taps().add(Arc::new(Watch)));
        for _ in 0..5 {
            tx.send_lent(vec![1; 50]).unwrap();
            net.run(Duration::from_millis(100));
        }
        if let Some(id) = watched {
            assert!(net.a.interfaces()[0].taps().remove(id));
        }
    }
    let told: Vec<_> = completions(&tx).iter().map(|c| (c.first, c.last, c.copied)).collect();
    let tap = Some(Reason::Tap);
    assert_eq!(told, [(0, 4, None), (5, 9, tap), (10, 14, None), (15, 19, tap)]);
}

#[test]
fn a_range_may_cross_the_wrap() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    tx.set_next_call(u32::MAX - 2);
    for _ in 0..6 {
        tx.send_lent(vec![1; 50]).unwrap();
    }
    net.run(SECOND);
    let done = completions(&tx);
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].first, done[0].last, done[0].calls()), (u32::MAX - 2, 2, 6));
    assert!(done[0].contains(u32::MAX) && done[0].contains(0) && !done[0].contains(3));
}
