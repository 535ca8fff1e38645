//! A host on an Ethernet, to which anything comes, in any order and at any time.
#![no_main]

use std::net::IpAddr;

use inet::{Config, IfIndex, Inet, InputVerdict};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use skb::{Frag, SkBuff};
use time::{Duration, Instant};
use wire::ethernet::{BROADCAST, EthernetHeader, Mac, ethertype};
use wire::icmp::IcmpHeader;
use wire::ipv4::Ipv4Header;
use wire::ipv6::Ipv6Header;
use wire::{checksum, proto};

const ETH: IfIndex = IfIndex(1);
const OUR_MAC: Mac = [2, 0, 0, 0, 0, 1];
const PEER_MAC: Mac = [2, 0, 0, 0, 0, 2];

#[derive(Arbitrary, Debug)]
struct Arrival<'a> {
    /// Milliseconds since the one before.
    wait: u16,
    /// In a page rather than in the head.
    paged: bool,
    broadcast: bool,
    what: What<'a>,
}

/// How much of the frame is right.
#[derive(Arbitrary, Debug)]
enum What<'a> {
    Frame(&'a [u8]),
    Packet { ethertype: u16, bytes: &'a [u8] },
    Arp(&'a [u8]),
    Ipv4 { proto: u8, ident: u8, fragment: Option<(u8, bool)>, payload: &'a [u8] },
    Ipv6 { next_header: u8, payload: &'a [u8] },
    Icmp { v4: bool, kind: u8, code: u8, rest: u32, body: &'a [u8] },
}

fn us(v4: bool) -> IpAddr {
    if v4 { [10, 0, 0, 1].into() } else { [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into() }
}

fn peer(v4: bool) -> IpAddr {
    if v4 { [10, 0, 0, 2].into() } else { [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into() }
}

fn host() -> Inet {
    // Small limits, so that they are met.
    let mut inet = Inet::new(Config { reassembly_bytes: 4000, neighbours: 4, paths: 2, ..Config::default() });
    inet.add_interface(ETH, Some(OUR_MAC), 1500, false);
    inet.add_address(ETH, us(true), 24);
    inet.add_address(ETH, us(false), 64);
    inet
}

fn ipv4(proto: u8, ident: u8, fragment: Option<(u8, bool)>, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (peer(true), us(true)) else { unreachable!() };
    let (offset, more_fragments) = fragment.unwrap_or_default();
    let header = Ipv4Header {
        tos: 0,
        total_len: 20 + payload.len() as u16,
        ident: ident.into(),
        dont_fragment: false,
        more_fragments,
        fragment_offset: u16::from(offset) * 8,
        ttl: 64,
        proto,
        src,
        dst,
    };
    let mut bytes = vec![0; 20];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (peer(false), us(false)) else { unreachable!() };
    let payload_len = payload.len() as u16;
    let header =
        Ipv6Header { traffic_class: 0, flow_label: 0, payload_len, next_header, hop_limit: 255, src, dst };
    let mut bytes = vec![0; 40];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn icmp(v4: bool, header: IcmpHeader, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 8];
    header.emit(&mut message);
    message.extend(body);
    let pseudo = if v4 { 0 } else { checksum::pseudo(peer(v4), us(v4), proto::ICMPV6, message.len() as u32) };
    let sum = checksum::finish(checksum::combine(pseudo, checksum::sum(&message)));
    wire::icmp::set_checksum(&mut message, sum);
    if v4 { ipv4(proto::ICMP, 0, None, &message) } else { ipv6(proto::ICMPV6, &message) }
}

fn frame(arrival: &Arrival<'_>) -> Vec<u8> {
    // No Ethernet carries more.
    let cut = |bytes: &[u8]| bytes[..bytes.len().min(9000)].to_vec();
    let (ethertype, packet) = match &arrival.what {
        What::Frame(bytes) => return cut(bytes),
        What::Packet { ethertype, bytes } => (*ethertype, cut(bytes)),
        What::Arp(bytes) => (ethertype::ARP, cut(bytes)),
        What::Ipv4 { proto, ident, fragment, payload } => {
            (ethertype::IPV4, ipv4(*proto, *ident, *fragment, &cut(payload)))
        }
        What::Ipv6 { next_header, payload } => (ethertype::IPV6, ipv6(*next_header, &cut(payload))),
        What::Icmp { v4, kind, code, rest, body } => {
            let header = IcmpHeader { kind: *kind, code: *code, rest: *rest };
            (if *v4 { ethertype::IPV4 } else { ethertype::IPV6 }, icmp(*v4, header, &cut(body)))
        }
    };
    let mut bytes = vec![0; 14];
    let dst = if arrival.broadcast { BROADCAST } else { OUR_MAC };
    EthernetHeader { dst, src: PEER_MAC, ethertype }.emit(&mut bytes);
    bytes.extend(packet);
    bytes
}

fuzz_target!(|arrivals: Vec<Arrival<'_>>| {
    let mut inet = host();
    let mut now = Instant::from_secs(1000);
    for arrival in &arrivals {
        now += Duration::from_millis(arrival.wait.into());
        let bytes = frame(arrival);
        let skb = match arrival.paged {
            true => SkBuff::from_frag(Frag::from_bytes(bytes.into())),
            false => SkBuff::from_slice(&bytes),
        };
        let mut tx = Vec::new();
        if let InputVerdict::Deliver(mut d) = inet.input(now, ETH, skb, &mut tx) {
            let _ = inet::verify_transport_checksum(&d);
            inet.send_unreachable(now, &d, &mut tx);
            let _ = inet::udp_header(&mut d);
        }
        let _ = inet.on_timeout(now, &mut tx);
        assert!(inet.next_timeout().is_none_or(|t| t > now), "a timer that stays due");
        for (_, out) in tx {
            assert!(out.len() > 14 && out.len() <= 1514, "a frame of {} bytes", out.len());
        }
    }
});
