use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skb::{Csum, Frag, Gso, GsoKind};
use std::time::Instant;

type Halves = (Box<dyn DeviceTx>, Box<dyn DeviceRx>);

fn opened(config: LinkConfig) -> (Halves, Halves, Engine, [Arc<LinkStats>; 2]) {
    let (a, b, engine) = pair(config);
    let stats = [a.stats(), b.stats()];
    (Box::new(a).open(), Box::new(b).open(), engine, stats)
}

fn big(len: usize) -> SkBuff {
    let mut skb = SkBuff::new();
    skb.put(&[0xee; 66]).unwrap();
    let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
    for part in payload.chunks(len.div_ceil(16)) {
        skb.add_frag(Frag::copied_from(part)).unwrap();
    }
    skb
}

fn readable(rx: &dyn DeviceRx, ms: i64) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
    let fd = rx.wait_fd().unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)) == Ok(1)
}

#[test]
fn a_large_packet_arrives_whole_in_one_page() {
    let ((mut tx, _rxa), (_txb, mut rx), mut engine, stats) = opened(LinkConfig::default());
    let mut skb = big(65000);
    let bytes = skb.to_vec();
    skb.csum = Csum::Partial { start: 34, offset: 16 };
    skb.gso = Some(Gso { kind: GsoKind::Tcp4, size: 1448, segs: 45 });
    assert!(matches!(tx.start_xmit(skb), Xmit::Sent));
    tx.kick();
    assert_eq!(engine.step(10), 1);
    let mut got = Vec::new();
    assert_eq!(rx.poll_rx(10, &mut got), 1);
    assert_eq!(got[0].to_vec(), bytes);
    assert_eq!(got[0].frags().len(), 1);
    assert_eq!(got[0].csum, Csum::Unnecessary);
    assert_eq!(got[0].gso, Some(Gso { kind: GsoKind::Tcp4, size: 1448, segs: 45 }));
    assert_eq!(stats[0].tx_packets.load(Ordering::Relaxed), 1);
    assert_eq!(stats[1].rx_bytes.load(Ordering::Relaxed), bytes.len() as u64);
}

#[test]
fn a_packet_is_dropped_by_its_sender_and_not_before_it_was_read() {
    struct Flag(Arc<AtomicBool>);
    impl AsRef<[u8]> for Flag {
        fn as_ref(&self) -> &[u8] {
            &[7; 500]
        }
    }
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let ((mut tx, _rxa), (_txb, mut rx), mut engine, _) = opened(LinkConfig::default());
    let freed = Arc::new(AtomicBool::new(false));
    let skb = SkBuff::from_frag(Frag::from_bytes(skb::Lent::from_owner(Flag(freed.clone())).into_bytes()));
    assert!(matches!(tx.start_xmit(skb), Xmit::Sent));
    assert_eq!(tx.reclaim_tx(), 0);
    engine.step(1);
    assert!(!freed.load(Ordering::SeqCst), "it waits in the completion ring");
    assert_eq!(tx.reclaim_tx(), 1);
    assert!(freed.load(Ordering::SeqCst));
    let mut got = Vec::new();
    rx.poll_rx(1, &mut got);
    assert_eq!(got[0].to_vec(), [7; 500]);
}

#[test]
fn a_full_transmit_ring_is_busy_and_room_wakes_the_sender() {
    let ((mut tx, mut rxa), (_txb, _rxb), mut engine, stats) =
        opened(LinkConfig { ring: 2, ..LinkConfig::default() });
    for _ in 0..2 {
        assert!(matches!(tx.start_xmit(big(100)), Xmit::Sent));
    }
    assert!(matches!(tx.start_xmit(big(100)), Xmit::Busy(_)));
    assert_eq!(stats[0].tx_busy.load(Ordering::Relaxed), 1);
    assert!(rxa.arm());
    assert!(!readable(&*rxa, 0));
    engine.step(1);
    assert!(readable(&*rxa, 0), "room is a reason to wake");
    assert!(!rxa.arm());
}

#[test]
fn a_full_completion_ring_stops_the_engine_until_it_is_reclaimed() {
    let ((mut tx, _rxa), (_txb, mut rxb), mut engine, _) =
        opened(LinkConfig { ring: 2, ..LinkConfig::default() });
    let mut got = Vec::new();
    for _ in 0..2 {
        assert!(matches!(tx.start_xmit(big(10)), Xmit::Sent));
    }
    assert_eq!(engine.step(10), 2);
    rxb.poll_rx(10, &mut got);
    assert!(matches!(tx.start_xmit(big(10)), Xmit::Sent));
    assert_eq!(engine.step(10), 0);
    assert_eq!(tx.reclaim_tx(), 2);
    assert_eq!(engine.step(10), 1);
}

