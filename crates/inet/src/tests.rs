//! A host on an Ethernet, and a peer that the tests play by hand.

mod fragments;
mod hostile;
mod icmp;
mod input;
mod multicast;
mod neighbours;
mod output;
mod routes;

use std::net::IpAddr;

use skb::{Csum, SkBuff};
use time::{Duration, Instant};
use wire::arp::ArpPacket;
use wire::ethernet::{BROADCAST, EthernetHeader, Mac, ethertype};
use wire::icmp::IcmpHeader;
use wire::ipv4::Ipv4Header;
use wire::ipv6::Ipv6Header;
use wire::{checksum, proto};

use crate::*;

pub(crate) const LO: IfIndex = IfIndex(0);
pub(crate) const ETH: IfIndex = IfIndex(1);
pub(crate) const OUR_MAC: Mac = [2, 0, 0, 0, 0, 1];
pub(crate) const PEER_MAC: Mac = [2, 0, 0, 0, 0, 2];
pub(crate) const T0: Instant = Instant::from_secs(1000);

pub(crate) fn ip(s: &str) -> IpAddr {
    s.parse().expect("an address")
}

pub(crate) fn us(v4: bool) -> IpAddr {
    ip(if v4 { "10.0.0.1" } else { "2001:db8::1" })
}

pub(crate) fn peer(v4: bool) -> IpAddr {
    ip(if v4 { "10.0.0.2" } else { "2001:db8::2" })
}

/// 10.0.0.1/24 and 2001:db8::1/64 on an Ethernet of 1500 bytes, with default routes.
pub(crate) fn host() -> Inet {
    host_with(Config::default())
}

pub(crate) fn host_with(config: Config) -> Inet {
    let mut inet = Inet::new(config);
    inet.add_interface(LO, None, 65_535, true);
    inet.add_address(LO, ip("127.0.0.1"), 8);
    inet.add_address(LO, ip("::1"), 128);
    inet.add_interface(ETH, Some(OUR_MAC), 1500, false);
    inet.add_address(ETH, us(true), 24);
    inet.add_address(ETH, us(false), 64);
    inet.add_address(ETH, ip("fe80::1"), 64);
    for (dst, gateway) in [("0.0.0.0", "10.0.0.254"), ("::", "2001:db8::fe")] {
        let (dst, gateway) = (ip(dst), Some(ip(gateway)));
        inet.add_route(Route { dst, prefix: 0, gateway, ifindex: ETH, metric: 0 });
    }
    inet
}

pub(crate) fn frame(dst: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    EthernetHeader { dst, src: PEER_MAC, ethertype }.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

/// An IP packet with good lengths and checksum.
pub(crate) fn packet(src: IpAddr, dst: IpAddr, proto: u8, payload: &[u8]) -> Vec<u8> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let h = Ipv4Header {
                tos: 0,
                total_len: 20 + payload.len() as u16,
                ident: 7,
                dont_fragment: false,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                proto,
                src,
                dst,
            };
            let mut bytes = vec![0; 20];
            h.emit(&mut bytes);
            bytes.extend(payload);
            bytes
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let h = Ipv6Header {
                traffic_class: 0,
                flow_label: 0,
                payload_len: payload.len() as u16,
                next_header: proto,
                hop_limit: if proto == proto::ICMPV6 { 255 } else { 64 },
                src,
                dst,
            };
            let mut bytes = vec![0; 40];
            h.emit(&mut bytes);
            bytes.extend(payload);
            bytes
        }
        _ => panic!("one family"),
    }
}

/// The frame of an IP packet to our station.
pub(crate) fn to_us(packet: &[u8]) -> SkBuff {
    let kind = if packet.first().is_some_and(|b| b >> 4 == 6) { ethertype::IPV6 } else { ethertype::IPV4 };
    SkBuff::from_slice(&frame(OUR_MAC, kind, packet))
}

/// A packet from the peer to us, as a frame.
pub(crate) fn from_peer(v4: bool, proto: u8, payload: &[u8]) -> SkBuff {
    to_us(&packet(peer(v4), us(v4), proto, payload))
}

