//! The virtio-net header that a TAP or packet socket exchanges with the kernel (virtio 1.2, 5.1.6). Its
//! fields are in the machine's byte order there.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The checksum is to be finished from `csum_start`.
pub const F_NEEDS_CSUM: u8 = 1;
/// The checksum was verified.
pub const F_DATA_VALID: u8 = 2;
/// Not a large packet.
pub const GSO_NONE: u8 = 0;
/// TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// UDP fragmentation (obsolete).
pub const GSO_UDP: u8 = 3;
/// TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// UDP segmentation.
pub const GSO_UDP_L4: u8 = 5;
/// Flag of the type: congestion window reduced in the first segment only.
pub const GSO_ECN: u8 = 0x80;

/// Bytes of the header with the merged-buffers count.
pub const HEADER_LEN: usize = size_of::<Fixed>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Default)]
#[repr(C)]
struct Fixed {
    flags: u8,
    gso_type: u8,
    hdr_len: [u8; 2],
    gso_size: [u8; 2],
    csum_start: [u8; 2],
    csum_offset: [u8; 2],
    num_buffers: [u8; 2],
}

/// The header's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VnetHeader {
    /// `F_*` flags.
    pub flags: u8,
    /// `GSO_*` type.
    pub gso_type: u8,
    /// Bytes of headers before the payload of a large packet.
    pub hdr_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// First byte summed.
    pub csum_start: u16,
    /// Where the checksum goes, from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Reads a header; `None` if there are too few bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (f, _) = crate::prefix::<Fixed>(bytes).ok()?;
        Some(Self {
            flags: f.flags,
            gso_type: f.gso_type,
            hdr_len: u16::from_ne_bytes(f.hdr_len),
            gso_size: u16::from_ne_bytes(f.gso_size),
            csum_start: u16::from_ne_bytes(f.csum_start),
            csum_offset: u16::from_ne_bytes(f.csum_offset),
        })
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let fixed = Fixed {
            flags: self.flags,
            gso_type: self.gso_type,
            hdr_len: self.hdr_len.to_ne_bytes(),
            gso_size: self.gso_size.to_ne_bytes(),
            csum_start: self.csum_start.to_ne_bytes(),
            csum_offset: self.csum_offset.to_ne_bytes(),
            num_buffers: [0; 2],
        };
        let mut out = [0; HEADER_LEN];
        crate::write(&fixed, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives() {
        let h = VnetHeader {
            flags: 1,
            gso_type: 4,
            hdr_len: 74,
            gso_size: 1440,
            csum_start: 54,
            csum_offset: 16,
        };
        assert_eq!(VnetHeader::parse(&h.to_bytes()), Some(h));
        assert_eq!((HEADER_LEN, VnetHeader::parse(&[0; 11])), (12, None));
    }
}
