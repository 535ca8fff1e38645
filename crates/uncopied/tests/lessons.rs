//! Bugs that other implementations of this contract have had, each as a test named after it.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::borrowed::{Area, sendmsg};
use common::*;
use stack::netdev::{Device, LinkKind};
use stack::skb::{OPTMEM_PER_CALL, SkBuff};
use uncopied::impair::{Impair, ImpairConfig, Rules};
use uncopied::mem::MemConfig;
use uncopied::{
    Clock, Error, Features, Instant, Lent, MSG_ZEROCOPY, ManualClock, Ready, Reason, Shutdown, Stack,
    TcpListener, TcpStream, mem,
};

const SECOND: Duration = Duration::from_secs(1);

fn sent(net: &Pair) -> Vec<SkBuff> {
    net.poll_a();
    std::iter::from_fn(|| net.at_a.pop_tx()).filter(|p| seg(p).payload > 0).collect()
}

struct Watch;

impl stack::netdev::Tap for Watch {
    fn see(&self, _: &SkBuff, _: stack::netdev::Direction) {}
}

// folly, SPDK, QEMU: a merged range with first > last; loops that never end or release nothing.
#[test]
fn the_u32_counter_wraps_inside_a_merged_range_and_between_ranges() {
    for start in [u32::MAX - 3, u32::MAX, 0] {
        let mut net = Pair::new();
        let (tx, _rx, _l) = net.connect();
        tx.set_next_call(start);
        let ids: Vec<u32> = (0..8).map(|_| tx.send_lent(vec![1; 100]).unwrap().id).collect();
        assert_eq!(ids, (0..8).map(|n| start.wrapping_add(n)).collect::<Vec<_>>());
        net.run(SECOND);
        let done = completions(&tx);
        assert_eq!(done.len(), 1, "merged across the wrap");
        assert_eq!((done[0].first, done[0].calls()), (start, 8));
        assert_eq!(done[0].ids().collect::<Vec<_>>(), ids);
        assert!(ids.iter().all(|id| done[0].contains(*id)));
        assert!(!done[0].contains(start.wrapping_sub(1)) && !done[0].contains(start.wrapping_add(8)));
    }
}

// SPDK: a request that mixes lent and copied pieces completes too early.
#[test]
fn a_request_of_lent_and_copied_pieces_completes_when_the_last_byte_is_acknowledged() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    // Pieces of one request, the last one copied by a tap on its way.
    let areas: Vec<_> = [3000, 10, 40_000, 1].iter().map(|n| Area::new(&pattern(*n))).collect();
    let total: usize = areas.iter().map(Area::len).sum();
    let id = net.a.interfaces()[0].taps().add(Arc::new(Watch));
    sendmsg(&tx, &areas, MSG_ZEROCOPY).unwrap();
    tx.send_all(&[7; 500]).unwrap();
    net.a.interfaces()[0].taps().remove(id);
    let first = net.at_a.pop_tx().unwrap();
    net.at_b.push_rx(arriving(&first));
    drop(first);
    net.poll_b();
    net.clock.advance(Duration::from_millis(60));
    net.poll_b();
    while let Some(ack) = net.at_b.pop_tx() {
        net.at_a.push_rx(arriving(&ack));
    }
    net.poll_a();
    assert!(rx.queued().0 < total, "a part has arrived");
    assert_eq!((tx.outstanding(), tx.completion()), (1, None), "not before all of it has");
    net.run(5 * SECOND);
    assert_eq!(drain(&rx).len(), total + 500);
    let done = completions(&tx);
    assert_eq!(
        done.iter().map(|c| (c.first, c.last, c.copied)).collect::<Vec<_>>(),
        [(0, 0, Some(Reason::Tap))]
    );
}

