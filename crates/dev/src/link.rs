//! Two network cards in one process, and the engine that moves packets between them.
//!
//! # Theory of operation
//! [`pair`] makes two [`LinkDevice`]s and one [`Engine`], the hardware of both. A sender's packet goes
//! into its transmit ring. The engine takes it, copies head and fragments into one page of the peer's
//! receive pool, puts that page into the peer's receive ring, and the consumed packet into the sender's
//! completion ring, from which the sender's `reclaim_tx` drops it. The copy is what a card does by DMA: it
//! is not a copy made by the stack, marks nothing, and completes nothing early.
//!
//! Large (TSO) packets arrive whole, as from a card with hardware GRO. With `CSUM` nobody ever computes a
//! checksum; the packet arrives as `Csum::Unnecessary`.
//!
//! The engine runs on a thread of its own ([`Engine::spawn`]) or step by step ([`Engine::step`]), for
//! simulations that must repeat exactly.
//!
//! # When things are full
//! Transmit ring full: `start_xmit` answers `Busy`, and room is reported through the receiving half's
//! `wait_fd`. Completion ring full: the engine takes nothing more from that sender. Receive ring full: with
//! `backpressure` the engine waits; without, the packet is dropped and counted, as hardware does.
//!
//! # Sleeping
//! Two protocols, both Dekker's (see [`crate::wake`] for the argument in full): stack sleeps, engine
//! signals (`Wake`); and engine sleeps, stack unparks (`Doorbell`). Consumers are signalled once per burst.
//! A sender is not woken for completions at once but when it is woken anyway, or after
//! [`LinkConfig::tx_delay`]: a TCP sender has no use for them before the acknowledgment.

mod engine;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use crossbeam_queue::ArrayQueue;
use netdev::{Device, DeviceInfo, DeviceRx, DeviceTx, Features, LinkKind, TxDone, TxPending, Xmit};
use skb::SkBuff;
use time::Duration;

pub use engine::{Engine, EngineHandle};

use crate::wake::Wake;
use engine::Doorbell;

/// How a pair is made. Both ends are alike, but for name and address.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Interface names.
    pub names: [String; 2],
    /// Station addresses, or `None` for a link that carries bare IP packets (no ARP).
    pub macs: Option<[[u8; 6]; 2]>,
    /// Largest network-layer packet, bytes. Default 1500.
    pub mtu: u32,
    /// Offloads of both ends. Default: all that exist.
    pub features: Features,
    /// Packets in each of the transmit, completion and receive rings. Default 256, as many cards.
    pub ring: usize,
    /// Largest TSO packet, network-layer bytes. Default 65535.
    pub gso_max_size: usize,
    /// Unused receive pages of each size an end keeps. Default 256.
    pub rx_pool: usize,
    /// Whether the engine waits for room in a full receive ring (default) or drops as hardware does.
    pub backpressure: bool,
    /// How long a sleeping sender may be left without its completions. Default 50 µs; cards call it
    /// `tx-usecs`.
    pub tx_delay: Duration,
    /// How long the engine looks at empty rings before it sleeps. Default 4 µs: less than a wake-up costs.
    pub spin: Duration,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            names: ["link0".to_owned(), "link1".to_owned()],
            macs: Some([[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]]),
            mtu: 1500,
            features: Features::all(),
            ring: 256,
            gso_max_size: 65535,
            rx_pool: 256,
            backpressure: true,
            tx_delay: Duration::from_micros(50),
            spin: Duration::from_micros(4),
        }
    }
}

/// Counters of one end. All count from the pair's creation.
#[derive(Debug, Default)]
pub struct LinkStats {
    /// Packets the engine took from this end.
    pub tx_packets: AtomicU64,
    /// Their bytes, link headers included.
    pub tx_bytes: AtomicU64,
    /// Times `start_xmit` answered `Busy`.
    pub tx_busy: AtomicU64,
    /// Packets delivered into this end's receive ring.
    pub rx_packets: AtomicU64,
    /// Their bytes.
    pub rx_bytes: AtomicU64,
    /// Packets for this end that found the receive ring full, or the end closed.
    pub rx_dropped: AtomicU64,
}

/// One end, as stack and engine share it.
#[derive(Debug)]
struct Port {
    tx: ArrayQueue<SkBuff>,
    done: ArrayQueue<SkBuff>,
    rx: ArrayQueue<SkBuff>,
    wake: Wake,
    /// A sender was told `Busy`; the engine owes it `room`.
    blocked: AtomicBool,
    /// There is room again, which the stack has not noticed yet.
    room: AtomicBool,
    /// The engine waits for `done` to be reclaimed.
    wants_done: AtomicBool,
    /// The engine waits for `rx` to be polled.
    wants_rx: AtomicBool,
    tx_closed: AtomicBool,
    rx_closed: AtomicBool,
    stats: Arc<LinkStats>,
}

impl Port {
    fn new(ring: usize) -> Self {
        let ring = ring.max(1);
        Self {
            tx: ArrayQueue::new(ring),
            done: ArrayQueue::new(ring),
            rx: ArrayQueue::new(ring),
            wake: Wake::new().expect("a descriptor for the wake-ups of a link"),
            blocked: AtomicBool::new(false),
            room: AtomicBool::new(false),
            wants_done: AtomicBool::new(false),
            wants_rx: AtomicBool::new(false),
            tx_closed: AtomicBool::new(false),
            rx_closed: AtomicBool::new(false),
            stats: Arc::default(),
        }
    }

