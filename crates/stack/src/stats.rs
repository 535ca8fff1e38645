//! What a stack counts. Every packet that is dropped and every lent byte that is copied has a reason here.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use netdev::{DropCounters, DropReason};
use skb::{REASONS, Reason};

/// Counters of one stack. Reading them costs the readers, not the packets: what senders count, what the
/// packet side counts, and what both count lie on cache lines of their own.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) send: CachePadded<SendCounters>,
    pub(crate) tx: CachePadded<TxCounters>,
    pub(crate) packet: CachePadded<PacketCounters>,
}

/// Counted by threads that send.
#[derive(Debug, Default)]
pub(crate) struct SendCounters {
    pub(crate) lent_calls: AtomicU64,
    pub(crate) lent_bytes: AtomicU64,
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) notifications: AtomicU64,
}

/// Counted by whoever hands packets to a device.
#[derive(Debug, Default)]
pub(crate) struct TxCounters {
    pub(crate) tx_packets: AtomicU64,
    pub(crate) tx_bytes: AtomicU64,
}

/// Counted where packets come in and calls complete.
#[derive(Debug, Default)]
pub(crate) struct PacketCounters {
    pub(crate) rx_packets: AtomicU64,
    pub(crate) rx_bytes: AtomicU64,
    pub(crate) backlogged: AtomicU64,
    pub(crate) timers: AtomicU64,
    pub(crate) changed_buffers: AtomicU64,
    /// Calls by outcome: 0 is "not copied", then by the reason's number.
    pub(crate) calls: [AtomicU64; REASONS.len() + 1],
    pub(crate) drops: DropCounters,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn drop_packet(&self, reason: DropReason) {
        self.packet.drops.count(reason);
        tracing::trace!(reason = reason.as_str(), "packet dropped");
    }

    pub(crate) fn calls_completed(&self, reason: Option<Reason>, calls: usize) {
        let index = reason.map_or(0, |r| usize::from(r as u8));
        if let Some(c) = self.packet.calls.get(index) {
            Self::add(c, calls as u64);
        }
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        Stats {
            connections: 0,
            rx_packets: get(&self.packet.rx_packets),
            rx_bytes: get(&self.packet.rx_bytes),
            tx_packets: get(&self.tx.tx_packets),
            tx_bytes: get(&self.tx.tx_bytes),
            lent_calls: get(&self.send.lent_calls),
            lent_bytes: get(&self.send.lent_bytes),
            copied_bytes: get(&self.send.copied_bytes),
            completions: self.packet.calls.iter().map(get).sum(),
            notifications: get(&self.send.notifications),
            backlogged: get(&self.packet.backlogged),
            timers: get(&self.packet.timers),
            changed_buffers: get(&self.packet.changed_buffers),
            calls_not_copied: get(&self.packet.calls[0]),
            calls_by_reason: REASONS
                .iter()
                .map(|r| (*r, get(&self.packet.calls[usize::from(*r as u8)])))
                .filter(|(_, n)| *n > 0)
                .collect(),
            drops: self.packet.drops.snapshot(),
        }
    }
}

/// A reading of a stack's counters since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections begun, from either side.
    pub connections: u64,
    /// Packets received, after GRO: one may stand for many on the wire.
    pub rx_packets: u64,
    /// Bytes of those, IP header on.
    pub rx_bytes: u64,
    /// Packets handed to devices: one GSO packet counts once.
    pub tx_packets: u64,
    /// Bytes of those, IP header on.
    pub tx_bytes: u64,
    /// Send calls that lent memory.
    pub lent_calls: u64,
    /// Bytes lent.
    pub lent_bytes: u64,
    /// Bytes copied by copying sends.
    pub copied_bytes: u64,
    /// Lending calls completed.
    pub completions: u64,
    /// Notifications read from error queues: `completions / notifications` is how well they merged.
    pub notifications: u64,
    /// Segments that found their socket in use and went to its backlog.
    pub backlogged: u64,
    /// Timers that fired.
    pub timers: u64,
    /// Changes to lent bytes found by the checking mode.
    pub changed_buffers: u64,
    /// Completed calls whose bytes nobody copied.
    pub calls_not_copied: u64,
    /// Completed calls by what was noted on them ([`Reason::Device`] is not a copy of ours).
    pub calls_by_reason: Vec<(Reason, u64)>,
    /// Dropped packets by reason, in all layers and interfaces.
    pub drops: Vec<(DropReason, u64)>,
}

impl Stats {
    /// Adds what another layer has dropped.
    pub(crate) fn add_drops(&mut self, more: Vec<(DropReason, u64)>) {
        for (reason, n) in more {
            match self.drops.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, sum)) => *sum += n,
                None => self.drops.push((reason, n)),
            }
        }
    }
}
