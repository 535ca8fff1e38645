//! The hardware of a link: what would be DMA engines, wires and interrupts.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{JoinHandle, Thread};

use netdev::Features;
use skb::{Csum, PagePool, SkBuff};
use time::Duration;

use super::{LinkConfig, Port};

/// Packets moved per look at one end, so that both directions get their turn.
const BURST: usize = 64;
/// Pages for frames of up to 1500 bytes.
const SMALL_PAGE: usize = 2048;
/// Pages for jumbo frames.
const MEDIUM_PAGE: usize = 10 * 1024;
/// Room for link, network and transport headers beyond `gso_max_size`.
const HEADERS: usize = 256;

/// Wakes the engine's thread if it sleeps. Dekker again: the ringer queues work, fences, looks at
/// `asleep`; the engine sets `asleep`, fences, looks at the rings. `park` keeps a token, so an unpark
/// between the last look and the park is not lost.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    asleep: AtomicBool,
    stop: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Doorbell {
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        let asleep = self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst);
        if let (true, Some(thread)) = (asleep, self.thread.get()) {
            thread.unpark();
        }
    }
}

/// What one direction could do.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    packets: usize,
    delivered: usize,
}

/// The engine of a pair. It moves nothing until [stepped](Self::step) or [spawned](Self::spawn).
#[derive(Debug)]
pub struct Engine {
    ports: [Arc<Port>; 2],
    bell: Arc<Doorbell>,
    pools: [Pools; 2],
    rxcsum: bool,
    backpressure: bool,
    tx_delay: Duration,
    spin: Duration,
    /// Ends with completions they were not told of.
    untold: [bool; 2],
}

/// Receive pages of one end, by size.
#[derive(Debug)]
struct Pools {
    small: Arc<PagePool>,
    medium: Arc<PagePool>,
    large: Arc<PagePool>,
}

impl Pools {
    fn new(config: &LinkConfig) -> Self {
        let large = config.gso_max_size.max(config.mtu as usize) + HEADERS;
        Self {
            // Small ones are cheap and come in crowds.
            small: PagePool::new(SMALL_PAGE, config.rx_pool.saturating_mul(4)),
            medium: PagePool::new(MEDIUM_PAGE, config.rx_pool),
            large: PagePool::new(large, config.rx_pool),
        }
    }

    fn for_len(&self, len: usize) -> Option<&Arc<PagePool>> {
        [&self.small, &self.medium, &self.large].into_iter().find(|p| p.page_size() >= len)
    }
}

impl Engine {
    pub(super) fn new(config: &LinkConfig, ports: [Arc<Port>; 2], bell: Arc<Doorbell>) -> Self {
        Self {
            ports,
            bell,
            pools: [Pools::new(config), Pools::new(config)],
            rxcsum: config.features.contains(Features::RXCSUM),
            backpressure: config.backpressure,
            tx_delay: config.tx_delay,
            spin: config.spin,
            untold: [false; 2],
        }
    }

    /// Moves at most `budget` packets in each direction; returns how many moved. Completions are reported
    /// at once: whoever steps by hand has no later moment.
    pub fn step(&mut self, budget: usize) -> usize {
        let n = self.round(budget);
        self.tell_completions();
        n
    }

