//! A user-space TCP/IP stack for Linux whose sends are not copied.
//!
//! A program lends its buffers to the stack, packets point at them, and a completion on the socket's error
//! queue says when each buffer is free again, and whether, and why, anything was copied after all. It is
//! the contract of Linux's `MSG_ZEROCOPY`, in a library.
//!
//! ```
//! use uncopied::{Stack, TcpListener, TcpStream, link};
//!
//! # fn main() -> std::io::Result<()> {
//! // Two stacks on one in-process link. With a TAP it would be one stack and the rest of the world.
//! let (left, right, engine) = link::pair(link::LinkConfig::default());
//! let engine = engine.spawn("nic")?;
//! let a = Stack::builder().device(left, &[("10.0.0.1".parse().unwrap(), 24)]).build()?;
//! let b = Stack::builder().device(right, &[("10.0.0.2".parse().unwrap(), 24)]).build()?;
//! a.spawn()?;
//! b.spawn()?;
//!
//! let listener = TcpListener::bind(&b, "10.0.0.2:80".parse().unwrap())?;
//! let mut tx = TcpStream::connect(&a, "10.0.0.2:80".parse().unwrap())?;
//! let (mut rx, _) = listener.accept()?;
//!
//! let ticket = tx.send_lent(vec![7u8; 1 << 20])?; // the buffer is lent, not copied
//! let mut got = vec![0; 1 << 20];
//! std::io::Read::read_exact(&mut rx, &mut got)?;
//! let done = tx.wait_completion(None)?.expect("one call, one completion");
//! assert!(done.contains(ticket.id) && done.copied.is_none());
//! # drop((tx, rx, listener)); drop(engine); Ok(())
//! # }
//! ```
//!
//! # Lending
//! [`TcpStream::send_lent`] takes the buffer by value ([`Lent`]: a `Vec<u8>`, `bytes::Bytes`, `Arc<[u8]>`, a
//! mapping, anything that owns bytes), so that changing it while it is lent does not compile:
//!
//! ```compile_fail
//! # fn f(tx: &uncopied::TcpStream) -> std::io::Result<()> {
//! let mut buffer = vec![0u8; 4096];
//! tx.send_lent(buffer)?;
//! buffer[0] = 1; // error: the buffer is lent
//! # Ok(()) }
//! ```
//!
//! It returns a [`Ticket`] with the call's number on its socket. A [`Completion`] names a range of numbers;
//! directly following calls with the same outcome come as one. To use a buffer again, keep a clone of the
//! `Bytes` (or an `Arc`) and wait for its number; or lend a pool's slot and let its `Drop` return it.
//!
//! [`TcpStream::sendmsg`] is the unsafe, `sendmsg(2)`-shaped entry for borrowed memory.
//!
//! # Datagrams
//! [`UdpSocket`] lends in the same way; [`UdpSocket::sendmsg`] takes copied and lent [pieces](Piece) side by side,
//! and tells source, hop limit and segment size of one datagram apart from the socket's. RAW, ping and PACKET
//! sockets ([`Stack::raw_socket`], [`Stack::packet_socket`]) have the same calls and do not block.
//!
//! # Who runs the stack
//! After [`Stack::spawn`] a net thread does. Without it the program calls [`Stack::poll`] with the time, and
//! the blocking calls of this crate do so themselves while they wait.
//!
//! # Why was it copied?
//! [`Completion::copied`] carries a [`Reason`]; [`Stack::stats`] counts calls by reason; a `tracing`
//! subscriber sees one line per copied call at `DEBUG`.

mod listener;
mod raw;
mod stream;
mod udp;
mod wait;

pub use dev::{bare, impair, link, mem, netns, reflector, tap};
pub use listener::TcpListener;
pub use raw::{MSG_DONTWAIT, MSG_MORE, MSG_ZEROCOPY};
pub use stack::netdev::{Device, DeviceInfo, DropReason, Features, LinkKind};
pub use stack::skb::{Change, Completion, Lent, Reason};
pub use stack::skb::{ErrorOrigin, ExtendedError, Queued};
pub use stack::tcp::{CongestionKind, State, TcpInfo};
pub use stack::time::{Clock, Instant, ManualClock, SystemClock};
pub use stack::{Builder, Config, Error, Polled, Ready, RouteConfig, Shutdown, Stack, Stats, Ticket};
pub use stack::{
    Control, Datagram, DgramOptions, ETH_P_ALL, Family, Frame, LinkAddress, Message, PacketKind,
    PacketSocket, PacketType, PathMtuDiscovery, Piece, RawKind, RawOptions, RawSocket, Received, Reuse, Sent,
};
pub use stream::{LendFailed, TcpStream};
pub use udp::UdpSocket;
