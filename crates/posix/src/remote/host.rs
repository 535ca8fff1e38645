//! The process that runs the stack, serving its guests.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use stack::skb::UbufInfo;
use stack::{Ready, Reuse, Shutdown, Stack};

use super::{CHUNK, Level, Line, Message, News, Outcome, Reply, Request, rendezvous, send, seqpacket};
use crate::endpoint::{Endpoint, RecvHow};
use crate::errno::{Errno, Result};
use crate::local::Local;
use crate::user::{RecvBuf, SendBuf};

/// Serves guests.
pub(crate) struct Host {
    stack: Stack,
    next_id: AtomicU64,
    guests: AtomicUsize,
}

/// Sockets of one guest by their numbers.
pub(crate) type Sockets = HashMap<u64, Arc<dyn Endpoint>>;

/// One guest process, or one of its forebears' children.
pub(crate) struct Guest {
    host: Arc<Host>,
    line: Line,
    sockets: Mutex<Sockets>,
    looks: AtomicU64,
    /// Sockets whose news the guest has not been told, and whether it is gone.
    pending: Mutex<(HashSet<u64>, bool)>,
    news: Condvar,
}

/// Tells a guest of one socket's news.
struct Forward {
    id: u64,
    guest: Weak<Guest>,
}

impl Wake for Forward {
    fn wake(self: Arc<Self>) {
        if let Some(guest) = self.guest.upgrade() {
            guest.pending.lock().0.insert(self.id);
            guest.news.notify_one();
        }
    }
}

impl Host {
    /// Waits for guests under the TAP's name.
    pub(crate) fn start(tap: &str, stack: Stack) -> std::io::Result<Arc<Self>> {
        let host = Arc::new(Self { stack, next_id: AtomicU64::new(1), guests: AtomicUsize::new(0) });
        let listener = seqpacket()?;
        rustix::net::bind(&listener, &rendezvous(tap)?)?;
        rustix::net::listen(&listener, 64)?;
        let weak = Arc::downgrade(&host);
        std::thread::Builder::new().name("uncopied-door".into()).spawn(move || door(&listener, &weak))?;
        Ok(host)
    }

