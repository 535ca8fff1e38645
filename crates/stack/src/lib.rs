//! Sockets, demultiplexing, the three paths, and who runs them.
//!
//! # Theory of operation
//!
//! Two contexts run a stack. *Process context* is any number of threads inside socket calls
//! ([`TcpSocket`], [`UdpSocket`], [`RawSocket`], [`PacketSocket`]): they take the socket's lock, do the call's work up to the device, and on release run
//! what came in meanwhile. *The packet side* is whoever calls [`Stack::poll`]: a net thread
//! ([`Stack::spawn`]) or the program itself. It never waits for a socket: a segment whose socket is in use
//! goes to the socket's backlog (`lock.rs`).
//!
//! Three files read top to bottom, and are the table of contents:
//! - `egress.rs`: a socket's segments become packets on a device;
//! - `ingress.rs`: a device's packets become bytes in sockets;
//! - `completion.rs`: packets that are done with, calls that are complete, sleepers that wake.
//!
//! `tcp` and `inet` do not know each other: `tcp` returns segments, `inet` returns verdicts, and these
//! three files join them. Nothing here but `run.rs` (the net thread) and the socket calls asks for the time,
//! and both ask the clock they were handed.
//!
//! Datagram sockets share `dgram.rs` and the files under it; the three files above hand them what is theirs.
//!
//! Payload is copied where the program asks for it only: `tcp_calls::copy_in` and `dgram::message` for
//! copying sends, and receiving calls, which copy with no lock held.

mod completion;
mod config;
mod demux;
mod dgram;
mod egress;
mod error;
mod fast_open;
mod ingress;
mod lock;
mod packet_socket;
mod ports;
mod raw;
mod raw_socket;
mod readiness;
mod run;
mod shared;
mod stack;
mod stats;
mod tcp_calls;
mod tcp_options;
mod tcp_socket;
mod timers;
mod udp_socket;
mod wakeup;

pub use config::{Config, RouteConfig};
pub use dgram::{Control, Datagram, DgramOptions, Family, Message, PathMtuDiscovery, Piece, Received, Sent};
pub use error::Error;
pub use ingress::Polled;
pub use netdev;
pub use packet_socket::{ETH_P_ALL, Frame, LinkAddress, PacketKind, PacketSocket, PacketType};
pub use ports::Reuse;
pub use raw::{BorrowedIo, MSG_EOR, MSG_MORE, MSG_OOB, MSG_ZEROCOPY, SendCall};
pub use raw_socket::{RawKind, RawOptions, RawSocket};
pub use readiness::{Readiness, Ready};
pub use skb;
pub use stack::{Builder, Stack};
pub use stats::Stats;
pub use tcp;
pub use tcp_calls::{SendFlags, Shutdown, Ticket};
pub use tcp_socket::TcpSocket;
pub use time;
pub use udp_socket::UdpSocket;
