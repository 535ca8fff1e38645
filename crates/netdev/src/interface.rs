//! An interface: the queue and the device's transmitting half, and who runs them.
//!
//! A packet goes straight to the device when nothing is queued and nobody else has the device (the fast
//! path: one `try_lock`). Otherwise it is queued, and whoever has the device takes it from there; see
//! [`crate::turn`] for why none is forgotten. Once the device has said that it is full, nobody bothers it
//! until [`Interface::drain`] on the packet side.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrayvec::ArrayVec;
use parking_lot::Mutex;
use skb::SkBuff;

use crate::turn::Turn;
use crate::{
    Conforming, DeviceInfo, DeviceTx, Direction, DropReason, DroppedFeature, Fifo, Limits, Taps, TxDone,
    TxStats, Xmit, fix_features, validate_xmit,
};

/// Queued bytes behind a full device from which on senders should wait: four large packets. Enough to keep
/// the device busy while they are woken, little enough to keep packets under their sender's control.
const ROOM: usize = 256 * 1024;

/// One network interface, seen from the sending side.
pub struct Interface {
    index: u32,
    info: DeviceInfo,
    dropped_features: ArrayVec<DroppedFeature, 5>,
    taps: Taps,
    device: Turn<Box<dyn DeviceTx>>,
    tx_done: TxDone,
    queue: Mutex<Fifo>,
    /// Packets and bytes in `queue`, written under its lock.
    queued: AtomicUsize,
    queued_bytes: AtomicUsize,
    /// The device has said that it is full. Written only by whoever has it.
    stopped: AtomicBool,
    /// Somebody wants the device told about its ring.
    kick: AtomicBool,
    /// Somebody was told that there is no room.
    wanted: AtomicBool,
    stats: TxStats,
}

