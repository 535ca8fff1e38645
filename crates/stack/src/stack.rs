//! Building a stack, and the handle to it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use inet::{IfIndex, Inet, Route};
use netdev::{Device, Gro, Interface, LinkKind};
use parking_lot::Mutex;
use skb::{Change, Completion, ErrorQueue, MemLock, Notify, PagePool};
use time::{Clock, Duration, Instant, SystemClock};

use crate::config::{Config, RouteConfig};
use crate::demux::Demux;
use crate::dgram::{Datagrams, Family};
use crate::fast_open::CookieCache;
use crate::ingress::{self, Polled};
use crate::packet_socket::{PacketKind, PacketSocket};
use crate::raw_socket::{RawKind, RawSocket};
use crate::run::NetThread;
use crate::shared::{LOOPBACK, RxSide, Shared};
use crate::stats::{Counters, Stats};
use crate::tcp_socket::TcpSocket;
use crate::timers::Timers;
use crate::udp_socket::UdpSocket;
use crate::wakeup::Wakeup;

/// Loopback packets are as large as IP allows.
const LOOPBACK_MTU: u32 = 65_535;

/// Pages of copying sends: as large as the largest packet, so that one holds few fragments.
const COPY_PAGE: usize = 64 * 1024;

/// Stacks built in this process.
static STACKS: AtomicU64 = AtomicU64::new(0);

/// Collects what a stack is made of.
pub struct Builder {
    config: Config,
    clock: Option<Arc<dyn Clock>>,
    devices: Vec<Box<dyn Device>>,
    addresses: Vec<(usize, IpAddr, u8)>,
    routes: Vec<RouteConfig>,
}

impl Builder {
    /// An empty stack with default limits and the system's clock.
    pub fn new() -> Self {
        Self {
            config: Config::default(),
            clock: None,
            devices: Vec::new(),
            addresses: Vec::new(),
            routes: Vec::new(),
        }
    }

    /// Replaces limits and defaults.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Changes some limits or defaults.
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Hands in the time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Adds a device with its addresses (and their prefix lengths).
    pub fn device(mut self, device: impl Device + 'static, addresses: &[(IpAddr, u8)]) -> Self {
        let n = self.devices.len();
        self.devices.push(Box::new(device));
        self.addresses.extend(addresses.iter().map(|(a, prefix)| (n, *a, *prefix)));
        self
    }

    /// Adds a route.
    pub fn route(mut self, route: RouteConfig) -> Self {
        self.routes.push(route);
        self
    }

    /// Adds a default route through the first device.
    pub fn gateway(self, gateway: IpAddr) -> Self {
        let dst = match gateway {
            IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        };
        self.route(RouteConfig { dst, prefix: 0, gateway: Some(gateway), device: 0 })
    }

