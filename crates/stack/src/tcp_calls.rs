//! The socket calls of process context. None of them blocks: what cannot be done now is `WouldBlock`, and
//! [`TcpSocket::wait`] sleeps until it may be worth another try.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use skb::{Completion, ErrorQueue, Frag, Lent, Reason, Span, UbufInfo};
use tcp::{Listen, State, Tcb, TcpInfo};
use time::Duration;

use crate::completion::{self, Effects};
use crate::demux::Flow;
use crate::egress;
use crate::error::Error;
use crate::ports::Reuse;
use crate::raw::{BorrowedIo, CopyIn};
use crate::readiness::Ready;
use crate::stats::Counters;
use crate::tcp_socket::{AcceptQueue, Core, Role, TcpSocket};

/// Which directions to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// No more receiving (`SHUT_RD`).
    Read,
    /// No more sending: the peer sees an end of stream after everything sent (`SHUT_WR`).
    Write,
    /// Both (`SHUT_RDWR`).
    Both,
}

/// Names one lending call: its completion has this number in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The call's number on its socket.
    pub id: u32,
}

bitflags::bitflags! {
    /// What a send call says beside its bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SendFlags: u8 {
        /// More comes: hold back a last segment that is not full (`MSG_MORE`).
        const MORE = 1;
        /// A record ends: later bytes go into other packets (`MSG_EOR`).
        const EOR = 2;
        /// The last byte is urgent (`MSG_OOB`).
        const OOB = 4;
    }
}

impl SendFlags {
    /// Ends a send call; a part of one, unless `whole`.
    fn push(self, tcb: &mut Tcb, whole: bool) {
        if self.contains(SendFlags::EOR) && whole {
            tcb.end_record();
        }
        if self.contains(SendFlags::OOB) {
            tcb.push_urgent();
        } else if self.contains(SendFlags::MORE) {
            tcb.push_more();
        } else {
            tcb.push();
        }
    }
}

/// Bytes that a copying send moves between looks at the device: long sends leave while they are copied.
const COPY_QUANTUM: usize = 64 * 1024;

impl TcpSocket {
    /// Binds to a local address; a port of 0 is replaced by a free one. Whether the port may be shared is
    /// what [`set_reuse`](Self::set_reuse) said before.
    pub fn bind(&self, local: SocketAddr) -> Result<SocketAddr, Error> {
        let local = canonical(local);
        let known = local.ip().is_unspecified() || self.shared.inet.lock().is_local(local.ip());
        if !known {
            return Err(Error::AddressNotAvailable);
        }
        let mut core = self.lock.lock();
        if core.bound.is_some() || !matches!(core.role, Role::Idle) {
            return Err(Error::Invalid);
        }
        let bound = self.shared.demux.bind(local, self, core.reuse)?;
        core.bound = Some(bound);
        Ok(bound)
    }

    /// `SO_REUSEADDR`, `SO_REUSEPORT` and `IPV6_V6ONLY`, for the next [`bind`](Self::bind).
    pub fn set_reuse(&self, reuse: Reuse) {
        self.lock.lock().reuse = reuse;
    }