/// An ICMP message with its checksum.
pub(crate) fn icmp_message(ends: (IpAddr, IpAddr), header: IcmpHeader, body: &[u8]) -> Vec<u8> {
    let mut m = vec![0; 8];
    header.emit(&mut m);
    m.extend(body);
    let pseudo = match ends.0.is_ipv4() {
        true => 0,
        false => pseudo_sum(ends.0, ends.1, proto::ICMPV6, m.len() as u32),
    };
    let sum = checksum::finish(checksum::combine(pseudo, checksum::sum(&m)));
    wire::icmp::set_checksum(&mut m, sum);
    m
}

pub(crate) fn arp(request: bool, sender: &str, target: &str) -> SkBuff {
    let v4 = |s: &str| s.parse().expect("an address");
    let p = ArpPacket {
        request,
        sender_mac: PEER_MAC,
        sender_ip: v4(sender),
        target_mac: if request { [0; 6] } else { OUR_MAC },
        target_ip: v4(target),
    };
    let mut bytes = [0; wire::arp::PACKET_LEN];
    p.emit(&mut bytes);
    SkBuff::from_slice(&frame(if request { BROADCAST } else { OUR_MAC }, ethertype::ARP, &bytes))
}

/// The peer's neighbour advertisement, solicited and overriding, to us.
pub(crate) fn advertisement(rest: u32, mac: Mac) -> SkBuff {
    let IpAddr::V6(target) = peer(false) else { panic!("IPv6") };
    let mut body = vec![0; wire::ndisc::BODY_LEN];
    wire::ndisc::NeighbourMessage::emit(target, mac, false, &mut body);
    let ends = (peer(false), us(false));
    let m = icmp_message(ends, IcmpHeader { kind: 136, code: 0, rest }, &body);
    to_us(&packet(ends.0, ends.1, proto::ICMPV6, &m))
}

/// Gives the frame to the host, and returns verdict and answers.
pub(crate) fn input(inet: &mut Inet, now: Instant, skb: SkBuff) -> (InputVerdict, Vec<Vec<u8>>) {
    let mut tx = Vec::new();
    let v = inet.input(now, ETH, skb, &mut tx);
    (v, tx.iter().map(|(_, p)| p.to_vec()).collect())
}

/// Makes the peer known.
pub(crate) fn introduce(inet: &mut Inet, now: Instant, v4: bool) {
    let mut tx = Vec::new();
    assert!(matches!(inet.resolve(now, peer(v4), None, &mut tx), Ok(Resolved::Pending)));
    let answer = match v4 {
        true => arp(false, "10.0.0.2", "10.0.0.1"),
        false => advertisement(0x6000_0000, PEER_MAC),
    };
    assert!(matches!(input(inet, now, answer).0, InputVerdict::Consumed));
}

pub(crate) fn ready(inet: &mut Inet, now: Instant, v4: bool) -> Dst {
    match inet.resolve(now, peer(v4), None, &mut Vec::new()) {
        Ok(Resolved::Ready(dst)) => dst,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn udp_meta(v4: bool, df: bool) -> OutputMeta {
    OutputMeta { src: us(v4), dst: peer(v4), proto: proto::UDP, tos: 0, hop_limit: 64, df }
}

/// A UDP datagram whose checksum is left to the device.
pub(crate) fn datagram(v4: bool, data: &[u8]) -> SkBuff {
    let len = 8 + data.len() as u16;
    let mut bytes = vec![0; 8];
    let sum = pseudo_sum(us(v4), peer(v4), proto::UDP, u32::from(len));
    wire::udp::UdpHeader { src_port: 1, dst_port: 2, len, checksum: sum }.emit(&mut bytes);
    bytes.extend(data);
    let mut skb = SkBuff::from_slice(&bytes);
    assert!(skb.may_pull(8).is_some());
    skb.csum = Csum::Partial { start: 0, offset: 6 };
    skb
}

pub(crate) fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}
