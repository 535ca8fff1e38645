//! What the connection hands back to its caller.

use skb::Frag;

bitflags::bitflags! {
    /// What an event did, for whoever has to act on it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    #[must_use]
    pub struct Outcome: u16 {
        /// There is more to read.
        const READABLE = 1 << 0;
        /// There is more room to send.
        const WRITABLE = 1 << 1;
        /// The connection was made.
        const CONNECTED = 1 << 2;
        /// The peer's FIN came.
        const PEER_FIN = 1 << 3;
        /// The connection failed; see `take_error`.
        const ERROR = 1 << 4;
        /// Nothing is left to do: the connection can be forgotten.
        const CLOSED = 1 << 5;
        /// TIME-WAIT began.
        const TIME_WAIT = 1 << 6;
        /// TIME-WAIT ended early, for a new SYN that belongs to the listener.
        const REUSE = 1 << 7;
        /// The peer announced urgent data (`SIGURG`).
        const URGENT = 1 << 8;
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpError {
    /// Reset by the peer.
    Reset,
    /// The peer does not answer.
    TimedOut,
    /// The peer refused.
    Refused,
    /// No way to the peer.
    HostUnreachable,
    /// Given up on this side.
    Aborted,
}

/// Fragments that are done with. They are collected here and dropped by the caller when it holds no lock:
/// dropping the last reference to lent memory completes its call, and that wakes people.
#[derive(Debug, Default)]
pub struct Released(Vec<Frag>);

impl Released {
    pub(crate) fn push(&mut self, frag: Frag) {
        self.0.push(frag);
    }

    pub(crate) fn extend(&mut self, frags: impl Iterator<Item = Frag>) {
        self.0.extend(frags);
    }

    /// Drops the fragments, and keeps the memory of the list.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether there is nothing to drop.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
