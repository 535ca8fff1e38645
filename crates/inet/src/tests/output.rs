use super::*;

#[test]
fn prepared_headers_are_those_of_output() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        let dst = ready(&mut inet, T0, v4);
        let mut fast = SkBuff::from_slice(&[5; 300]);
        dst.push_headers(&mut fast, proto::UDP, 3, 64, 0, true).expect("room");
        let mut tx = Vec::new();
        let meta = OutputMeta { tos: 3, ..udp_meta(v4, true) };
        let verdict = inet.output(T0, SkBuff::from_slice(&[5; 300]), meta, &mut tx);
        assert!(matches!(verdict, OutputVerdict::Sent));
        assert_eq!(fast.to_vec(), tx[0].1.to_vec());
        assert_eq!((fast.mac_len, tx[0].0, tx[0].1.mac_len), (14, ETH, 14));
        let eth = EthernetHeader::parse(fast.head()).expect("a header");
        assert_eq!((eth.dst, eth.src), (PEER_MAC, OUR_MAC));
        let ip_header = &fast.to_vec()[14..];
        match v4 {
            true => {
                let (h, len) = Ipv4Header::parse(ip_header).expect("a header");
                assert_eq!((h.total_len, len, h.dont_fragment, h.tos), (320, 20, true, 3));
            }
            false => {
                let h = Ipv6Header::parse(ip_header).expect("a header");
                assert_eq!((h.payload_len, h.next_header, h.traffic_class), (300, proto::UDP, 3));
            }
        }
        let pseudo = pseudo_sum(us(v4), peer(v4), proto::UDP, 70_000);
        assert_eq!(dst.pseudo_sum(proto::UDP, 70_000), pseudo);
    }
}

#[test]
fn a_packet_for_many_segments_may_exceed_what_ip_can_say() {
    let mut inet = host();
    introduce(&mut inet, T0, true);
    let dst = ready(&mut inet, T0, true);
    let big = || {
        let mut skb = SkBuff::from_slice(&[0; 20]);
        skb.add_frag(skb::Frag::from_bytes(vec![1; 70_000].into())).expect("room");
        skb
    };
    let mut skb = big();
    assert!(dst.push_headers(&mut skb, proto::TCP, 0, 64, 0, true).is_err(), "not without being segmented");
    let mut skb = big();
    skb.gso = Some(skb::Gso { kind: skb::GsoKind::Tcp4, size: 1448, segs: 49 });
    dst.push_headers(&mut skb, proto::TCP, 0, 64, 0, true).expect("room");
    let mut back = SkBuff::from_slice(&frame(OUR_MAC, ethertype::IPV4, &[]));
    // The peer's point of view: the same packet with ends swapped.
    let mut bytes = skb.to_vec().split_off(14);
    let mut h = Ipv4Header::parse(&bytes).expect("a header").0;
    assert_eq!(h.total_len, 0);
    std::mem::swap(&mut h.src, &mut h.dst);
    h.emit(&mut bytes);
    back.add_frag(skb::Frag::from_bytes(bytes.into())).expect("room");
    back.gso = skb.gso;
    match input(&mut inet, T0, back).0 {
        InputVerdict::Deliver(d) => assert_eq!(d.skb.len(), 70_020),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_must_not_be_fragmented_is_too_big() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        let verdict = inet.output(T0, datagram(v4, &[0; 1600]), udp_meta(v4, true), &mut Vec::new());
        assert!(matches!(verdict, OutputVerdict::TooBig { mtu: 1500 }));
        let verdict = inet.output(T0, SkBuff::from_slice(&[0; 65_540]), udp_meta(v4, false), &mut Vec::new());
        assert!(matches!(verdict, OutputVerdict::Error(NetError::MessageTooLong)), "{verdict:?}");
    }
}

#[test]
fn packets_to_ourselves_come_back_in_through_the_loopback() {
    for v4 in [true, false] {
        let mut inet = host();
        let meta = OutputMeta { dst: us(v4), ..udp_meta(v4, false) };
        let mut tx = Vec::new();
        let OutputVerdict::Local(skb) = inet.output(T0, SkBuff::from_slice(&[1; 3000]), meta, &mut tx) else {
            panic!("local");
        };
        match inet.input(T0, LO, skb, &mut tx) {
            InputVerdict::Deliver(d) => assert_eq!((d.src, d.dst, d.skb.len()), (us(v4), us(v4), 3000)),
            other => panic!("{other:?}"),
        }
        let Ok(Resolved::Ready(dst)) = inet.resolve(T0, us(v4), None, &mut tx) else { panic!("local") };
        let mut skb = SkBuff::from_slice(&[1; 30]);
        dst.push_headers(&mut skb, proto::UDP, 0, 64, 0, true).expect("room");
        assert!(dst.local && dst.ifindex == LO && skb.mac_len == 0 && tx.is_empty());
        assert!(matches!(inet.input(T0, LO, skb, &mut tx), InputVerdict::Deliver(_)));
    }
}

#[test]
fn groups_and_broadcasts_need_no_neighbour() {
    let mut inet = host();
    let to = |inet: &mut Inet, dst: &str| {
        let mut tx = Vec::new();
        let meta = OutputMeta {
            src: ip(if dst.contains(':') { "::" } else { "0.0.0.0" }),
            dst: ip(dst),
            ..udp_meta(true, false)
        };
        assert!(matches!(inet.output(T0, SkBuff::from_slice(&[0; 8]), meta, &mut tx), OutputVerdict::Sent));
        EthernetHeader::parse(&tx[0].1.to_vec()).expect("a header").dst
    };
    assert_eq!(to(&mut inet, "224.0.1.129"), [0x01, 0x00, 0x5e, 0x00, 0x01, 0x81]);
    assert_eq!(to(&mut inet, "255.255.255.255"), BROADCAST);
    assert_eq!(to(&mut inet, "10.0.0.255"), BROADCAST);
    assert_eq!(to(&mut inet, "ff02::fb"), [0x33, 0x33, 0, 0, 0, 0xfb]);
}

#[test]
fn an_interface_without_stations_needs_no_neighbour() {
    let mut inet = Inet::new(Config::default());
    inet.add_interface(ETH, None, 1400, false);
    inet.add_address(ETH, us(true), 24);
    let dst = ready(&mut inet, T0, true);
    assert_eq!((dst.valid_until, dst.mtu), (Instant::MAX, 1400));
    let mut skb = SkBuff::from_slice(&[9; 8]);
    dst.push_headers(&mut skb, proto::UDP, 0, 64, 0, true).expect("room");
    assert_eq!((skb.len(), skb.mac_len), (28, 0));
}