    /// Opens the devices and builds the stack. It does nothing until somebody calls [`Stack::poll`] or
    /// [`Stack::spawn`].
    pub fn build(self) -> io::Result<Stack> {
        let Builder { config, clock, devices, addresses, routes } = self;
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let now = clock.now();
        let mut inet = Inet::new(inet::Config { seed: config.seed, ..inet::Config::default() });
        inet.add_interface(LOOPBACK, None, LOOPBACK_MTU, true);
        inet.add_address(LOOPBACK, IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8);
        inet.add_address(LOOPBACK, IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128);
        let (mut interfaces, mut receivers) = (Vec::new(), Vec::new());
        for (n, device) in devices.into_iter().enumerate() {
            let index = IfIndex(n as u32 + 1);
            let info = device.info();
            let mac = match info.link {
                LinkKind::Ethernet(mac) => Some(mac),
                LinkKind::Ip => None,
            };
            inet.add_interface(index, mac, info.mtu, false);
            let (tx, rx) = device.open();
            interfaces.push(Interface::new(index.0, info, tx));
            receivers.push(rx);
        }
        for (n, address, prefix) in addresses {
            inet.add_address(IfIndex(n as u32 + 1), address, prefix);
        }
        for r in routes {
            let ifindex = IfIndex(r.device as u32 + 1);
            inet.add_route(Route { dst: r.dst, prefix: r.prefix, gateway: r.gateway, ifindex, metric: 0 });
        }
        let seeds = Seeds::from(config.seed);
        let shared = Shared {
            number: STACKS.fetch_add(1, Ordering::Relaxed),
            inet_generation: AtomicU64::new(inet.generation()),
            inet: Mutex::new(inet),
            interfaces,
            demux: Demux::new(seeds.part(1), config.ephemeral_ports),
            datagrams: Datagrams::new(seeds.part(5), config.ephemeral_ports),
            rx: Mutex::new(RxSide {
                devices: receivers,
                gro: Gro::new(),
                batch: Vec::new(),
                merged: Vec::new(),
                tx: Vec::new(),
            }),
            timers: Mutex::new(Timers::new(now)),
            waiting: Mutex::default(),
            loopback: crossbeam_queue::SegQueue::new(),
            pages: PagePool::new(COPY_PAGE, 256),
            memlock: Arc::new(MemLock::new(config.memlock)),
            counters: Arc::new(Counters::default()),
            isn: tcp::IsnGenerator::new(seeds.part(2)),
            listen_secret: seeds.part(3),
            fastopen_key: seeds.part(4),
            cookies: CookieCache::default(),
            wakeup: Wakeup::new()?,
            clock,
            config,
        };
        let shared = Arc::new(shared);
        Ok(Stack {
            handle: Arc::new(Handle { shared, thread: Mutex::new(None), threaded: AtomicBool::new(false) }),
        })
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

/// Independent keys from one seed.
struct Seeds([u8; 16]);

impl From<[u8; 16]> for Seeds {
    fn from(seed: [u8; 16]) -> Self {
        Self(seed)
    }
}

impl Seeds {
    fn part(&self, n: u64) -> [u8; 16] {
        use std::hash::Hasher;
        let mut out = [0; 16];
        for (i, half) in out.chunks_exact_mut(8).enumerate() {
            let mut h = siphasher::sip::SipHasher13::new_with_key(&self.0);
            h.write_u64(2 * n + i as u64);
            half.copy_from_slice(&h.finish().to_le_bytes());
        }
        out
    }
}

/// A stack. Cloning the handle is cheap; when the last one goes, the net thread ends and connections that
/// still have something to send or to hear are reset.
#[derive(Clone)]
pub struct Stack {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<NetThread>>,
    threaded: AtomicBool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        drop(self.thread.lock().take());
        // Sockets and tables refer to each other.
        self.abort_all();
        self.shared.demux.clear();
        self.shared.datagrams.clear();
    }
}

impl Handle {
    fn abort_all(&self) {
        for socket in self.shared.demux.sockets() {
            // A peer that has everything and our FIN is owed nothing: a reset could make it drop what its
            // program has not read yet.
            if socket.state() != tcp::State::FinWait2 {
                socket.abort();
            }
        }
    }
}

/// What a completion on a queue beside those of sockets sets in motion.
struct Collected<W> {
    wake: W,
    counters: Arc<Counters>,
}

impl<W: Fn() + Send + Sync> Notify for Collected<W> {
    fn error_queued(&self) {
        (self.wake)();
    }

    fn calls_completed(&self, done: Completion, bytes: u64) {
        self.counters.calls_completed(done.reason(), done.calls() as usize);
        if let Some(reason) = done.copied {
            tracing::debug!(%reason, bytes, first = done.first, last = done.last, "lent bytes were copied");
        }
    }