#[test]
fn a_full_receive_ring_drops_like_hardware_or_waits_as_configured() {
    for backpressure in [false, true] {
        let ((mut tx, _rxa), (_txb, mut rxb), mut engine, stats) =
            opened(LinkConfig { ring: 2, backpressure, ..LinkConfig::default() });
        for _ in 0..2 {
            assert!(matches!(tx.start_xmit(big(10)), Xmit::Sent));
        }
        engine.step(10);
        tx.reclaim_tx();
        assert!(matches!(tx.start_xmit(big(10)), Xmit::Sent));
        assert_eq!(engine.step(10), usize::from(!backpressure));
        assert_eq!(stats[1].rx_dropped.load(Ordering::Relaxed), u64::from(!backpressure));
        let mut got = Vec::new();
        assert_eq!(rxb.poll_rx(10, &mut got), 2);
        assert_eq!(engine.step(10), usize::from(backpressure));
    }
}

#[test]
fn a_closed_end_holds_nobody_up() {
    let ((mut tx, _rxa), b, mut engine, stats) = opened(LinkConfig { ring: 1, ..LinkConfig::default() });
    drop(b);
    for _ in 0..5 {
        assert!(matches!(tx.start_xmit(big(10)), Xmit::Sent));
        assert_eq!(engine.step(10), 1);
        assert_eq!(tx.reclaim_tx(), 1);
    }
    assert_eq!(stats[1].rx_dropped.load(Ordering::Relaxed), 5);
}

#[test]
fn a_sleeping_sender_hears_of_its_completions_after_the_delay() {
    let ((mut tx, mut rxa), _b, engine, _) = opened(LinkConfig::default());
    let _running = engine.spawn("engine").unwrap();
    assert!(matches!(tx.start_xmit(big(1000)), Xmit::Sent));
    assert!(rxa.arm());
    tx.kick();
    assert!(readable(&*rxa, 900));
    assert!(!rxa.arm());
    assert_eq!(tx.reclaim_tx(), 1);
    assert!(rxa.arm());
}

/// Both ends sleep whenever they may, through rings so small that every reason to wait occurs.
#[test]
fn many_small_waits_lose_no_packet_and_no_wake_up() {
    const PACKETS: u32 = 30_000;
    for ring in [1, 3, 256] {
        let ((mut tx, mut rxa), (_txb, mut rxb), engine, _) =
            opened(LinkConfig { ring, ..LinkConfig::default() });
        let running = engine.spawn("engine").unwrap();
        let receiver = std::thread::spawn(move || {
            let (mut next, mut got) = (0u32, Vec::new());
            while next < PACKETS {
                if rxb.poll_rx(16, &mut got) == 0 && rxb.arm() {
                    assert!(readable(&*rxb, 900), "receiver slept through packet {next}");
                }
                for skb in got.drain(..) {
                    assert_eq!(skb.to_vec(), next.to_be_bytes());
                    next += 1;
                }
            }
        });
        let mut waiting = None;
        let mut sent = 0u32;
        while sent < PACKETS {
            let skb = waiting.take().unwrap_or_else(|| SkBuff::from_slice(&sent.to_be_bytes()));
            match tx.start_xmit(skb) {
                Xmit::Sent => sent += 1,
                Xmit::Busy(skb) => {
                    waiting = Some(skb);
                    tx.kick();
                    tx.reclaim_tx();
                    if rxa.arm() {
                        assert!(readable(&*rxa, 900), "sender slept through room after {sent}");
                    }
                }
                Xmit::Failed(e) => panic!("{e}"),
            }
            if sent.is_multiple_of(7) {
                tx.kick();
            }
            tx.reclaim_tx();
        }
        tx.kick();
        // What is left must not need the sender: unless the completion ring is full.
        let deadline = Instant::now() + std::time::Duration::from_secs(5);
        while !receiver.is_finished() && Instant::now() < deadline {
            tx.reclaim_tx();
            std::thread::yield_now();
        }
        receiver.join().unwrap();
        running.stop();
    }
}

#[test]
fn without_checksum_offload_the_receiver_must_look_itself() {
    let features = Features::SG;
    let ((mut tx, _rxa), (_txb, mut rxb), mut engine, _) =
        opened(LinkConfig { features, ..LinkConfig::default() });
    assert!(matches!(tx.start_xmit(big(10)), Xmit::Sent));
    engine.step(1);
    let mut got = Vec::new();
    rxb.poll_rx(1, &mut got);
    assert_eq!(got[0].csum, Csum::None);
}
