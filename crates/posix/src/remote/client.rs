//! A guest: sockets whose stack is another process's.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use stack::skb::{Completion, Reason};
use stack::{MSG_EOR, MSG_MORE, MSG_OOB, MSG_ZEROCOPY, Readiness, Ready, Reuse, Shutdown};

use super::{CHUNK, Level, Line, Message, News, Outcome, Reply, Request, rendezvous, send, seqpacket};
use crate::endpoint::{Counts, Endpoint, RecvHow};
use crate::errno::{Errno, Result};
use crate::lock::ForkMutex;
use crate::sys;
use crate::user::{RecvBuf, SendBuf};

/// The way to the host.
pub(crate) struct Client {
    /// One request at a time. Locked across a fork.
    line: Arc<ForkMutex<Arc<Line>>>,
    sockets: Arc<Mutex<HashMap<u64, Weak<Known>>>>,
    /// Somebody reads the news.
    listening: AtomicBool,
}

/// What the host has said about a socket.
struct Known {
    ready: Readiness,
    /// The look that `ready` comes from.
    look: AtomicU64,
    update: Mutex<()>,
}

impl Known {
    /// Takes a level, unless a later one is known. News wake whoever waits even if the level was on.
    fn update(&self, level: Level, is_news: bool) {
        let _one = self.update.lock();
        if level.look <= self.look.load(Ordering::Relaxed) {
            return;
        }
        self.look.store(level.look, Ordering::Relaxed);
        let now = Ready::from_bits_truncate(level.bits);
        let on = self.ready.set(now);
        self.ready.wake(if is_news { now } else { on });
    }
}

impl Client {
    /// Finds the stack that runs on `tap`.
    pub(crate) fn connect(tap: &str) -> Result<Arc<Self>> {
        let calls = seqpacket()?;
        rustix::net::connect(&calls, &rendezvous(tap)?)?;
        let mut hello = Message::recv(calls.as_fd())?;
        hello.head::<Reply>()?;
        let events = hello.fds.pop().ok_or(Errno::PROTO)?;
        Ok(Self::new(Line::new(calls, events)))
    }

    pub(crate) fn new(line: Line) -> Arc<Self> {
        Arc::new(Self {
            line: Arc::new(ForkMutex::new(Arc::new(line))),
            sockets: Arc::default(),
            listening: AtomicBool::new(false),
        })
    }

    /// One call. A host that is gone takes its connections along: `ECONNABORTED`.
    fn call(&self, request: &Request, bytes: &[u8]) -> Result<(Reply, Message)> {
        let line = self.line.lock();
        let exchange = || {
            send(line.calls.as_fd(), request, bytes, &[])?;
            let message = Message::recv(line.calls.as_fd())?;
            Ok((message.head::<Reply>()?, message))
        };
        let (reply, message) = exchange().map_err(|_: Errno| Errno::CONNABORTED)?;
        match reply.outcome {
            Outcome::Failed(e) if matches!(request, Request::Fork) => Err(Errno::from_raw_os_error(e)),
            _ => Ok((reply, message)),
        }
    }

    /// A new socket.
    pub(crate) fn tcp_socket(self: &Arc<Self>) -> Result<Arc<dyn Endpoint>> {
        match self.call(&Request::Socket, &[])?.0.outcome {
            Outcome::Socket(id) => Ok(self.endpoint(id)),
            Outcome::Failed(e) => Err(Errno::from_raw_os_error(e)),
            _ => Err(Errno::PROTO),
        }
    }

    /// The socket with the host's number `id`.
    pub(crate) fn endpoint(self: &Arc<Self>, id: u64) -> Arc<dyn Endpoint> {
        let known =
            Arc::new(Known { ready: Readiness::default(), look: AtomicU64::new(0), update: Mutex::new(()) });
        self.sockets.lock().insert(id, Arc::downgrade(&known));
        Arc::new(Remote { client: self.clone(), id, known, watched: AtomicBool::new(false) })
    }

