//! The way back, top to bottom: packets that are done with, calls that are complete, sleepers that wake.
//!
//! Nothing here completes a call. Dropping a fragment does; this file decides *when* fragments are dropped:
//! never under a socket's lock, and before anybody is woken to look.

use std::sync::Arc;

use tcp::{Outcome, Released, SegmentIn};
use time::Instant;

use crate::demux::Flow;
use crate::egress;
use crate::ingress;
use crate::lock::Guard;
use crate::readiness::Ready;
use crate::shared::Shared;
use crate::tcp_socket::{Core, Event, TcpSocket};
use crate::timers;

/// What handling events under a socket's lock leaves to be done after it is released.
pub(crate) struct Effects {
    clock: When,
    /// Acknowledged and purged fragments; dropping them completes calls.
    pub(crate) released: Released,
    /// Readiness that came on.
    wake: Ready,
    outcome: Outcome,
    /// A SYN that ended TIME-WAIT: it is for whoever listens (RFC 9293, 3.6.1).
    pub(crate) next_connection: Option<(Flow, SegmentIn)>,
}

/// The time of what is being handled.
enum When {
    /// Told, or looked up.
    At(Instant),
    /// To be looked up if it matters: most sends into a full window need no time.
    Lazy,
}

impl Effects {
    pub(crate) fn new(now: Instant) -> Self {
        Self::with(When::At(now))
    }

    fn with(clock: When) -> Self {
        let (wake, outcome) = (Ready::empty(), Outcome::empty());
        Self { clock, released: scratch::take(), wake, outcome, next_connection: None }
    }

    /// The time: the same one until the socket is let go.
    pub(crate) fn now(&mut self, shared: &Shared) -> Instant {
        let now = match self.clock {
            When::At(now) => return now,
            When::Lazy => shared.now(),
        };
        self.clock = When::At(now);
        now
    }

    /// Collects what an event did.
    pub(crate) fn note(&mut self, _socket: &Arc<TcpSocket>, outcome: Outcome) {
        self.outcome |= outcome;
    }

    /// News worth a wake even where the level was on already: edge-triggered waiters count arrivals.
    fn edges(&self) -> Ready {
        let news = self.outcome.intersects(Outcome::READABLE | Outcome::PEER_FIN);
        if news { Ready::IN } else { Ready::empty() }
    }

    /// The connection was made (by a SYN cookie) before it had a socket.
    pub(crate) fn connected(&mut self) {
        self.outcome |= Outcome::CONNECTED;
    }
}

/// Runs `f` in process context, with the socket's lock held.
pub(crate) fn with_lock<R>(socket: &Arc<TcpSocket>, f: impl FnOnce(&mut Core, &mut Effects) -> R) -> R {
    let mut core = socket.lock.lock();
    let mut fx = Effects::with(When::Lazy);
    let r = f(&mut core, &mut fx);
    release_sock(socket, core, fx);
    r
}

/// Lets go of a socket: its backlog is run, what it may send is sent, its timer is set; then the lock is
/// released, fragments are dropped, and last of all sleepers are woken.
pub(crate) fn release_sock<'a>(socket: &'a Arc<TcpSocket>, mut core: Guard<'a, Core>, mut fx: Effects) {
    let shared = &socket.shared;
    loop {
        while let Some(event) = socket.lock.next_event() {
            ingress::handle(socket, &mut core, event, &mut fx);
        }
        egress::push(shared, socket, &mut core, &mut fx);
        timers::arm(shared, socket, &mut core);
        socket.settle(&mut core, fx.outcome);
        fx.wake |= socket.ready.set(core.level()) | fx.edges();
        match socket.lock.release(core) {
            Some(again) => core = again,
            None => break,
        }
    }
    finish(socket, fx);
}

/// With no lock held: fragments first, then wakes.
fn finish(socket: &Arc<TcpSocket>, mut fx: Effects) {
    if let Some((flow, syn)) = fx.next_connection.take()
        && let Some(listener) = socket.shared.demux.listener(&flow)
    {
        let now = fx.now(&socket.shared);
        ingress::listener_input(&socket.shared, &listener, flow, syn, now);
    }
    fx.released.clear();
    scratch::put(fx.released);
    if fx.outcome.contains(Outcome::CONNECTED) {
        socket.announce();
    }
    socket.ready.wake(fx.wake);
}

/// Drops what devices have sent, and lets sockets that waited for room go on. Returns how much was done.
pub(crate) fn reclaim(shared: &Shared, now: Instant) -> usize {
    let mut work = 0;
    let mut room = false;
    for interface in &shared.interfaces {
        work += interface.reclaim_tx();
        room |= interface.drain();
    }
    if room {
        let waiting = std::mem::take(&mut *shared.waiting.lock());
        work += waiting.len();
        for socket in waiting.iter().filter_map(std::sync::Weak::upgrade) {
            ingress::deliver(&socket, Event::Room, now);
        }
    }
    work
}

/// Bags for released fragments, kept per thread so that an ACK allocates nothing.
mod scratch {
    use std::cell::Cell;
    use tcp::Released;

    thread_local! {
        static SPARE: Cell<Option<Released>> = const { Cell::new(None) };
    }

    pub(super) fn take() -> Released {
        SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default()
    }

    pub(super) fn put(empty: Released) {
        let _ = SPARE.try_with(|s| s.set(Some(empty)));
    }
}
