//! Errors of the stack as the numbers that programs know.

pub use rustix::io::Errno;
use stack::Error;

/// The outcome of a call: what libc returns, or the errno.
pub type Result<T> = std::result::Result<T, Errno>;

/// The errno for an error of the stack.
pub(crate) fn errno(e: Error) -> Errno {
    match e {
        Error::NotFound => Errno::NOENT,
        Error::WouldBlock | Error::TimedOutHere => Errno::AGAIN,
        Error::InProgress => Errno::ALREADY,
        Error::TimedOut => Errno::TIMEDOUT,
        Error::Refused => Errno::CONNREFUSED,
        Error::Reset => Errno::CONNRESET,
        Error::Aborted => Errno::CONNABORTED,
        Error::Pipe => Errno::PIPE,
        Error::NotConnected => Errno::NOTCONN,
        Error::IsConnected => Errno::ISCONN,
        Error::Invalid => Errno::INVAL,
        Error::AddressInUse(_) => Errno::ADDRINUSE,
        Error::AddressNotAvailable => Errno::ADDRNOTAVAIL,
        Error::NetworkUnreachable => Errno::NETUNREACH,
        Error::HostUnreachable => Errno::HOSTUNREACH,
        Error::MessageTooLong => Errno::MSGSIZE,
        Error::DestinationRequired => Errno::DESTADDRREQ,
        Error::AccessDenied => Errno::ACCESS,
        Error::WrongFamily => Errno::AFNOSUPPORT,
        Error::NoDevice => Errno::NODEV,
        Error::ProtocolUnreachable => Errno::NOPROTOOPT,
        Error::Protocol => Errno::PROTO,
        Error::MemLock | Error::OptMem => Errno::NOBUFS,
    }
}
