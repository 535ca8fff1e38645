//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;
use crate::ethernet::{Mac, ethertype};

const HARDWARE_ETHERNET: u16 = 1;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Fixed {
    hardware: U16,
    protocol: U16,
    hardware_len: u8,
    protocol_len: u8,
    operation: U16,
    sender_mac: Mac,
    sender_ip: [u8; 4],
    target_mac: Mac,
    target_ip: [u8; 4],
}

/// Bytes of a packet.
pub const PACKET_LEN: usize = size_of::<Fixed>();

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpPacket {
    /// Whether it asks (else it answers).
    pub request: bool,
    /// Who sends it.
    pub sender_mac: Mac,
    /// Its IPv4 address.
    pub sender_ip: Ipv4Addr,
    /// Who is asked about or answered.
    pub target_mac: Mac,
    /// Its IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl ArpPacket {
    /// Reads a packet; any but IPv4 over Ethernet is `WrongKind`.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (f, _) = crate::prefix::<Fixed>(bytes)?;
        let kind = (f.hardware.get(), f.protocol.get(), f.hardware_len, f.protocol_len);
        let request = match f.operation.get() {
            REQUEST => true,
            REPLY => false,
            _ => return Err(WireError::WrongKind),
        };
        if kind != (HARDWARE_ETHERNET, ethertype::IPV4, 6, 4) {
            return Err(WireError::WrongKind);
        }
        Ok(Self {
            request,
            sender_mac: f.sender_mac,
            sender_ip: f.sender_ip.into(),
            target_mac: f.target_mac,
            target_ip: f.target_ip.into(),
        })
    }

    /// Writes the packet into the first [`PACKET_LEN`] bytes of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let fixed = Fixed {
            hardware: HARDWARE_ETHERNET.into(),
            protocol: ethertype::IPV4.into(),
            hardware_len: 6,
            protocol_len: 4,
            operation: if self.request { REQUEST } else { REPLY }.into(),
            sender_mac: self.sender_mac,
            sender_ip: self.sender_ip.octets(),
            target_mac: self.target_mac,
            target_ip: self.target_ip.octets(),
        };
        crate::write(&fixed, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_packet_survives_the_wire(
            request: bool, sender_mac: Mac, sender_ip: [u8; 4], target_mac: Mac, target_ip: [u8; 4]
        ) {
            let p = ArpPacket {
                request, sender_mac, sender_ip: sender_ip.into(), target_mac, target_ip: target_ip.into(),
            };
            let mut bytes = [0; PACKET_LEN];
            p.emit(&mut bytes);
            prop_assert_eq!(ArpPacket::parse(&bytes), Ok(p));
            for wrong in [0, 2, 4, 5, 6] {
                let mut bytes = bytes;
                bytes[wrong] ^= 0x10;
                prop_assert_eq!(ArpPacket::parse(&bytes), Err(WireError::WrongKind));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = ArpPacket::parse(&bytes);
        }
    }
}
