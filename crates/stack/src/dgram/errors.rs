//! ICMP errors, and how sockets are to take them.

use std::net::SocketAddr;

use inet::{IcmpError, IcmpKind};
use skb::{ErrorOrigin, ExtendedError};

use crate::error::Error;

/// What an ICMP error means to a socket.
pub(crate) struct Judged {
    pub(crate) error: Error,
    /// Worth telling a connected socket that did not ask for errors (RFC 1122, 4.1.3.3; Linux's
    /// `icmp_err_convert`).
    pub(crate) hard: bool,
    pub(crate) extended: ExtendedError,
}

/// Judges an error about a packet to `destination` whose payload begins `skip` bytes behind its transport header.
pub(crate) fn judge(e: &IcmpError, destination: SocketAddr, skip: usize) -> Judged {
    let (error, hard) = match e.kind {
        IcmpKind::NetworkUnreachable => (Error::NetworkUnreachable, false),
        IcmpKind::HostUnreachable | IcmpKind::TimeExceeded => (Error::HostUnreachable, false),
        IcmpKind::Prohibited => (Error::HostUnreachable, true),
        IcmpKind::PortUnreachable => (Error::Refused, true),
        IcmpKind::ProtocolUnreachable => (Error::ProtocolUnreachable, true),
        IcmpKind::FragmentationNeeded { .. } | IcmpKind::PacketTooBig { .. } => (Error::MessageTooLong, true),
        IcmpKind::ParameterProblem => (Error::Protocol, true),
    };
    let info = match e.kind {
        IcmpKind::FragmentationNeeded { mtu } | IcmpKind::PacketTooBig { mtu } => mtu,
        _ => 0,
    };
    let origin = if e.local.is_ipv4() { ErrorOrigin::Icmp } else { ErrorOrigin::Icmp6 };
    let extended = ExtendedError {
        errno: error.errno(),
        origin,
        kind: e.raw.0,
        code: e.raw.1,
        info,
        offender: Some(e.reporter),
        destination,
        payload: e.transport_header().get(skip..).unwrap_or(&[]).to_vec(),
    };
    Judged { error, hard, extended }
}

/// An error of this stack's own about a datagram to `destination`.
pub(crate) fn local(error: Error, destination: SocketAddr, info: u32) -> ExtendedError {
    ExtendedError {
        errno: error.errno(),
        origin: ErrorOrigin::Local,
        kind: 0,
        code: 0,
        info,
        offender: None,
        destination,
        payload: Vec::new(),
    }
}