// gRPC, QEMU, folly: ENOBUFS is fatal, or a dead end until something else drains the error queue.
#[test]
fn enobufs_is_no_dead_end() {
    let mut net = Pair::with(Features::all(), |c| {
        c.optmem_max = 4 * OPTMEM_PER_CALL;
        c.memlock = 50_000;
    });
    let (tx, rx, _l) = net.connect();
    let mut sent = 0;
    let (mut lent, mut refused) = (0, 0);
    for n in 0..500 {
        match tx.send_lent(vec![n as u8; 9000]) {
            Ok(_) => {
                lent += 1;
                sent += 9000;
            }
            Err(e) => {
                assert!(matches!(e.error, Error::MemLock | Error::OptMem), "{e}");
                refused += 1;
                // Waiting for completions makes room, whichever limit it was.
                net.run(SECOND / 10);
                assert!(!completions(&tx).is_empty());
            }
        }
        drain(&rx);
    }
    assert!(lent >= 300 && refused >= 50, "{lent} {refused}");
    net.run(SECOND);
    completions(&tx);
    assert_eq!((tx.outstanding(), net.a.lent_bytes()), (0, 0));
    assert_eq!(net.a.stats().lent_bytes, sent);
}

#[test]
fn enobufs_can_be_a_copy_instead() {
    let mut net = Pair::with(Features::all(), |c| c.memlock = 10_000);
    let (tx, rx, _l) = net.connect();
    assert!(tx.send_lent_or_copy(vec![1; 8000]).unwrap().is_some());
    assert!(tx.send_lent_or_copy(vec![2; 8000]).unwrap().is_none(), "copied: free at once");
    assert!(tx.send_lent_or_copy(vec![3; 1000]).unwrap().is_some());
    net.run(SECOND);
    let got = drain(&rx);
    assert_eq!([got[0], got[8000], got[16_000]], [1, 2, 3]);
    assert_eq!(completed_ids(&tx), [0, 1]);
}

// bun: EPOLLERR left undrained spins a core.
#[test]
fn an_undrained_error_queue_is_told_once_to_those_who_asked_for_something_else() {
    struct Bell(AtomicUsize);
    impl std::task::Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let bell = Arc::new(Bell(AtomicUsize::new(0)));
    let waker = std::task::Waker::from(bell.clone());
    tx.send_lent(vec![1; 100]).unwrap();
    net.run(SECOND);
    assert!(tx.ready().contains(Ready::ERR), "pending, and left there");
    for n in 1..50 {
        tx.register(Ready::IN, &waker);
        net.run(SECOND / 10);
        assert_eq!(bell.0.load(Ordering::SeqCst), n - 1, "silence is silence");
        rx.send(&[n as u8]).unwrap();
        net.run(SECOND / 10);
        assert_eq!(bell.0.load(Ordering::SeqCst), n);
        assert_eq!(drain(&tx), [n as u8]);
    }
    assert_eq!(completed_ids(&tx), [0]);
}

// SPDK: IPv6 was forgotten.
#[test]
fn completions_come_for_ipv4_ipv6_and_mapped_addresses() {
    let clock = Arc::new(ManualClock::new(Instant::from_secs(9)));
    let build = |last: u8| {
        let (device, port) = mem::pair(MemConfig::default());
        let v4: std::net::Ipv4Addr = [10, 0, 0, last].into();
        let v6: std::net::Ipv6Addr = format!("fd00::{last}").parse().unwrap();
        let c: Arc<dyn Clock> = clock.clone();
        let s = Stack::builder().device(device, &[(v4.into(), 24), (v6.into(), 64)]).clock(c);
        (s.configure(|c| c.memlock = u64::MAX).build().unwrap(), port)
    };
    let ((a, at_a), (b, at_b)) = (build(1), build(2));
    let mut net = Pair { clock, a, b, at_a, at_b, ring: Vec::new(), hold: false };
    net.run(5 * SECOND);
    let listener = TcpListener::bind(&net.b, "[::]:80".parse().unwrap()).unwrap();
    for to in ["10.0.0.2:80", "[fd00::2]:80", "[::ffff:10.0.0.2]:80"] {
        let mut tx = TcpStream::begin_connect(&net.a, to.parse().unwrap()).unwrap();
        tx.set_nonblocking(true);
        net.run(SECOND);
        assert_eq!(tx.take_error(), None, "{to}");
        let (mut rx, _) = listener.try_accept().unwrap();
        rx.set_nonblocking(true);
        tx.send_lent(pattern(100_000)).unwrap();
        net.run(SECOND);
        assert!(drain(&rx) == pattern(100_000), "{to}");
        net.run(SECOND);
        let done = completions(&tx);
        assert_eq!(
            done.iter().map(|c| (c.first, c.last, c.copied)).collect::<Vec<_>>(),
            [(0, 0, None)],
            "{to}"
        );
    }
}

