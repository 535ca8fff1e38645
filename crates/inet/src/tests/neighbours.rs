use super::*;
use netdev::DropReason;
use wire::ndisc::flags;

fn asks(frame: &[u8]) -> bool {
    let eth = EthernetHeader::parse(frame).expect("a header");
    match eth.ethertype {
        ethertype::ARP => ArpPacket::parse(&frame[14..]).expect("ARP").request,
        _ => frame[54] == 135,
    }
}

#[test]
fn packets_wait_for_the_neighbour_and_leave_in_order() {
    for v4 in [true, false] {
        let mut inet = host();
        let mut tx = Vec::new();
        for n in 0..3u8 {
            let verdict = inet.output(T0, datagram(v4, &[n; 200]), udp_meta(v4, true), &mut tx);
            assert!(matches!(verdict, OutputVerdict::Queued));
        }
        assert_eq!(tx.len(), 1, "one question");
        assert!(asks(&tx[0].1.to_vec()));
        let answer = match v4 {
            true => arp(false, "10.0.0.2", "10.0.0.1"),
            false => advertisement(flags::SOLICITED | flags::OVERRIDE, PEER_MAC),
        };
        let (_, sent) = input(&mut inet, T0, answer);
        let last: Vec<_> = sent.iter().map(|f| f[f.len() - 1]).collect();
        assert_eq!(last, [0, 1, 2]);
        assert!(sent.iter().all(|f| f[..6] == PEER_MAC));
        assert!(matches!(
            inet.output(T0, datagram(v4, &[]), udp_meta(v4, true), &mut tx),
            OutputVerdict::Sent
        ));
    }
}

#[test]
fn a_neighbour_that_does_not_answer_is_asked_three_times() {
    for v4 in [true, false] {
        let mut inet = host();
        let mut tx = Vec::new();
        let _ = inet.output(T0, datagram(v4, &[1]), udp_meta(v4, true), &mut tx);
        let _ = inet.output(T0, datagram(v4, &[2]), udp_meta(v4, true), &mut tx);
        let mut failed = Vec::new();
        while let Some(at) = inet.next_timeout() {
            failed.extend(inet.on_timeout(at, &mut tx));
        }
        assert_eq!((tx.len(), failed), (3, vec![peer(v4)]));
        assert_eq!(inet.drops().get(DropReason::HostUnreachable), 2);
        assert!(matches!(inet.resolve(T0, peer(v4), None, &mut tx), Ok(Resolved::Pending)), "asked afresh");
        assert_eq!(tx.len(), 4);
    }
}

#[test]
fn a_reachable_neighbour_goes_stale_is_used_on_trust_and_then_probed() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        let dst = ready(&mut inet, T0, v4);
        let trusted = dst.valid_until - T0;
        assert!(trusted >= seconds(15) && trusted <= seconds(45), "{trusted:?}");
        assert_eq!(inet.next_timeout(), None, "nothing happens unless it is used");
        let now = T0 + seconds(50);
        let dst = ready(&mut inet, now, v4);
        assert_eq!(dst.valid_until, now + seconds(5));
        let mut tx = Vec::new();
        assert!(inet.on_timeout(now + seconds(5), &mut tx).is_empty());
        let probe = tx[0].1.to_vec();
        assert!(asks(&probe) && probe[..6] == PEER_MAC, "asked by name");
        let before = inet.generation();
        while let Some(at) = inet.next_timeout() {
            inet.on_timeout(at, &mut tx);
        }
        assert_eq!(tx.len(), 3);
        assert!(inet.generation() > before, "cached destinations are stale");
    }
}

#[test]
fn progress_of_a_transport_spares_the_probe() {
    let mut inet = host();
    introduce(&mut inet, T0, true);
    let now = T0 + seconds(60);
    ready(&mut inet, now, true);
    assert!(inet.next_timeout().is_some());
    inet.confirm(now, peer(true));
    assert_eq!(inet.next_timeout(), None);
    assert!(ready(&mut inet, now, true).valid_until >= now + seconds(15));
}

#[test]
fn an_answer_to_a_probe_makes_reachable_again() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        let now = T0 + seconds(60);
        ready(&mut inet, now, v4);
        inet.on_timeout(now + seconds(5), &mut Vec::new());
        let answer = match v4 {
            true => arp(false, "10.0.0.2", "10.0.0.1"),
            false => advertisement(flags::SOLICITED, PEER_MAC),
        };
        let before = inet.generation();
        let (_, sent) = input(&mut inet, now + seconds(5), answer);
        assert_eq!((sent.len(), inet.next_timeout(), inet.generation()), (0, None, before));
    }
}

#[test]
fn a_question_for_us_is_answered_and_remembered() {
    let mut inet = host();
    let (_, sent) = input(&mut inet, T0, arp(true, "10.0.0.2", "10.0.0.1"));
    let reply = ArpPacket::parse(&sent[0][14..]).expect("ARP");
    assert!(!reply.request && reply.sender_mac == OUR_MAC && reply.target_mac == PEER_MAC);
    assert_eq!(sent[0][..6], PEER_MAC);
    ready(&mut inet, T0, true);
    // A probe for a free address (RFC 5227) is answered, and nobody remembered.
    let (_, sent) = input(&mut inet, T0, arp(true, "0.0.0.0", "10.0.0.1"));
    assert_eq!(sent.len(), 1);
    let (_, sent) = input(&mut inet, T0, arp(true, "10.0.0.2", "10.0.0.3"));
    assert!(sent.is_empty(), "not ours");
}

