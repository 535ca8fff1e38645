//! Any bytes as each of the small messages: Ethernet, ARP, ICMP, neighbour discovery, the virtio header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::arp::{self, ArpPacket};
use wire::ethernet::{self, EthernetHeader};
use wire::icmp::{self, IcmpHeader};
use wire::ndisc::NeighbourMessage;
use wire::vnet::VnetHeader;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = EthernetHeader::parse(bytes) {
        let mut written = [0; ethernet::HEADER_LEN];
        header.emit(&mut written);
        assert_eq!(EthernetHeader::parse(&written), Ok(header));
    }
    if let Ok(packet) = ArpPacket::parse(bytes) {
        let mut written = [0; arp::PACKET_LEN];
        packet.emit(&mut written);
        assert_eq!(ArpPacket::parse(&written), Ok(packet));
    }
    if let Ok(header) = IcmpHeader::parse(bytes) {
        let mut written = [0; icmp::HEADER_LEN];
        header.emit(&mut written);
        assert_eq!(IcmpHeader::parse(&written), Ok(header));
    }
    let _ = NeighbourMessage::parse(bytes);
    if let Some(header) = VnetHeader::parse(bytes) {
        assert_eq!(VnetHeader::parse(&header.to_bytes()), Some(header));
    }
});