/// How a program may leave a socket with lent memory outstanding.
fn leave(tx: TcpStream, how: usize) {
    match how {
        0 => drop(tx),
        1 => tx.abort(),
        2 => {
            tx.shutdown(Shutdown::Both).unwrap();
            drop(tx);
        }
        _ => {
            tx.purge().unwrap();
            drop(tx);
        }
    }
}

// netty, folly, Ceph: closing with lent memory outstanding hangs, leaks or frees early.
#[test]
fn closing_with_lent_memory_in_the_send_queue_and_in_flight_gives_it_back() {
    for how in 0..4 {
        let mut net = Pair::new();
        let (tx, rx, _l) = net.connect();
        let (buffer, back) = Owned::lend(pattern(2_000_000));
        tx.send_lent(buffer).unwrap();
        leave(tx, how);
        for _ in 0..200 {
            net.run(SECOND / 10);
            drain(&rx);
        }
        assert_eq!((back.load(Ordering::SeqCst), net.a.lent_bytes()), (1, 0), "{how}");
        drop(rx);
        net.run(200 * SECOND);
        assert_eq!((net.a.connections(), net.b.connections()), (0, 0), "{how}");
    }
}

#[test]
fn closing_with_lent_memory_and_a_peer_that_is_gone_gives_it_back() {
    for how in 0..4 {
        let mut net = Pair::with(Features::all(), |c| c.tcp.retries = 4);
        let (tx, _rx, _l) = net.connect();
        let (buffer, back) = Owned::lend(pattern(2_000_000));
        tx.send_lent(buffer).unwrap();
        leave(tx, how);
        for _ in 0..600 {
            net.clock.advance(SECOND);
            drop(sent(&net));
        }
        assert_eq!((back.load(Ordering::SeqCst), net.a.lent_bytes()), (1, 0), "{how}");
        assert_eq!(net.a.connections(), 0, "{how}");
    }
}

#[test]
fn closing_with_lent_memory_and_a_peer_that_never_reads_gives_it_back() {
    for how in [1, 3] {
        let mut net = Pair::new();
        let (tx, _rx, _l) = net.connect();
        let (buffer, back) = Owned::lend(pattern(3_000_000));
        tx.send_lent(vec![0; 3_900_000]).unwrap();
        tx.send_lent(buffer).unwrap();
        net.run(60 * SECOND);
        assert_eq!(back.load(Ordering::SeqCst), 0, "the window is closed");
        leave(tx, how);
        net.run(SECOND);
        assert_eq!((back.load(Ordering::SeqCst), net.a.lent_bytes()), (1, 0), "{how}");
    }
}

