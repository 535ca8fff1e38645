use super::*;
use netdev::DropReason;

fn reason(v: InputVerdict) -> DropReason {
    match v {
        InputVerdict::Drop(reason) => reason,
        other => panic!("{other:?}"),
    }
}

fn drop_of(p: &[u8]) -> DropReason {
    reason(input(&mut host(), T0, to_us(p)).0)
}

#[test]
fn a_packet_for_us_is_delivered_from_its_transport_header_on_without_padding() {
    for v4 in [true, false] {
        let mut p = packet(peer(v4), us(v4), 99, &[7; 13]);
        p.extend([0; 30]);
        match input(&mut host(), T0, to_us(&p)).0 {
            InputVerdict::Deliver(d) => {
                assert_eq!(d.skb.to_vec(), [7; 13]);
                assert_eq!((d.src, d.dst, d.proto, d.hop_limit), (peer(v4), us(v4), 99, 64));
                assert_eq!(d.ifindex, ETH);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn headers_that_lie_are_refused() {
    let good = packet(peer(true), us(true), 99, &[7; 13]);
    let with = |at: usize, value: u8| {
        let mut p = good.clone();
        p[at] = value;
        // Mend the checksum, so that only the lie counts.
        p[10..12].fill(0);
        let n = (usize::from(p[0] & 15) * 4).min(p.len());
        let sum = checksum::finish(checksum::sum(&p[..n]));
        p[10..12].copy_from_slice(&sum.to_be_bytes());
        p
    };
    assert_eq!(drop_of(&with(3, 200)), DropReason::TooShort, "longer than the frame");
    assert_eq!(drop_of(&with(3, 19)), DropReason::Malformed, "shorter than the header");
    assert_eq!(drop_of(&with(3, 0)), DropReason::Malformed, "no length at all");
    assert_eq!(drop_of(&with(0, 0x44)), DropReason::Malformed, "a header below its minimum");
    assert_eq!(drop_of(&with(0, 0x4f)), DropReason::TooShort, "a header beyond the packet");
    let mut p = good.clone();
    p[8] ^= 1;
    assert_eq!(drop_of(&p), DropReason::BadChecksum);
    assert_eq!(drop_of(&good[..19]), DropReason::TooShort);
    let v6 = packet(peer(false), us(false), 99, &[7; 13]);
    assert_eq!(drop_of(&v6[..50]), DropReason::TooShort);
    assert_eq!(drop_of(&v6[..39]), DropReason::TooShort);
}

#[test]
fn source_routes_are_refused() {
    let mut p = packet(peer(true), us(true), 99, &[131, 7, 4, 1, 2, 3, 4, 0]);
    p[0] = 0x47;
    p[10..12].fill(0);
    let sum = checksum::finish(checksum::sum(&p[..28]));
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(drop_of(&p), DropReason::BadOptions);
}

#[test]
fn martians_are_refused() {
    for (src, dst) in [
        ("127.0.0.1", "10.0.0.1"),
        ("0.0.0.0", "10.0.0.1"),
        ("0.1.2.3", "10.0.0.1"),
        ("224.0.0.1", "10.0.0.1"),
        ("255.255.255.255", "10.0.0.1"),
        ("10.0.0.255", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.2", "127.0.0.1"),
        ("::1", "2001:db8::1"),
        ("ff02::1", "2001:db8::1"),
        ("::", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:10.0.0.2", "2001:db8::1"),
        ("2001:db8::2", "::1"),
        ("2001:db8::2", "::ffff:10.0.0.1"),
    ] {
        assert_eq!(drop_of(&packet(ip(src), ip(dst), 99, &[0; 8])), DropReason::Martian, "{src} -> {dst}");
    }
}

#[test]
fn what_is_for_others_is_not_for_us() {
    for (src, dst) in [("10.0.0.2", "10.0.0.3"), ("2001:db8::2", "2001:db8::3"), ("10.0.0.2", "224.0.0.251")]
    {
        assert_eq!(drop_of(&packet(ip(src), ip(dst), 99, &[0; 8])), DropReason::NotForUs);
    }
    let p = packet(peer(true), us(true), 99, &[0; 8]);
    let other_station = SkBuff::from_slice(&frame([2, 0, 0, 0, 0, 8], ethertype::IPV4, &p));
    assert_eq!(reason(input(&mut host(), T0, other_station).0), DropReason::NotForUs);
    let to_all = SkBuff::from_slice(&frame(BROADCAST, ethertype::IPV4, &p));
    assert_eq!(
        reason(input(&mut host(), T0, to_all).0),
        DropReason::NotForUs,
        "a host address in a broadcast"
    );
    let nobody = SkBuff::from_slice(&frame(OUR_MAC, 0x88b5, &p));
    assert_eq!(reason(input(&mut host(), T0, nobody).0), DropReason::NoHandler);
}

#[test]
fn broadcasts_are_delivered_but_not_to_connections() {
    let mut inet = host();
    for dst in ["255.255.255.255", "10.0.0.255", "224.0.0.1"] {
        let p = packet(peer(true), ip(dst), proto::UDP, &[0; 8]);
        assert!(matches!(input(&mut inet, T0, to_us(&p)).0, InputVerdict::Deliver(_)), "{dst}");
        let p = packet(peer(true), ip(dst), proto::TCP, &[0; 20]);
        assert_eq!(drop_of(&p), DropReason::NotForUs);
    }
}

#[test]
fn extension_headers_are_stepped_over() {
    let mut p = vec![proto::UDP, 0, 1, 4, 0, 0, 0, 0];
    p.extend([5; 8]);
    match input(&mut host(), T0, from_peer(false, 60, &p)).0 {
        InputVerdict::Deliver(d) => assert_eq!((d.proto, d.skb.to_vec()), (proto::UDP, vec![5; 8])),
        other => panic!("{other:?}"),
    }
    p[2] = 0x80;
    assert_eq!(reason(input(&mut host(), T0, from_peer(false, 60, &p)).0), DropReason::BadOptions);
}

#[test]
fn transport_checksums_are_verified_unless_the_device_has() {
    for v4 in [true, false] {
        let mut bytes = datagram(v4, b"hello").to_vec();
        bytes[6..8].fill(0);
        let pseudo = pseudo_sum(peer(v4), us(v4), proto::UDP, bytes.len() as u32);
        let sum = checksum::finish(checksum::combine(pseudo, checksum::sum(&bytes)));
        bytes[6..8].copy_from_slice(&sum.to_be_bytes());
        let deliver = |bytes: &[u8]| match input(&mut host(), T0, from_peer(v4, proto::UDP, bytes)).0 {
            InputVerdict::Deliver(d) => d,
            other => panic!("{other:?}"),
        };
        let mut d = deliver(&bytes);
        assert!(verify_transport_checksum(&d));
        let header = udp_header(&mut d).expect("a datagram");
        assert_eq!((header.src_port, header.dst_port, header.len, d.skb.len()), (1, 2, 13, 13));
        let mut damaged = bytes.clone();
        damaged[9] ^= 1;
        let mut d = deliver(&damaged);
        assert!(!verify_transport_checksum(&d));
        assert_eq!(udp_header(&mut d), Err(DropReason::BadChecksum));
        d.skb.csum = Csum::Unnecessary;
        assert!(verify_transport_checksum(&d) && udp_header(&mut d).is_ok());
        let mut unsummed = bytes.clone();
        unsummed[6..8].fill(0);
        assert_eq!(udp_header(&mut deliver(&unsummed)).is_ok(), v4, "only IPv4 may do without");
        let mut longer = bytes.clone();
        longer[5] = 14;
        assert_eq!(udp_header(&mut deliver(&longer)), Err(DropReason::Malformed));
    }
}
