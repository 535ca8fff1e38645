//! `fork`: the parent keeps the stack, the child becomes its guest, with the same sockets open.
//!
//! [`prepare`] runs in the parent before the fork and takes every lock of this crate that the child needs, so
//! that none is in the middle of a change when the memory is copied; [`parent`] and [`child`] run after it, in
//! the same thread or its copy, and release them. The stack's own locks do not matter: a child never touches
//! the copy of its parent's stack, not even to drop it.

use std::any::Any;
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::Line;
use super::client::Client;
use super::host::{Host, Sockets};
use crate::embed;
use crate::endpoint::Endpoint;
use crate::net::{self, Net};
use crate::socket::Socket;
use crate::table::{self, File};

/// What is ready for the child.
struct Ticket {
    /// The guest's side.
    line: Line,
    /// The host's side, and what it is to serve; a guest's child is served by the host already.
    host: Option<(Arc<Host>, Line, Sockets)>,
    /// Our sockets by the host's numbers.
    numbers: Vec<(Arc<Socket>, u64)>,
    net: Arc<Net>,
}

thread_local! {
    static TICKET: RefCell<Option<Ticket>> = const { RefCell::new(None) };
    /// Released in the order they were taken, by both.
    static LOCKS: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Before the fork.
pub(crate) fn prepare() {
    let net = net::started();
    if net.is_none() && !embed::has_stacks() {
        return;
    }
    // First, for it needs the lock of the descriptors this library lives on.
    let lines = net.as_deref().map(Lines::open).transpose();
    let frozen = table::freeze();
    let mut sockets: Vec<Arc<Socket>> = Vec::new();
    for file in frozen.files() {
        if let File::Socket(s) = file
            && !sockets.iter().any(|known| Arc::ptr_eq(known, s))
        {
            sockets.push(s.clone());
        }
    }
    let frozen_sockets: Vec<_> = sockets.iter().map(|s| s.freeze()).collect();
    let ticket = lines.map(|lines| Some(issue(net.as_ref()?, lines?, sockets, &frozen_sockets)));
    let mut locks: Vec<Box<dyn Any>> = Vec::new();
    if let Some(Net::Client(client)) = net.as_deref() {
        locks.push(Box::new(client.freeze()));
    }
    locks.push(Box::new(net::freeze()));
    locks.extend(frozen_sockets.into_iter().map(|l| Box::new(l) as Box<dyn Any>));
    locks.push(Box::new(frozen));
    let ticket = ticket.inspect_err(|e| net::say(&format!("a child will have no sockets: {e}")));
    TICKET.set(ticket.ok().flatten());
    LOCKS.set(locks);
}

/// The child's line to the host, and the host's side of it if this is the host.
struct Lines {
    child: Line,
    host: Option<Line>,
}

impl Lines {
    fn open(net: &Net) -> crate::errno::Result<Self> {
        match net {
            Net::Host { .. } => Line::pair().map(|(host, child)| Self { child, host: Some(host) }),
            Net::Client(client) => client.fork().map(|child| Self { child, host: None }),
            // Whoever brought the stack runs it, and not for others.
            Net::Installed(_) => Err(crate::errno::Errno::OPNOTSUPP),
        }
    }
}

type FrozenSocket = crate::lock::ForkArcGuard<Arc<dyn Endpoint>>;

fn issue(net: &Arc<Net>, lines: Lines, sockets: Vec<Arc<Socket>>, frozen: &[FrozenSocket]) -> Ticket {
    let endpoints = sockets.into_iter().zip(frozen.iter().map(|f| Arc::clone(f)));
    let (line, net) = (lines.child, net.clone());
    let (Net::Host { host, .. }, Some(ours)) = (&*net, lines.host) else {
        let numbers = endpoints.filter_map(|(s, e)| Some((s, e.number()?))).collect();
        return Ticket { line, host: None, numbers, net };
    };
    let numbered: Vec<_> = endpoints.map(|(s, e)| (s, host.number(), e)).collect();
    let served = numbered.iter().map(|(_, id, e)| (*id, e.clone())).collect();
    let numbers = numbered.into_iter().map(|(s, id, _)| (s, id)).collect();
    let host = Some((host.clone(), ours, served));
    Ticket { line, host, numbers, net }
}

/// After the fork, in the parent.
pub(crate) fn parent() {
    drop(LOCKS.take());
    let Some(ticket) = TICKET.take() else { return };
    if let Some((host, line, sockets)) = ticket.host {
        let served = crate::sys::with_signals_blocked(|| host.serve(line, sockets));
        if let Err(e) = served {
            net::say(&format!("cannot serve a child: {e}"));
        }
    }
}

/// After the fork, in the child.
pub(crate) fn child() {
    drop(LOCKS.take());
    table::adopt();
    crate::poll::forget_bell();
    let Some(ticket) = TICKET.take() else {
        // There was no stack, or no way to it: what was inherited is of no use.
        std::mem::forget(net::replace(None));
        embed::leave_to_parent();
        leave_epolls();
        table::close_internal(&[]);
        return;
    };
    let Ticket { line, host, numbers, net } = ticket;
    let kept = [line.calls.as_raw_fd(), line.events.as_raw_fd()];
    let guest = Client::new(line);
    for (socket, number) in numbers {
        std::mem::forget(socket.replace_endpoint(guest.endpoint(number)));
    }
    leave_epolls();
    if let Some((host, line, sockets)) = host {
        // Closed below: its end is how the host learns of ours.
        std::mem::forget((host, line, sockets));
    }
    table::close_internal(&kept);
    std::mem::forget((net, net::replace(Some(Arc::new(Net::Client(guest))))));
}

/// They watch for the parent.
fn leave_epolls() {
    for (fd, file) in table::all() {
        if matches!(file, File::Epoll(_)) {
            std::mem::forget((table::remove(fd), file));
        }
    }
}