#[test]
fn closing_with_lent_memory_in_a_full_device_and_its_queue_frees_it_when_they_let_go() {
    for how in 0..4 {
        let clock = Arc::new(ManualClock::new(Instant::from_secs(9)));
        let (device, at_a) = mem::pair(MemConfig { ring: 4, ..MemConfig::default() });
        let c: Arc<dyn Clock> = clock.clone();
        let a = Stack::builder().device(device, &[(A.into(), 24)]).clock(c);
        let a = a.configure(|c| (c.memlock, c.tcp.retries) = (u64::MAX, 3)).build().unwrap();
        let (b, at_b) = stack_at(B, Features::all(), &clock, |_| {});
        let mut net = Pair { clock, a, b, at_a, at_b, ring: Vec::new(), hold: false };
        let (tx, _rx, _l) = net.connect();
        let owned: Vec<_> = (0..50)
            .map(|n| {
                let (buffer, back) = Owned::lend(vec![n; 1000]);
                tx.set_nodelay(true);
                tx.send_lent(buffer).unwrap();
                back
            })
            .collect();
        net.poll_a();
        assert_eq!(net.at_a.tx_len(), 4, "the ring is full");
        leave(tx, how);
        let back = |v: &[Arc<AtomicUsize>]| v.iter().map(|b| b.load(Ordering::SeqCst)).sum::<usize>();
        assert!(back(&owned) < 50, "the ring still holds some");
        for _ in 0..600 {
            net.clock.advance(SECOND);
            net.poll_a();
            while net.at_a.pop_tx().is_some() {
                net.poll_a();
            }
        }
        assert_eq!((back(&owned), net.a.lent_bytes()), (50, 0), "{how}");
    }
}

#[test]
fn closing_with_lent_memory_in_a_shaper_frees_it_when_it_has_left() {
    let clock = Arc::new(ManualClock::new(Instant::from_secs(9)));
    let (device, at_a) = mem::pair(MemConfig::default());
    let c: Arc<dyn Clock> = clock.clone();
    let rules = Rules { delay: Duration::from_millis(500), ..Rules::default() };
    let shaper =
        Impair::new(Box::new(device), ImpairConfig { tx: rules, ..ImpairConfig::default() }, c.clone());
    let a = Stack::builder().device(shaper, &[(A.into(), 24)]).clock(c);
    let a = a.configure(|c| c.memlock = u64::MAX).build().unwrap();
    let (b, at_b) = stack_at(B, Features::all(), &clock, |_| {});
    let mut net = Pair { clock, a, b, at_a, at_b, ring: Vec::new(), hold: false };
    let listener = TcpListener::bind(&net.b, SocketAddr::from((B, 80))).unwrap();
    let mut tx = TcpStream::begin_connect(&net.a, listener.local_addr()).unwrap();
    tx.set_nonblocking(true);
    net.run(3 * SECOND);
    assert_eq!(tx.state(), uncopied::State::Established);
    let (buffer, back) = Owned::lend(vec![1; 5000]);
    tx.send_lent(buffer).unwrap();
    net.poll_a();
    tx.abort();
    assert_eq!(back.load(Ordering::SeqCst), 0, "the shaper still holds it");
    net.run(3 * SECOND);
    assert_eq!((back.load(Ordering::SeqCst), net.a.lent_bytes()), (1, 0));
}

// The neighbour queue: the next hop's answer is lost while lent packets wait for it.
#[test]
fn lent_memory_in_a_neighbour_queue_is_given_back_by_an_answer_and_by_giving_up() {
    let clock = Arc::new(ManualClock::new(Instant::from_secs(9)));
    let ethernet = |last: u8, features: Features| {
        let link = LinkKind::Ethernet([2, 0, 0, 0, 0, last]);
        let (device, port) = mem::pair(MemConfig { link, features, ..MemConfig::default() });
        let c: Arc<dyn Clock> = clock.clone();
        assert!(matches!(device.info().link, LinkKind::Ethernet(_)));
        let s = Stack::builder().device(device, &[([10, 0, 0, last].into(), 24)]).clock(c);
        (s.configure(|c| (c.memlock, c.tcp.retries) = (u64::MAX, 3)).build().unwrap(), port)
    };
    let ((a, at_a), (b, at_b)) = (ethernet(1, Features::all()), ethernet(2, Features::all()));
    let mut net = Pair { clock: clock.clone(), a, b, at_a, at_b, ring: Vec::new(), hold: false };
    let (tx, rx, _l) = net.connect();
    tx.send_lent(vec![1; 1000]).unwrap();
    net.run(SECOND);
    assert_eq!((drain(&rx).len(), completed_ids(&tx)), (1000, vec![0]));
    // Long enough for the neighbour to be forgotten or doubted, and then it is gone.
    net.run(600 * SECOND);
    let (buffer, back) = Owned::lend(vec![2; 100_000]);
    tx.send_lent(buffer).unwrap();
    for _ in 0..900 {
        net.clock.advance(SECOND);
        net.poll_a();
        while net.at_a.pop_tx().is_some() {}
    }
    assert_eq!((back.load(Ordering::SeqCst), net.a.lent_bytes()), (1, 0));
    assert_eq!(completed_ids(&tx), [1]);
    assert!(tx.take_error().is_some());
}