    /// Listens, with room for `backlog` connections that wait to be accepted. Calling it again changes the
    /// backlog. Without [`bind`](Self::bind) it listens on a free port of all addresses.
    pub fn listen(self: &Arc<Self>, backlog: usize) -> Result<SocketAddr, Error> {
        let mut core = self.lock.lock();
        match core.role {
            Role::Idle => {}
            Role::Listening => {
                if let (Some(q), Some(bound)) = (self.accept_queue(), core.bound) {
                    q.set_backlog(backlog);
                    return Ok(bound);
                }
                return Err(Error::Invalid);
            }
            Role::Open(_) => return Err(Error::Invalid),
        }
        let any = SocketAddr::new(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), 0);
        let listen = Listen::new(core.config.clone(), self.shared.listen_secret);
        self.set_accept_queue(AcceptQueue::new(listen, backlog))?;
        let bound = self.shared.demux.listen(core.bound.unwrap_or(any), self, core.reuse)?;
        core.bound = Some(bound);
        core.role = Role::Listening;
        let _ = self.ready.set(core.level());
        Ok(bound)
    }

    /// The oldest connection that waits to be accepted.
    pub fn accept(&self) -> Result<Arc<TcpSocket>, Error> {
        self.accept_queue().ok_or(Error::Invalid)?.pop().ok_or(Error::WouldBlock)
    }

    /// Begins to connect. `Ok` means begun: wait for `OUT`, then ask [`take_error`](Self::take_error).
    pub fn connect(self: &Arc<Self>, remote: SocketAddr) -> Result<(), Error> {
        let remote = canonical(remote);
        completion::with_lock(self, |core, fx| {
            if core.deferred.is_some() {
                return Err(Error::IsConnected);
            }
            let fast_open = core.config.fastopen_connect;
            let known = self.shared.cookies.get(remote.ip()).is_some() || core.config.fastopen_no_cookie;
            if fast_open && known && matches!(core.role, Role::Idle) {
                core.deferred = Some(Box::new(remote));
                return Ok(());
            }
            self.begin(core, fx, remote, fast_open.then_some(None))
        })
    }

    /// The SYN is prepared; it leaves when the lock is released. `fast_open` with the peer's cookie, if it is
    /// known.
    pub(crate) fn begin(
        self: &Arc<Self>,
        core: &mut Core,
        fx: &mut Effects,
        remote: SocketAddr,
        fast_open: Option<Option<(wire::tcp::Cookie, u16)>>,
    ) -> Result<(), Error> {
        match &core.role {
            Role::Idle => {}
            Role::Open(tcb) if matches!(tcb.state(), State::SynSent | State::SynReceived) => {
                return Err(Error::InProgress);
            }
            Role::Open(_) | Role::Listening => return Err(Error::IsConnected),
        }
        let asked = core.bound.filter(|b| !b.ip().is_unspecified()).map(|b| b.ip());
        let route = self.shared.with_inet(|inet| inet.route(remote.ip(), asked)).map_err(net_error)?;
        let flow = match core.bound.map_or(0, |b| b.port()) {
            0 => self.shared.demux.insert_ephemeral(route.src, remote, self)?,
            port => {
                let flow = Flow { local: SocketAddr::new(route.src, port), remote };
                self.shared.demux.insert(flow, self)?;
                flow
            }
        };
        let now = fx.now(&self.shared);
        let iss = self.shared.isn.iss(now, flow.local, flow.remote);
        let ts = self.shared.isn.ts_offset(flow.local, flow.remote);
        let mut tcb = Tcb::connect(core.config.clone(), flow.local.port(), flow.remote.port(), iss, ts, now);
        tcb.set_path_mtu_payload(egress::max_segment(route.mtu, remote.is_ipv6()));
        if let Some(known) = fast_open {
            tcb.fast_open(known);
        }
        core.role = Role::Open(Box::new(tcb));
        core.flow = Some(flow);
        core.ended = false;
        self.set_ends(Some(flow));
        Ok(())
    }

    /// `SO_ZEROCOPY`: whether `MSG_ZEROCOPY` is honoured. Accepted sockets inherit it.
    pub fn set_zerocopy(&self, on: bool) {
        self.zerocopy.store(on, Ordering::Relaxed);
    }

    /// Reads `SO_ZEROCOPY` back.
    pub fn zerocopy(&self) -> bool {
        self.zerocopy.load(Ordering::Relaxed)
    }

    /// Copies as much of `buf` as there is room for into the send queue; how much that was.
    pub fn send(self: &Arc<Self>, buf: &[u8]) -> Result<usize, Error> {
        self.send_with(buf, SendFlags::empty())
    }

    /// [`send`](Self::send) with flags.
    pub fn send_with(self: &Arc<Self>, buf: &[u8], flags: SendFlags) -> Result<usize, Error> {
        self.send_copied(&[CopyIn::from_slice(buf)], flags)
    }

    pub(crate) fn send_copied(
        self: &Arc<Self>,
        pieces: &[CopyIn<'_>],
        flags: SendFlags,
    ) -> Result<usize, Error> {
        let total: usize = pieces.iter().map(|p| p.len()).sum();
        completion::with_lock(self, |core, fx| {
            self.begin_deferred(core, fx)?;
            let room = sendable(core)?.send_room();
            if room == 0 && total > 0 {
                return Err(Error::WouldBlock);
            }
            let mut left = room.min(total);
            let mut since_push = 0;
            for piece in pieces {
                let mut rest = piece.span().slice(0, left);
                left -= rest.len();
                while !rest.is_empty() {
                    let part = self.copy_in(core, rest.slice(0, COPY_QUANTUM));
                    rest = rest.slice(part, rest.len());
                    since_push += part;
                    if since_push >= COPY_QUANTUM {
                        since_push = 0;
                        egress::push(&self.shared, self, core, fx);
                    }
                }
            }
            let sent = room.min(total);
            flags.push(sendable(core)?, sent == total);
            Counters::add(&self.shared.counters.send.copied_bytes, sent as u64);
            Ok(sent)
        })
    }

    /// Copies the front of `src` to the socket's page and queues it; bytes copied, at least one.
    fn copy_in(&self, core: &mut Core, src: Span) -> usize {
        loop {
            let tail = core.tail.get_or_insert_with(|| self.shared.pages.alloc().into_writer());
            match (tail.append(src), &mut core.role) {
                (Some(frag), Role::Open(tcb)) => {
                    let n = frag.len();
                    tcb.append(frag);
                    return n;
                }
                _ => core.tail = None,
            }
        }
    }

    /// Lends a buffer by value: all of it is queued at once, and nobody can change it until the completion
    /// with the ticket's number. On error the buffer comes back.
    ///
    /// The call may exceed the send buffer once, so that a buffer is never torn; it is `WouldBlock` only
    /// while the send buffer is full. An empty buffer queues nothing and takes no number (`Invalid`).
    pub fn send_lent(self: &Arc<Self>, lent: Lent) -> Result<Ticket, (Error, Lent)> {
        self.send_lent_with(lent, SendFlags::empty())
    }

    /// [`send_lent`](Self::send_lent) with flags.
    pub fn send_lent_with(self: &Arc<Self>, lent: Lent, flags: SendFlags) -> Result<Ticket, (Error, Lent)> {
        if lent.is_empty() {
            return Err((Error::Invalid, lent));
        }
        let mut buffer = Some(lent.into_bytes());
        let result = completion::with_lock(self, |core, fx| {
            self.begin_deferred(core, fx)?;
            if sendable(core)?.send_room() == 0 {
                return Err(Error::WouldBlock);
            }
            let frag = Frag::from_lent(&self.errors, &mut buffer, self.shared.config.check_lent)?;
            let id = frag.ubuf().map_or(0, |u| u.id());
            self.count_lent(1, frag.len());
            let tcb = sendable(core)?;
            tcb.append(frag);
            flags.push(tcb, true);
            Ok(Ticket { id })
        });
        result.map_err(|e| (e, Lent::from(buffer.unwrap_or_default())))
    }

    /// `sendmsg` with `MSG_ZEROCOPY` over borrowed memory: lends as much as there is room for. One number
    /// for all pieces, of `queue`, which is told of the completion; `None` if the pieces are empty.
    pub(crate) fn send_borrowed(
        self: &Arc<Self>,
        io: &BorrowedIo,
        call: &mut Option<Arc<UbufInfo>>,
        skip: usize,
        flags: SendFlags,
        queue: &Arc<ErrorQueue>,
    ) -> Result<usize, Error> {
        completion::with_lock(self, |core, fx| {
            self.begin_deferred(core, fx)?;
            let room = sendable(core)?.send_room();
            let total = io.len().saturating_sub(skip);
            if total == 0 {
                return Ok(0);
            }
            if room == 0 {
                return Err(Error::WouldBlock);
            }
            let take = room.min(total);
            let begins = u64::from(call.is_none());
            let ubuf = match call {
                Some(ubuf) => ubuf.clone(),
                None => {
                    let mut begun = queue.begin(io.len() as u64, &mut None)?.borrowing(io.spans());
                    if self.shared.config.check_lent {
                        begun.remember(io.spans());
                    }
                    call.insert(begun).clone()
                }
            };
            let tcb = sendable(core)?;
            let mut skip = skip;
            let mut left = take;
            for span in io.spans() {
                let part = span.slice(skip, left);
                skip = skip.saturating_sub(span.len());
                left -= part.len();
                if !part.is_empty() {
                    tcb.append(ubuf.frag(part));
                }
            }
            flags.push(tcb, take == total);
            self.count_lent(begins, take);
            Ok(take)
        })
    }

    /// Takes the number of a lending call whose bytes its caller copies, for `reason`; the call completes when
    /// the record is dropped. `None` without `SO_ZEROCOPY`.
    pub fn lend_copied(&self, bytes: u64, reason: Reason) -> Result<Option<Arc<UbufInfo>>, Error> {
        if !self.zerocopy() {
            return Ok(None);
        }
        let call = self.errors.begin(bytes, &mut None)?;
        call.mark(reason);
        self.count_lent(1, 0);
        Ok(Some(call))
    }

    fn count_lent(&self, calls: u64, bytes: usize) {
        Counters::add(&self.shared.counters.send.lent_calls, calls);
        Counters::add(&self.shared.counters.send.lent_bytes, bytes as u64);
    }

    /// Copies received bytes into `buf`; 0 is the end of the stream. The copy runs without the socket's
    /// lock, and the packets are freed after it.
    pub fn recv(self: &Arc<Self>, buf: &mut [u8]) -> Result<usize, Error> {
        let mut pieces = pieces::take();
        let got = self.take_pieces(buf.len(), usize::MAX, &mut pieces);
        let mut done = 0;
        for piece in &pieces {
            let part = &mut buf[done..done + piece.len()];
            piece.copy_to(0, part);
            done += part.len();
        }
        pieces::put(pieces);
        got
    }

    /// Takes up to `max` received bytes as counted pieces of the packets they came in, without copying.
    pub fn recv_pieces(self: &Arc<Self>, max: usize, out: &mut Vec<Frag>) -> Result<usize, Error> {
        self.take_pieces(max, usize::MAX, out)
    }

    /// As [`recv_pieces`](Self::recv_pieces), in at most `most` pieces.
    pub fn recv_few_pieces(
        self: &Arc<Self>,
        max: usize,
        most: usize,
        out: &mut Vec<Frag>,
    ) -> Result<usize, Error> {
        self.take_pieces(max, most, out)
    }

    fn take_pieces(self: &Arc<Self>, max: usize, most: usize, out: &mut Vec<Frag>) -> Result<usize, Error> {
        completion::with_lock(self, |core, fx| {
            if let Role::Open(tcb) = &mut core.role {
                let some = if most == usize::MAX { max } else { max.min(tcb.readable_in(most)) };
                let n = tcb.take(fx.now(&self.shared), some, out);
                let more = tcb.readable() > 0;
                if core.ended && !more {
                    core.role = Role::Idle;
                }
                if n > 0 || max == 0 {
                    return Ok(n);
                }
            }
            if let Some(e) = core.error.take() {
                return Err(e);
            }
            match &core.role {
                Role::Open(tcb) if tcb.peer_closed() || tcb.receive_shut() => Ok(0),
                Role::Open(_) => Err(Error::WouldBlock),
                Role::Idle if core.deferred.is_some() => Err(Error::WouldBlock),
                Role::Idle if core.ended => Ok(0),
                Role::Idle | Role::Listening => Err(Error::NotConnected),
            }
        })
    }

    /// Drops up to `max` received bytes (`MSG_TRUNC`); how many.
    pub fn discard(self: &Arc<Self>, max: usize) -> Result<usize, Error> {
        let mut pieces = pieces::take();
        let got = self.take_pieces(max, usize::MAX, &mut pieces);
        pieces::put(pieces);
        got
    }

    /// Copies received bytes without taking them (`MSG_PEEK`).
    pub fn peek(self: &Arc<Self>, buf: &mut [u8]) -> Result<usize, Error> {
        self.peek_at(0, buf)
    }

    /// Copies received bytes, from the one at `offset` on, without taking them (`SO_PEEK_OFF`).
    pub fn peek_at(self: &Arc<Self>, offset: usize, buf: &mut [u8]) -> Result<usize, Error> {
        completion::with_lock(self, |core, _| match &mut core.role {
            Role::Open(tcb) => match tcb.peek(offset, buf) {
                0 if !buf.is_empty() && !tcb.peer_closed() => Err(Error::WouldBlock),
                n => Ok(n),
            },
            Role::Idle if core.ended => Ok(0),
            Role::Idle | Role::Listening => Err(Error::NotConnected),
        })
    }

    /// Takes the oldest completion off the error queue.
    pub fn pop_completion(&self) -> Option<Completion> {
        let c = self.errors.pop();
        if c.is_some() {
            Counters::add(&self.shared.counters.send.notifications, 1);
        }
        c
    }

    /// Whether a completion waits to be read.
    pub fn has_completion(&self) -> bool {
        self.errors.is_ready()
    }

    /// Lending calls that are not complete.
    pub fn outstanding(&self) -> usize {
        self.errors.outstanding()
    }

    /// Starts the counter of lending calls at `id`: for tests of programs against the wrap at 2^32.
    pub fn set_next_call(&self, id: u32) {
        self.errors.set_next_id(id);
    }

    /// The pending error, once (`SO_ERROR`).
    pub fn take_error(self: &Arc<Self>) -> Option<Error> {
        completion::with_lock(self, |core, _| core.error.take())
    }

    /// Closes one or both directions.
    pub fn shutdown(self: &Arc<Self>, how: Shutdown) -> Result<(), Error> {
        completion::with_lock(self, |core, _| {
            let Role::Open(tcb) = &mut core.role else { return Err(Error::NotConnected) };
            if how != Shutdown::Read {
                tcb.shutdown_send();
            }
            if how != Shutdown::Write {
                tcb.shutdown_recv();
            }
            Ok(())
        })
    }

    /// The program is done with the socket. What was sent still goes out; unread data resets the
    /// connection (RFC 2525). Completions are dropped: nobody can read them any more.
    pub fn close(self: &Arc<Self>) {
        self.end(|tcb, fx| tcb.close(fx.now(&self.shared), &mut fx.released));
    }

    /// Resets the connection and drops everything queued.
    pub fn abort(self: &Arc<Self>) {
        self.end(|tcb, fx| tcb.abort(&mut fx.released));
    }

    fn end(self: &Arc<Self>, how: impl FnOnce(&mut Tcb, &mut Effects)) {
        self.errors.close();
        let waiting = completion::with_lock(self, |core, fx| {
            core.orphan = true;
            match &mut core.role {
                Role::Open(tcb) => how(tcb, fx),
                Role::Listening => {
                    if let Some(bound) = core.bound {
                        self.shared.demux.unlisten(bound.port(), self);
                    }
                    core.role = Role::Idle;
                }
                Role::Idle => {}
            }
            self.accept_queue().map(AcceptQueue::close)
        });
        for child in waiting.into_iter().flatten() {
            child.abort();
        }
    }

    /// `connect(AF_UNSPEC)`: resets the connection and drops the send queue, which completes its calls;
    /// the completions stay readable, the counter goes on, and the socket can be connected again.
    pub fn purge(self: &Arc<Self>) -> Result<(), Error> {
        completion::with_lock(self, |core, fx| {
            let Role::Open(tcb) = &mut core.role else { return Err(Error::NotConnected) };
            tcb.purge(&mut fx.released);
            egress::push(&self.shared, self, core, fx);
            self.forget_connection(core);
            core.role = Role::Idle;
            core.ended = false;
            core.error = None;
            self.set_ends(None);
            Ok(())
        })
    }

    /// The local address, once bound or connected.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.flow().map(|f| f.local).or_else(|| self.lock.lock().bound)
    }

    /// The state of the connection (RFC 9293, 3.3.2).
    pub fn state(&self) -> State {
        match &self.lock.lock().role {
            Role::Idle => State::Closed,
            Role::Listening => State::Listen,
            Role::Open(tcb) => tcb.state(),
        }
    }

    /// Measurements of the connection (`TCP_INFO`).
    pub fn info(&self) -> Option<TcpInfo> {
        match &self.lock.lock().role {
            Role::Open(tcb) => Some(tcb.info(self.shared.now())),
            Role::Idle | Role::Listening => None,
        }
    }

    /// Bytes ready to be read, and bytes sent or queued that are not acknowledged (`SIOCINQ`, `SIOCOUTQ`).
    pub fn queued(&self) -> (usize, usize) {
        match &self.lock.lock().role {
            Role::Open(tcb) => (tcb.readable(), tcb.queued()),
            Role::Idle | Role::Listening => (0, 0),
        }
    }

    /// What the socket is ready for.
    pub fn ready(&self) -> Ready {
        let mut ready = self.ready.get();
        ready.set(Ready::ERR, ready.contains(Ready::ERR) || self.errors.is_ready());
        ready.set(Ready::IN, ready.contains(Ready::IN) || self.accept_queue().is_some_and(|q| !q.is_empty()));
        ready
    }

    /// Sleeps until the socket is ready for any of `interest`; false if `timeout` ran out first.
    pub fn wait(&self, interest: Ready, timeout: Option<Duration>) -> bool {
        self.ready.wait(interest, timeout, || self.ready().intersects(interest))
    }

    /// Wakes `waker` the next time the socket becomes ready for `interest`, an error or a hang-up, or, being
    /// ready, gets more to read. Look at [`ready`](Self::ready) again after registering.
    pub fn register(&self, interest: Ready, waker: &Waker) {
        self.ready.register(interest, waker);
    }

    /// Forgets `waker`, if it still waits.
    pub fn deregister(&self, waker: &Waker) {
        self.ready.deregister(waker);
    }
}

