//! What can go wrong in a socket call.

use std::io;
use std::net::SocketAddr;

/// The outcome of a socket call that did not succeed, with the errno a POSIX layer gives for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing to do right now (`EAGAIN`).
    #[error("the operation would block")]
    WouldBlock,
    /// A connection attempt is under way (`EINPROGRESS`).
    #[error("the connection is being established")]
    InProgress,
    /// A blocking call ran into its timeout (`EAGAIN` from `SO_RCVTIMEO`, `SO_SNDTIMEO`).
    #[error("the call's own timeout ran out")]
    TimedOutHere,
    /// The peer does not answer (`ETIMEDOUT`).
    #[error("the peer does not answer: connection timed out")]
    TimedOut,
    /// The peer refused the connection (`ECONNREFUSED`).
    #[error("connection refused: nobody listens on that port")]
    Refused,
    /// The peer reset the connection (`ECONNRESET`).
    #[error("connection reset by the peer")]
    Reset,
    /// This side gave the connection up (`ECONNABORTED`).
    #[error("connection aborted")]
    Aborted,
    /// The sending direction is closed (`EPIPE`).
    #[error("the sending direction is closed")]
    Pipe,
    /// Not connected (`ENOTCONN`).
    #[error("the socket is not connected")]
    NotConnected,
    /// Already connected (`EISCONN`).
    #[error("the socket is already connected")]
    IsConnected,
    /// A call that the socket's state does not allow (`EINVAL`).
    #[error("the socket's state does not allow this call")]
    Invalid,
    /// Nothing of that name (`ENOENT`).
    #[error("nothing of that name")]
    NotFound,
    /// The address or port is taken (`EADDRINUSE`).
    #[error("address already in use: {0}")]
    AddressInUse(SocketAddr),
    /// Not an address of this stack (`EADDRNOTAVAIL`).
    #[error("address not available: no device of this stack has it, or no port is free")]
    AddressNotAvailable,
    /// No route (`ENETUNREACH`).
    #[error("network unreachable: no route; give the stack a gateway or an address on that network")]
    NetworkUnreachable,
    /// The next hop does not answer, or a router says so (`EHOSTUNREACH`).
    #[error("host unreachable: nobody answers for that address on the link")]
    HostUnreachable,
    /// The datagram is longer than IP, the path or the interface can carry (`EMSGSIZE`).
    #[error("message too long for one datagram on this path")]
    MessageTooLong,
    /// No destination was given and the socket is not connected (`EDESTADDRREQ`).
    #[error("destination address required: name one, or connect")]
    DestinationRequired,
    /// A broadcast without permission (`EACCES`).
    #[error("sending to a broadcast address needs the broadcast option")]
    AccessDenied,
    /// An address of a family the socket does not speak (`EAFNOSUPPORT`).
    #[error("the socket does not speak that address family")]
    WrongFamily,
    /// No such interface (`ENODEV`).
    #[error("no such interface")]
    NoDevice,
    /// The host does not know the protocol (`ENOPROTOOPT`).
    #[error("the host does not know the protocol")]
    ProtocolUnreachable,
    /// A header was not understood on the way (`EPROTO`).
    #[error("a host on the way did not understand a header")]
    Protocol,
    /// `RLIMIT_MEMLOCK` is used up by lent bytes (`ENOBUFS`).
    #[error("lent bytes would exceed the memlock limit; wait for completions, or send by copy")]
    MemLock,
    /// The socket's option memory is full of unread completions (`ENOBUFS`).
    #[error("too many unread completions for optmem_max; read the error queue, or send by copy")]
    OptMem,
}

impl Error {
    /// Linux's number for it.
    pub fn errno(self) -> i32 {
        use rustix::io::Errno as E;
        let errno = match self {
            Error::WouldBlock | Error::TimedOutHere => E::AGAIN,
            Error::InProgress => E::INPROGRESS,
            Error::TimedOut => E::TIMEDOUT,
            Error::Refused => E::CONNREFUSED,
            Error::Reset => E::CONNRESET,
            Error::Aborted => E::CONNABORTED,
            Error::Pipe => E::PIPE,
            Error::NotConnected => E::NOTCONN,
            Error::IsConnected => E::ISCONN,
            Error::NotFound => E::NOENT,
            Error::Invalid => E::INVAL,
            Error::AddressInUse(_) => E::ADDRINUSE,
            Error::AddressNotAvailable => E::ADDRNOTAVAIL,
            Error::NetworkUnreachable => E::NETUNREACH,
            Error::HostUnreachable => E::HOSTUNREACH,
            Error::MessageTooLong => E::MSGSIZE,
            Error::DestinationRequired => E::DESTADDRREQ,
            Error::AccessDenied => E::ACCESS,
            Error::WrongFamily => E::AFNOSUPPORT,
            Error::NoDevice => E::NODEV,
            Error::ProtocolUnreachable => E::NOPROTOOPT,
            Error::Protocol => E::PROTO,
            Error::MemLock | Error::OptMem => E::NOBUFS,
        };
        errno.raw_os_error()
    }
}

impl From<inet::NetError> for Error {
    fn from(e: inet::NetError) -> Self {
        match e {
            inet::NetError::NetworkUnreachable => Error::NetworkUnreachable,
            inet::NetError::HostUnreachable => Error::HostUnreachable,
            inet::NetError::AddressNotAvailable => Error::AddressNotAvailable,
            inet::NetError::InvalidDestination => Error::Invalid,
            inet::NetError::MessageTooLong => Error::MessageTooLong,
        }
    }
}

impl From<skb::LendError> for Error {
    fn from(e: skb::LendError) -> Self {
        match e {
            skb::LendError::MemLock => Error::MemLock,
            skb::LendError::OptMem => Error::OptMem,
        }
    }
}

impl From<Error> for io::Error {
    fn from(e: Error) -> Self {
        use io::ErrorKind as K;
        let kind = match e {
            Error::WouldBlock | Error::InProgress | Error::TimedOutHere => K::WouldBlock,
            Error::TimedOut => K::TimedOut,
            Error::Refused => K::ConnectionRefused,
            Error::Reset => K::ConnectionReset,
            Error::Aborted => K::ConnectionAborted,
            Error::Pipe => K::BrokenPipe,
            Error::NotConnected => K::NotConnected,
            Error::IsConnected
            | Error::Invalid
            | Error::MessageTooLong
            | Error::DestinationRequired
            | Error::WrongFamily => K::InvalidInput,
            Error::AccessDenied => K::PermissionDenied,
            Error::NoDevice | Error::NotFound => K::NotFound,
            Error::ProtocolUnreachable | Error::Protocol => K::Unsupported,
            Error::AddressInUse(_) => K::AddrInUse,
            Error::AddressNotAvailable => K::AddrNotAvailable,
            Error::NetworkUnreachable => K::NetworkUnreachable,
            Error::HostUnreachable => K::HostUnreachable,
            Error::MemLock | Error::OptMem => K::QuotaExceeded,
        };
        io::Error::new(kind, e)
    }
}
