//! IPv4 (RFC 791).

use std::net::Ipv4Addr;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{WireError, checksum};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Fixed {
    /// Version in the high half, header length in words in the low one.
    version_ihl: u8,
    tos: u8,
    total_len: U16,
    ident: U16,
    /// Flags in the high three bits, offset in units of 8 bytes.
    fragment: U16,
    ttl: u8,
    proto: u8,
    checksum: U16,
    src: [u8; 4],
    dst: [u8; 4],
}

/// Bytes of a header without options.
pub const HEADER_LEN: usize = size_of::<Fixed>();
/// Bytes of the longest header.
pub const MAX_HEADER_LEN: usize = 60;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// An IPv4 header. Options are checked for length and skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Bytes of header and payload. 0 in a packet larger than the field can say (Linux's "BIG TCP"), which
    /// only exists between a device that aggregates and its stack.
    pub total_len: u16,
    /// Identification, for fragments.
    pub ident: u16,
    /// Routers may not fragment.
    pub dont_fragment: bool,
    /// More fragments follow.
    pub more_fragments: bool,
    /// Where this fragment's payload belongs, in bytes.
    pub fragment_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub proto: u8,
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
}

impl Ipv4Header {
    /// The header's length in bytes, by its first byte.
    pub fn len_of(first: u8) -> usize {
        usize::from(first & 0x0f) * 4
    }

    /// Reads a header, checks its checksum, and says how long it is. A total length of 0 is let through;
    /// see [`total_len`](Self::total_len).
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let (header, len) = Self::parse_quoted(bytes)?;
        if header.total_len != 0 && usize::from(header.total_len) < len {
            return Err(WireError::BadLength);
        }
        let whole = bytes.get(..len).ok_or(WireError::TooShort)?;
        if checksum::sum(whole) != 0xffff {
            return Err(WireError::BadChecksum);
        }
        Ok((header, len))
    }

    /// Reads a header that an ICMP error quotes. Its total length and checksum are whatever routers made of
    /// them, and are not checked.
    pub fn parse_quoted(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let (f, _) = crate::prefix::<Fixed>(bytes)?;
        if f.version_ihl >> 4 != 4 {
            return Err(WireError::WrongKind);
        }
        let len = Self::len_of(f.version_ihl);
        if len < HEADER_LEN || bytes.len() < len {
            return Err(WireError::BadLength);
        }
        let fragment = f.fragment.get();
        let header = Self {
            tos: f.tos,
            total_len: f.total_len.get(),
            ident: f.ident.get(),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset: (fragment & OFFSET) * 8,
            ttl: f.ttl,
            proto: f.proto,
            src: f.src.into(),
            dst: f.dst.into(),
        };
        Ok((header, len))
    }

    /// Writes the header, without options and with its checksum, into the first [`HEADER_LEN`] bytes of
    /// `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let addresses =
            checksum::combine(checksum::sum(&self.src.octets()), checksum::sum(&self.dst.octets()));
        self.emit_summed(addresses, out);
    }

    /// As [`emit`](Self::emit), for a sender that has kept the sum of both addresses.
    pub fn emit_summed(&self, addresses: u16, out: &mut [u8]) {
        let mut fragment = self.fragment_offset / 8;
        fragment |= if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        fragment |= if self.more_fragments { MORE_FRAGMENTS } else { 0 };
        let words = [
            0x4500 | u16::from(self.tos),
            self.total_len,
            self.ident,
            fragment,
            u16::from(self.ttl) << 8 | u16::from(self.proto),
        ];
        let sum = words.into_iter().fold(addresses, checksum::combine);
        let fixed = Fixed {
            version_ihl: 0x45,
            tos: self.tos,
            total_len: self.total_len.into(),
            ident: self.ident.into(),
            fragment: fragment.into(),
            ttl: self.ttl,
            proto: self.proto,
            checksum: checksum::finish(sum).into(),
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        crate::write(&fixed, out);
    }

    /// Whether the packet is only a part of one.
    pub fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }
}

/// Options that name a route (RFC 791, 3.1).
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

/// Checks the options between the fixed header and the payload: every length must be possible, and none may
/// be a source route (`WrongKind`), which hosts should drop (RFC 7126, 4.3 and 4.4).
pub fn check_options(mut options: &[u8]) -> Result<(), WireError> {
    const END: u8 = 0;
    const NOP: u8 = 1;
    while let Some((&kind, rest)) = options.split_first() {
        options = match kind {
            END => return Ok(()),
            NOP => rest,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Err(WireError::WrongKind),
            _ => {
                let len = usize::from(*rest.first().ok_or(WireError::BadLength)?);
                options.get(len..).filter(|_| len >= 2).ok_or(WireError::BadLength)?
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_survives_the_wire(
            tos: u8, extra in 0u16..60000, ident: u16, df: bool, mf: bool, offset in 0u16..8000,
            ttl: u8, proto: u8, src: [u8; 4], dst: [u8; 4]
        ) {
            let h = Ipv4Header {
                tos, total_len: 20 + extra, ident, dont_fragment: df, more_fragments: mf,
                fragment_offset: offset * 8, ttl, proto, src: src.into(), dst: dst.into(),
            };
            let mut bytes = [0; HEADER_LEN];
            h.emit(&mut bytes);
            prop_assert_eq!(Ipv4Header::parse(&bytes), Ok((h, HEADER_LEN)));
            bytes[8] ^= 1;
            prop_assert_eq!(Ipv4Header::parse(&bytes), Err(WireError::BadChecksum));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
            let _ = Ipv4Header::parse(&bytes);
            let _ = Ipv4Header::parse_quoted(&bytes);
            let _ = check_options(&bytes);
        }
    }

    #[test]
    fn options_are_checked_and_source_routes_refused() {
        assert_eq!(check_options(&[1, 7, 3, 4, 0, 99]), Ok(()), "what follows the end does not count");
        assert_eq!(check_options(&[7, 1, 0, 0]), Err(WireError::BadLength));
        assert_eq!(check_options(&[7, 5, 0, 0]), Err(WireError::BadLength));
        assert_eq!(check_options(&[7]), Err(WireError::BadLength));
        assert_eq!(check_options(&[131, 3, 4, 0]), Err(WireError::WrongKind));
    }
}
