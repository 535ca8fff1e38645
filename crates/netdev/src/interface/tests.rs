use super::*;
use crate::Features;
use crate::testing::*;
use std::io;
use std::sync::Arc;

#[derive(Default)]
struct Ring {
    sent: Vec<Vec<u8>>,
    room: usize,
    kicks: usize,
    fail: Option<i32>,
}

struct Device(Arc<Mutex<Ring>>);

impl DeviceTx for Device {
    fn start_xmit(&mut self, skb: SkBuff) -> Xmit {
        let mut ring = self.0.lock();
        if let Some(n) = ring.fail {
            return Xmit::Failed(io::Error::from_raw_os_error(n));
        }
        if ring.room == 0 {
            return Xmit::Busy(skb);
        }
        ring.room -= 1;
        ring.sent.push(skb.to_vec());
        Xmit::Sent
    }
    fn kick(&mut self) {
        self.0.lock().kicks += 1;
    }
}

fn interface(room: usize, limits: Limits) -> (Interface, Arc<Mutex<Ring>>) {
    let ring = Arc::new(Mutex::new(Ring { room, ..Ring::default() }));
    let tx = Box::new(Device(ring.clone()));
    (Interface::with_limits(1, info(Features::all(), false), tx, limits), ring)
}

fn packet(n: u32) -> SkBuff {
    SkBuff::from_slice(&n.to_be_bytes())
}

fn numbers(ring: &Mutex<Ring>) -> Vec<u32> {
    ring.lock().sent.iter().map(|b| u32::from_be_bytes(b[..4].try_into().unwrap())).collect()
}

#[test]
fn a_burst_goes_straight_through_with_one_kick() {
    let (i, ring) = interface(100, Limits::default());
    assert_eq!(i.burst((0..5).map(packet)), 0);
    assert_eq!(numbers(&ring), [0, 1, 2, 3, 4]);
    assert_eq!(ring.lock().kicks, 1);
    let s = i.stats().snapshot();
    assert_eq!((s.tx_packets, s.tx_bytes, s.queued, s.kicks), (5, 20, 0, 1));
}

#[test]
fn a_full_device_is_left_alone_until_drained_and_order_is_kept() {
    let (i, ring) = interface(2, Limits::default());
    i.burst((0..6).map(packet));
    assert_eq!((numbers(&ring), i.backlog().0, i.stats().snapshot().busy), (vec![0, 1], 4, 1));
    ring.lock().room = 3;
    i.xmit(packet(6)).unwrap();
    assert_eq!(ring.lock().sent.len(), 2, "nobody bothers it");
    assert!(!i.drain(), "nobody was told that there is no room");
    assert_eq!((numbers(&ring), i.backlog().0), (vec![0, 1, 2, 3, 4], 2));
    ring.lock().room = 9;
    i.drain();
    assert_eq!((numbers(&ring), i.backlog()), ((0..7).collect(), (0, 0)));
}

#[test]
fn segments_that_do_not_fit_keep_their_place() {
    let (_, ring) = interface(2, Limits::default());
    let i = Interface::new(1, info(Features::SG, true), Box::new(Device(ring.clone())));
    i.xmit(Shape::default().large(&[1; 500], 500, 100)).unwrap();
    i.xmit(packet(0)).unwrap();
    ring.lock().room = 9;
    i.drain();
    let seqs: Vec<_> =
        ring.lock().sent.iter().filter(|b| b.len() > 4).map(|b| crate::gso::get32(b, 38)).collect();
    assert_eq!(seqs, [1000, 1100, 1200, 1300, 1400]);
    assert_eq!(ring.lock().sent[5].len(), 4);
    let s = i.stats().snapshot();
    assert_eq!((s.sw_gso, s.sw_csum), (1, 5));
}

#[test]
fn room_ends_behind_a_full_device_and_its_return_is_reported_once() {
    let (i, ring) = interface(0, Limits::default());
    let large = || SkBuff::from_slice(&[0; 65536]);
    for _ in 0..4 {
        assert!(i.has_room());
        i.xmit(large()).unwrap();
    }
    assert!(!i.has_room());
    assert!(!i.drain(), "still full");
    ring.lock().room = 1;
    assert!(i.drain());
    assert!(!i.drain());
    assert!(i.has_room());
}

#[test]
fn a_full_queue_drops_and_counts() {
    let (i, _ring) = interface(0, Limits { bytes: 8, packets: 9 });
    assert_eq!(i.burst((0..5).map(packet)), 3);
    assert_eq!(i.stats().snapshot().tx_dropped, [(DropReason::QdiscFull, 3)]);
}

#[test]
fn a_device_that_fails_is_counted_with_its_errno() {
    let (i, ring) = interface(9, Limits::default());
    ring.lock().fail = Some(105);
    assert_eq!(i.xmit(packet(1)), Err(DropReason::DeviceNoMemory));
    let s = i.stats().snapshot();
    assert_eq!((s.tx_dropped, s.last_errno, s.tx_packets), (vec![(DropReason::DeviceNoMemory, 1)], 105, 0));
}

#[test]
fn many_senders_strand_nothing_and_keep_their_order() {
    let (i, ring) = interface(usize::MAX, Limits::default());
    std::thread::scope(|s| {
        for t in 0..4u32 {
            let i = &i;
            s.spawn(move || {
                for n in 0..2000 {
                    i.xmit(packet(t << 16 | n)).unwrap();
                }
                i.kick();
            });
        }
    });
    assert_eq!(i.backlog(), (0, 0));
    for t in 0..4 {
        let of: Vec<_> = numbers(&ring).into_iter().filter(|n| n >> 16 == t).map(|n| n & 0xffff).collect();
        assert!(of.iter().copied().eq(0..2000), "sender {t}");
    }
}
