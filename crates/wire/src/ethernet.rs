//! Ethernet II.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// All stations.
pub const BROADCAST: Mac = [0xff; 6];
/// Bytes of a header.
pub const HEADER_LEN: usize = size_of::<Fixed>();

/// EtherTypes.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Fixed {
    dst: Mac,
    src: Mac,
    ethertype: U16,
}

/// An Ethernet II header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    /// Destination station.
    pub dst: Mac,
    /// Source station.
    pub src: Mac,
    /// What follows; see [`ethertype`].
    pub ethertype: u16,
}

impl EthernetHeader {
    /// Reads a header.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (f, _) = crate::prefix::<Fixed>(bytes)?;
        Ok(Self { dst: f.dst, src: f.src, ethertype: f.ethertype.get() })
    }

    /// Writes the header into the first [`HEADER_LEN`] bytes of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        crate::write(&Fixed { dst: self.dst, src: self.src, ethertype: self.ethertype.into() }, out);
    }
}

/// Whether an address names a group (the broadcast address included).
pub fn is_group(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire() {
        let h = EthernetHeader { dst: BROADCAST, src: [2, 0, 0, 0, 0, 1], ethertype: ethertype::IPV6 };
        let mut bytes = [0; HEADER_LEN];
        h.emit(&mut bytes);
        assert_eq!(EthernetHeader::parse(&bytes), Ok(h));
        assert_eq!(EthernetHeader::parse(&bytes[..13]), Err(WireError::TooShort));
        assert!(is_group(h.dst) && !is_group(h.src));
    }
}
