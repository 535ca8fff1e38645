//! IPv6 and its extension headers (RFC 8200).

use std::net::Ipv6Addr;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Fixed {
    /// Version, traffic class, flow label.
    version_class_flow: U32,
    payload_len: U16,
    next_header: u8,
    hop_limit: u8,
    src: [u8; 16],
    dst: [u8; 16],
}

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = size_of::<Fixed>();
/// Where the fixed header says what follows.
pub const NEXT_HEADER_OFFSET: u32 = core::mem::offset_of!(Fixed, next_header) as u32;
/// The next-header value of a fragment header.
pub const NEXT_FRAGMENT: u8 = 44;
/// The smallest MTU of a link (RFC 8200, 5).
pub const MIN_MTU: u32 = 1280;

/// The fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after this header.
    pub payload_len: u16,
    /// What follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
}

impl Ipv6Header {
    /// Reads a header.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (f, _) = crate::prefix::<Fixed>(bytes)?;
        let word = f.version_class_flow.get();
        if word >> 28 != 6 {
            return Err(WireError::WrongKind);
        }
        Ok(Self {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            payload_len: f.payload_len.get(),
            next_header: f.next_header,
            hop_limit: f.hop_limit,
            src: f.src.into(),
            dst: f.dst.into(),
        })
    }

    /// Writes the header into the first [`HEADER_LEN`] bytes of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0xf_ffff);
        let fixed = Fixed {
            version_class_flow: word.into(),
            payload_len: self.payload_len.into(),
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        crate::write(&fixed, out);
    }
}

/// Whether `next` is an extension header that [`walk`] steps over or stops at.
pub fn is_extension(next: u8) -> bool {
    use next_header::{DESTINATION, FRAGMENT, HOP_BY_HOP, NONE, ROUTING};
    matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION | NONE)
}

mod next_header {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = super::NEXT_FRAGMENT;
    pub(super) const DESTINATION: u8 = 60;
    pub(super) const NONE: u8 = 59;
}

/// A fragment header (RFC 8200, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// What the reassembled packet continues with.
    pub next_header: u8,
    /// Where this fragment's payload belongs, in bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Identification.
    pub ident: u32,
}

/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = size_of::<FragmentFixed>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FragmentFixed {
    next_header: u8,
    reserved: u8,
    /// Offset in the high 13 bits, in units of 8 bytes; the lowest bit says that more follow.
    offset_more: U16,
    ident: U32,
}

impl FragmentHeader {
    /// Writes the header into the first [`FRAGMENT_HEADER_LEN`] bytes of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let fixed = FragmentFixed {
            next_header: self.next_header,
            reserved: 0,
            offset_more: ((self.offset & !7) | u16::from(self.more)).into(),
            ident: self.ident.into(),
        };
        crate::write(&fixed, out);
    }
}

/// What the chain of extension headers leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// A transport header.
    Upper {
        /// Its protocol.
        proto: u8,
        /// Bytes of extension headers before it.
        len: usize,
    },
    /// A fragment.
    Fragment {
        /// Its header.
        header: FragmentHeader,
        /// Bytes of extension headers up to and with the fragment header.
        len: usize,
    },
}

/// Why a chain cannot be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// It ends before a transport header, or says that nothing follows.
    Truncated,
    /// It is longer than any honest one.
    TooLong,
    /// A routing header that this host would have to act on (RFC 5095 forbids type 0).
    Routing,
    /// An option that must be understood, and is not (RFC 8200, 4.2).
    Option,
}

/// Extension headers walked before giving up: there are four kinds, each sensible once.
const MAX_HEADERS: usize = 8;

