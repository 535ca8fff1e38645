use super::*;
use netdev::DropReason;

fn icmp_proto(v4: bool) -> u8 {
    if v4 { proto::ICMP } else { proto::ICMPV6 }
}

fn icmp_from_peer(v4: bool, kind: u8, code: u8, rest: u32, body: &[u8]) -> SkBuff {
    let m = icmp_message((peer(v4), us(v4)), IcmpHeader { kind, code, rest }, body);
    from_peer(v4, icmp_proto(v4), &m)
}

fn sums(v4: bool, ip_packet: &[u8]) -> bool {
    let m = &ip_packet[if v4 { 20 } else { 40 }..];
    let pseudo = match v4 {
        true => 0,
        false => pseudo_sum(us(v4), peer(v4), proto::ICMPV6, m.len() as u32),
    };
    checksum::combine(pseudo, checksum::sum(m)) == 0xffff
}

#[test]
fn an_echo_request_comes_back() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        for len in [0usize, 1, 57, 1000] {
            let body: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let kind = if v4 { 8 } else { 128 };
            let (v, sent) = input(&mut inet, T0, icmp_from_peer(v4, kind, 0, 0x1234_0001, &body));
            assert!(matches!(v, InputVerdict::Consumed));
            let reply = &sent[0][14..];
            assert!(sums(v4, reply));
            let m = &reply[if v4 { 20 } else { 40 }..];
            let h = IcmpHeader::parse(m).expect("a message");
            assert_eq!((h.kind, h.rest, &m[8..]), (if v4 { 0 } else { 129 }, 0x1234_0001, &body[..]));
        }
    }
}

#[test]
fn damaged_messages_and_broadcast_echoes_get_no_answer() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        let kind = if v4 { 8 } else { 128 };
        let mut bytes = icmp_from_peer(v4, kind, 0, 0, b"abc").to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let (v, sent) = input(&mut inet, T0, SkBuff::from_slice(&bytes));
        assert!(matches!(v, InputVerdict::Drop(DropReason::BadChecksum)) && sent.is_empty());
    }
    let m = icmp_message((peer(true), us(true)), IcmpHeader { kind: 8, code: 0, rest: 0 }, &[]);
    let p = packet(peer(true), ip("10.0.0.255"), proto::ICMP, &m);
    let (v, sent) = input(&mut host(), T0, SkBuff::from_slice(&frame(BROADCAST, ethertype::IPV4, &p)));
    assert!(matches!(v, InputVerdict::Drop(DropReason::NotForUs)) && sent.is_empty());
}

fn tcp_quote(v4: bool, src: IpAddr) -> Vec<u8> {
    let mut tcp = vec![0; 20];
    tcp[..8].copy_from_slice(&[0x12, 0x34, 0, 80, 0xde, 0xad, 0xbe, 0xef]);
    packet(src, peer(v4), proto::TCP, &tcp)
}

#[test]
fn errors_are_handed_up_with_what_they_quote() {
    let cases = [
        (true, 3, 4, 1400, IcmpKind::FragmentationNeeded { mtu: 1400 }),
        (true, 3, 4, 0, IcmpKind::FragmentationNeeded { mtu: 68 }),
        (true, 3, 3, 0, IcmpKind::PortUnreachable),
        (true, 3, 2, 0, IcmpKind::ProtocolUnreachable),
        (true, 3, 1, 0, IcmpKind::HostUnreachable),
        (true, 3, 0, 0, IcmpKind::NetworkUnreachable),
        (true, 3, 13, 0, IcmpKind::Prohibited),
        (true, 11, 0, 0, IcmpKind::TimeExceeded),
        (true, 12, 0, 0, IcmpKind::ParameterProblem),
        (false, 2, 0, 1300, IcmpKind::PacketTooBig { mtu: 1300 }),
        (false, 1, 0, 0, IcmpKind::NetworkUnreachable),
        (false, 1, 3, 0, IcmpKind::HostUnreachable),
        (false, 1, 4, 0, IcmpKind::PortUnreachable),
        (false, 1, 1, 0, IcmpKind::Prohibited),
        (false, 3, 0, 0, IcmpKind::TimeExceeded),
        (false, 4, 1, 6, IcmpKind::ProtocolUnreachable),
    ];
    for (v4, kind, code, rest, expected) in cases {
        let mut inet = host();
        let before = inet.generation();
        let (v, sent) = input(&mut inet, T0, icmp_from_peer(v4, kind, code, rest, &tcp_quote(v4, us(v4))));
        let InputVerdict::Icmp(e) = v else { panic!("{v:?}") };
        let quoted = e.tcp_ports_and_seq().expect("ports");
        assert_eq!((e.kind, e.local, e.remote, e.proto), (expected, us(v4), peer(v4), proto::TCP));
        assert_eq!((quoted.src_port, quoted.dst_port, quoted.seq.0), (0x1234, 80, 0xdead_beef));
        assert!(sent.is_empty() && inet.generation() == before, "nothing is believed yet");
    }
}

