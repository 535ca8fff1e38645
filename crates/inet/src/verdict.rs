//! What the network layer decides, as values.

use std::net::IpAddr;

use netdev::DropReason;
use skb::{Csum, NoRoom, SkBuff};
use wire::{SeqNum, checksum, proto};

use crate::IfIndex;
use crate::dst::{IpFields, addresses_sum, pseudo_sum, push_ip};

/// Why nothing can be sent to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// No route (`ENETUNREACH`).
    #[error("no route to the network")]
    NetworkUnreachable,
    /// The next hop does not answer, or cannot be asked (`EHOSTUNREACH`).
    #[error("the next hop cannot be reached")]
    HostUnreachable,
    /// The source is not an address of this host, or the host has none that fits (`EADDRNOTAVAIL`).
    #[error("no such address on this host")]
    AddressNotAvailable,
    /// The destination is not one (`EINVAL`).
    #[error("not a destination")]
    InvalidDestination,
    /// The packet is longer than IP can say, or its headers do not fit (`EMSGSIZE`).
    #[error("the packet is too large for IP")]
    MessageTooLong,
}

/// How a packet is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputMeta {
    /// Source; unspecified to let the network layer choose (only for protocols that do not sum it).
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Protocol of the payload.
    pub proto: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Do not fragment, here or on the way.
    pub df: bool,
}

/// What became of a packet given to [`Inet::output`](crate::Inet::output).
#[derive(Debug)]
#[must_use]
pub enum OutputVerdict {
    /// It is in `tx`, as one packet or as its fragments.
    Sent,
    /// It waits for a neighbour to answer.
    Queued,
    /// It is for this host: give it (from its IP header on) to `input` on the loopback.
    Local(SkBuff),
    /// It must not be fragmented and is larger than the path's MTU; it was dropped.
    TooBig {
        /// The path MTU in bytes.
        mtu: u32,
    },
    /// It cannot be sent; it was dropped.
    Error(NetError),
}

/// What became of a packet given to [`Inet::input`](crate::Inet::input).
#[derive(Debug)]
#[must_use]
pub enum InputVerdict {
    /// For a transport.
    Deliver(Delivered),
    /// An error about something this host sent, for its transport to judge.
    Icmp(IcmpError),
    /// The network layer needed it, or keeps it until its other fragments are here.
    Consumed,
    /// It was dropped.
    Drop(DropReason),
}

/// A packet for a transport.
#[derive(Debug)]
pub struct Delivered {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Transport protocol.
    pub proto: u8,
    /// The packet from its transport header on, exactly as long as IP said.
    pub skb: SkBuff,
    /// TTL or hop limit it arrived with.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Where it arrived.
    pub ifindex: IfIndex,
    /// What else an ICMP error about it must quote or depends on.
    pub(crate) origin: Origin,
}

impl Delivered {
    /// It came in a frame, or to an address, for many.
    pub fn is_to_many(&self) -> bool {
        self.origin.to_many
    }

    /// The same packet for another reader. Fragments are counted, not copied.
    pub fn duplicate(&self) -> Delivered {
        Delivered { skb: self.skb.clone(), ..*self }
    }

    /// Puts an IP header in front again, for readers who want one (RAW sockets over IPv4). Options are gone.
    pub fn restore_header(&mut self) -> Result<(), NoRoom> {
        let fields = IpFields {
            proto: self.proto,
            tos: self.tos,
            hop_limit: self.hop_limit,
            ident: self.origin.ident,
            df: self.origin.dont_fragment,
            more_fragments: false,
            offset: 0,
        };
        let ends = (self.src, self.dst);
        // A packet of its own: a received one has little room in front.
        let mut whole = self.skb.slice(0, self.skb.len());
        (whole.csum, whole.gso) = (self.skb.csum, self.skb.gso);
        push_ip(&mut whole, ends, fields, addresses_sum(ends.0, ends.1))?;
        self.skb = whole;
        Ok(())
    }
}

/// Parts of a received packet that only matter if an ICMP error is sent about it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// IPv4 identification.
    pub(crate) ident: u16,
    pub(crate) dont_fragment: bool,
    /// It came in a frame, or to an address, for many.
    pub(crate) to_many: bool,
    /// Extension headers were stepped over.
    pub(crate) extended: bool,
}