impl std::fmt::Debug for Interface {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interface")
            .field("index", &self.index)
            .field("info", &self.info)
            .field("queued", &self.queued.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl Interface {
    /// Joins a device's facts and its transmitting half under an index. Features that do not go together
    /// are not used; see [`Self::dropped_features`].
    pub fn new(index: u32, info: DeviceInfo, tx: Box<dyn DeviceTx>) -> Self {
        Self::with_limits(index, info, tx, Limits::default())
    }

    /// Like [`Self::new`], with bounds for the queue.
    pub fn with_limits(index: u32, mut info: DeviceInfo, tx: Box<dyn DeviceTx>, limits: Limits) -> Self {
        let (features, dropped_features) = fix_features(info.features);
        info.features = features;
        Self {
            index,
            info,
            dropped_features,
            taps: Taps::default(),
            tx_done: tx.tx_done(),
            device: Turn::new(tx),
            queue: Mutex::new(Fifo::new(limits)),
            queued: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            kick: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            stats: TxStats::default(),
        }
    }

    /// The interface's number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The device's facts, with the features that are used.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Features the device offered that are not used, and why, for the log.
    pub fn dropped_features(&self) -> &[DroppedFeature] {
        &self.dropped_features
    }

    /// Who watches.
    pub fn taps(&self) -> &Taps {
        &self.taps
    }

    /// Shows a received packet to the taps; to be called before anything else is done with it. Lent
    /// memory in it is replaced if anybody watches.
    pub fn tap_received(&self, skb: &mut SkBuff) {
        self.taps.show(skb, Direction::Received);
    }

    /// Counters.
    pub fn stats(&self) -> &TxStats {
        &self.stats
    }

    /// Sends a packet, link header on. End a burst with [`Self::kick`].
    ///
    /// `Ok` means that the device has it or that it is queued. `Err` says why it was dropped, in part if it
    /// was segmented here; that is counted already.
    pub fn xmit(&self, skb: SkBuff) -> Result<(), DropReason> {
        let mut packets = Conforming::new();
        match validate_xmit(skb, &self.info, &self.taps, &mut packets) {
            Ok(done) => self.stats.validated(done),
            Err(reason) => {
                self.stats.tx_dropped.count(reason);
                return Err(reason);
            }
        }
        // The fast path. Whoever is ahead of us in the queue goes first.
        if self.is_clear()
            && let Some(result) = self.device.try_once(|tx| self.xmit_direct(&mut **tx, &mut packets))
        {
            self.run_if_left();
            return result;
        }
        let result = self.enqueue(packets);
        self.run();
        result
    }

    /// Sends a burst and ends it. Returns the packets dropped, each counted by its reason.
    pub fn burst(&self, packets: impl IntoIterator<Item = SkBuff>) -> usize {
        let dropped = packets.into_iter().filter_map(|skb| self.xmit(skb).err()).count();
        self.kick();
        dropped
    }

    /// Ends a burst: the device is told to look at its ring, now or by whoever has it.
    pub fn kick(&self) {
        self.kick.store(true, Ordering::Relaxed);
        self.run();
    }

    /// Whether senders should go on: false once the device is full and 256 KiB are queued behind it. Who
    /// is told false and registers to be woken asks once more after registering, since [`Self::drain`] may
    /// have run between.
    pub fn has_room(&self) -> bool {
        if self.has_room_now() {
            return true;
        }
        self.wanted.store(true, Ordering::SeqCst);
        // `drain` makes room first and then looks at `wanted`: one of the two sees the other.
        self.has_room_now()
    }

    fn has_room_now(&self) -> bool {
        !self.stopped.load(Ordering::SeqCst) || self.queued_bytes.load(Ordering::SeqCst) < ROOM
    }

    /// The packet side, after [`Self::reclaim_tx`]: gives the device what is queued if it has room again.
    /// True if there is room that somebody was refused: senders that wait are to be woken.
    pub fn drain(&self) -> bool {
        if self.stopped.load(Ordering::SeqCst) {
            self.device.wait_once(|tx| {
                self.stopped.store(false, Ordering::SeqCst);
                self.kick.store(true, Ordering::Relaxed);
                self.work(&mut **tx);
            });
        }
        self.run_if_left();
        std::sync::atomic::fence(Ordering::SeqCst);
        // A look before the swap, which would take the line from the senders at every poll.
        self.wanted.load(Ordering::SeqCst) && self.has_room_now() && self.wanted.swap(false, Ordering::SeqCst)
    }

    /// Drops packets that the device is done with, which completes their calls; returns how many. Waits for
    /// whoever has the device.
    pub fn reclaim_tx(&self) -> usize {
        let worthwhile = match &self.tx_done {
            TxDone::Ask => true,
            TxDone::Never => false,
            TxDone::Told(device) => device.is_pending(),
        };
        if !worthwhile {
            self.run_if_left();
            return 0;
        }
        let n = self.device.wait_once(|tx| tx.reclaim_tx());
        self.run_if_left();
        n
    }

    /// Packets and bytes queued.
    pub fn backlog(&self) -> (usize, usize) {
        (self.queued.load(Ordering::Relaxed), self.queued_bytes.load(Ordering::Relaxed))
    }

    /// Nothing is queued and the device is not known to be full.
    fn is_clear(&self) -> bool {
        self.queued.load(Ordering::Relaxed) == 0 && !self.stopped.load(Ordering::Relaxed)
    }

    /// Something is left for whoever has the device.
    fn is_left(&self) -> bool {
        let queued = self.queued.load(Ordering::Relaxed) > 0 && !self.stopped.load(Ordering::Relaxed);
        queued || self.kick.load(Ordering::Relaxed)
    }

    fn run(&self) {
        self.device.run(|tx| self.work(&mut **tx), || self.is_left());
    }

    fn run_if_left(&self) {
        if self.is_left() {
            self.run();
        }
    }

    /// With the device: hands `packets` over, behind whatever was queued since we looked.
    fn xmit_direct(&self, tx: &mut dyn DeviceTx, packets: &mut Conforming) -> Result<(), DropReason> {
        if !self.is_clear() {
            return self.enqueue(std::mem::take(packets));
        }
        let mut result = Ok(());
        let mut packets = std::mem::take(packets).into_iter();
        while let Some(skb) = packets.next() {
            match self.start_xmit(tx, skb) {
                Ok(None) => {}
                Ok(Some(refused)) => {
                    // Nobody else takes from the queue, but others may have appended: we go first.
                    self.requeue(packets.rev().chain([refused]));
                    break;
                }
                Err(reason) => result = Err(reason),
            }
        }
        result
    }

    /// With the device: hands over what is queued, and tells it.
    fn work(&self, tx: &mut dyn DeviceTx) {
        while !self.stopped.load(Ordering::Relaxed) {
            let Some(skb) = self.pop() else { break };
            // An error is counted; its sender is long gone.
            if let Ok(Some(refused)) = self.start_xmit(tx, skb) {
                self.requeue([refused]);
            }
        }
        if self.kick.swap(false, Ordering::Relaxed) {
            TxStats::add(&self.stats.kicks, 1);
            tx.kick();
        }
    }

    /// With the device: one packet. It comes back if there is no room, and the device is left alone from
    /// then on.
    fn start_xmit(&self, tx: &mut dyn DeviceTx, skb: SkBuff) -> Result<Option<SkBuff>, DropReason> {
        let (len, gso) = (skb.len(), skb.gso.is_some());
        match tx.start_xmit(skb) {
            Xmit::Sent => {
                TxStats::add(&self.stats.tx_packets, 1);
                TxStats::add(&self.stats.tx_bytes, len);
                TxStats::add(&self.stats.tx_gso, usize::from(gso));
                Ok(None)
            }
            Xmit::Busy(skb) => {
                TxStats::add(&self.stats.busy, 1);
                self.stopped.store(true, Ordering::SeqCst);
                // What is in the ring must go out for room to come back.
                self.kick.store(true, Ordering::Relaxed);
                Ok(Some(skb))
            }
            Xmit::Failed(error) => Err(self.stats.failed(&error)),
        }
    }

    fn enqueue(&self, packets: Conforming) -> Result<(), DropReason> {
        let mut queue = self.queue.lock();
        let before = queue.len();
        let mut refused = Conforming::new();
        refused.extend(packets.into_iter().filter_map(|skb| queue.push(skb).err()));
        TxStats::add(&self.stats.queued, queue.len() - before);
        self.publish(&queue);
        drop(queue);
        // Dropped, which may complete calls, only after the lock is.
        for _ in &refused {
            self.stats.tx_dropped.count(DropReason::QdiscFull);
        }
        if refused.is_empty() { Ok(()) } else { Err(DropReason::QdiscFull) }
    }

    /// Puts packets back to the front, the last of `packets` foremost.
    fn requeue(&self, packets: impl IntoIterator<Item = SkBuff>) {
        let mut queue = self.queue.lock();
        for skb in packets {
            queue.requeue(skb);
        }
        self.publish(&queue);
    }

    fn pop(&self) -> Option<SkBuff> {
        if self.queued.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut queue = self.queue.lock();
        let skb = queue.pop();
        self.publish(&queue);
        skb
    }

    fn publish(&self, queue: &Fifo) {
        self.queued.store(queue.len(), Ordering::SeqCst);
        self.queued_bytes.store(queue.bytes(), Ordering::SeqCst);
    }
}

// Locks of the model checker work only inside a model; see `turn`.
#[cfg(all(test, not(loom)))]
mod tests;