// Ceph, glommio, liburing: memory reused before its completion is freed heap on the wire.
#[test]
fn memory_poisoned_at_its_completion_never_reaches_the_peer() {
    /// Overwrites itself when it is given back, as the next user of the memory would.
    struct Poisoned(Vec<u8>);
    impl AsRef<[u8]> for Poisoned {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Poisoned {
        fn drop(&mut self) {
            self.0.fill(0xdb);
        }
    }
    let clock = Arc::new(ManualClock::new(Instant::from_secs(9)));
    let (device, at_a) = mem::pair(MemConfig::default());
    let c: Arc<dyn Clock> = clock.clone();
    let rules = Rules {
        loss: 0.05,
        duplicate: 0.1,
        reorder: 0.1,
        reorder_by: Duration::from_millis(30),
        jitter: Duration::from_millis(10),
        ..Rules::default()
    };
    let wire = Impair::new(Box::new(device), ImpairConfig { tx: rules, rx: rules, seed: 11 }, c.clone());
    let a = Stack::builder().device(wire, &[(A.into(), 24)]).clock(c);
    let a = a.configure(|c| (c.memlock, c.check_lent) = (u64::MAX, true)).build().unwrap();
    let (b, at_b) = stack_at(B, Features::all(), &clock, |_| {});
    let mut net = Pair { clock, a, b, at_a, at_b, ring: Vec::new(), hold: false };
    let listener = TcpListener::bind(&net.b, SocketAddr::from((B, 80))).unwrap();
    let mut tx = TcpStream::begin_connect(&net.a, listener.local_addr()).unwrap();
    tx.set_nonblocking(true);
    net.run(10 * SECOND);
    let (mut rx, _) = listener.try_accept().unwrap();
    rx.set_nonblocking(true);
    let (mut got, mut expected, mut done) = (Vec::new(), Vec::new(), Vec::new());
    let mut calls = 0;
    for _ in 0..20_000 {
        if calls < 100 {
            let bytes = vec![calls as u8 & 0x7f; 10_000 + calls * 13];
            if tx.send_lent(Lent::from_owner(Poisoned(bytes.clone()))).is_ok() {
                expected.extend(bytes);
                calls += 1;
            }
        }
        net.run(Duration::from_millis(20));
        got.extend(drain(&rx));
        done.extend(completed_ids(&tx));
        if calls == 100 && done.len() == 100 {
            break;
        }
    }
    assert!(got == expected);
    assert_eq!(done, (0..100).collect::<Vec<_>>());
    assert_eq!(net.a.stats().changed_buffers, 0);
}

// Linux: a merged notification keeps only the first one's copied bit.
#[test]
fn a_merged_notification_never_hides_a_copied_call() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    let mut expected = Vec::new();
    for n in 0..40_u32 {
        let watched = (n % 3 == 1).then(|| net.a.interfaces()[0].taps().add(Arc::new(Watch)));
        tx.send_lent(vec![1; 50]).unwrap();
        net.run(SECOND / 10);
        if let Some(id) = watched {
            net.a.interfaces()[0].taps().remove(id);
        }
        expected.push((n, n % 3 == 1));
    }
    net.run(SECOND);
    let told: Vec<_> = completions(&tx)
        .iter()
        .flat_map(|c| {
            let copied = c.copied.is_some();
            c.ids().map(move |id| (id, copied)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(told, expected);
}

// Linux: a clone and the record hold each other for ever.
#[test]
fn clones_of_every_kind_dropped_leave_no_record_behind() {
    let net = Pair::new();
    let mut net = net;
    let (tx, _rx, _l) = net.connect();
    let (buffer, back) = Owned::lend(pattern(5000));
    tx.send_lent(buffer).unwrap();
    let packets = sent(&net);
    let clones: Vec<_> = packets.iter().flat_map(|p| [p.clone(), p.slice(60, 100), p.clone()]).collect();
    let private: Vec<_> = packets.iter().map(SkBuff::private_copy).collect();
    let frags: Vec<_> = packets.iter().flat_map(|p| p.frags().to_vec()).collect();
    packets.iter().for_each(|p| net.at_b.push_rx(arriving(p)));
    drop(packets);
    net.run(SECOND);
    assert_eq!((tx.queued().1, tx.outstanding()), (0, 1), "acknowledged, and cloned");
    drop(clones);
    assert_eq!(tx.outstanding(), 1);
    drop(frags);
    assert_eq!((tx.outstanding(), back.load(Ordering::SeqCst)), (0, 1), "a private copy holds nothing");
    assert_eq!(completed_ids(&tx), [0]);
    drop(private);
}

// Linux: deferred frees held references for hours on an idle queue.
#[test]
fn a_packet_that_was_read_is_freed_by_the_read() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let (buffer, back) = Owned::lend(pattern(5000));
    let bytes = bytes::Bytes::from_owner(AsBytes(buffer));
    tx.send_all(&[1; 60]).unwrap();
    net.run(SECOND);
    drain(&rx);
    // A packet whose memory tells when it is let go.
    let mut packet = SkBuff::new();
    packet.put(&[0; 40]).unwrap();
    tx.send_lent(bytes.clone()).unwrap();
    let data = sent(&net).remove(0);
    let headers = data.len() - 5000;
    let mut arrived = SkBuff::from_slice(&data.to_vec()[..headers]);
    assert!(arrived.add_frag(stack::skb::Frag::from_bytes(bytes)).is_ok());
    arrived.csum = stack::skb::Csum::Unnecessary;
    net.at_b.push_rx(arrived);
    drop(data);
    net.run(SECOND);
    assert_eq!((completed_ids(&tx), back.load(Ordering::SeqCst)), (vec![0], 0), "the receiver has it");
    assert_eq!(drain(&rx), pattern(5000));
    assert_eq!(back.load(Ordering::SeqCst), 1, "read, and freed: nothing waits for another packet");
}

/// A lent buffer as the owner of `Bytes`.
struct AsBytes(Lent);

impl AsRef<[u8]> for AsBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

// compio: the release waits for the peer's delayed acknowledgment.
#[test]
fn a_copied_small_send_waits_for_nobody() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    for n in 0..10_u8 {
        let mut buffer = [n; 100];
        tx.send_all(&buffer).unwrap();
        buffer.fill(0xff); // ours again at once
    }
    assert_eq!(net.a.lent_bytes(), 0);
    net.run(SECOND);
    assert_eq!(drain(&rx), (0..10).flat_map(|n| [n; 100]).collect::<Vec<u8>>());
}

#[test]
fn a_lent_call_is_released_within_the_peers_delayed_acknowledgment() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    for n in 0..30 {
        tx.send_lent(vec![1; 100]).unwrap();
        net.run(Duration::from_millis(100));
        assert_eq!(completed_ids(&tx), [n], "40 ms and the timer's grain");
    }
}

