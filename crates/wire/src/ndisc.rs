//! Neighbour discovery messages (RFC 4861), from the target address on.

use std::net::Ipv6Addr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;
use crate::ethernet::Mac;

/// Bytes of a message behind the ICMPv6 header, with a link-layer address option.
pub const BODY_LEN: usize = size_of::<Body>();

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;

/// Flags of an advertisement, in the four bytes before the target.
pub mod flags {
    /// The sender is a router.
    pub const ROUTER: u32 = 1 << 31;
    /// It answers a solicitation.
    pub const SOLICITED: u32 = 1 << 30;
    /// It replaces what is known.
    pub const OVERRIDE: u32 = 1 << 29;
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Body {
    target: [u8; 16],
    option_kind: u8,
    /// In units of 8 bytes.
    option_len: u8,
    mac: Mac,
}

/// A solicitation or advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourMessage {
    /// Whom it is about.
    pub target: Ipv6Addr,
    /// The link-layer address it carries.
    pub mac: Option<Mac>,
}

impl NeighbourMessage {
    /// Reads the bytes behind the ICMPv6 header.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (target, mut options) = <[u8; 16]>::ref_from_prefix(bytes).map_err(|_| WireError::TooShort)?;
        let mut mac = None;
        while let [kind, words, ..] = *options {
            // RFC 4861, 4.6: an option of length 0 makes the packet invalid.
            let len = usize::from(words) * 8;
            let option = options.get(..len).filter(|_| len > 0).ok_or(WireError::BadLength)?;
            if matches!(kind, SOURCE_LINK_LAYER | TARGET_LINK_LAYER) {
                mac = option.get(2..8).and_then(|m| m.try_into().ok());
            }
            options = options.get(len..).unwrap_or(&[]);
        }
        Ok(Self { target: (*target).into(), mac })
    }

    /// Writes the bytes behind the ICMPv6 header, with `mac` as the source's address (of a solicitation)
    /// or the target's (of an advertisement).
    pub fn emit(target: Ipv6Addr, mac: Mac, solicitation: bool, out: &mut [u8]) {
        let option_kind = if solicitation { SOURCE_LINK_LAYER } else { TARGET_LINK_LAYER };
        crate::write(&Body { target: target.octets(), option_kind, option_len: 1, mac }, out);
    }
}

/// The group in which `target` hears solicitations (RFC 4291, 2.7.1).
pub fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let o = target.octets();
    let (high, low) = (u16::from(o[13]) | 0xff00, u16::from_be_bytes([o[14], o[15]]));
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low)
}

/// The Ethernet group of an IPv6 group (RFC 2464, 7).
pub fn group_mac(group: Ipv6Addr) -> Mac {
    let o = group.octets();
    [0x33, 0x33, o[12], o[13], o[14], o[15]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_message_survives_the_wire(target: [u8; 16], mac: Mac, solicitation: bool) {
            let mut bytes = [0; BODY_LEN];
            NeighbourMessage::emit(target.into(), mac, solicitation, &mut bytes);
            let message = NeighbourMessage { target: target.into(), mac: Some(mac) };
            prop_assert_eq!(NeighbourMessage::parse(&bytes), Ok(message));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = NeighbourMessage::parse(&bytes);
        }
    }

    #[test]
    fn an_option_of_length_zero_or_beyond_the_packet_is_refused() {
        let mut bytes = [0; 24];
        assert_eq!(NeighbourMessage::parse(&bytes), Err(WireError::BadLength));
        bytes[17] = 2;
        assert_eq!(NeighbourMessage::parse(&bytes), Err(WireError::BadLength));
        bytes[17] = 1;
        assert_eq!(NeighbourMessage::parse(&bytes).map(|m| m.mac), Ok(None), "an unknown option is skipped");
    }

    #[test]
    fn groups_are_derived_from_addresses() {
        let group = solicited_node("2001:db8::12:3456".parse().expect("an address"));
        assert_eq!(group, "ff02::1:ff12:3456".parse::<Ipv6Addr>().expect("an address"));
        assert_eq!(group_mac(group), [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
    }
}