/// Checks a delivered packet's transport checksum, unless the device has, or its sender is on this host.
/// True for protocols without one. UDP's is that of [`udp_header`](crate::udp_header).
#[must_use]
pub fn verify_transport_checksum(d: &Delivered) -> bool {
    match (d.skb.csum, d.proto) {
        // A partial checksum was never on a wire.
        (Csum::Unnecessary | Csum::Partial { .. }, _) => true,
        (Csum::None, proto::TCP | proto::UDP | proto::ICMPV6) => sum_is_right(d, d.skb.len()),
        (Csum::None, _) => true,
    }
}

/// Checks that a delivered packet and its pseudo-header sum to what they should, whatever the protocol
/// (`IPV6_CHECKSUM`), unless the device has.
#[must_use]
pub fn verify_internet_checksum(d: &Delivered) -> bool {
    d.skb.csum != Csum::None || sum_is_right(d, d.skb.len())
}

/// Whether the first `len` bytes and the pseudo-header sum to what they should.
pub(crate) fn sum_is_right(d: &Delivered, len: usize) -> bool {
    let pseudo = pseudo_sum(d.src, d.dst, d.proto, len as u32);
    checksum::combine(pseudo, d.skb.checksum(0, len)) == 0xffff
}

/// What an ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpKind {
    /// No route to the network.
    NetworkUnreachable,
    /// No way to the host.
    HostUnreachable,
    /// The host does not know the protocol.
    ProtocolUnreachable,
    /// Nobody at the port.
    PortUnreachable,
    /// IPv4: larger than a link on the path (RFC 1191).
    FragmentationNeeded {
        /// What that link carries, in bytes; guessed if the router did not say.
        mtu: u32,
    },
    /// IPv6: larger than a link on the path.
    PacketTooBig {
        /// What that link carries, in bytes.
        mtu: u32,
    },
    /// Forbidden by an administrator.
    Prohibited,
    /// The hop limit ran out, or fragments were missing.
    TimeExceeded,
    /// A header was not understood.
    ParameterProblem,
}

/// Bytes of a quoted packet that are kept, from its transport header on: enough for what programs put into
/// probes to know them again.
const QUOTE: usize = 64;

/// An ICMP error about a packet this host sent. Nothing has been believed yet: whether the quoted packet
/// could be in flight is for its transport to say (RFC 5927).
#[derive(Clone, Copy, Debug)]
pub struct IcmpError {
    /// What is said.
    pub kind: IcmpKind,
    /// The message's type and code, as they were on the wire.
    pub raw: (u8, u8),
    /// Who says so.
    pub reporter: IpAddr,
    /// Transport of the quoted packet.
    pub proto: u8,
    /// The quoted packet's source, an address of this host.
    pub local: IpAddr,
    /// The quoted packet's destination.
    pub remote: IpAddr,
    header: [u8; QUOTE],
    header_len: u8,
}

/// The ports, and for TCP the sequence number, of a quoted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// The local port.
    pub src_port: u16,
    /// The remote port.
    pub dst_port: u16,
    /// The first sequence number; of another protocol, whatever lies there.
    pub seq: SeqNum,
}

impl IcmpError {
    pub(crate) fn new(
        (kind, raw): (IcmpKind, (u8, u8)),
        reporter: IpAddr,
        proto: u8,
        (local, remote): (IpAddr, IpAddr),
        quoted: &[u8],
    ) -> Self {
        let mut header = [0; QUOTE];
        let quoted = quoted.get(..QUOTE).unwrap_or(quoted);
        for (to, from) in header.iter_mut().zip(quoted) {
            *to = *from;
        }
        Self { kind, raw, reporter, proto, local, remote, header, header_len: quoted.len() as u8 }
    }

    /// The quoted packet from its transport header on: 64 bytes at most, and of TCP, UDP and ICMP 8 at least.
    pub fn transport_header(&self) -> &[u8] {
        self.header.get(..usize::from(self.header_len)).unwrap_or(&self.header)
    }

    /// The quoted ports and sequence number; `None` for protocols without ports.
    pub fn tcp_ports_and_seq(&self) -> Option<Quoted> {
        let [a, b, c, d, e, f, g, h, ..] = *self.transport_header() else { return None };
        matches!(self.proto, proto::TCP | proto::UDP).then_some(Quoted {
            src_port: u16::from_be_bytes([a, b]),
            dst_port: u16::from_be_bytes([c, d]),
            seq: SeqNum(u32::from_be_bytes([e, f, g, h])),
        })
    }
}