// gVisor: a probe says yes and the send then fails.
#[test]
fn where_so_zerocopy_can_be_set_a_flagged_send_works() {
    let mut net = Pair::new();
    let listener = TcpListener::bind(&net.b, SocketAddr::from((B, 80))).unwrap();
    let socket = net.a.tcp_socket();
    socket.set_zerocopy(true);
    assert!(socket.zerocopy());
    let lent = Lent::from(vec![1; 10]);
    assert_eq!(socket.send_lent(lent.clone()).unwrap_err().0, Error::NotConnected);
    socket.connect(listener.local_addr()).unwrap();
    assert_eq!(socket.send_lent(lent.clone()).unwrap_err().0, Error::WouldBlock, "being connected");
    net.pump();
    assert_eq!(socket.send_lent(lent).unwrap().id, 0);
    net.run(SECOND);
    assert!(socket.pop_completion().unwrap().contains(0));
    socket.close();
}

// Onload: silent fallback to a slower mode.
#[test]
fn every_copy_is_counted_with_its_reason_and_no_call_is_counted_twice() {
    for (features, reason) in [
        (Features::all(), None),
        (Features::empty(), Some(Reason::NoScatterGather)),
        (Features::SG, Some(Reason::NoChecksum)),
    ] {
        let mut net = Pair::with(features, |_| {});
        let (tx, rx, _l) = net.connect();
        for _ in 0..25 {
            tx.send_lent(pattern(5000)).unwrap();
            net.run(SECOND / 10);
        }
        assert_eq!(drain(&rx).len(), 125_000);
        net.run(SECOND);
        let s = net.a.stats();
        assert_eq!(s.completions, 25);
        assert_eq!(s.calls_not_copied, if reason.is_none() { 25 } else { 0 });
        assert_eq!(s.calls_by_reason, reason.map(|r| (r, 25)).into_iter().collect::<Vec<_>>());
        let info: Vec<_> = net.a.interfaces()[0].dropped_features().to_vec();
        assert!(info.iter().all(|d| !d.why.is_empty()));
    }
}

