//! What an interface counts on the way out.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::{DropCounters, DropReason, Validated};

/// Counters of one interface's transmitting side. Reading them costs the readers, not the packets.
#[derive(Debug, Default)]
pub struct TxStats {
    /// Packets the device took (a large packet is one).
    pub tx_packets: AtomicU64,
    /// Bytes of those, link header on.
    pub tx_bytes: AtomicU64,
    /// Large packets the device took whole.
    pub tx_gso: AtomicU64,
    /// Large packets segmented in software.
    pub sw_gso: AtomicU64,
    /// Checksums computed in software.
    pub sw_csum: AtomicU64,
    /// Packets made linear for a device without scatter-gather.
    pub linearized: AtomicU64,
    /// Times the device had no room.
    pub busy: AtomicU64,
    /// Packets that waited in the queue.
    pub queued: AtomicU64,
    /// Bursts ended.
    pub kicks: AtomicU64,
    /// The last error a device refused a packet with; 0 if none had a number.
    pub last_errno: AtomicI32,
    /// Dropped packets by reason.
    pub tx_dropped: DropCounters,
}

impl TxStats {
    pub(crate) fn add(counter: &AtomicU64, n: usize) {
        if n > 0 {
            counter.fetch_add(n as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn validated(&self, v: Validated) {
        Self::add(&self.sw_gso, usize::from(v.segments > 0));
        Self::add(&self.sw_csum, v.summed);
        Self::add(&self.linearized, v.linearized);
    }

    pub(crate) fn failed(&self, error: &std::io::Error) -> DropReason {
        let reason = DropReason::from(error);
        self.last_errno.store(error.raw_os_error().unwrap_or(0), Ordering::Relaxed);
        self.tx_dropped.count(reason);
        reason
    }

    /// A reading of all counters.
    pub fn snapshot(&self) -> TxSnapshot {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        TxSnapshot {
            tx_packets: get(&self.tx_packets),
            tx_bytes: get(&self.tx_bytes),
            tx_gso: get(&self.tx_gso),
            sw_gso: get(&self.sw_gso),
            sw_csum: get(&self.sw_csum),
            linearized: get(&self.linearized),
            busy: get(&self.busy),
            queued: get(&self.queued),
            kicks: get(&self.kicks),
            last_errno: self.last_errno.load(Ordering::Relaxed),
            tx_dropped: self.tx_dropped.snapshot(),
        }
    }
}

/// A reading of [`TxStats`]; the fields mean what theirs do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "documented in TxStats")]
pub struct TxSnapshot {
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_gso: u64,
    pub sw_gso: u64,
    pub sw_csum: u64,
    pub linearized: u64,
    pub busy: u64,
    pub queued: u64,
    pub kicks: u64,
    pub last_errno: i32,
    pub tx_dropped: Vec<(DropReason, u64)>,
}
