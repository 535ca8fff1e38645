use super::*;
use netdev::DropReason;
use proptest::prelude::*;
use wire::ipv6::FragmentHeader;

/// Sends a datagram in fragments; the IP packets, turned around so that they come from the peer.
fn fragments(v4: bool, mtu: u32, data: &[u8]) -> Vec<Vec<u8>> {
    let mut inet = host();
    inet.set_mtu(ETH, mtu);
    introduce(&mut inet, T0, v4);
    let mut tx = Vec::new();
    assert!(matches!(inet.output(T0, datagram(v4, data), udp_meta(v4, false), &mut tx), OutputVerdict::Sent));
    let turn = |(_, skb): (IfIndex, SkBuff)| {
        let mut p = skb.to_vec().split_off(14);
        assert!(p.len() <= mtu as usize);
        match v4 {
            true => {
                let (mut h, _) = Ipv4Header::parse(&p).expect("a header");
                std::mem::swap(&mut h.src, &mut h.dst);
                h.emit(&mut p);
            }
            false => {
                let mut h = Ipv6Header::parse(&p).expect("a header");
                std::mem::swap(&mut h.src, &mut h.dst);
                h.emit(&mut p);
            }
        }
        p
    };
    tx.into_iter().map(turn).collect()
}

fn feed(inet: &mut Inet, packets: &[Vec<u8>]) -> Vec<Delivered> {
    let mut whole = Vec::new();
    for p in packets {
        match input(inet, T0, to_us(p)).0 {
            InputVerdict::Deliver(d) => whole.push(d),
            InputVerdict::Consumed => {}
            other => panic!("{other:?}"),
        }
    }
    whole
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn reassembly_undoes_fragmentation_in_any_order(
        v4: bool, mtu in 1280u32..1600, data in prop::collection::vec(any::<u8>(), 0..9000),
        order in any::<prop::sample::Index>(), twice: bool
    ) {
        let mut pieces = fragments(v4, mtu, &data);
        let n = pieces.len();
        pieces.rotate_left(order.index(n));
        pieces.swap(0, n - 1);
        if twice && n > 1 {
            pieces.insert(1, pieces[0].clone());
        }
        let mut whole = feed(&mut host(), &pieces);
        prop_assert_eq!(whole.len(), 1);
        let mut d = whole.pop().expect("one");
        prop_assert_eq!(&d.skb.to_vec()[8..], &data[..]);
        // The pseudo-header does not mind who is source and who is destination. What left in one piece had its
        // checksum left to the device.
        prop_assert!(n == 1 || udp_header(&mut d).is_ok());
    }
}

#[test]
fn fragments_that_overlap_take_their_datagram_with_them() {
    for v4 in [true, false] {
        let mut inet = host();
        let pieces = fragments(v4, 1280, &[3; 3000]);
        assert!(feed(&mut inet, &pieces[..1]).is_empty());
        let mut changed = pieces[0].clone();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        let (v, _) = input(&mut inet, T0, to_us(&changed));
        assert!(matches!(v, InputVerdict::Drop(DropReason::BadFragment)));
        assert!(feed(&mut inet, &pieces[1..]).is_empty(), "its beginning is gone");
    }
}

fn v6_fragment(ident: u32, offset: u16, more: bool, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0; 8];
    FragmentHeader { next_header, offset, more, ident }.emit(&mut p);
    p.extend(payload);
    packet(peer(false), us(false), 44, &p)
}

fn refused(inet: &mut Inet, p: &[u8]) -> bool {
    matches!(input(inet, T0, to_us(p)).0, InputVerdict::Drop(DropReason::BadFragment))
}

#[test]
fn fragments_that_lie_are_refused() {
    let mut inet = host();
    assert!(refused(&mut inet, &v6_fragment(1, 0, true, 17, &[0; 15])), "not in units of eight");
    assert!(refused(&mut inet, &v6_fragment(1, 65_528, false, 17, &[0; 64])), "beyond any datagram");
    assert!(refused(&mut inet, &v6_fragment(1, 8, true, 17, &[])), "nothing");
    assert!(
        refused(&mut inet, &v6_fragment(1, 0, true, 60, &[17, 1, 0, 0, 0, 0, 0, 0])),
        "half a header chain"
    );
    assert!(refused(&mut inet, &v6_fragment(1, 0, false, 44, &[17, 0, 0, 0, 0, 0, 0, 1])), "nested");
    // Two ends.
    assert!(feed(&mut inet, &[v6_fragment(2, 64, false, 17, &[0; 8])]).is_empty());
    assert!(refused(&mut inet, &v6_fragment(2, 128, false, 17, &[0; 8])));
    // More behind the end.
    assert!(feed(&mut inet, &[v6_fragment(3, 64, false, 17, &[0; 8])]).is_empty());
    assert!(refused(&mut inet, &v6_fragment(3, 72, true, 17, &[0; 8])));
}

