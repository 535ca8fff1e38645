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
    skb::completing_together(|| fx.released.clear());
    scratch::put(fx.released);
    if fx.outcome.contains(Outcome::CONNECTED) {
        socket.announce();
    }
    wakes::wake(&socket.ready, fx.wake);
}

/// Runs a round of the packet side. Calls that complete meanwhile are reported together, and sleepers are
/// woken when it is done: whoever wakes in the middle finds little to do, and sleeps again.
pub(crate) fn together<R>(round: impl FnOnce() -> R) -> R {
    wakes::together(|| skb::completing_together(round))
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

/// Wakes that wait for the end of a round.
mod wakes {
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;

    use crate::readiness::{Readiness, Ready};

    thread_local! {
        static IN_ROUND: Cell<bool> = const { Cell::new(false) };
        static LATER: RefCell<Vec<(Arc<Readiness>, Ready)>> = const { RefCell::new(Vec::new()) };
    }

    /// Wakes now, or at the end of the round that this thread is in.
    pub(super) fn wake(socket: &Arc<Readiness>, what: Ready) {
        if what.is_empty() {
            return;
        }
        // A thread that is ending has no list any more.
        let later = IN_ROUND.try_with(Cell::get).unwrap_or(false)
            && LATER.try_with(|l| add(&mut l.borrow_mut(), socket, what)).is_ok();
        if !later {
            socket.wake(what);
        }
    }

    /// Packets of one connection come in a row: looking at the last entry is enough.
    fn add(later: &mut Vec<(Arc<Readiness>, Ready)>, socket: &Arc<Readiness>, what: Ready) {
        match later.last_mut().filter(|(known, _)| Arc::ptr_eq(known, socket)) {
            Some((_, known)) => *known |= what,
            None => later.push((socket.clone(), what)),
        }
    }

    pub(super) fn together<R>(round: impl FnOnce() -> R) -> R {
        struct Round;
        impl Drop for Round {
            fn drop(&mut self) {
                let _ = IN_ROUND.try_with(|r| r.set(false));
                let mut woken = LATER.try_with(RefCell::take).unwrap_or_default();
                for (socket, what) in woken.drain(..) {
                    socket.wake(what);
                }
                let _ = LATER.try_with(|l| *l.borrow_mut() = woken);
            }
        }
        let nested = IN_ROUND.try_with(|r| r.replace(true)).unwrap_or(true);
        let _round = (!nested).then_some(Round);
        round()
    }
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