    /// The stack's side of Dekker for `flag`: what it waits for has happened; was the engine waiting?
    fn released(&self, flag: &AtomicBool) -> bool {
        fence(Ordering::SeqCst);
        flag.load(Ordering::SeqCst) && flag.swap(false, Ordering::SeqCst)
    }
}

impl TxPending for Port {
    fn is_pending(&self) -> bool {
        !self.done.is_empty()
    }
}

/// Two connected cards, and the engine without which nothing moves.
///
/// Panics if the process has no descriptors left for the two wake-ups.
pub fn pair(config: LinkConfig) -> (LinkDevice, LinkDevice, Engine) {
    let ports = [Arc::new(Port::new(config.ring)), Arc::new(Port::new(config.ring))];
    let bell = Arc::new(Doorbell::default());
    let device = |side: usize| LinkDevice {
        info: DeviceInfo {
            name: config.names[side].clone(),
            mtu: config.mtu,
            link: config.macs.map_or(LinkKind::Ip, |m| LinkKind::Ethernet(m[side])),
            features: config.features,
            gso_max_size: config.gso_max_size,
        },
        port: ports[side].clone(),
        bell: bell.clone(),
        opened: false,
    };
    let (a, b) = (device(0), device(1));
    (a, b, Engine::new(&config, ports, bell))
}

/// One end of a link. Dropping it, or its halves, closes the end: packets for it are dropped.
#[derive(Debug)]
pub struct LinkDevice {
    info: DeviceInfo,
    port: Arc<Port>,
    bell: Arc<Doorbell>,
    opened: bool,
}

impl LinkDevice {
    /// This end's counters; they outlive the device.
    pub fn stats(&self) -> Arc<LinkStats> {
        self.port.stats.clone()
    }
}

impl Device for LinkDevice {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn open(mut self: Box<Self>) -> (Box<dyn DeviceTx>, Box<dyn DeviceRx>) {
        self.opened = true;
        let tx = LinkTx { port: self.port.clone(), bell: self.bell.clone() };
        let rx = LinkRx { port: self.port.clone(), bell: self.bell.clone() };
        (Box::new(tx), Box::new(rx))
    }
}

impl Drop for LinkDevice {
    fn drop(&mut self) {
        if !self.opened {
            self.port.tx_closed.store(true, Ordering::SeqCst);
            self.port.rx_closed.store(true, Ordering::SeqCst);
            self.bell.ring();
        }
    }
}

struct LinkTx {
    port: Arc<Port>,
    bell: Arc<Doorbell>,
}

impl DeviceTx for LinkTx {
    fn start_xmit(&mut self, skb: SkBuff) -> Xmit {
        let Err(skb) = self.port.tx.push(skb) else { return Xmit::Sent };
        // Dekker with the engine's `Engine::release_sender`: say so first, then look again.
        self.port.blocked.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        match self.port.tx.push(skb) {
            Ok(()) => Xmit::Sent,
            Err(skb) => {
                self.port.stats.tx_busy.fetch_add(1, Ordering::Relaxed);
                // A full ring is a burst: the engine may be asleep if nobody kicked.
                self.bell.ring();
                Xmit::Busy(skb)
            }
        }
    }

    fn kick(&mut self) {
        if !self.port.tx.is_empty() {
            self.bell.ring();
        }
    }

    fn reclaim_tx(&mut self) -> usize {
        let mut n = 0;
        while let Some(skb) = self.port.done.pop() {
            drop(skb);
            n += 1;
        }
        if n > 0 && self.port.released(&self.port.wants_done) {
            self.bell.ring();
        }
        n
    }

    fn tx_done(&self) -> TxDone {
        TxDone::Told(self.port.clone())
    }
}

impl Drop for LinkTx {
    fn drop(&mut self) {
        self.port.tx_closed.store(true, Ordering::SeqCst);
        self.reclaim_tx();
        self.bell.ring();
    }
}

struct LinkRx {
    port: Arc<Port>,
    bell: Arc<Doorbell>,
}

impl DeviceRx for LinkRx {
    fn poll_rx(&mut self, budget: usize, out: &mut Vec<SkBuff>) -> usize {
        let before = out.len();
        out.extend(std::iter::from_fn(|| self.port.rx.pop()).take(budget));
        let n = out.len() - before;
        if n > 0 && self.port.released(&self.port.wants_rx) {
            self.bell.ring();
        }
        n
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.port.wake.fd())
    }

    fn arm(&mut self) -> bool {
        let port = &self.port;
        port.wake.prepare();
        let room = port.room.load(Ordering::SeqCst) && port.room.swap(false, Ordering::SeqCst);
        let idle = !room && port.rx.is_empty() && port.done.is_empty();
        if !idle {
            port.wake.cancel();
        }
        idle
    }
}

impl Drop for LinkRx {
    fn drop(&mut self) {
        self.port.rx_closed.store(true, Ordering::SeqCst);
        while self.port.rx.pop().is_some() {}
        self.bell.ring();
    }
}

#[cfg(test)]
mod tests;