fn solicitation(src: &str, with_mac: bool, target: &str) -> Vec<u8> {
    let IpAddr::V6(to) = ip(target) else { panic!("IPv6") };
    let mut body = vec![0; wire::ndisc::BODY_LEN];
    wire::ndisc::NeighbourMessage::emit(to, PEER_MAC, true, &mut body);
    body.truncate(if with_mac { 24 } else { 16 });
    let ends = (ip(src), IpAddr::V6(wire::ndisc::solicited_node(to)));
    let m = icmp_message(ends, IcmpHeader { kind: 135, code: 0, rest: 0 }, &body);
    packet(ends.0, ends.1, proto::ICMPV6, &m)
}

#[test]
fn a_solicitation_is_answered_and_remembered() {
    let mut inet = host();
    let (_, sent) = input(&mut inet, T0, to_us(&solicitation("2001:db8::2", true, "2001:db8::1")));
    let IpAddr::V6(us6) = us(false) else { panic!("IPv6") };
    let body = wire::ndisc::NeighbourMessage::parse(&sent[0][62..]).expect("a message");
    assert_eq!((body.target, body.mac), (us6, Some(OUR_MAC)));
    assert_eq!((sent[0][54], &sent[0][..6], sent[0][58] >> 5), (136, &PEER_MAC[..], 0b011));
    let sum = pseudo_sum(us(false), peer(false), proto::ICMPV6, 32);
    assert_eq!(checksum::combine(sum, checksum::sum(&sent[0][54..])), 0xffff);
    ready(&mut inet, T0, false);
    // Somebody who checks whether the address is free: all are told.
    let (_, sent) = input(&mut inet, T0, to_us(&solicitation("::", false, "2001:db8::1")));
    assert_eq!((&sent[0][..6], sent[0][58] >> 5), (&[0x33, 0x33, 0, 0, 0, 1][..], 0b001));
    let (v, sent) = input(&mut inet, T0, to_us(&solicitation("::", true, "2001:db8::1")));
    assert!(matches!(v, InputVerdict::Drop(DropReason::Malformed)) && sent.is_empty());
}

#[test]
fn discovery_from_beyond_a_router_is_refused() {
    let mut inet = host();
    let mut p = solicitation("2001:db8::2", true, "2001:db8::1");
    p[7] = 254;
    let (v, sent) = input(&mut inet, T0, to_us(&p));
    assert!(matches!(v, InputVerdict::Drop(DropReason::HopLimit)) && sent.is_empty());
}

#[test]
fn nobody_is_remembered_who_was_not_asked_for() {
    let mut inet = host();
    let mut tx = Vec::new();
    let _ = input(&mut inet, T0, arp(false, "10.0.0.2", "10.0.0.1"));
    let _ = input(&mut inet, T0, advertisement(flags::OVERRIDE, PEER_MAC));
    for v4 in [true, false] {
        assert!(matches!(inet.resolve(T0, peer(v4), None, &mut tx), Ok(Resolved::Pending)));
    }
}

#[test]
fn a_new_address_without_the_override_flag_is_doubted_but_not_taken() {
    let mut inet = host();
    introduce(&mut inet, T0, false);
    let other = [2, 0, 0, 0, 0, 9];
    let _ = input(&mut inet, T0, advertisement(flags::SOLICITED, other));
    let dst = ready(&mut inet, T0, false);
    assert_eq!((dst.link.expect("Ethernet").dst, dst.valid_until), (PEER_MAC, T0 + seconds(5)));
    let before = inet.generation();
    let _ = input(&mut inet, T0, advertisement(flags::OVERRIDE, other));
    assert!(inet.generation() > before);
    assert_eq!(ready(&mut inet, T0, false).link.expect("Ethernet").dst, other);
}

#[test]
fn the_queue_behind_a_neighbour_is_bounded_and_the_oldest_goes() {
    let mut inet = host_with(Config { neighbour_queue_packets: 4, ..Config::default() });
    let mut tx = Vec::new();
    for n in 0..10u8 {
        let _ = inet.output(T0, datagram(true, &[n]), udp_meta(true, true), &mut tx);
    }
    assert_eq!(inet.drops().get(DropReason::NeighbourQueueFull), 6);
    let (_, sent) = input(&mut inet, T0, arp(false, "10.0.0.2", "10.0.0.1"));
    let last: Vec<_> = sent.iter().map(|f| f[f.len() - 1]).collect();
    assert_eq!(last, [6, 7, 8, 9]);
}

#[test]
fn the_table_is_bounded_whoever_fills_it() {
    let mut inet = host_with(Config { neighbours: 8, ..Config::default() });
    introduce(&mut inet, T0, true);
    for n in 10..200u8 {
        let _ = input(&mut inet, T0 + seconds(1), arp(true, &format!("10.0.0.{n}"), "10.0.0.1"));
    }
    ready(&mut inet, T0 + seconds(1), true);
    // Our own questions may take all places, and then there are no more.
    let mut tx = Vec::new();
    let refused =
        (10..30u8).filter(|n| inet.resolve(T0, IpAddr::from([10, 0, 0, *n]), None, &mut tx).is_err());
    assert!(refused.count() >= 11);
}
