//! One stack for several processes: the one that runs it is the host, the others are its guests.
//!
//! A guest's call is one request and one reply on a local socket (`SOCK_SEQPACKET`); the bytes travel with
//! it and are copied. News of sockets come to the guest on a second socket, so that it sleeps and polls as if
//! the sockets were its own. When a guest dies the kernel closes its sockets, and the host lets go of what
//! the guest had open. Nothing here blocks the host's stack: requests never wait.

pub(crate) mod client;
pub(crate) mod fork;
pub(crate) mod host;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, socketpair,
};
use serde::{Deserialize, Serialize};

use crate::endpoint::Counts;
use crate::errno::{Errno, Result};
use crate::table::Guarded;

/// Bytes of a stream that one message carries.
pub(crate) const CHUNK: usize = 64 * 1024;
/// Room for a message: its bytes, and what is said about them.
const MESSAGE: usize = CHUNK + 4096;

/// What a guest asks for. Sockets are named by the host's numbers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// A new socket.
    Socket,
    /// A guest of its own, for a child: the answer has its two sockets.
    Fork,
    Bind {
        id: u64,
        local: SocketAddr,
        addr: bool,
        port: bool,
        v6only: bool,
    },
    Listen {
        id: u64,
        backlog: usize,
    },
    Accept {
        id: u64,
    },
    Connect {
        id: u64,
        remote: SocketAddr,
    },
    Disconnect {
        id: u64,
    },
    /// The bytes follow. `lend`: they begin a lending call of so many bytes in all.
    Send {
        id: u64,
        flags: i32,
        lend: Option<u64>,
    },
    Recv {
        id: u64,
        max: usize,
        peek: bool,
        discard: bool,
    },
    Completion {
        id: u64,
    },
    Shutdown {
        id: u64,
        how: u8,
    },
    Names {
        id: u64,
    },
    SetOption {
        id: u64,
        level: i32,
        name: i32,
        value: Vec<u8>,
    },
    Option {
        id: u64,
        level: i32,
        name: i32,
    },
    Counts {
        id: u64,
    },
    Urgent {
        id: u64,
        peek: bool,
    },
    Linger {
        id: u64,
        linger: Option<Duration>,
    },
    IsDrained {
        id: u64,
    },
    /// From now on, news of it.
    Watch {
        id: u64,
    },
    Close {
        id: u64,
    },
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Done,
    Failed(i32),
    Count(usize),
    Socket(u64),
    Names(Option<SocketAddr>, Option<SocketAddr>),
    Counts(Counts),
    Urgent(Option<u8>),
    Bytes(Vec<u8>),
    Completion { first: u32, last: u32, reason: u8 },
}

/// The answer: the outcome, and what the socket is ready for after it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    pub(crate) level: Level,
}

/// Readiness with the number of the look that found it: a later one counts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Level {
    pub(crate) look: u64,
    pub(crate) bits: u32,
}

/// News of a socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct News {
    pub(crate) id: u64,
    pub(crate) level: Level,
}

/// Both ends of a message socket.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends one message: a head, bytes behind it, and descriptors along with it.
pub(crate) fn send<T: Serialize>(
    to: BorrowedFd<'_>,
    head: &T,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<()> {
    let head = postcard::to_allocvec(head).map_err(|_| Errno::PROTO)?;
    let len = (head.len() as u32).to_le_bytes();
    let parts = [std::io::IoSlice::new(&len), std::io::IoSlice::new(&head), std::io::IoSlice::new(bytes)];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    loop {
        match rustix::net::sendmsg(to, &parts, &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
            Ok(_) => return Ok(()),
        }
    }
}

/// One message as it came.
pub(crate) struct Message {
    buf: Vec<u8>,
    head: std::ops::Range<usize>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Message {
    /// Receives the next one; `Err(PIPE)` at the end.
    pub(crate) fn recv(from: BorrowedFd<'_>) -> Result<Self> {
        let mut buf = vec![0; MESSAGE];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [std::io::IoSliceMut::new(&mut buf)];
            match rustix::net::recvmsg(from, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                done => break done?,
            }
        };
        let fds = control
            .drain()
            .filter_map(|m| match m {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        if received.bytes == 0 {
            return Err(Errno::PIPE);
        }
        buf.truncate(received.bytes);
        let len = buf.first_chunk().map(|l| u32::from_le_bytes(*l) as usize);
        let end = len.map(|l| l.saturating_add(4)).filter(|end| *end <= buf.len());
        match end {
            Some(end) if !received.flags.contains(ReturnFlags::TRUNC) => Ok(Self { buf, head: 4..end, fds }),
            _ => Err(Errno::PROTO),
        }
    }

    pub(crate) fn head<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        postcard::from_bytes(self.buf.get(self.head.clone()).unwrap_or(&[])).map_err(|_| Errno::PROTO)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.buf.get(self.head.end..).unwrap_or(&[])
    }
}

/// The name under which the stack on a TAP can be found, in the network namespace of both.
fn rendezvous(tap: &str) -> Result<rustix::net::SocketAddrUnix> {
    rustix::net::SocketAddrUnix::new_abstract_name(format!("uncopied/{tap}").as_bytes())
}

fn seqpacket() -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// The two sockets of a guest, seen from one side.
pub(crate) struct Line {
    pub(crate) calls: Guarded,
    pub(crate) events: Guarded,
}

impl Line {
    pub(crate) fn new(calls: OwnedFd, events: OwnedFd) -> Self {
        Self { calls: Guarded::new(calls), events: Guarded::new(events) }
    }

    fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.calls.as_fd(), self.events.as_fd()]
    }

    /// A new one: the host's side and the guest's.
    pub(crate) fn pair() -> Result<(Line, Line)> {
        let (host_calls, guest_calls) = pair()?;
        let (host_events, guest_events) = pair()?;
        Ok((Line::new(host_calls, host_events), Line::new(guest_calls, guest_events)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(bytes: &[u8]) -> Result<Message> {
        let (a, b) = pair().unwrap();
        rustix::net::send(&a, bytes, SendFlags::empty()).unwrap();
        Message::recv(b.as_fd())
    }

    #[test]
    fn a_message_arrives_whole_with_its_bytes_and_descriptors() {
        let (a, b) = pair().unwrap();
        let bytes = vec![7u8; CHUNK];
        send(a.as_fd(), &Request::Accept { id: 9 }, &bytes, &[b.as_fd()]).unwrap();
        let message = Message::recv(b.as_fd()).unwrap();
        assert!(matches!(message.head(), Ok(Request::Accept { id: 9 })));
        assert_eq!((message.bytes(), message.fds.len()), (&bytes[..], 1));
        drop(a);
        drop(message);
        assert_eq!(Message::recv(b.as_fd()).err(), Some(Errno::PIPE), "the end");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&[1u8][..], &[1, 0, 0], &[9, 0, 0, 0, 1], &[255, 255, 255, 255, 1, 2]] {
            assert_eq!(raw(bytes).err(), Some(Errno::PROTO), "{bytes:?}");
        }
        assert_eq!(raw(&vec![0; MESSAGE + 1]).err(), Some(Errno::PROTO), "too long");
        let strange = raw(&[2, 0, 0, 0, 250, 250]).unwrap();
        assert!(strange.head::<Request>().is_err());
    }
}
