use super::*;
use crate::testing::*;
use skb::Frag;

fn cut(mut skb: SkBuff) -> Vec<SkBuff> {
    let mut out = Vec::new();
    assert_eq!(segment(&mut skb, |s| out.push(s)), Ok(out.len()));
    out
}

fn shapes() -> impl Iterator<Item = Shape> {
    (0..8).map(|n| Shape { ipv6: n & 1 > 0, ethernet: n & 2 > 0, udp: n & 4 > 0, ..Shape::default() })
}

#[test]
fn payload_and_headers_are_those_of_the_packets_it_stands_for() {
    let payload: Vec<u8> = (0..5000).map(|n| n as u8).collect();
    for shape in shapes() {
        let segments = cut(shape.large(&payload, 700, 1400));
        assert_eq!(segments.len(), 4);
        for (n, s) in segments.into_iter().enumerate() {
            let part = &payload[n * 1400..(n * 1400 + 1400).min(5000)];
            let (seq, ident) = (shape.seq + 1400 * n as u32, shape.ident + n as u16);
            let expected = Shape { seq, ident, ..shape }.open([Frag::copied_from(part)]);
            assert_eq!(s.to_vec(), expected.to_vec(), "{shape:?} segment {n}");
            assert_eq!((s.csum, s.mac_len, s.gso), (expected.csum, expected.mac_len, None));
            assert!(checksum_is_right(&finished(s), &shape));
        }
    }
}

#[test]
fn fin_and_push_go_last_and_cwr_first() {
    let shape = Shape { flags: 0x80 | 0x10 | FIN_PSH, ..Shape::default() };
    let flags: Vec<_> =
        cut(shape.large(&[0; 300], 300, 100)).iter().map(|s| s.head()[14 + 20 + 13]).collect();
    assert_eq!(flags, [0x90, 0x10, 0x19]);
}

#[test]
fn payload_is_referred_to_and_not_copied() {
    let frag = Frag::copied_from(&[7; 4000]);
    let mut skb = Shape::default().open([frag.clone()]);
    skb.gso = Some(Gso { kind: GsoKind::Tcp4, size: 1000, segs: 4 });
    for (n, s) in cut(skb).iter().enumerate() {
        assert_eq!(s.frags()[0].as_iovec().0 as usize, frag.as_iovec().0 as usize + n * 1000);
    }
}

#[test]
fn a_sequence_number_and_an_identification_wrap() {
    let shape = Shape { seq: u32::MAX - 50, ident: u16::MAX, ..Shape::default() };
    let second = &cut(shape.large(&[0; 200], 200, 100))[1];
    assert_eq!(get32(second.head(), 14 + 20 + 4), 49);
    assert_eq!(get16(second.head(), 14 + 4), 0);
}

#[test]
fn a_datagram_sent_without_checksum_stays_without() {
    let mut skb = Shape { udp: true, ..Shape::default() }.large(&[1; 300], 300, 100);
    skb.csum = Csum::None;
    set16(skb.head_mut(), 14 + 20 + 6, 0);
    for s in cut(skb) {
        assert_eq!((s.csum, get16(s.head(), 14 + 20 + 6)), (Csum::None, 0));
    }
}

#[test]
fn marks_that_contradict_the_bytes_are_refused() {
    let big = || Shape::default().large(&[1; 300], 300, 100);
    let refused = |change: fn(&mut SkBuff)| {
        let mut skb = big();
        change(&mut skb);
        segment(&mut skb, |_| panic!("nothing is given out")).unwrap_err()
    };
    assert_eq!(refused(|s| s.gso = None), GsoError::NotGso);
    assert_eq!(refused(|s| s.gso.as_mut().unwrap().size = 0), GsoError::NotGso);
    assert_eq!(refused(|s| s.gso.as_mut().unwrap().kind = GsoKind::Tcp6), GsoError::BadHeaders);
    assert_eq!(refused(|s| s.gso.as_mut().unwrap().kind = GsoKind::Udp), GsoError::BadHeaders);
    assert_eq!(refused(|s| s.mac_len = 3), GsoError::BadHeaders);
    assert_eq!(refused(|s| s.mac_len = 9999), GsoError::BadHeaders);
    assert_eq!(refused(|s| s.head_mut()[14 + 20 + 12] = 0x40), GsoError::BadHeaders);
    assert_eq!(refused(|s| s.trim(40)), GsoError::BadHeaders);
}