/// The connection, if it can be sent on; else why not.
fn sendable(core: &mut Core) -> Result<&mut Tcb, Error> {
    if let Some(e) = core.error.take() {
        return Err(e);
    }
    match &mut core.role {
        Role::Open(tcb) => match tcb.state() {
            _ if tcb.can_send() => Ok(tcb),
            State::SynSent | State::SynReceived => Err(Error::WouldBlock),
            _ => Err(Error::Pipe),
        },
        Role::Idle if core.ended => Err(Error::Pipe),
        Role::Idle | Role::Listening => Err(Error::NotConnected),
    }
}

/// IPv4-mapped IPv6 addresses are IPv4 inside the stack.
pub(crate) fn canonical(a: SocketAddr) -> SocketAddr {
    SocketAddr::new(a.ip().to_canonical(), a.port())
}

fn net_error(e: inet::NetError) -> Error {
    match e {
        inet::NetError::NetworkUnreachable => Error::NetworkUnreachable,
        inet::NetError::HostUnreachable => Error::HostUnreachable,
        inet::NetError::AddressNotAvailable => Error::AddressNotAvailable,
        _ => Error::Invalid,
    }
}

/// Vectors for received pieces, kept per thread so that a read allocates nothing.
mod pieces {
    use skb::Frag;
    use std::cell::Cell;

    thread_local! {
        static SPARE: Cell<Vec<Frag>> = const { Cell::new(Vec::new()) };
    }

    pub(super) fn take() -> Vec<Frag> {
        SPARE.try_with(Cell::take).unwrap_or_default()
    }

    /// Frees the packets, and keeps the vector.
    pub(super) fn put(mut pieces: Vec<Frag>) {
        pieces.clear();
        let _ = SPARE.try_with(|s| s.set(pieces));
    }
}
