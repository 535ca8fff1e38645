//! TCP: segments in, segments out. No clock, no IP, no device, no thread, no lock.
//!
//! # Theory of operation
//!
//! A [`Tcb`] is one connection in any state but LISTEN. The caller brings it three kinds of things: segments
//! ([`Tcb::segment_arrives`], eight steps in the order of RFC 9293, 3.10.7.4), the time
//! ([`Tcb::on_timeout`], at [`Tcb::next_timeout`]), and the program's calls ([`Tcb::append`],
//! [`Tcb::take`], [`Tcb::close`] and so on). After any of them it asks for segments with
//! [`Tcb::next_segment`] until there is none. What an event did is returned as an [`Outcome`]; fragments that
//! are done with are collected in [`Released`], because dropping them completes calls and must not happen
//! under the caller's lock.
//!
//! *Sending.* The send queue is a rope of fragments (`send_buffer.rs`). A segment is a head and counted
//! slices of the rope, up to 64 KB, to be segmented below; retransmission cuts its slices again. What is in
//! flight is a list of sequence ranges with their fate (`rtx_queue.rs`, the scoreboard of RFC 6675). A
//! packet that runs out of fragments is closed and pushed.
//!
//! *Loss.* With SACK RACK-TLP (RFC 8985), without it NewReno (RFC 6582); the retransmission timer of
//! RFC 6298 catches the rest, and what turns out to have been none is undone (`recovery.rs`). How much may be
//! in flight is `congestion/`'s to say.
//!
//! *Receiving.* In-order data goes to the reader's queue as the fragments it came in; data beyond a hole
//! waits in a sorted list that SACK blocks are read from. The advertised right edge never moves left.
//!
//! *LISTEN* is [`Listen`]: it has no memory, spawns `Tcb`s, and under a flood makes SYN cookies.

mod config;
mod congestion;
mod cookies;
mod fast_open;
mod info;
mod isn;
mod listen;
mod options;
mod outcome;
mod output;
mod rate;
mod receive_buffer;
mod recovery;
mod rto;
mod rtx_queue;
mod segment_arrives;
mod send_buffer;
mod state;
mod tcb;
mod timeout;
mod timers;
mod urgent;

pub use config::{Config, Ecn, Keepalive};
pub use congestion::{AckEvent, CongestionControl, CongestionKind};
pub use fast_open::fast_open_cookie;
pub use info::{TcpInfo, TcpiOptions};
pub use isn::IsnGenerator;
pub use listen::{Listen, ListenVerdict, reset_for};
pub use outcome::{Outcome, Released, TcpError};
pub use recovery::CaState;
pub use segment_arrives::SegmentIn;
pub use state::State;
pub use tcb::Tcb;
pub use urgent::UrgentByte;

#[cfg(test)]
mod tests;