#[test]
fn errors_about_what_we_did_not_send_or_too_short_are_dropped() {
    for v4 in [true, false] {
        let kind = if v4 { 3 } else { 1 };
        let drop_of = |body: &[u8]| match input(&mut host(), T0, icmp_from_peer(v4, kind, 3, 0, body)).0 {
            InputVerdict::Drop(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            drop_of(&tcp_quote(v4, ip(if v4 { "10.0.0.9" } else { "2001:db8::9" }))),
            DropReason::NotForUs
        );
        let quote = tcp_quote(v4, us(v4));
        assert_eq!(drop_of(&quote[..quote.len() - 13]), DropReason::TooShort);
        assert_eq!(drop_of(&quote[..10]), DropReason::Malformed);
    }
}

fn delivered(inet: &mut Inet, v4: bool, proto: u8, payload: &[u8]) -> Delivered {
    match input(inet, T0, from_peer(v4, proto, payload)).0 {
        InputVerdict::Deliver(d) => d,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unwanted_datagram_is_reported_with_its_own_header() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        let d = delivered(&mut inet, v4, proto::UDP, &[9; 1400]);
        let mut tx = Vec::new();
        inet.send_unreachable(T0, &d, &mut tx);
        let reply = tx[0].1.to_vec().split_off(14);
        assert!(sums(v4, &reply));
        let m = &reply[if v4 { 20 } else { 40 }..];
        let original = packet(peer(v4), us(v4), proto::UDP, &[9; 1400]);
        assert_eq!(m[..2], if v4 { [3, 3] } else { [1, 4] });
        assert!(original.starts_with(&m[8..]), "quoted as it came");
        assert!(reply.len() <= if v4 { 576 } else { 1280 });
    }
}

#[test]
fn an_unknown_protocol_is_reported_but_errors_and_segments_are_not() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        let mut tx = Vec::new();
        let d = delivered(&mut inet, v4, 99, &[9; 8]);
        inet.send_unreachable(T0, &d, &mut tx);
        let reply = tx.pop().expect("a message").1.to_vec();
        let m = &reply[if v4 { 34 } else { 54 }..];
        let h = IcmpHeader::parse(m).expect("a message");
        assert_eq!((h.kind, h.code, h.rest), if v4 { (3, 2, 0) } else { (4, 1, 6) });
        let d = delivered(&mut inet, v4, proto::TCP, &[9; 20]);
        inet.send_unreachable(T0, &d, &mut tx);
        assert!(tx.is_empty());
    }
    let mut inet = host();
    let p = packet(peer(true), ip("10.0.0.255"), proto::UDP, &[0; 8]);
    let InputVerdict::Deliver(d) = input(&mut inet, T0, to_us(&p)).0 else { panic!("delivered") };
    let mut tx = Vec::new();
    inet.send_unreachable(T0, &d, &mut tx);
    assert!(tx.is_empty(), "many would answer");
}

#[test]
fn errors_are_limited_in_burst_and_rate() {
    let mut inet = host();
    introduce(&mut inet, T0, true);
    let d = delivered(&mut inet, true, proto::UDP, &[0; 8]);
    let mut burst = |now| {
        let mut tx = Vec::new();
        for _ in 0..200 {
            inet.send_unreachable(now, &d, &mut tx);
        }
        tx.len()
    };
    assert!((47..=50).contains(&burst(T0)));
    assert_eq!(burst(T0), 0);
    assert!((17..=20).contains(&burst(T0 + Duration::from_millis(20))));
    assert!(inet.drops().get(DropReason::RateLimited) > 300);
}
