//! Groups: what is heard, what is reported, how queries are answered.

use super::*;

const GROUP4: &str = "239.1.2.3";
const GROUP6: &str = "ff05::77";

/// Group records of reports: type and group. Checks everything else about them.
fn records(tx: TxQueue) -> Vec<(u8, IpAddr)> {
    let mut found = Vec::new();
    for (index, skb) in tx {
        assert_eq!(index, ETH);
        let bytes = skb.to_vec();
        let (eth, ip) = bytes.split_at(14);
        let (kind, body, group_len) = if ip[0] >> 4 == 4 {
            assert_eq!(eth[..6], [1, 0, 0x5e, 0, 0, 22]);
            assert_eq!((ip[0], ip[8], ip[9]), (0x46, 1, proto::IGMP), "TTL 1, an option");
            assert_eq!(ip[20..24], [0x94, 4, 0, 0], "router alert");
            assert_eq!(checksum::sum(&ip[..24]), 0xffff);
            assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
            assert_eq!(checksum::sum(&ip[24..]), 0xffff);
            (0x22, &ip[24..], 4)
        } else {
            assert_eq!(eth[..6], [0x33, 0x33, 0, 0, 0, 0x16]);
            assert_eq!((ip[6], ip[7]), (0, 1), "hop-by-hop first, hop limit 1");
            assert_eq!(ip[40..48], [58, 0, 5, 2, 0, 0, 1, 0], "router alert");
            let (src, dst) = (ip[8..24].try_into().map(u128::from_be_bytes), ip[24..40].try_into());
            let ends = (src.unwrap().into(), dst.map(u128::from_be_bytes).unwrap().into());
            let ends: (std::net::Ipv6Addr, std::net::Ipv6Addr) = ends;
            assert!(ends.0.is_unicast_link_local());
            let pseudo = pseudo_sum(ends.0.into(), ends.1.into(), proto::ICMPV6, ip.len() as u32 - 48);
            assert_eq!(checksum::combine(pseudo, checksum::sum(&ip[48..])), 0xffff);
            (143, &ip[48..], 16)
        };
        assert_eq!(body[0], kind);
        let count = usize::from(u16::from_be_bytes([body[6], body[7]]));
        let each = body[8..].chunks(4 + group_len);
        assert_eq!(each.len(), count);
        found.extend(each.map(|r| match *r {
            [kind, 0, 0, 0, a, b, c, d] => (kind, IpAddr::from([a, b, c, d])),
            _ => (r[0], IpAddr::from(<[u8; 16]>::try_from(&r[4..]).unwrap())),
        }));
    }
    found
}

fn join(inet: &mut Inet, group: &str) -> TxQueue {
    let mut tx = Vec::new();
    inet.join_group(T0, ETH, ip(group), &mut tx).unwrap();
    tx
}

#[test]
fn the_first_join_and_the_last_leave_are_reported_twice() {
    for group in [GROUP4, GROUP6] {
        let mut inet = host();
        assert_eq!(records(join(&mut inet, group)), [(4, ip(group))]);
        assert!(join(&mut inet, group).is_empty(), "heard already");
        let again = inet.next_timeout().unwrap();
        assert!(again < T0 + Duration::from_secs(1));
        let mut tx = Vec::new();
        inet.on_timeout(again, &mut tx);
        assert_eq!(records(tx), [(4, ip(group))]);
        assert_eq!(inet.next_timeout(), None);
        let mut tx = Vec::new();
        inet.leave_group(T0, ETH, ip(group), &mut tx);
        assert!(tx.is_empty() && inet.hears(ip(group)), "somebody else still listens");
        inet.leave_group(T0, ETH, ip(group), &mut tx);
        assert_eq!(records(tx), [(3, ip(group))]);
        assert!(!inet.hears(ip(group)));
        inet.leave_group(T0, ETH, ip(group), &mut Vec::new());
    }
}

#[test]
fn a_change_overtakes_the_repeat_of_an_older_one() {
    let mut inet = host();
    join(&mut inet, GROUP4);
    inet.leave_group(T0, ETH, ip(GROUP4), &mut Vec::new());
    let mut tx = Vec::new();
    inet.on_timeout(T0 + Duration::from_secs(1), &mut tx);
    assert_eq!(records(tx), [(3, ip(GROUP4))], "not the join again");
}

#[test]
fn what_every_host_hears_is_not_reported_and_what_is_no_group_is_refused() {
    let mut inet = host();
    assert!(join(&mut inet, "224.0.0.1").is_empty());
    assert!(join(&mut inet, "ff02::1").is_empty());
    assert!(join(&mut inet, "ff01::5").is_empty(), "it stays on this host");
    let refused = inet.join_group(T0, ETH, ip("10.0.0.7"), &mut Vec::new());
    assert_eq!(refused, Err(NetError::InvalidDestination));
    assert!(inet.join_group(T0, IfIndex(9), ip(GROUP4), &mut Vec::new()).is_err());
}

fn query(v4: bool) -> SkBuff {
    let body = if v4 {
        vec![0x11, 10, 0, 0, 0, 0, 0, 0]
    } else {
        [vec![130, 0, 0, 0, 3, 232, 0, 0], vec![0; 16]].concat()
    };
    let src = ip(if v4 { "10.0.0.254" } else { "fe80::fe" });
    let dst = ip(if v4 { "224.0.0.1" } else { "ff02::1" });
    let number = if v4 { proto::IGMP } else { proto::ICMPV6 };
    let pseudo = if v4 { 0 } else { pseudo_sum(src, dst, number, body.len() as u32) };
    let mut body = body;
    let sum = checksum::finish(checksum::combine(pseudo, checksum::sum(&body)));
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut skb = SkBuff::from_slice(&body);
    let fields = crate::dst::IpFields {
        proto: number,
        tos: 0,
        hop_limit: 1,
        ident: 0,
        df: false,
        more_fragments: false,
        offset: 0,
    };
    crate::dst::push_ip(&mut skb, (src, dst), fields, crate::dst::addresses_sum(src, dst)).unwrap();
    crate::dst::push_link(&mut skb, &crate::dst::link_header(PEER_MAC, BROADCAST, dst)).unwrap();
    skb
}

#[test]
fn a_query_is_answered_with_all_groups_within_its_time() {
    for v4 in [true, false] {
        let mut inet = host();
        let later = T0 + Duration::from_secs(5);
        let groups = if v4 { [GROUP4, "239.9.9.9"] } else { [GROUP6, "ff05::78"] };
        groups.iter().for_each(|g| drop(join(&mut inet, g)));
        inet.on_timeout(later, &mut Vec::new());
        let mut tx = Vec::new();
        assert!(matches!(inet.input(later, ETH, query(v4), &mut tx), InputVerdict::Consumed));
        assert!(matches!(inet.input(later, ETH, query(v4), &mut tx), InputVerdict::Consumed));
        let at = inet.next_timeout().expect("an answer");
        assert!(at <= later + Duration::from_secs(1), "within what the query allows");
        inet.on_timeout(at, &mut tx);
        assert_eq!(records(tx), groups.map(|g| (2, ip(g))), "once, however often asked");
        assert_eq!(inet.next_timeout(), None);
    }
}