    /// Nobody is in the middle of a call while the result lives.
    pub(crate) fn freeze(&self) -> impl std::any::Any + use<> {
        self.line.lock_arc()
    }

    /// A line for a child, with the same sockets.
    pub(crate) fn fork(&self) -> Result<Line> {
        let (_, mut message) = self.call(&Request::Fork, &[])?;
        let (events, calls) = (message.fds.pop(), message.fds.pop());
        Ok(Line::new(calls.ok_or(Errno::PROTO)?, events.ok_or(Errno::PROTO)?))
    }

    /// Begins to read the news, in a thread of its own.
    fn listen(&self) -> Result<()> {
        if self.listening.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let line = self.line.lock().clone();
        let sockets = self.sockets.clone();
        sys::with_signals_blocked(|| {
            std::thread::Builder::new()
                .name("uncopied-news".into())
                .spawn(move || hear(&line.events, &sockets))
        })
        .map(drop)
        .map_err(|_| Errno::AGAIN)
    }
}

fn hear(events: &impl AsFd, sockets: &Mutex<HashMap<u64, Weak<Known>>>) {
    while let Ok(message) = Message::recv(events.as_fd()) {
        let Ok(news) = message.head::<News>() else { continue };
        let known = sockets.lock().get(&news.id).and_then(Weak::upgrade);
        if let Some(known) = known {
            known.update(news.level, true);
        }
    }
    // The host is gone: whoever waits is to find out.
    let all: Vec<_> = sockets.lock().values().filter_map(Weak::upgrade).collect();
    for known in all {
        let bits = (Ready::ERR | Ready::HUP | Ready::IN | Ready::OUT).bits();
        known.update(Level { look: u64::MAX, bits }, true);
    }
}

/// A socket of the host's.
struct Remote {
    client: Arc<Client>,
    id: u64,
    known: Arc<Known>,
    watched: AtomicBool,
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.client.sockets.lock().remove(&self.id);
        let _ = self.client.call(&Request::Close { id: self.id }, &[]);
    }
}

impl Remote {
    fn call_with(&self, request: Request, bytes: &[u8]) -> Result<(Outcome, Message)> {
        let (reply, message) = self.client.call(&request, bytes)?;
        self.known.update(reply.level, false);
        match reply.outcome {
            Outcome::Failed(e) => Err(Errno::from_raw_os_error(e)),
            outcome => Ok((outcome, message)),
        }
    }

    fn call(&self, request: Request) -> Result<Outcome> {
        self.call_with(request, &[]).map(|(outcome, _)| outcome)
    }

    fn watch(&self) {
        if !self.watched.swap(true, Ordering::AcqRel) {
            let watching = self.client.listen().and_then(|()| self.call(Request::Watch { id: self.id }));
            if watching.is_err() {
                self.watched.store(false, Ordering::Release);
                let bits = (Ready::ERR | Ready::HUP | Ready::IN | Ready::OUT).bits();
                self.known.update(Level { look: u64::MAX, bits }, true);
            }
        }
    }

    fn names(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        match self.call(Request::Names { id: self.id }) {
            Ok(Outcome::Names(local, peer)) => (local, peer),
            _ => (None, None),
        }
    }
}

impl Endpoint for Remote {
    fn bind(&self, local: SocketAddr, reuse: Reuse) -> Result<()> {
        let Reuse { addr, port, v6only } = reuse;
        self.call(Request::Bind { id: self.id, local, addr, port, v6only }).map(drop)
    }

    fn listen(&self, backlog: usize) -> Result<()> {
        self.call(Request::Listen { id: self.id, backlog }).map(drop)
    }

    fn accept(&self) -> Result<Arc<dyn Endpoint>> {
        match self.call(Request::Accept { id: self.id })? {
            Outcome::Socket(id) => Ok(self.client.endpoint(id)),
            _ => Err(Errno::PROTO),
        }
    }

