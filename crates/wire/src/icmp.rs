//! ICMP (RFC 792) and ICMPv6 (RFC 4443) messages that a host sends or heeds.

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// The eight bytes that all messages begin with.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Fixed {
    kind: u8,
    code: u8,
    checksum: U16,
    /// Echo: identifier and sequence. Packet too big: the MTU. Fragmentation needed: the MTU's low half.
    rest: U32,
}

/// Bytes before a message's body.
pub const HEADER_LEN: usize = size_of::<Fixed>();
/// Where the checksum field lies.
pub const CHECKSUM_OFFSET: usize = 2;

/// Types and codes of ICMP for IPv4.
pub mod v4 {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Code: network.
    pub const NET: u8 = 0;
    /// Code: host.
    pub const HOST: u8 = 1;
    /// Code: protocol.
    pub const PROTOCOL: u8 = 2;
    /// Code: port.
    pub const PORT: u8 = 3;
    /// Code: fragmentation needed and DF set (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER: u8 = 12;
}

/// Types and codes of ICMPv6.
pub mod v6 {
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Code: no route.
    pub const NO_ROUTE: u8 = 0;
    /// Code: forbidden by an administrator.
    pub const PROHIBITED: u8 = 1;
    /// Code: address.
    pub const ADDRESS: u8 = 3;
    /// Code: port.
    pub const PORT: u8 = 4;
    /// Packet too big.
    pub const TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem.
    pub const PARAMETER: u8 = 4;
    /// Code of a parameter problem: nobody knows the next header.
    pub const UNRECOGNIZED_NEXT_HEADER: u8 = 1;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Multicast listener query (RFC 3810).
    pub const LISTENER_QUERY: u8 = 130;
    /// Version 2 multicast listener report (RFC 3810).
    pub const LISTENER_REPORT: u8 = 143;
    /// Neighbour solicitation.
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Neighbour advertisement.
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
}

/// The beginning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpHeader {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The four bytes whose meaning the type gives.
    pub rest: u32,
}

impl IcmpHeader {
    /// Reads a header. The checksum covers the body too, and is the caller's.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (f, _) = crate::prefix::<Fixed>(bytes)?;
        Ok(Self { kind: f.kind, code: f.code, rest: f.rest.get() })
    }

    /// Writes the header, checksum 0, into the first [`HEADER_LEN`] bytes of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        crate::write(
            &Fixed { kind: self.kind, code: self.code, checksum: 0.into(), rest: self.rest.into() },
            out,
        );
    }
}

/// Stores a checksum in a message; one shorter than [`HEADER_LEN`] is left as it is.
pub fn set_checksum(message: &mut [u8], checksum: u16) {
    if let Ok((f, _)) = Fixed::mut_from_prefix(message) {
        f.checksum = checksum.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_and_its_checksum_is_where_it_should_be() {
        let h = IcmpHeader { kind: v4::UNREACHABLE, code: v4::FRAGMENTATION_NEEDED, rest: 1400 };
        let mut bytes = [0xff; HEADER_LEN];
        h.emit(&mut bytes);
        set_checksum(&mut bytes, 0x1234);
        assert_eq!(IcmpHeader::parse(&bytes), Ok(h));
        assert_eq!(bytes[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2], [0x12, 0x34]);
        assert_eq!(IcmpHeader::parse(&bytes[..7]), Err(WireError::TooShort));
        set_checksum(&mut bytes[..7], 0);
        assert_eq!(bytes[CHECKSUM_OFFSET], 0x12);
    }
}
