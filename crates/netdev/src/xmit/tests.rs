use super::*;
use crate::Tap;
use crate::testing::*;
use bytes::Bytes;
use parking_lot::Mutex;
use skb::{ErrorQueue, Frag};
use std::sync::Arc;

const ALL: Features = Features::all();

fn without(f: Features) -> DeviceInfo {
    info(crate::fix_features(ALL - f).0, true)
}

fn validate(skb: SkBuff, device: &DeviceInfo) -> (Conforming, Validated) {
    let mut out = Conforming::new();
    let done = validate_xmit(skb, device, &Taps::default(), &mut out).unwrap();
    (out, done)
}

fn iovecs(skb: &SkBuff) -> Vec<usize> {
    skb.frags().iter().map(|f| f.as_iovec().0 as usize).collect()
}

#[test]
fn an_able_device_gets_the_packet_untouched() {
    let skb = Shape::default().large(&[1; 5000], 2000, 1400);
    let before = (iovecs(&skb), skb.csum, skb.gso);
    let (out, done) = validate(skb, &without(Features::empty()));
    assert_eq!(done, Validated::default());
    assert_eq!((iovecs(&out[0]), out[0].csum, out[0].gso), before);
}

#[test]
fn every_lacking_feature_gives_the_same_frames_on_the_wire() {
    let payload: Vec<u8> = (0..5000).map(|n| (n * 7) as u8).collect();
    for shape in
        [Shape::default(), Shape { ipv6: true, ..Shape::default() }, Shape { udp: true, ..Shape::default() }]
    {
        let mut frames = Vec::new();
        gso::segment(&mut shape.large(&payload, 900, 1400), |s| frames.push(finished(s).to_vec())).unwrap();
        for lacking in
            [Features::SG, Features::CSUM, Features::SG | Features::CSUM, Features::TSO4 | Features::TSO6]
        {
            let (out, done) = validate(shape.large(&payload, 900, 1400), &without(lacking));
            assert_eq!(done.segments, 4);
            let linear = lacking.contains(Features::SG);
            assert!(!linear || out.iter().all(|s| s.frags().len() == 1));
            let sent: Vec<_> = out.into_iter().map(|s| finished(s).to_vec()).collect();
            assert_eq!(sent, frames, "{lacking:?}");
        }
    }
}

#[test]
fn a_packet_larger_than_the_device_cuts_is_cut_here() {
    let device = DeviceInfo { gso_max_size: 4000, ..without(Features::empty()) };
    let (_, done) = validate(Shape::default().large(&[1; 5000], 5000, 1400), &device);
    assert_eq!((done.segments, done.summed, done.linearized), (4, 0, 0));
}

#[test]
fn a_zero_sum_of_a_datagram_is_sent_as_ones() {
    let shape = Shape { udp: true, ..Shape::default() };
    // Choose the payload so that everything sums to ffff.
    let open = shape.open([Frag::copied_from(&[0, 0])]);
    let rest = !sum_from(&open, shape.transport());
    let (out, _) = validate(shape.open([Frag::copied_from(&rest.to_be_bytes())]), &without(Features::CSUM));
    assert_eq!(out[0].to_vec()[40..42], [0xff, 0xff]);
    assert!(checksum_is_right(&out[0], &shape));
}

#[test]
fn odd_fragments_sum_right() {
    let shape = Shape::default();
    let (out, _) = validate(
        shape.open([1usize, 3, 2, 5, 1].map(|n| Frag::copied_from(&vec![n as u8; n]))),
        &without(Features::CSUM),
    );
    assert!(checksum_is_right(&out[0], &shape));
}

/// Sends lent memory down a device lacking `features`; what the queue's own packet says afterwards.
fn lend(lacking: Features, gso: bool, taps: &Taps) -> (bool, Option<Reason>) {
    let queue = ErrorQueue::new(131072, Arc::new(skb::MemLock::new(u64::MAX)), Box::new(()));
    let frag = Frag::from_lent(&queue, &mut Some(Bytes::from(vec![5u8; 3000])), false).unwrap();
    let mut skb = Shape::default().open([frag.clone()]);
    if gso {
        skb.gso = Some(skb::Gso { kind: GsoKind::Tcp4, size: 1000, segs: 3 });
    }
    let kept = skb.clone();
    let mut out = Conforming::new();
    let _ = validate_xmit(skb, &without(lacking), taps, &mut out).unwrap();
    assert!(kept.has_lent(), "the retransmit queue keeps referring to the caller's memory");
    let lent = out.iter().any(SkBuff::has_lent);
    drop((out, kept, frag));
    let c = queue.pop().expect("completed with the last reference");
    (lent, c.copied)
}

#[test]
fn lent_bytes_are_copied_only_where_needed_and_the_call_says_why() {
    let none = Taps::default();
    for gso in [false, true] {
        assert_eq!(lend(Features::empty(), gso, &none), (true, None));
        assert_eq!(lend(Features::TSO4, gso, &none), (true, None));
        assert_eq!(lend(Features::CSUM, gso, &none), (false, Some(Reason::NoChecksum)));
        assert_eq!(lend(Features::SG, gso, &none), (false, Some(Reason::NoScatterGather)));
        assert_eq!(lend(Features::SG | Features::CSUM, gso, &none), (false, Some(Reason::NoScatterGather)));
    }
}

#[derive(Default)]
struct Recorder(Mutex<Vec<(usize, bool, Direction)>>);

impl Tap for Recorder {
    fn see(&self, skb: &SkBuff, direction: Direction) {
        self.0.lock().push((skb.len(), skb.has_lent(), direction));
    }
}

#[test]
fn a_tap_sees_a_private_copy_and_the_packet_is_copied_for_it() {
    let (taps, tap) = (Taps::default(), Arc::new(Recorder::default()));
    let id = taps.add(tap.clone());
    assert_eq!(lend(Features::SG | Features::CSUM, true, &taps), (false, Some(Reason::Tap)));
    assert_eq!(*tap.0.lock(), [(66 + 3000, false, Direction::Sent)]);
    assert!(taps.remove(id) && taps.is_empty() && !taps.remove(id));
}

#[test]
fn nonsense_is_refused_with_its_reason() {
    let mut out = Conforming::new();
    let mut skb = SkBuff::from_slice(&[1, 2, 3]);
    skb.csum = Csum::Partial { start: 2, offset: 16 };
    let refused = validate_xmit(skb, &without(Features::CSUM), &Taps::default(), &mut out);
    assert_eq!(refused, Err(DropReason::BadChecksumOffset));
    let mut skb = SkBuff::from_slice(&[1; 60]);
    skb.gso = Some(skb::Gso { kind: GsoKind::Tcp4, size: 10, segs: 6 });
    let refused = validate_xmit(skb, &without(Features::empty()), &Taps::default(), &mut out);
    assert_eq!(refused, Err(DropReason::BadGso));
    assert!(out.is_empty());
}