    fn connect(&self, remote: SocketAddr) -> Result<()> {
        self.call(Request::Connect { id: self.id, remote }).map(drop)
    }

    fn disconnect(&self) -> Result<()> {
        self.call(Request::Disconnect { id: self.id }).map(drop)
    }

    fn send(&self, buf: &mut SendBuf) -> Result<usize> {
        let chunk = buf.copy_next(CHUNK);
        let last = buf.sent() + chunk.len() == buf.len();
        // What ends a call belongs to its last part.
        let flags = if last { buf.flags() } else { buf.flags() & !(MSG_EOR | MSG_OOB) | MSG_MORE } as i32;
        let begins = buf.flags() & MSG_ZEROCOPY != 0 && buf.sent() == 0;
        let lend = begins.then(|| buf.len() as u64);
        match self.call_with(Request::Send { id: self.id, flags, lend }, &chunk)?.0 {
            Outcome::Count(n) => {
                buf.advance(n);
                Ok(n)
            }
            _ => Err(Errno::PROTO),
        }
    }

    fn recv(&self, buf: &mut RecvBuf, how: RecvHow) -> Result<usize> {
        let (peek, discard) = (how == RecvHow::Peek, how == RecvHow::Discard);
        if peek {
            buf.rewind();
        }
        let max = buf.room().min(CHUNK);
        let (outcome, message) = self.call_with(Request::Recv { id: self.id, max, peek, discard }, &[])?;
        match outcome {
            Outcome::Count(n) if discard => {
                buf.skip(n);
                Ok(n)
            }
            Outcome::Count(n) => {
                buf.put(message.bytes());
                Ok(n)
            }
            _ => Err(Errno::PROTO),
        }
    }

    fn completion(&self) -> Option<Completion> {
        match self.call(Request::Completion { id: self.id }) {
            Ok(Outcome::Completion { first, last, reason }) => {
                let reason = Reason::from_number(reason);
                let copied = reason.filter(|r| r.is_copy());
                Some(Completion { first, last, copied, device: reason == Some(Reason::Device) })
            }
            _ => None,
        }
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        let how = match how {
            Shutdown::Read => 0,
            Shutdown::Write => 1,
            Shutdown::Both => 2,
        };
        self.call(Request::Shutdown { id: self.id, how }).map(drop)
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.names().0
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.names().1
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        self.call(Request::SetOption { id: self.id, level, name, value: value.to_vec() }).map(drop)
    }

    fn option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        match self.call(Request::Option { id: self.id, level, name })? {
            Outcome::Bytes(bytes) => Ok(bytes),
            _ => Err(Errno::PROTO),
        }
    }

    fn counts(&self) -> Result<Counts> {
        match self.call(Request::Counts { id: self.id })? {
            Outcome::Counts(counts) => Ok(counts),
            _ => Err(Errno::PROTO),
        }
    }

    fn recv_urgent(&self, peek: bool) -> Result<Option<u8>> {
        match self.call(Request::Urgent { id: self.id, peek })? {
            Outcome::Urgent(byte) => Ok(byte),
            _ => Err(Errno::PROTO),
        }
    }

    fn set_linger(&self, linger: Option<Duration>) {
        let _ = self.call(Request::Linger { id: self.id, linger });
    }

    fn is_drained(&self) -> bool {
        !matches!(self.call(Request::IsDrained { id: self.id }), Ok(Outcome::Count(0)))
    }

    fn number(&self) -> Option<u64> {
        Some(self.id)
    }

    fn ready(&self) -> Ready {
        self.watch();
        self.known.ready.get()
    }

    fn register(&self, interest: Ready, waker: &Waker) {
        self.watch();
        self.known.ready.register(interest, waker);
    }

    fn deregister(&self, waker: &Waker) {
        self.known.ready.deregister(waker);
    }
}
