//! A TCP socket: what it is to both contexts. The calls of process context are in `tcp_calls.rs`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use inet::{Dst, IcmpKind};
use parking_lot::{Mutex, RwLock};
use skb::{Change, Completion, ErrorQueue, Notify, PageWriter};
use std::collections::VecDeque;
use tcp::{Listen, Outcome, SegmentIn, State, Tcb, TcpError};
use time::Instant;
use wire::SeqNum;

use crate::completion::Effects;
use crate::demux::Flow;
use crate::egress;
use crate::error::Error;
use crate::fast_open::Unconfirmed;
use crate::lock::OwnedLock;
use crate::ports::Reuse;
use crate::readiness::{Readiness, Ready};
use crate::shared::Shared;
use crate::stats::Counters;
use crate::timers::{self, Armed};

/// What the packet side brings to a socket.
pub(crate) enum Event {
    /// A segment of its connection.
    Segment(SegmentIn),
    /// Its timer fired.
    Timer,
    /// Its device has room again.
    Room,
    /// An ICMP error quoted a segment with this sequence number.
    Icmp(IcmpKind, SeqNum),
    /// Nobody answers for the next hop.
    HostUnreachable,
}

/// What a socket is at the moment.
pub(crate) enum Role {
    /// Neither connected nor listening.
    Idle,
    /// Listening; the rest is in the accept queue, which the packet side reads without this lock.
    Listening,
    /// A connection in any state from SYN-SENT to TIME-WAIT.
    Open(Box<Tcb>),
}

/// The part of a socket that its lock guards.
pub(crate) struct Core {
    pub(crate) role: Role,
    /// Both ends, once connected.
    pub(crate) flow: Option<Flow>,
    /// The local end asked for.
    pub(crate) bound: Option<SocketAddr>,
    pub(crate) dst: Option<Dst>,
    /// What it said about sharing its port.
    pub(crate) reuse: Reuse,
    /// The page that copying sends fill.
    pub(crate) tail: Option<PageWriter>,
    pub(crate) timer: Option<Armed>,
    /// The time of the last look for something to send.
    pub(crate) last_push: Instant,
    /// `SO_ERROR`: reported once.
    pub(crate) error: Option<Error>,
    /// What `Tcb`s of this socket begin with.
    pub(crate) config: Arc<tcp::Config>,
    /// Whose accept queue this connection goes to when it is made.
    pub(crate) parent: Weak<TcpSocket>,
    /// The program has closed the socket; the connection finishes by itself.
    pub(crate) orphan: bool,
    /// Connecting to this peer waits for the first data (Fast Open).
    pub(crate) deferred: Option<Box<SocketAddr>>,
    /// Set while the handshake goes on, for its listener to count, if a cookie made the connection.
    pub(crate) unconfirmed: Option<Arc<AtomicBool>>,
    /// The last connection ended or was purged; reads give an end of stream.
    pub(crate) ended: bool,
}