    fn lent_bytes_changed(&self, change: Change) {
        Counters::add(&self.counters.packet.changed_buffers, 1);
        tracing::warn!(call = change.id, offset = change.offset, len = change.len, "lent memory was changed");
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("connections", &self.handle.shared.demux.connections()).finish()
    }
}

impl Stack {
    /// Begins to build a stack.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Starts the net thread, which runs the packet side from now on. A second call changes nothing.
    pub fn spawn(&self) -> io::Result<()> {
        let mut thread = self.handle.thread.lock();
        if thread.is_none() {
            *thread = Some(NetThread::spawn(self.handle.shared.clone())?);
            self.handle.threaded.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Whether a net thread runs the packet side.
    pub fn is_threaded(&self) -> bool {
        self.handle.threaded.load(Ordering::Acquire)
    }

    /// One round of the packet side at `now`, for programs without a net thread. A round that somebody
    /// else is running is left to them.
    pub fn poll(&self, now: Instant) -> Polled {
        let shared = &self.handle.shared;
        match shared.rx.try_lock() {
            Some(mut side) => ingress::poll(shared, &mut side, now),
            None => Polled::default(),
        }
    }

    /// Polls until there is nothing left to do at `now`; when to poll next.
    pub fn poll_all(&self, now: Instant) -> Option<Instant> {
        loop {
            let polled = self.poll(now);
            if polled.work == 0 {
                return polled.next;
            }
        }
    }

    /// Sleeps until a device has news, at most for `timeout`; for programs without a net thread.
    pub fn sleep(&self, timeout: Option<Duration>) {
        let shared = &self.handle.shared;
        let mut side = shared.rx.lock();
        crate::run::sleep(shared, &mut side, timeout.map(|t| shared.now() + t));
    }

    /// The time by the stack's clock.
    pub fn now(&self) -> Instant {
        self.handle.shared.now()
    }

    /// A TCP socket that is neither connected nor listening.
    pub fn tcp_socket(&self) -> Arc<TcpSocket> {
        let c = &self.handle.shared.config;
        let config = tcp::Config {
            sndbuf: c.sndbuf,
            rcvbuf: c.rcvbuf,
            rcvbuf_max: c.rcvbuf_max,
            time_wait: c.time_wait,
            fastopen_key: self.handle.shared.fastopen_key,
            ..c.tcp.clone()
        };
        TcpSocket::new(&self.handle.shared, Arc::new(config))
    }

    /// Forgets the Fast Open cookies of all peers.
    pub fn forget_cookies(&self) {
        self.handle.shared.cookies.clear();
    }

    /// A UDP socket. One for IPv6 speaks IPv4 too, unless it says [`Reuse::v6only`](crate::Reuse::v6only).
    pub fn udp_socket(&self, family: Family) -> Arc<UdpSocket> {
        UdpSocket::new(&self.handle.shared, family)
    }

    /// A RAW or ping socket. It receives from now on, until it is closed.
    pub fn raw_socket(&self, family: Family, kind: RawKind) -> Arc<RawSocket> {
        RawSocket::new(&self.handle.shared, family, kind)
    }

    /// A PACKET socket for frames of `protocol` (an ethertype, [`ETH_P_ALL`](crate::ETH_P_ALL), or 0 for one
    /// that only sends) on all interfaces. It receives from now on, until it is closed or dropped.
    pub fn packet_socket(&self, kind: PacketKind, protocol: u16) -> Arc<PacketSocket> {
        PacketSocket::new(&self.handle.shared, kind, protocol)
    }

    /// The stack's counters.
    pub fn stats(&self) -> Stats {
        let shared = &self.handle.shared;
        let mut stats = shared.counters.snapshot();
        stats.connections = shared.demux.made();
        stats.add_drops(shared.inet.lock().drops().snapshot());
        for interface in &shared.interfaces {
            stats.add_drops(interface.stats().snapshot().tx_dropped);
        }
        stats
    }

    /// Bytes lent now, over all sockets.
    pub fn lent_bytes(&self) -> u64 {
        self.handle.shared.memlock.used()
    }

    /// Connections in the tables, those in TIME-WAIT included.
    pub fn connections(&self) -> usize {
        self.handle.shared.demux.connections()
    }

    /// Connections whose program is gone and that have something left that the peer has not acknowledged,
    /// its end included; and how many bytes that is.
    pub fn undelivered(&self) -> (usize, usize) {
        use tcp::State;
        let waits = |state| {
            matches!(
                state,
                State::SynReceived | State::FinWait1 | State::Closing | State::LastAck | State::CloseWait
            )
        };
        let sockets = self.handle.shared.demux.sockets();
        let left = sockets.iter().filter(|s| s.is_orphan() && waits(s.state())).map(|s| s.queued().1);
        left.fold((0, 0), |(connections, bytes), more| (connections + 1, bytes + more))
    }

    /// Adds an address to the device at position `device` among those given to the builder.
    pub fn add_address(&self, device: usize, address: IpAddr, prefix: u8) {
        self.handle.shared.with_inet(|inet| inet.add_address(IfIndex(device as u32 + 1), address, prefix));
    }

    /// Whether packets to `address` are for this stack.
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.handle.shared.inet.lock().is_local(address)
    }

    /// The interfaces, in the order their devices were given.
    pub fn interfaces(&self) -> &[Interface] {
        &self.handle.shared.interfaces
    }

    /// Resets every connection, as dropping the last handle does; what was lent completes as soon as the
    /// devices have let go of it, which [`quiesce`](Self::quiesce) waits for.
    pub fn abort_all(&self) {
        self.handle.abort_all();
    }

    /// Tells stacks of this process apart; no number is used twice.
    pub fn number(&self) -> u64 {
        self.handle.shared.number
    }

    /// A queue of completions beside those of sockets, for [`SendCall::completing_on`] with sockets of this
    /// stack: it counts against the stack's memlock limit, and in its counters. `wake` is called, with no lock
    /// held, when a notification was queued that did not merge with the one before; it must not block.
    ///
    /// [`SendCall::completing_on`]: crate::SendCall::completing_on
    pub fn completion_queue(&self, wake: impl Fn() + Send + Sync + 'static) -> Arc<ErrorQueue> {
        let shared = &self.handle.shared;
        let notify = Collected { wake, counters: shared.counters.clone() };
        ErrorQueue::new(usize::MAX, shared.memlock.clone(), Box::new(notify))
    }

    /// Waits until no byte is lent any more, at most for `timeout`; whether that was reached. Needs a net
    /// thread, or somebody else who polls.
    pub fn quiesce(&self, timeout: Duration) -> bool {
        let deadline = std::time::Instant::now() + timeout;
        while self.lent_bytes() > 0 {
            if std::time::Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}
