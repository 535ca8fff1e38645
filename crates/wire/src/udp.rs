//! The UDP header (RFC 768).

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Fixed {
    src_port: U16,
    dst_port: U16,
    len: U16,
    checksum: U16,
}

/// Bytes of a header.
pub const HEADER_LEN: usize = size_of::<Fixed>();
/// Where the checksum field lies.
pub const CHECKSUM_OFFSET: usize = 6;

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// Source port; 0 if no answer is expected.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes of header and data.
    pub len: u16,
    /// Checksum; 0 if the sender made none.
    pub checksum: u16,
}

impl UdpHeader {
    /// Reads a header. A length below that of the header is `BadLength`; whether the data is there is the
    /// caller's to compare.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (f, _) = crate::prefix::<Fixed>(bytes)?;
        if usize::from(f.len.get()) < HEADER_LEN {
            return Err(WireError::BadLength);
        }
        Ok(Self {
            src_port: f.src_port.get(),
            dst_port: f.dst_port.get(),
            len: f.len.get(),
            checksum: f.checksum.get(),
        })
    }

    /// Writes the header into the first [`HEADER_LEN`] bytes of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let fixed = Fixed {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            len: self.len.into(),
            checksum: self.checksum.into(),
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
        fn a_header_survives_the_wire(src_port: u16, dst_port: u16, len in 8u16.., checksum: u16) {
            let h = UdpHeader { src_port, dst_port, len, checksum };
            let mut bytes = [0; HEADER_LEN];
            h.emit(&mut bytes);
            prop_assert_eq!(UdpHeader::parse(&bytes), Ok(h));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ = UdpHeader::parse(&bytes);
        }
    }

    #[test]
    fn a_length_below_the_header_is_refused() {
        assert_eq!(UdpHeader::parse(&[0, 1, 0, 2, 0, 7, 0, 0]), Err(WireError::BadLength));
        assert_eq!(UdpHeader::parse(&[0; 7]), Err(WireError::TooShort));
    }
}