    /// A number for a socket, unlike any before.
    pub(crate) fn number(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins to serve a guest that has `sockets` open already.
    pub(crate) fn serve(self: &Arc<Self>, line: Line, sockets: Sockets) -> std::io::Result<()> {
        let guest = Arc::new(Guest {
            host: self.clone(),
            line,
            sockets: Mutex::new(sockets),
            looks: AtomicU64::new(1),
            pending: Mutex::default(),
            news: Condvar::new(),
        });
        self.guests.fetch_add(1, Ordering::Relaxed);
        let events = guest.clone();
        std::thread::Builder::new().name("uncopied-news".into()).spawn(move || events.tell_news())?;
        std::thread::Builder::new().name("uncopied-guest".into()).spawn(move || {
            guest.serve();
            guest.leave();
        })?;
        Ok(())
    }

    /// Waits until nobody needs this process's stack any more.
    pub(crate) fn wait_for_guests(&self) {
        while self.guests.load(Ordering::Acquire) > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Lets in programs of the same user.
fn door(listener: &OwnedFd, host: &Weak<Host>) {
    let us = rustix::process::geteuid();
    loop {
        let calls = match rustix::net::accept_with(listener, rustix::net::SocketFlags::CLOEXEC) {
            Ok(calls) => calls,
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            // No descriptors: others may be closed meanwhile.
            Err(Errno::MFILE | Errno::NFILE) => {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            Err(_) => return,
        };
        let Some(host) = host.upgrade() else { return };
        let known = rustix::net::sockopt::socket_peercred(&calls)
            .is_ok_and(|peer| peer.uid == us || peer.uid.is_root());
        if !known {
            continue;
        }
        if let Ok((ours, theirs)) = super::pair() {
            let hello = Reply { outcome: Outcome::Done, level: Level::default() };
            if send(calls.as_fd(), &hello, &[], &[theirs.as_fd()]).is_ok() {
                let _ = host.serve(Line::new(calls, ours), Sockets::new());
            }
        }
    }
}

impl Guest {
    fn socket(&self, id: u64) -> Result<Arc<dyn Endpoint>> {
        self.sockets.lock().get(&id).cloned().ok_or(Errno::BADF)
    }

    fn level(&self, endpoint: &dyn Endpoint) -> Level {
        // The number first: a look with a later number saw a later state.
        let look = self.looks.fetch_add(1, Ordering::SeqCst);
        Level { look, bits: endpoint.ready().bits() }
    }

    /// Answers requests until the guest is gone.
    fn serve(self: &Arc<Self>) {
        let mut reserved = None;
        while let Ok(message) = Message::recv(self.line.calls.as_fd()) {
            let Ok(request) = message.head::<Request>() else { return };
            let id = named(&request);
            let (outcome, bytes, line) = match self.answer(request, message.bytes(), &mut reserved) {
                Ok(answer) => answer,
                Err(e) => (Outcome::Failed(e.raw_os_error()), Vec::new(), None),
            };
            let level = id.and_then(|id| self.socket(id).ok()).map(|e| self.level(&*e)).unwrap_or_default();
            let fds = line.as_ref().map(|l| l.fds().to_vec()).unwrap_or_default();
            if send(self.line.calls.as_fd(), &Reply { outcome, level }, &bytes, &fds).is_err() {
                return;
            }
        }
    }

    fn leave(&self) {
        self.pending.lock().1 = true;
        self.news.notify_all();
        let sockets = std::mem::take(&mut *self.sockets.lock());
        drop(sockets);
        self.host.guests.fetch_sub(1, Ordering::Release);
    }

    fn tell_news(self: Arc<Self>) {
        loop {
            let ids = {
                let mut pending = self.pending.lock();
                while pending.0.is_empty() && !pending.1 {
                    self.news.wait(&mut pending);
                }
                if pending.1 {
                    return;
                }
                std::mem::take(&mut pending.0)
            };
            for id in ids {
                let Ok(endpoint) = self.socket(id) else { continue };
                self.watch(id, &*endpoint);
                let level = self.level(&*endpoint);
                if send(self.line.events.as_fd(), &News { id, level }, &[], &[]).is_err() {
                    return;
                }
            }
        }
    }

    fn watch(self: &Arc<Self>, id: u64, endpoint: &dyn Endpoint) {
        let forward = Arc::new(Forward { id, guest: Arc::downgrade(self) });
        endpoint.register(Ready::all(), &Waker::from(forward));
    }

    fn add(&self, endpoint: Arc<dyn Endpoint>) -> Outcome {
        let id = self.host.number();
        self.sockets.lock().insert(id, endpoint);
        Outcome::Socket(id)
    }

    fn answer(
        self: &Arc<Self>,
        request: Request,
        bytes: &[u8],
        reserved: &mut Option<(u64, Arc<UbufInfo>)>,
    ) -> Result<(Outcome, Vec<u8>, Option<Line>)> {
        let outcome = match request {
            Request::Send { id, flags, lend } => self.send(id, bytes, flags, lend, reserved)?,
            Request::Recv { id, max, peek, discard } => {
                let (n, bytes) = self.recv(id, max, peek, discard)?;
                return Ok((Outcome::Count(n), bytes, None));
            }
            Request::Fork => {
                let (ours, theirs) = Line::pair()?;
                let sockets = self.sockets.lock().clone();
                self.host.serve(ours, sockets).map_err(|_| Errno::AGAIN)?;
                return Ok((Outcome::Done, Vec::new(), Some(theirs)));
            }
            Request::Socket => self.add(Local::open(self.host.stack.tcp_socket())),
            Request::Accept { id } => {
                let child = self.socket(id)?.accept()?;
                self.add(child)
            }
            Request::Close { id } => {
                let closed = self.sockets.lock().remove(&id);
                drop(closed);
                Outcome::Done
            }
            Request::Watch { id } => {
                let endpoint = self.socket(id)?;
                self.watch(id, &*endpoint);
                Outcome::Done
            }
            request => {
                let id = named(&request).ok_or(Errno::PROTO)?;
                simple(&*self.socket(id)?, request)?
            }
        };
        Ok((outcome, Vec::new(), None))
    }

    fn send(
        &self,
        id: u64,
        bytes: &[u8],
        flags: i32,
        lend: Option<u64>,
        reserved: &mut Option<(u64, Arc<UbufInfo>)>,
    ) -> Result<Outcome> {
        let endpoint = self.socket(id)?;
        // The number a call took whose first attempt found no room is the next attempt's.
        let call = match (lend, reserved.take()) {
            (Some(_), Some((of, call))) if of == id => Some(call),
            (Some(total), _) => endpoint.lend_copied(total)?,
            (None, kept) => {
                *reserved = kept;
                None
            }
        };
        match endpoint.send(&mut SendBuf::of(bytes, flags)) {
            // Its bytes are copied: the call is complete.
            Ok(n) => {
                drop(call);
                Ok(Outcome::Count(n))
            }
            Err(e) => {
                *reserved = call.map(|call| (id, call)).or(reserved.take());
                Err(e)
            }
        }
    }

    fn recv(&self, id: u64, max: usize, peek: bool, discard: bool) -> Result<(usize, Vec<u8>)> {
        let how = match (peek, discard) {
            (true, _) => RecvHow::Peek,
            (_, true) => RecvHow::Discard,
            _ => RecvHow::Take,
        };
        let endpoint = self.socket(id)?;
        let mut out = vec![0; max.min(CHUNK)];
        let n = endpoint.recv(&mut RecvBuf::of(&mut out), how)?;
        out.truncate(if how == RecvHow::Discard { 0 } else { n });
        Ok((n, out))
    }
}

/// Requests that are one call of one socket.
fn simple(endpoint: &dyn Endpoint, request: Request) -> Result<Outcome> {
    let done = |()| Outcome::Done;
    match request {
        Request::Bind { local, addr, port, v6only, .. } => {
            endpoint.bind(local, Reuse { addr, port, v6only }).map(done)
        }
        Request::Listen { backlog, .. } => endpoint.listen(backlog).map(done),
        Request::Connect { remote, .. } => endpoint.connect(remote).map(done),
        Request::Disconnect { .. } => endpoint.disconnect().map(done),
        Request::Completion { .. } => {
            let c = endpoint.completion().ok_or(Errno::AGAIN)?;
            Ok(Outcome::Completion { first: c.first, last: c.last, reason: c.ee_pad() })
        }
        Request::Shutdown { how, .. } => {
            let known = [Shutdown::Read, Shutdown::Write, Shutdown::Both];
            endpoint.shutdown(*known.get(usize::from(how)).ok_or(Errno::INVAL)?).map(done)
        }
        Request::Names { .. } => Ok(Outcome::Names(endpoint.local_addr(), endpoint.peer_addr())),
        Request::SetOption { level, name, value, .. } => endpoint.set_option(level, name, &value).map(done),
        Request::Option { level, name, .. } => endpoint.option(level, name).map(Outcome::Bytes),
        Request::Counts { .. } => endpoint.counts().map(Outcome::Counts),
        Request::Urgent { peek, .. } => endpoint.recv_urgent(peek).map(Outcome::Urgent),
        Request::Linger { linger, .. } => {
            endpoint.set_linger(linger);
            Ok(Outcome::Done)
        }
        Request::IsDrained { .. } => Ok(Outcome::Count(endpoint.is_drained().into())),
        _ => Err(Errno::PROTO),
    }
}

/// The socket a request is about.
fn named(request: &Request) -> Option<u64> {
    match request {
        Request::Socket | Request::Fork | Request::Close { .. } => None,
        Request::Bind { id, .. }
        | Request::Listen { id, .. }
        | Request::Accept { id }
        | Request::Connect { id, .. }
        | Request::Disconnect { id }
        | Request::Send { id, .. }
        | Request::Recv { id, .. }
        | Request::Completion { id }
        | Request::Shutdown { id, .. }
        | Request::Names { id }
        | Request::SetOption { id, .. }
        | Request::Option { id, .. }
        | Request::Counts { id }
        | Request::Urgent { id, .. }
        | Request::Linger { id, .. }
        | Request::IsDrained { id }
        | Request::Watch { id } => Some(*id),
    }
}
