use super::*;
use crate::testing::*;
use crate::{Features, gso};
use proptest::prelude::*;

fn gro(ethernet: bool, packets: impl IntoIterator<Item = SkBuff>) -> Vec<SkBuff> {
    let (mut gro, mut out) = (Gro::new(), Vec::new());
    for p in packets {
        gro.receive(p, &info(Features::empty(), ethernet), &mut out);
    }
    gro.flush(&mut out);
    out
}

fn pair(change: impl Fn(&mut Shape)) -> Vec<SkBuff> {
    let first = Shape::default();
    let mut second = Shape { seq: first.seq + 100, ident: first.ident + 1, ..first };
    change(&mut second);
    gro(true, [first.received(&[1; 100]), second.received(&[2; 100])])
}

#[test]
fn segments_in_order_become_one_packet() {
    let out = pair(|_| {});
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].gso, Some(Gso { kind: GsoKind::Tcp4, size: 100, segs: 2 }));
    assert_eq!(out[0].csum, Csum::Unnecessary);
    let expected = [[1u8; 100], [2; 100]].concat();
    assert_eq!(out[0].to_vec()[66..], expected);
    assert_eq!(get16(out[0].head(), 16), 252);
    assert_eq!(checksum::sum(&out[0].head()[14..34]), 0xffff);
}

#[test]
fn what_segmentation_would_not_restore_is_not_merged() {
    assert_eq!(pair(|s| s.seq += 1).len(), 2, "a gap");
    assert_eq!(pair(|s| s.ident += 1).len(), 2, "a gap in the identification");
    assert_eq!(pair(|s| s.ident -= 1).len(), 1, "a constant identification with DF");
    assert_eq!(pair(|s| s.port = 81).len(), 2, "another flow");
    assert_eq!(pair(|s| s.options = 16).len(), 2, "other options");
    for flag in [SYN, RST, URG, CWR, 0x40] {
        assert_eq!(pair(|s| s.flags |= flag).len(), 2, "flag {flag:#x}");
    }
    assert_eq!(pair(|s| s.flags = 0).len(), 2, "no ACK");
}

#[test]
fn a_header_field_that_differs_keeps_packets_apart() {
    // Byte offsets into the frame: service, TTL, acknowledgement, window, a timestamp.
    for at in [15, 22, 42, 48, 60] {
        let first = Shape::default();
        let second = Shape { seq: 1100, ident: 8, ..first }.received(&[2; 100]);
        let mut bytes = second.to_vec();
        bytes[at] ^= 4;
        let mut second = SkBuff::from_slice(&bytes);
        second.csum = Csum::Unnecessary;
        assert!(second.may_pull(34).is_some());
        finish_ipv4(second.head_mut(), 14, 34);
        assert_eq!(gro(true, [first.received(&[1; 100]), second]).len(), 2, "offset {at}");
    }
}

#[test]
fn a_wrong_checksum_goes_up_alone_and_in_order() {
    let first = Shape::default();
    let mut bytes = Shape { seq: 1100, ident: 8, ..first }.received(&[2; 100]).to_vec();
    bytes[100] ^= 1;
    let third = Shape { seq: 1200, ident: 9, ..first }.received(&[3; 100]);
    let out = gro(true, [first.received(&[1; 100]), SkBuff::from_slice(&bytes), third]);
    assert_eq!(out.len(), 3);
    assert_eq!(out[1].to_vec(), bytes);
    assert_eq!(out[1].csum, Csum::None, "nobody vouches for it");
    assert_eq!(out[2].to_vec()[70], 3);
}

#[test]
fn push_fin_and_a_smaller_segment_close_the_packet() {
    for (flags, len) in [(0x10 | PSH, 100), (0x10 | FIN, 100), (0x10, 40)] {
        let (mut g, mut out) = (Gro::new(), Vec::new());
        let first = Shape::default();
        g.receive(first.received(&[1; 100]), &info(Features::empty(), true), &mut out);
        let second = Shape { seq: 1100, ident: 8, flags, ..first };
        g.receive(second.received(&vec![2; len]), &info(Features::empty(), true), &mut out);
        assert_eq!(out.len(), 1, "without a flush");
        assert_eq!(out[0].head()[14 + 20 + 13], flags);
    }
}

