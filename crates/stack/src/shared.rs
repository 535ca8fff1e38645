//! What all contexts of one stack share, and in which order its locks are taken.
//!
//! Lock order, outermost first: the packet side (`rx`) → a socket's core → `timers`, `inet`, a listener's
//! accept queue, `waiting`, the interface's transmit lock → error queue → readiness. No two sockets' cores
//! are held at once. Completions (drops of lent fragments) and wakes happen with no socket's core held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crossbeam_queue::SegQueue;
use inet::{IfIndex, Inet};
use netdev::{DeviceRx, Gro, Interface};
use parking_lot::Mutex;
use skb::{MemLock, PagePool, SkBuff};
use time::{Clock, Instant};

use crate::config::Config;
use crate::demux::Demux;
use crate::dgram::Datagrams;
use crate::fast_open::CookieCache;
use crate::stats::Counters;
use crate::tcp_socket::TcpSocket;
use crate::timers::Timers;
use crate::wakeup::Wakeup;

/// Interface number of the loopback; devices follow in the order they were given.
pub(crate) const LOOPBACK: IfIndex = IfIndex(0);

/// A packet on its way to an interface, link header on.
pub(crate) type Outgoing = (IfIndex, SkBuff);

pub(crate) struct Shared {
    pub(crate) number: u64,
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) inet: Mutex<Inet>,
    /// `Inet::generation`, readable without its lock: cached destinations of an older one are stale.
    pub(crate) inet_generation: AtomicU64,
    pub(crate) demux: Demux,
    pub(crate) datagrams: Datagrams,
    pub(crate) rx: Mutex<RxSide>,
    pub(crate) timers: Mutex<Timers>,
    /// Sockets that had more to send than their device could take.
    pub(crate) waiting: Mutex<Vec<Weak<TcpSocket>>>,
    /// Packets to addresses of our own, on their way from output to input.
    pub(crate) loopback: SegQueue<SkBuff>,
    /// Pages that copying sends fill.
    pub(crate) pages: Arc<PagePool>,
    pub(crate) memlock: Arc<MemLock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) isn: tcp::IsnGenerator,
    pub(crate) listen_secret: [u8; 16],
    pub(crate) fastopen_key: [u8; 16],
    /// Fast Open cookies of peers.
    pub(crate) cookies: CookieCache,
    pub(crate) wakeup: Wakeup,
}

/// What belongs to whoever polls.
pub(crate) struct RxSide {
    pub(crate) devices: Vec<Box<dyn DeviceRx>>,
    pub(crate) gro: Gro,
    /// Reused from poll to poll.
    pub(crate) batch: Vec<SkBuff>,
    pub(crate) merged: Vec<SkBuff>,
    pub(crate) tx: Vec<Outgoing>,
}

impl Shared {
    /// The interface of a device; `None` for the loopback.
    pub(crate) fn interface(&self, index: IfIndex) -> Option<&Interface> {
        self.interfaces.get((index.0 as usize).checked_sub(1)?)
    }

    /// Runs `f` on the network layer and publishes its generation.
    pub(crate) fn with_inet<R>(&self, f: impl FnOnce(&mut Inet) -> R) -> R {
        let mut inet = self.inet.lock();
        let r = f(&mut inet);
        self.inet_generation.store(inet.generation(), Ordering::Release);
        r
    }

    /// The time, for process context; the packet side is told it.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }
}