#[test]
fn a_fragment_that_is_the_whole_disturbs_nobody() {
    let mut inet = host();
    assert!(feed(&mut inet, &[v6_fragment(5, 0, true, 17, &[1; 16])]).is_empty());
    let whole = feed(&mut inet, &[v6_fragment(5, 0, false, 17, &[2; 9])]);
    assert_eq!((whole[0].proto, whole[0].skb.to_vec()), (17, vec![2; 9]));
    let whole = feed(&mut inet, &[v6_fragment(5, 16, false, 17, &[1; 8])]);
    assert_eq!(whole[0].skb.to_vec(), [1; 24]);
}

#[test]
fn what_is_kept_is_bounded_and_the_oldest_goes() {
    let mut inet = host_with(Config { reassembly_bytes: 10_000, ..Config::default() });
    for ident in 0..100 {
        assert!(feed(&mut inet, &[v6_fragment(ident, 0, true, 17, &[0; 1000])]).is_empty());
    }
    assert_eq!(inet.drops().get(DropReason::ReassemblyFull), 91);
    let whole = feed(&mut inet, &[v6_fragment(99, 1000, false, 17, &[0; 8])]);
    assert_eq!(whole.len(), 1);
}

#[test]
fn a_datagram_that_stays_incomplete_is_forgotten_and_reported() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        let pieces = fragments(v4, 1280, &[3; 3000]);
        assert!(feed(&mut inet, &pieces[..1]).is_empty());
        let at = inet.next_timeout().expect("a timer");
        assert_eq!(at, T0 + seconds(30));
        let mut tx = Vec::new();
        inet.confirm(at, peer(v4));
        assert!(inet.on_timeout(at, &mut tx).is_empty());
        let message = tx[0].1.to_vec();
        let at = if v4 { 34 } else { 54 };
        assert_eq!(message[at..at + 2], if v4 { [11, 1] } else { [3, 1] });
        assert_eq!((inet.next_timeout(), inet.drops().get(DropReason::ReassemblyTimeout)), (None, 1));
        assert!(feed(&mut inet, &pieces[1..]).is_empty());
    }
}

#[test]
fn congestion_met_by_one_fragment_was_met_by_the_datagram() {
    let mut inet = host();
    let mut pieces = fragments(true, 1280, &[3; 3000]);
    for p in &mut pieces {
        let (mut h, _) = Ipv4Header::parse(p).expect("a header");
        h.tos = if h.fragment_offset == 0 { 2 } else { 3 };
        h.emit(p);
    }
    assert_eq!(feed(&mut inet, &pieces)[0].tos, 3);
}

#[test]
fn a_fragmented_echo_request_comes_back_fragmented() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        let (kind, proto) = if v4 { (8, proto::ICMP) } else { (128, proto::ICMPV6) };
        let m = icmp_message((peer(v4), us(v4)), IcmpHeader { kind, code: 0, rest: 1 }, &[4; 3000]);
        let mut sent = Vec::new();
        for (offset, more, part) in [(0u16, true, &m[..1480]), (1480, false, &m[1480..])] {
            let p = match v4 {
                true => {
                    let mut p = packet(peer(v4), us(v4), proto, part);
                    let (h, _) = Ipv4Header::parse(&p).expect("a header");
                    Ipv4Header { more_fragments: more, fragment_offset: offset, ..h }.emit(&mut p);
                    p
                }
                false => v6_fragment(9, offset, more, proto, part),
            };
            let (v, out) = input(&mut inet, T0, to_us(&p));
            assert!(matches!(v, InputVerdict::Consumed), "{v:?}");
            sent.extend(out);
        }
        assert_eq!(sent.len(), 3);
        assert!(sent.iter().all(|f| f.len() <= 1514));
    }
}
