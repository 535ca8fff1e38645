//! Headers and checksums: bytes in, values out, and back.
//!
//! Theory of operation. Every fixed header is a `repr(C)` struct of big-endian fields that `zerocopy` lays
//! over the bytes, so no offset is counted by hand. Parsing returns a small value and its length, or a
//! [`WireError`]; nothing in this crate panics, allocates, or keeps a reference to a packet.

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod ndisc;
mod seq;
pub mod tcp;
pub mod udp;
pub mod vnet;

pub use seq::SeqNum;

/// Protocol numbers (IANA), as in an IPv4 header's protocol and an IPv6 header's next-header field.
pub mod proto {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IGMP.
    pub const IGMP: u8 = 2;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the fixed header.
    #[error("the packet is shorter than its header")]
    TooShort,
    /// A length field that points outside the packet or into the fixed header.
    #[error("a length field is impossible")]
    BadLength,
    /// Another version or type than asked for.
    #[error("not a header of this kind")]
    WrongKind,
    /// The header's own checksum is wrong.
    #[error("the header's checksum is wrong")]
    BadChecksum,
}

/// Lays `T` over the front of `bytes`.
fn prefix<T>(bytes: &[u8]) -> Result<(&T, &[u8]), WireError>
where
    T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    T::ref_from_prefix(bytes).map_err(|_| WireError::TooShort)
}

/// Writes `value` to the front of `out`; a shorter `out` is left as it is.
fn write<T: zerocopy::IntoBytes + zerocopy::Immutable>(value: &T, out: &mut [u8]) {
    let bytes = value.as_bytes();
    if let Some(front) = out.get_mut(..bytes.len()) {
        front.copy_from_slice(bytes);
    }
}