#[test]
fn a_larger_segment_begins_a_new_packet() {
    let first = Shape::default();
    let second = Shape { seq: 1100, ident: 8, ..first };
    assert_eq!(gro(true, [first.received(&[1; 100]), second.received(&[2; 101])]).len(), 2);
}

#[test]
fn frames_in_their_own_pages_merge_by_seventeen() {
    let frames = (0..40).map(|n| {
        Shape { seq: 1000 + n * 100, ident: n as u16, ..Shape::default() }.received(&[n as u8; 100])
    });
    let segs: Vec<_> = gro(true, frames).iter().map(|s| s.gso.map_or(1, |g| g.segs)).collect();
    assert_eq!(segs, [17, 17, 6]);
}

#[test]
fn other_traffic_passes_untouched() {
    let udp = Shape { udp: true, ..Shape::default() }.received(&[1; 50]);
    let odd = [SkBuff::from_slice(&[]), SkBuff::from_slice(&[0x45; 30]), SkBuff::from_slice(&[6; 70]), udp];
    let bytes: Vec<_> = odd.iter().map(SkBuff::to_vec).collect();
    let out: Vec<_> = gro(true, odd).iter().map(SkBuff::to_vec).collect();
    assert_eq!(out, bytes);
}

fn shape() -> impl Strategy<Value = Shape> {
    (any::<(bool, bool, u32, u16)>(), 0usize..=10, any::<(bool, bool, bool)>()).prop_map(
        |((ipv6, ethernet, seq, ident), options, (fin, psh, cwr))| Shape {
            ipv6,
            ethernet,
            seq,
            ident,
            options: options * 4,
            flags: 0x10 | u8::from(fin) | (u8::from(psh) << 3) | (u8::from(cwr) << 7),
            ..Shape::default()
        },
    )
}

proptest! {
    #[test]
    fn aggregation_undoes_segmentation(s in shape(), len in 1usize..9000, size in 600u16..1500, frag in 600usize..4000) {
        let payload: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        let large = s.large(&payload, frag, size);
        let whole = without_checksum(&large, &s);
        let mut frames = Vec::new();
        gso::segment(&mut large.clone(), |f| frames.push(wire(finished(f)))).unwrap();
        let n = frames.len();
        let out = gro(s.ethernet, frames);
        prop_assert_eq!(out.len(), 1);
        prop_assert_eq!(out[0].gso.map_or(1, |g| usize::from(g.segs)), n);
        prop_assert_eq!(without_checksum(&out[0], &s), whole);
    }

    #[test]
    fn segmentation_undoes_aggregation(s in shape(), count in 2usize..=17, size in 1usize..1500, last in 1usize..1500) {
        let last = last.min(size);
        let frames: Vec<_> = (0..count).map(|n| {
            let end = n + 1 == count;
            let flags = s.flags & if end { 0xff } else { !(FIN | PSH) } & if n == 0 { 0xff } else { !CWR };
            let seq = s.seq.wrapping_add((n * size) as u32);
            let ident = s.ident.wrapping_add(n as u16);
            Shape { seq, ident, flags, ..s }.received(&vec![n as u8; if end { last } else { size }])
        }).collect();
        let before: Vec<_> = frames.iter().map(SkBuff::to_vec).collect();
        let mut out = gro(s.ethernet, frames);
        prop_assert_eq!(out.len(), 1);
        let mut after = Vec::new();
        gso::segment(&mut out[0], |f| after.push(finished(f).to_vec())).unwrap();
        prop_assert_eq!(after, before);
    }

    #[test]
    fn no_bytes_from_a_wire_are_lost_or_crash_it(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..8), v6: bool) {
        let total: usize = frames.iter().map(Vec::len).sum();
        let packets = frames.iter().map(|f| {
            let mut f = f.clone();
            if let Some(b) = f.first_mut() { *b = if v6 { 0x60 } else { 0x45 }; }
            SkBuff::from_slice(&f)
        });
        prop_assert_eq!(gro(false, packets).iter().map(SkBuff::len).sum::<usize>(), total);
    }
}

/// The frame's bytes with the TCP checksum, which an aggregate does not have, left out.
fn without_checksum(skb: &SkBuff, s: &Shape) -> Vec<u8> {
    let mut v = skb.to_vec();
    set16(&mut v, s.transport() + 16, 0);
    v
}