/// Walks the extension headers in `bytes`, which begin with one of type `next`.
pub fn walk(mut next: u8, bytes: &[u8]) -> Result<Chain, ChainError> {
    let mut at = 0;
    for n in 0..MAX_HEADERS {
        let rest = bytes.get(at..).ok_or(ChainError::Truncated)?;
        match next {
            next_header::FRAGMENT => {
                let (f, _) = crate::prefix::<FragmentFixed>(rest).map_err(|_| ChainError::Truncated)?;
                let word = f.offset_more.get();
                let header = FragmentHeader {
                    next_header: f.next_header,
                    offset: word & !7,
                    more: word & 1 != 0,
                    ident: f.ident.get(),
                };
                return Ok(Chain::Fragment { header, len: at + FRAGMENT_HEADER_LEN });
            }
            next_header::HOP_BY_HOP if n > 0 => return Err(ChainError::TooLong),
            next_header::HOP_BY_HOP | next_header::DESTINATION | next_header::ROUTING => {
                let [following, words, ..] = *rest else { return Err(ChainError::Truncated) };
                let len = (usize::from(words) + 1) * 8;
                let body = rest.get(2..len).ok_or(ChainError::Truncated)?;
                match next {
                    next_header::ROUTING => check_routing(body)?,
                    _ => check_options(body)?,
                }
                next = following;
                at += len;
            }
            next_header::NONE => return Err(ChainError::Truncated),
            proto => return Ok(Chain::Upper { proto, len: at }),
        }
    }
    Err(ChainError::TooLong)
}

/// A routing header is ignored only when no segments are left (RFC 8200, 4.4).
fn check_routing(body: &[u8]) -> Result<(), ChainError> {
    match body {
        [_, 0, ..] => Ok(()),
        _ => Err(ChainError::Routing),
    }
}

/// Unknown options are skipped only if their type's two highest bits are 0 (RFC 8200, 4.2).
fn check_options(mut body: &[u8]) -> Result<(), ChainError> {
    const PAD1: u8 = 0;
    while let Some((&kind, rest)) = body.split_first() {
        if kind == PAD1 {
            body = rest;
            continue;
        }
        let len = usize::from(*rest.first().ok_or(ChainError::Truncated)?);
        if kind & 0xc0 != 0 {
            return Err(ChainError::Option);
        }
        body = body.get(2 + len..).ok_or(ChainError::Truncated)?;
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
            traffic_class: u8, flow_label in 0u32..(1 << 20), payload_len: u16, next_header: u8, hop_limit: u8,
            src: [u8; 16], dst: [u8; 16]
        ) {
            let h = Ipv6Header {
                traffic_class, flow_label, payload_len, next_header, hop_limit, src: src.into(), dst: dst.into(),
            };
            let mut bytes = [0; HEADER_LEN];
            h.emit(&mut bytes);
            prop_assert_eq!(Ipv6Header::parse(&bytes), Ok(h));
        }

        #[test]
        fn any_chain_is_walked_without_panic(next: u8, bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(Chain::Upper { len, .. } | Chain::Fragment { len, .. }) = walk(next, &bytes) {
                prop_assert!(len <= bytes.len());
            }
        }
    }

    #[test]
    fn a_chain_leads_to_its_transport() {
        let mut chain = vec![60, 0, 1, 4, 0, 0, 0, 0];
        chain.extend([6, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(walk(0, &chain), Ok(Chain::Upper { proto: 6, len: 16 }));
        assert_eq!(walk(6, &[]), Ok(Chain::Upper { proto: 6, len: 0 }));
        chain[0] = 0;
        assert_eq!(walk(0, &chain), Err(ChainError::TooLong), "hop-by-hop only comes first");
    }

    #[test]
    fn source_routes_and_unknown_mandatory_options_are_refused() {
        assert_eq!(walk(43, &[6, 0, 0, 1, 0, 0, 0, 0]), Err(ChainError::Routing));
        assert_eq!(walk(43, &[6, 0, 0, 0, 0, 0, 0, 0]), Ok(Chain::Upper { proto: 6, len: 8 }));
        assert_eq!(walk(60, &[6, 0, 0x80, 4, 0, 0, 0, 0]), Err(ChainError::Option));
        assert_eq!(walk(59, &[]), Err(ChainError::Truncated));
    }
}