// Ours: a SYN that ended a TIME-WAIT was dropped, and its sender waited a second to send it again.
#[test]
fn a_syn_to_a_connection_in_time_wait_opens_the_next_one_at_once() {
    // One ephemeral port only, so that every connection has the same two ends.
    let mut net = Pair::with(Features::all(), |c| c.ephemeral_ports = (40_000, 40_000));
    let listener = TcpListener::bind(&net.b, SocketAddr::from((B, 80))).unwrap();
    for round in 0..5 {
        let mut tx = TcpStream::begin_connect(&net.a, listener.local_addr()).unwrap();
        tx.set_nonblocking(true);
        net.pump();
        assert_eq!(tx.state(), uncopied::State::Established, "{round}");
        let (rx, _) = listener.try_accept().unwrap();
        drop(rx); // first, so that TIME-WAIT is at the listener's end
        net.pump();
        drop(tx);
        net.run(Duration::from_millis(100));
        assert_eq!((net.a.connections(), net.b.connections()), (0, 1), "{round}");
    }
}

// Ours: the packet side acts at the time its round began; a send call may have come in between. What went back in
// time was an old duplicate to the peer (RFC 7323, 5), and dropped.
#[test]
fn timestamps_never_go_back_though_the_packet_side_is_late() {
    let mut net = Pair::new();
    let (tx, rx, _listener) = net.connect();
    let round_began = net.clock.now();
    net.clock.advance(Duration::from_millis(100));
    let stamp = |net: &Pair| {
        let bytes = net.at_a.pop_tx().unwrap().to_vec();
        assert_eq!(bytes[40..44], [1, 1, 8, 10]);
        u32::from_be_bytes(bytes[44..48].try_into().unwrap())
    };
    tx.send(&[1; 100]).unwrap();
    let first = stamp(&net);
    rx.send(&[2; 100]).unwrap();
    net.at_a.push_rx(arriving(&net.at_b.pop_tx().unwrap()));
    net.a.poll(round_began);
    assert!(stamp(&net).wrapping_sub(first) < 1 << 31);
}
