use super::*;
use proptest::prelude::*;

/// Frames that get past the first checks, with anything in them.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..200);
    let protos = prop_oneof![
        Just(1u8),
        Just(58),
        Just(44),
        Just(0),
        Just(43),
        Just(60),
        Just(17),
        Just(6),
        any::<u8>()
    ];
    prop_oneof![
        bytes(),
        bytes().prop_map(|b| frame(OUR_MAC, ethertype::ARP, &b)),
        bytes().prop_map(|b| frame(BROADCAST, ethertype::IPV4, &b)),
        (any::<bool>(), protos, bytes()).prop_map(|(v4, proto, b)| {
            let mut p = packet(peer(v4), us(v4), proto, &b);
            if v4 && b.first().is_some_and(|b| b & 1 == 1) {
                let (h, _) = Ipv4Header::parse(&p).expect("a header");
                let offset = u16::from(b[0]) * 8;
                Ipv4Header { more_fragments: b[0] & 2 == 0, fragment_offset: offset, ..h }.emit(&mut p);
            }
            to_us(&p).to_vec()
        }),
        (any::<bool>(), any::<u8>(), 0u8..20, any::<u32>(), bytes()).prop_map(|(v4, kind, code, rest, b)| {
            let kind = if v4 { kind % 20 } else { kind };
            let ends = (peer(v4), us(v4));
            let m = icmp_message(ends, IcmpHeader { kind, code, rest }, &b);
            to_us(&packet(ends.0, ends.1, if v4 { 1 } else { 58 }, &m)).to_vec()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn whatever_arrives_nothing_panics_and_every_answer_is_a_frame(
        frames in prop::collection::vec((plausible(), any::<bool>(), 0u64..3_000), 1..40)
    ) {
        let mut inet = host_with(Config { reassembly_bytes: 2000, neighbours: 4, ..Config::default() });
        introduce(&mut inet, T0, true);
        let mut now = T0;
        for (bytes, paged, wait) in frames {
            let skb = match paged {
                true => SkBuff::from_frag(skb::Frag::from_bytes(bytes.into())),
                false => SkBuff::from_slice(&bytes),
            };
            let mut tx = Vec::new();
            if let InputVerdict::Deliver(mut d) = inet.input(now, ETH, skb, &mut tx) {
                let _ = verify_transport_checksum(&d);
                inet.send_unreachable(now, &d, &mut tx);
                let _ = udp_header(&mut d);
            }
            now += Duration::from_millis(wait);
            inet.on_timeout(now, &mut tx);
            prop_assert!(inet.next_timeout().is_none_or(|t| t > now));
            for (_, out) in tx {
                prop_assert!(out.len() > 14 && usize::from(out.mac_len) == 14);
            }
        }
    }

    #[test]
    fn bare_ip_links_take_anything_too(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut inet = Inet::new(Config::default());
        inet.add_interface(ETH, None, 1500, false);
        inet.add_address(ETH, us(true), 24);
        let mut tx = Vec::new();
        let _ = inet.input(T0, ETH, SkBuff::from_slice(&bytes), &mut tx);
        let _ = inet.input(T0, LO, SkBuff::from_slice(&bytes), &mut tx);
    }
}
