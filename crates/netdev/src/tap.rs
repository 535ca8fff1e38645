//! Taps: whoever watches an interface's packets (captures, packet sockets).
//!
//! A tap gets a private copy, because it may look at any byte and keep the packet for as long as it likes,
//! and lent memory may change under it and must not be held. The packet it watched loses its lent
//! fragments too (Linux does the same: what one watcher saw must be what went out).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use skb::{Reason, SkBuff};

/// Which way a packet was going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device.
    Received,
    /// To the device.
    Sent,
}

/// A watcher.
pub trait Tap: Send + Sync {
    /// Sees one packet, link header on. `skb` is a private copy; large packets are seen before they are
    /// segmented, and checksums before the device finishes them (`skb.csum` says so).
    fn see(&self, skb: &SkBuff, direction: Direction);
}

/// Names a tap for removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapId(u64);

/// The taps of one interface. Having none costs one relaxed load per packet.
#[derive(Default)]
pub struct Taps {
    count: AtomicUsize,
    list: RwLock<List>,
}

#[derive(Default)]
struct List {
    next: u64,
    taps: Vec<(TapId, Arc<dyn Tap>)>,
}

impl std::fmt::Debug for Taps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Taps({})", self.count.load(Ordering::Relaxed))
    }
}

impl Taps {
    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Adds a watcher. It sees packets from some moment after this call on.
    pub fn add(&self, tap: Arc<dyn Tap>) -> TapId {
        let mut list = self.list.write();
        let id = TapId(list.next);
        list.next += 1;
        list.taps.push((id, tap));
        self.count.store(list.taps.len(), Ordering::Relaxed);
        id
    }

    /// Removes a watcher; false if it was gone.
    pub fn remove(&self, id: TapId) -> bool {
        let mut list = self.list.write();
        let before = list.taps.len();
        list.taps.retain(|(i, _)| *i != id);
        self.count.store(list.taps.len(), Ordering::Relaxed);
        list.taps.len() < before
    }

    /// Shows `skb` to every watcher, if there are any: its lent fragments become private first, so that
    /// what the watchers see is what goes on. Returns the bytes copied for that.
    pub fn show(&self, skb: &mut SkBuff, direction: Direction) -> usize {
        if self.is_empty() {
            return 0;
        }
        let list = self.list.read();
        if list.taps.is_empty() {
            return 0;
        }
        let orphaned = skb.orphan(Reason::Tap);
        let copy = skb.private_copy();
        for (_, tap) in &list.taps {
            tap.see(&copy, direction);
        }
        orphaned
    }
}