impl Core {
    pub(crate) fn new(config: Arc<tcp::Config>) -> Self {
        Self {
            role: Role::Idle,
            flow: None,
            bound: None,
            dst: None,
            reuse: Reuse::default(),
            tail: None,
            timer: None,
            last_push: Instant::ZERO,
            error: None,
            config,
            parent: Weak::new(),
            orphan: false,
            deferred: None,
            unconfirmed: None,
            ended: false,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match &self.role {
            Role::Open(tcb) => tcb.next_timeout(),
            Role::Idle | Role::Listening => None,
        }
    }

    /// Poll conditions, apart from those of the error and accept queues.
    pub(crate) fn level(&self) -> Ready {
        let mut ready = Ready::empty();
        ready.set(Ready::ERR, self.error.is_some());
        match &self.role {
            Role::Open(tcb) => {
                ready.set(Ready::IN, tcb.is_readable());
                ready.set(Ready::OUT, tcb.is_writable());
                ready.set(Ready::RDHUP, tcb.peer_closed());
                ready.set(Ready::HUP, tcb.both_closed());
                ready.set(Ready::PRI, tcb.has_urgent());
                ready.set(Ready::DRAINED, tcb.is_drained());
            }
            // As Linux: a socket that was never connected is writable and hung up.
            Role::Idle if self.deferred.is_some() => ready |= Ready::OUT,
            Role::Idle => ready |= Ready::OUT | Ready::HUP | Ready::DRAINED,
            Role::Listening => {}
        }
        if self.ended {
            ready |= Ready::IN | Ready::RDHUP;
        }
        ready
    }
}

/// Connections that are made and not yet accepted, and the rules for making them.
pub(crate) struct AcceptQueue {
    pub(crate) listen: RwLock<Listen>,
    ready: Mutex<VecDeque<Arc<TcpSocket>>>,
    pub(crate) unconfirmed: Unconfirmed,
    backlog: AtomicUsize,
    /// Connections in SYN-RECEIVED.
    embryos: AtomicUsize,
    closed: AtomicBool,
}

impl AcceptQueue {
    pub(crate) fn new(listen: Listen, backlog: usize) -> Self {
        Self {
            listen: RwLock::new(listen),
            ready: Mutex::default(),
            unconfirmed: Unconfirmed::default(),
            backlog: AtomicUsize::new(backlog),
            embryos: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_backlog(&self, backlog: usize) {
        self.backlog.store(backlog, Ordering::Relaxed);
    }

    /// Whether as many connections wait as were asked for. One more than that, as in Linux, so that a
    /// backlog of 0 accepts.
    pub(crate) fn is_full(&self) -> bool {
        self.ready.lock().len() > self.backlog.load(Ordering::Relaxed)
    }

    /// Whether SYNs come faster than handshakes end: then state is kept in cookies instead of memory.
    pub(crate) fn under_pressure(&self) -> bool {
        self.embryos.load(Ordering::Relaxed) > self.backlog.load(Ordering::Relaxed)
    }

    pub(crate) fn pop(&self) -> Option<Arc<TcpSocket>> {
        self.ready.lock().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.lock().is_empty()
    }

    /// No more connections; those that wait are returned, to be aborted.
    pub(crate) fn close(&self) -> VecDeque<Arc<TcpSocket>> {
        self.closed.store(true, Ordering::Relaxed);
        std::mem::take(&mut *self.ready.lock())
    }
}

/// A TCP socket. Shared by the program, the tables, and whoever handles a packet for it.
pub struct TcpSocket {
    pub(crate) shared: Arc<Shared>,
    pub(crate) lock: OwnedLock<Core, Event>,
    pub(crate) ready: Arc<Readiness>,
    pub(crate) errors: Arc<ErrorQueue>,
    /// `SO_ZEROCOPY`.
    pub(crate) zerocopy: AtomicBool,
    /// `TCP_INQ`.
    pub(crate) recv_inq: AtomicBool,
    /// Boxed: few sockets listen, and the others should not pay for it.
    accept: OnceLock<Box<AcceptQueue>>,
    /// Both ends, readable without the lock. Set when connected.
    ends: Mutex<Option<Flow>>,
    /// Counted in its parent's embryos until the handshake is over.
    embryo: AtomicBool,
}

/// What a completion sets in motion.
pub(crate) struct Completed {
    pub(crate) ready: Arc<Readiness>,
    pub(crate) counters: Arc<Counters>,
}

impl Completed {
    /// The socket's name in traces; that of its [`Readiness`].
    fn name(&self) -> usize {
        self.ready.name()
    }
}

impl Notify for Completed {
    fn error_queued(&self) {
        self.ready.wake(Ready::ERR);
    }

    fn calls_completed(&self, done: Completion, bytes: u64) {
        self.counters.calls_completed(done.reason(), done.calls() as usize);
        if let Some(reason) = done.copied {
            let (first, last) = (done.first, done.last);
            tracing::debug!(socket = self.name(), %reason, bytes, first, last, "lent bytes were copied");
        }
    }

    fn lent_bytes_changed(&self, change: Change) {
        Counters::add(&self.counters.packet.changed_buffers, 1);
        tracing::warn!(
            socket = self.name(),
            call = change.id,
            offset = change.offset,
            len = change.len,
            "lent memory was changed before its completion"
        );
    }
}

impl TcpSocket {
    /// A socket that is neither connected nor listening.
    pub(crate) fn new(shared: &Arc<Shared>, config: Arc<tcp::Config>) -> Arc<Self> {
        let ready = Arc::new(Readiness::default());
        let notify = Completed { ready: ready.clone(), counters: shared.counters.clone() };
        let errors = ErrorQueue::new(shared.config.optmem_max, shared.memlock.clone(), Box::new(notify));
        let core = Core::new(config);
        let _ = ready.set(core.level());
        Arc::new(Self {
            shared: shared.clone(),
            lock: OwnedLock::new(core, shared.config.backlog),
            ready,
            errors,
            zerocopy: AtomicBool::new(false),
            recv_inq: AtomicBool::new(false),
            accept: OnceLock::new(),
            ends: Mutex::new(None),
            embryo: AtomicBool::new(false),
        })
    }

    /// The socket of a connection that came to `listener`. `None` if another one came first.
    pub(crate) fn spawn(
        shared: &Arc<Shared>,
        listener: &Arc<TcpSocket>,
        flow: Flow,
        tcb: Tcb,
    ) -> Option<Arc<Self>> {
        let child = Self::new(shared, tcb.config().clone());
        child.zerocopy.store(listener.zerocopy.load(Ordering::Relaxed), Ordering::Relaxed);
        child.recv_inq.store(listener.recv_inq.load(Ordering::Relaxed), Ordering::Relaxed);
        {
            let mut core = child.lock.lock();
            core.role = Role::Open(Box::new(tcb));
            core.parent = Arc::downgrade(listener);
            core.flow = Some(flow);
        }
        child.set_ends(Some(flow));
        shared.demux.insert(flow, &child).ok()?;
        if let Some(queue) = listener.accept.get() {
            child.embryo.store(true, Ordering::Relaxed);
            queue.embryos.fetch_add(1, Ordering::Relaxed);
        }
        Some(child)
    }

    pub(crate) fn accept_queue(&self) -> Option<&AcceptQueue> {
        self.accept.get().map(Box::as_ref).filter(|q| !q.closed.load(Ordering::Relaxed))
    }

    pub(crate) fn set_accept_queue(&self, queue: AcceptQueue) -> Result<(), Error> {
        self.accept.set(Box::new(queue)).map_err(|_| Error::Invalid)
    }

    pub(crate) fn set_ends(&self, flow: Option<Flow>) {
        if let Some(flow) = flow {
            tracing::debug!(socket = self.ready.name(), local = %flow.local, remote = %flow.remote, "connection");
        }
        *self.ends.lock() = flow;
    }

    /// The peer's address, while there is a connection.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.ends.lock().map(|f| f.remote)
    }

    /// The [number](crate::Stack::number) of its stack.
    pub fn stack_number(&self) -> u64 {
        self.shared.number
    }

    /// The program has closed it.
    pub(crate) fn is_orphan(&self) -> bool {
        self.lock.lock().orphan
    }

    pub(crate) fn flow(&self) -> Option<Flow> {
        *self.ends.lock()
    }

    /// Draws the consequences of what happened, once the connection has had its say. Under the lock.
    pub(crate) fn settle(self: &Arc<Self>, core: &mut Core, outcome: Outcome) {
        let Role::Open(tcb) = &mut core.role else { return };
        if tcb.state() != State::SynReceived
            && let Some(waits) = core.unconfirmed.take()
        {
            waits.store(false, Ordering::Relaxed);
        }
        if let Some(error) = tcb.take_error() {
            core.error = Some(error_of(error));
        }
        if tcb.queued() == 0 {
            // An idle connection holds no page.
            core.tail = None;
        }
        if outcome.intersects(Outcome::CLOSED | Outcome::REUSE) || tcb.state() == State::Closed {
            self.forget_connection(core);
        }
    }

    /// The connection is over: out of the tables. What the peer sent and nobody read stays readable.
    pub(crate) fn forget_connection(self: &Arc<Self>, core: &mut Core) {
        self.left_handshake(core);
        timers::disarm(&self.shared, core);
        core.tail = None;
        if let Some(flow) = core.flow.take() {
            self.shared.demux.remove(&flow, self);
        }
        core.dst = None;
        core.ended = true;
        let unread = matches!(&core.role, Role::Open(tcb) if tcb.readable() > 0);
        if !unread || core.orphan {
            core.role = Role::Idle;
        }
    }

    fn left_handshake(&self, core: &Core) {
        if !self.embryo.swap(false, Ordering::Relaxed) {
            return;
        }
        if let Some(queue) = core.parent.upgrade().as_ref().and_then(|p| p.accept.get()) {
            queue.embryos.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A connection was made: if it came to a listener, it goes to its accept queue. No lock is held.
    pub(crate) fn announce(self: &Arc<Self>) {
        let parent = {
            let mut core = self.lock.lock();
            self.left_handshake(&core);
            std::mem::take(&mut core.parent)
        };
        let Some(parent) = parent.upgrade() else { return };
        let Some(queue) = parent.accept_queue() else {
            self.abort();
            return;
        };
        queue.ready.lock().push_back(self.clone());
        parent.ready.wake(Ready::IN);
    }

    /// An ICMP error, to be believed only if it quotes something in flight (RFC 5927).
    pub(crate) fn icmp_arrives(
        self: &Arc<Self>,
        core: &mut Core,
        kind: IcmpKind,
        seq: SeqNum,
        fx: &mut Effects,
    ) -> Outcome {
        let (Role::Open(tcb), Some(flow)) = (&mut core.role, core.flow) else { return Outcome::empty() };
        if !tcb.in_flight(seq) {
            return Outcome::empty();
        }
        match kind {
            IcmpKind::FragmentationNeeded { mtu } | IcmpKind::PacketTooBig { mtu } => {
                let mtu = self
                    .shared
                    .with_inet(|inet| inet.update_pmtu(fx.now(&self.shared), flow.remote.ip(), mtu));
                core.dst = None;
                tcb.set_path_mtu_payload(egress::max_segment(mtu, flow.remote.is_ipv6()));
                Outcome::empty()
            }
            IcmpKind::HostUnreachable | IcmpKind::NetworkUnreachable => {
                tcb.soft_error(TcpError::HostUnreachable, &mut fx.released)
            }
            IcmpKind::PortUnreachable | IcmpKind::ProtocolUnreachable => {
                tcb.soft_error(TcpError::Refused, &mut fx.released)
            }
            _ => Outcome::empty(),
        }
    }
}

impl Drop for TcpSocket {
    fn drop(&mut self) {
        let bound = self.lock.lock().bound;
        if let Some(bound) = bound {
            self.shared.demux.unbind(bound.port(), self);
        }
    }
}

pub(crate) fn error_of(e: TcpError) -> Error {
    match e {
        TcpError::Reset => Error::Reset,
        TcpError::TimedOut => Error::TimedOut,
        TcpError::Refused => Error::Refused,
        TcpError::HostUnreachable => Error::HostUnreachable,
        TcpError::Aborted => Error::Aborted,
    }
}