    /// Runs the engine on a thread of its own, called `name`, until the handle is dropped.
    ///
    /// # Errors
    /// The machine refused a thread (`EAGAIN`).
    pub fn spawn(self, name: &str) -> std::io::Result<EngineHandle> {
        let bell = self.bell.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || self.run())?;
        Ok(EngineHandle { bell, thread: Some(thread) })
    }

    fn run(mut self) {
        let _ = self.bell.thread.set(std::thread::current());
        while !self.bell.stop.load(Ordering::SeqCst) {
            if self.round(BURST) == 0 && !self.look_again() {
                self.sleep();
            }
        }
        self.tell_completions();
    }

    /// Looks at the rings for [`LinkConfig::spin`]; true as soon as there is something to move.
    fn look_again(&self) -> bool {
        let start = std::time::Instant::now();
        loop {
            if self.can_move() {
                return true;
            }
            if start.elapsed() >= self.spin {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    fn sleep(&mut self) {
        self.bell.asleep.store(true, Ordering::SeqCst);
        for port in &self.ports {
            // What holds the engine up, if anything does: the stack's side is `Port::released`.
            port.wants_done.store(port.done.is_full(), Ordering::SeqCst);
            port.wants_rx.store(port.rx.is_full(), Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        if !self.can_move() && !self.bell.stop.load(Ordering::SeqCst) {
            // A sender that cannot send until it reclaims must hear of it now.
            let held_up = self.ports.iter().any(|p| p.done.is_full());
            if !held_up && self.untold.contains(&true) {
                std::thread::park_timeout(self.tx_delay);
            } else if !held_up {
                std::thread::park();
            }
            if self.bell.asleep.load(Ordering::SeqCst) {
                // Nobody rang: the delay is over (or park returned early, which does no harm).
                self.tell_completions();
                if held_up {
                    std::thread::park();
                }
            }
        }
        self.bell.asleep.store(false, Ordering::SeqCst);
    }

    /// Whether a round would move a packet.
    fn can_move(&self) -> bool {
        [(0, 1), (1, 0)]
            .into_iter()
            .any(|(from, to)| !self.ports[from].tx.is_empty() && self.has_room(from, to))
    }

    fn has_room(&self, from: usize, to: usize) -> bool {
        let (src, dst) = (&self.ports[from], &self.ports[to]);
        let done = !src.done.is_full() || src.tx_closed.load(Ordering::SeqCst);
        let rx = !self.backpressure || !dst.rx.is_full() || dst.rx_closed.load(Ordering::SeqCst);
        done && rx
    }

    fn round(&mut self, budget: usize) -> usize {
        let there = self.move_burst(0, 1, budget);
        let back = self.move_burst(1, 0, budget);
        for (side, sent, got) in [(0, there.packets, back.delivered), (1, back.packets, there.delivered)] {
            self.untold[side] |= sent > 0;
            let room = sent > 0 && self.release_sender(side);
            if got > 0 || room {
                self.untold[side] = false;
                self.ports[side].wake.signal();
            }
        }
        there.packets + back.packets
    }

    /// If a sender was told `Busy`, makes room known; true if it must be woken for it.
    fn release_sender(&self, side: usize) -> bool {
        let port = &self.ports[side];
        fence(Ordering::SeqCst);
        let waits = port.blocked.load(Ordering::SeqCst) && port.blocked.swap(false, Ordering::SeqCst);
        if waits {
            port.room.store(true, Ordering::SeqCst);
        }
        waits
    }

    fn tell_completions(&mut self) {
        for (untold, port) in self.untold.iter_mut().zip(&self.ports) {
            if std::mem::take(untold) && !port.done.is_empty() {
                port.wake.signal();
            }
        }
    }

    fn move_burst(&self, from: usize, to: usize, budget: usize) -> Moved {
        let (src, dst) = (&self.ports[from], &self.ports[to]);
        let mut moved = Moved::default();
        let (mut bytes, mut delivered_bytes) = (0, 0);
        while moved.packets < budget && self.has_room(from, to) {
            let Some(skb) = src.tx.pop() else { break };
            let len = skb.len() as u64;
            moved.packets += 1;
            bytes += len;
            if self.deliver(&skb, to) {
                moved.delivered += 1;
                delivered_bytes += len;
            }
            // The engine alone pushes here and has just seen room; or the sender is gone.
            drop(src.done.push(skb));
        }
        if moved.packets > 0 {
            let (n, d) = (moved.packets as u64, moved.delivered as u64);
            src.stats.tx_packets.fetch_add(n, Ordering::Relaxed);
            src.stats.tx_bytes.fetch_add(bytes, Ordering::Relaxed);
            dst.stats.rx_packets.fetch_add(d, Ordering::Relaxed);
            dst.stats.rx_bytes.fetch_add(delivered_bytes, Ordering::Relaxed);
            dst.stats.rx_dropped.fetch_add(n - d, Ordering::Relaxed);
            if src.tx_closed.load(Ordering::SeqCst) {
                while src.done.pop().is_some() {}
            }
        }
        moved
    }

    /// The DMA: one page holds the whole frame.
    fn deliver(&self, skb: &SkBuff, to: usize) -> bool {
        let dst = &self.ports[to];
        if dst.rx_closed.load(Ordering::SeqCst) || dst.rx.is_full() {
            return false;
        }
        let len = skb.len();
        let Some(pool) = self.pools[to].for_len(len) else { return false };
        let mut page = pool.alloc();
        if !page.get_mut(..len).is_some_and(|room| skb.copy_bits(0, room)) {
            return false;
        }
        let mut new = SkBuff::from_frag(page.freeze(0..len));
        new.gso = skb.gso;
        new.hash = skb.hash;
        new.queue = skb.queue;
        // A partial checksum is not a checksum yet: the frame never was at risk, and says so.
        let trusted = self.rxcsum || matches!(skb.csum, Csum::Partial { .. });
        new.csum = if trusted { Csum::Unnecessary } else { Csum::None };
        dst.rx.push(new).is_ok()
    }
}

/// A running engine; dropping it stops the thread and waits for it.
#[derive(Debug)]
pub struct EngineHandle {
    bell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl EngineHandle {
    /// Stops the engine; what is still in the rings stays there.
    pub fn stop(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        self.bell.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the engine has been printed; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.halt();
    }
}
