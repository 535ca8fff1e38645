//! What a device is to the stack: two halves that own packets, and a sheet of facts.
//!
//! The transmitting half runs in whichever context sends, under the interface's transmit lock; the
//! receiving half belongs to the one context that polls. Splitting them is why neither needs a lock
//! of its own.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use skb::SkBuff;

bitflags::bitflags! {
    /// What a device can do by itself. Whatever is missing the stack does in software, and says so.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Features: u32 {
        /// Scatter-gather: a packet may be a head and up to `MAX_SKB_FRAGS` fragments.
        const SG = 1 << 0;
        /// Transmit checksum offload (`Csum::Partial` is finished by the device).
        const CSUM = 1 << 1;
        /// TCP segmentation offload over IPv4.
        const TSO4 = 1 << 2;
        /// TCP segmentation offload over IPv6.
        const TSO6 = 1 << 3;
        /// Received checksums are verified, or need none, when the packet says `Csum::Unnecessary`.
        const RXCSUM = 1 << 4;
        /// The device itself delivers aggregated packets; software GRO finds little to do.
        const GRO_HW = 1 << 5;
    }
}

/// Which addresses frames of this device carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// Ethernet II frames, with this station's address.
    Ethernet([u8; 6]),
    /// Bare IP packets, told apart by their version nibble (as a TUN device).
    Ip,
}

/// The facts of a device that do not change while it is open.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Name for messages, captures and `SO_BINDTODEVICE`.
    pub name: String,
    /// Largest network-layer packet in bytes, without the link header.
    pub mtu: u32,
    /// Framing.
    pub link: LinkKind,
    /// Offloads.
    pub features: Features,
    /// Largest packet, in network-layer bytes, that `TSO4`/`TSO6` takes.
    pub gso_max_size: usize,
}

/// What became of a packet handed to a device.
#[derive(Debug)]
#[must_use]
pub enum Xmit {
    /// The device has it, and drops it (which releases its memory) when it has left.
    Sent,
    /// The ring is full; the packet comes back untouched. The device makes its `wait_fd` readable
    /// when there is room again.
    Busy(SkBuff),
    /// The device refused this packet for good (an I/O error); it has been dropped.
    Failed(std::io::Error),
}

/// How to know whether [`DeviceTx::reclaim_tx`] has something to do, without taking the device from whoever
/// is sending.
#[derive(Clone, Default)]
pub enum TxDone {
    /// Only by calling it.
    #[default]
    Ask,
    /// Never: `start_xmit` keeps nothing.
    Never,
    /// By asking the device.
    Told(std::sync::Arc<dyn TxPending>),
}

/// Tells whether packets wait to be reclaimed. Packets that come between a no and the sleep that follows are
/// the device's to report, through its `arm` and `wait_fd`.
pub trait TxPending: Send + Sync {
    /// Whether there are any.
    fn is_pending(&self) -> bool;
}

/// The transmitting half.
pub trait DeviceTx: Send {
    /// Hands one packet over. It already conforms to the device's features.
    fn start_xmit(&mut self, skb: SkBuff) -> Xmit;
    /// Ends a burst: tells the device to look at its ring.
    fn kick(&mut self) {}
    /// Drops packets the device is done with; returns how many.
    fn reclaim_tx(&mut self) -> usize {
        0
    }
    /// How to know when `reclaim_tx` is worth calling. Asked once.
    fn tx_done(&self) -> TxDone {
        TxDone::Ask
    }
}

/// The receiving half.
pub trait DeviceRx: Send {
    /// Appends at most `budget` received packets to `out`; returns how many.
    fn poll_rx(&mut self, budget: usize, out: &mut Vec<SkBuff>) -> usize;
    /// A descriptor that becomes readable when there is work (packets, or room in a full transmit
    /// ring). `None` for a device that only works when polled.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Prepares to sleep: `true` if nothing is pending and `wait_fd` will report new work; `false` if
    /// there is work now. Also consumes a stale wake-up.
    fn arm(&mut self) -> bool {
        true
    }
    /// After `arm` said `true`: how long one may sleep at most though `wait_fd` is silent. For a device that
    /// lets work gather before it interrupts.
    fn rest(&self) -> Option<Duration> {
        None
    }
}

/// A device before it is attached to a stack.
pub trait Device: Send {
    /// Its facts.
    fn info(&self) -> DeviceInfo;
    /// Splits it into its halves.
    fn open(self: Box<Self>) -> (Box<dyn DeviceTx>, Box<dyn DeviceRx>);
}
