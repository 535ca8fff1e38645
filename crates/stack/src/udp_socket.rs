//! A UDP socket: v4, v6 or both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inet::IfIndex;
use parking_lot::Mutex;
use skb::{Csum, Frag, Gso, GsoKind, Lent, SkBuff};
use wire::proto;
use wire::udp::{CHECKSUM_OFFSET, HEADER_LEN, UdpHeader};

use crate::dgram::{
    Charged, Control, Dgram, DgramOptions, Entry, Family, Judged, Message, OVERHEAD, Piece, Plan, Sent,
    Target, canonical, common_calls, local_error, pack, send_planned, total,
};
use crate::egress;
use crate::error::Error;
use crate::ports::Reuse;
use crate::shared::Shared;
use crate::tcp_calls::{Shutdown, Ticket};

/// Datagrams that one segmented send may become (Linux's `UDP_MAX_SEGMENTS`).
const MAX_SEGMENTS: usize = 64;

/// A datagram that is being put together (`UDP_CORK`, `MSG_MORE`).
struct Corked {
    to: SocketAddr,
    plan: Plan,
    segment: usize,
    frags: Vec<Frag>,
    len: usize,
    charged: Charged,
}

struct State {
    options: DgramOptions,
    reuse: Reuse,
    device: Option<u32>,
    /// The local end, once it has a port.
    bound: Option<SocketAddr>,
    /// The program chose the local address, and did not leave it to `connect`.
    chosen: bool,
    /// The program chose the port.
    chosen_port: bool,
    remote: Option<SocketAddr>,
    /// The source that `connect` found.
    source: Option<IpAddr>,
    pending: Option<Corked>,
    corked: bool,
    closed: bool,
    /// What was decided for the last datagram, and for which question.
    planned: Option<(Question, Plan)>,
}

/// What a plan depends on beside the network layer.
type Question = (Target, DgramOptions, Option<u8>, Option<u8>);

/// A UDP socket. Shared by the program, the table, and whoever handles a packet for it.
pub struct UdpSocket {
    pub(crate) dgram: Dgram,
    family: Family,
    state: Mutex<State>,
    /// Groups joined, with the interface. Read by the packet side.
    groups: Mutex<Vec<(u32, IpAddr)>>,
    multicast_all: AtomicBool,
    gro: AtomicBool,
    receive_errors: AtomicBool,
    connected: AtomicBool,
}

common_calls!(UdpSocket);

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "udp {:?} -> {:?}", self.local_addr(), self.peer_addr())
    }
}

impl UdpSocket {
    pub(crate) fn new(shared: &Arc<Shared>, family: Family) -> Arc<Self> {
        let state = State {
            options: DgramOptions::default(),
            reuse: Reuse::default(),
            device: None,
            bound: None,
            chosen: false,
            chosen_port: false,
            remote: None,
            source: None,
            pending: None,
            corked: false,
            closed: false,
            planned: None,
        };
        Arc::new(Self {
            dgram: Dgram::new(shared),
            family,
            state: Mutex::new(state),
            groups: Mutex::default(),
            multicast_all: AtomicBool::new(true),
            gro: AtomicBool::new(false),
            receive_errors: AtomicBool::new(false),
            connected: AtomicBool::new(false),
        })
    }

    /// The family it was made for.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The settings.
    pub fn options(&self) -> DgramOptions {
        self.state.lock().options
    }

    /// Changes settings.
    pub fn configure(&self, change: impl FnOnce(&mut DgramOptions)) {
        let mut state = self.state.lock();
        change(&mut state.options);
        self.multicast_all.store(state.options.multicast_all, Ordering::Relaxed);
        self.gro.store(state.options.gro, Ordering::Relaxed);
        self.receive_errors.store(state.options.receive_errors, Ordering::Relaxed);
    }

    /// `SO_REUSEADDR`, `SO_REUSEPORT` and `IPV6_V6ONLY`, for the next [`bind`](Self::bind).
    pub fn set_reuse(&self, reuse: Reuse) {
        self.state.lock().reuse = reuse;
    }

    /// `SO_BINDTODEVICE`: only packets of this interface are received, and sends leave by it.
    pub fn bind_device(&self, interface: Option<u32>) {
        let mut state = self.state.lock();
        state.device = interface;
        if let Some(bound) = state.bound {
            self.dgram.shared.datagrams.change(bound.port(), self, |e| e.device = interface);
        }
    }

    /// Whether the socket can speak to (or from) `ip`.
    fn speaks(&self, ip: IpAddr, reuse: Reuse) -> Result<(), Error> {
        match (self.family, ip) {
            (Family::V4, IpAddr::V6(_)) => Err(Error::WrongFamily),
            (Family::V6, IpAddr::V4(_)) if reuse.v6only => Err(Error::NetworkUnreachable),
            _ => Ok(()),
        }
    }

    /// Binds to a local address, which may be a group's; a port of 0 is replaced by a free one.
    pub fn bind(self: &Arc<Self>, local: SocketAddr) -> Result<SocketAddr, Error> {
        let local = canonical(local);
        let mut state = self.state.lock();
        self.speaks(local.ip(), state.reuse)?;
        let ip = local.ip();
        let known = ip.is_unspecified() || ip.is_multicast() || {
            let inet = self.dgram.shared.inet.lock();
            inet.is_local(ip) || inet.is_broadcast(ip)
        };
        if !known {
            return Err(Error::AddressNotAvailable);
        }
        if state.bound.is_some() || state.closed {
            return Err(Error::Invalid);
        }
        let bound = self.bind_locked(&mut state, local)?;
        (state.chosen, state.chosen_port) = (!ip.is_unspecified(), local.port() != 0);
        Ok(bound)
    }

    fn bind_locked(self: &Arc<Self>, state: &mut State, local: SocketAddr) -> Result<SocketAddr, Error> {
        let entry = Entry {
            socket: self.clone(),
            local: local.ip(),
            remote: state.remote,
            device: state.device,
            reuse: state.reuse,
        };
        let bound = self.dgram.shared.datagrams.bind(local, entry)?;
        state.bound = Some(bound);
        Ok(bound)
    }

    /// Gives the socket a port if it has none: the first send or connect does.
    fn autobind(self: &Arc<Self>, state: &mut State) -> Result<SocketAddr, Error> {
        match state.bound {
            _ if state.closed => Err(Error::Invalid),
            Some(bound) => Ok(bound),
            None => self.bind_locked(state, SocketAddr::new(self.wildcard(), 0)),
        }
    }

    fn wildcard(&self) -> IpAddr {
        match self.family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// Sends go to `remote` unless they say otherwise, and only what comes from there is received.
    pub fn connect(self: &Arc<Self>, remote: SocketAddr) -> Result<(), Error> {
        let mut remote = canonical(remote);
        let mut state = self.state.lock();
        self.speaks(remote.ip(), state.reuse)?;
        match remote.ip() {
            IpAddr::V4(a) if a.is_unspecified() => remote.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(a) if a.is_unspecified() => remote.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        let asked = state.bound.filter(|_| state.chosen).map(|b| b.ip()).filter(|ip| !ip.is_multicast());
        let route = self.dgram.shared.with_inet(|inet| {
            if inet.is_broadcast(remote.ip()) && !state.options.broadcast {
                return Err(Error::AccessDenied);
            }
            Ok(inet.route(remote.ip(), asked)?)
        })?;
        let bound = self.autobind(&mut state)?;
        (state.remote, state.source) = (Some(remote), Some(route.src));
        self.connected.store(true, Ordering::Relaxed);
        let local = if state.chosen { bound.ip() } else { route.src };
        self.dgram.shared.datagrams.change(bound.port(), self, |e| {
            (e.remote, e.local) = (Some(remote), local);
        });
        Ok(())
    }

    /// `connect(AF_UNSPEC)`: forgets the peer, and what was bound by `connect` alone.
    pub fn disconnect(self: &Arc<Self>) {
        let mut state = self.state.lock();
        (state.remote, state.source) = (None, None);
        self.connected.store(false, Ordering::Relaxed);
        let Some(bound) = state.bound else { return };
        if !state.chosen_port {
            self.dgram.shared.datagrams.remove(bound.port(), self);
            let again = SocketAddr::new(bound.ip(), 0);
            state.bound = None;
            if state.chosen {
                // The address stays; the port is given anew.
                let _ = self.bind_locked(&mut state, again);
            }
            return;
        }
        let local = bound.ip();
        self.dgram.shared.datagrams.change(bound.port(), self, |e| {
            (e.remote, e.local) = (None, local);
        });
    }

    /// The local address, once the socket has one.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let state = self.state.lock();
        let bound = state.bound?;
        let source = state.source.filter(|_| !state.chosen);
        Some(SocketAddr::new(source.unwrap_or(bound.ip()), bound.port()))
    }

    /// The peer's address, while connected.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.state.lock().remote
    }

    /// Copies `buf` and sends it to `to`.
    pub fn send_to(self: &Arc<Self>, buf: &[u8], to: SocketAddr) -> Result<usize, Error> {
        let pieces = [Piece::Copy(buf)];
        let message = Message { to: Some(to), pieces: &pieces, ..Message::default() };
        self.sendmsg(&message).map(|sent| sent.len)
    }

    /// Copies `buf` and sends it to the peer.
    pub fn send(self: &Arc<Self>, buf: &[u8]) -> Result<usize, Error> {
        let pieces = [Piece::Copy(buf)];
        self.sendmsg(&Message { pieces: &pieces, ..Message::default() }).map(|sent| sent.len)
    }

    /// Lends a buffer by value and sends it, to `to` or to the peer. On error it comes back. An empty buffer
    /// is `Invalid`: it would have no number.
    pub fn send_lent(self: &Arc<Self>, lent: Lent, to: Option<SocketAddr>) -> Result<Ticket, (Error, Lent)> {
        let pieces = [Piece::Lent(lent)];
        let sent = match total(&pieces) {
            0 => Err(Error::Invalid),
            _ => self.sendmsg(&Message { to, pieces: &pieces, ..Message::default() }),
        };
        let [piece] = pieces;
        match (sent, piece) {
            (Ok(Sent { ticket: Some(ticket), .. }), _) => Ok(ticket),
            (Err(e), Piece::Lent(lent)) => Err((e, lent)),
            (_, _) => Err((Error::Invalid, Lent::from(Vec::new()))),
        }
    }

    /// Sends a message: the general call. It takes all of it or nothing.
    ///
    /// All lent pieces of one call have one number, whatever the datagram they go into contains besides.
    pub fn sendmsg(self: &Arc<Self>, message: &Message<'_>) -> Result<Sent, Error> {
        let (done, packet) = self.prepare(message)?;
        if let Some((plan, skb)) = packet {
            send_planned(&self.dgram.shared, &plan, skb, self.dgram.shared.now());
        }
        Ok(done)
    }

    /// Everything under the socket's lock: afterwards the packet only has to go.
    fn prepare(self: &Arc<Self>, m: &Message<'_>) -> Result<(Sent, Option<(Plan, SkBuff)>), Error> {
        self.dgram.check_error()?;
        if self.dgram.is_shut_for_sending() {
            return Err(Error::Pipe);
        }
        let len = total(m.pieces);
        let mut state = self.state.lock();
        let local = self.autobind(&mut state)?;
        // 1. What kind of datagram, or which one goes on.
        let mut corked = match state.pending.take() {
            Some(corked) => corked,
            None => self.begin(&mut state, m)?,
        };
        // 2. Whether it can be sent, before anything is taken. A datagram that grew too large is lost.
        let whole = corked.len + len;
        if let Err(e) = check(&corked, whole, &state.options) {
            let (to, mtu) = (corked.to, corked.plan.mtu);
            drop(state);
            drop(corked);
            if e == Error::MessageTooLong && self.receive_errors.load(Ordering::Relaxed) {
                self.dgram.push_error(local_error(e, to, mtu));
            }
            return Err(e);
        }
        // 3. Room, and the bytes.
        let Some(charged) = self.dgram.write.charge(len + OVERHEAD) else {
            state.pending = Some(corked).filter(|c| c.len > 0);
            return Err(Error::WouldBlock);
        };
        let ticket = match self.dgram.gather(m.pieces, &mut corked.frags) {
            Ok(ticket) => ticket,
            Err(e) => {
                state.pending = Some(corked).filter(|c| c.len > 0);
                return Err(e);
            }
        };
        corked.charged.join(charged);
        corked.len = whole;
        let sent = Sent { len, ticket };
        // 4. Out, or kept for more.
        if m.more || state.corked {
            state.pending = Some(corked);
            return Ok((sent, None));
        }
        let options = state.options;
        drop(state);
        Ok((sent, Some(build(corked, local.port(), &options))))
    }

    /// A datagram's destination and everything else that is decided by its first call.
    fn begin(&self, state: &mut State, m: &Message<'_>) -> Result<Corked, Error> {
        let to = m.to.map(canonical).or(state.remote).ok_or(Error::DestinationRequired)?;
        self.speaks(to.ip(), state.reuse)?;
        if to.port() == 0 {
            return Err(Error::Invalid);
        }
        let Control { source, interface, hop_limit, tos, segment } = m.control;
        let bound = state.bound.filter(|_| state.chosen).map(|b| b.ip()).filter(|ip| !ip.is_multicast());
        let connected = state.source.filter(|_| m.to.is_none());
        let same_family = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4();
        let target = Target {
            dst: to.ip(),
            src: source.map(|s| s.to_canonical()).or(bound).or(connected).filter(same_family),
            interface: interface.or(state.device),
            proto: proto::UDP,
        };
        let now = self.dgram.shared.now();
        let question = (target, state.options, hop_limit, tos);
        let known =
            state.planned.as_ref().filter(|(q, p)| *q == question && p.is_current(&self.dgram.shared, now));
        let plan = match known {
            Some((_, plan)) => plan.clone(),
            None => {
                let plan = self.dgram.plan(target, &state.options, (hop_limit, tos), now)?;
                state.planned = Some((question, plan.clone()));
                plan
            }
        };
        let segment = usize::from(segment.unwrap_or(state.options.segment));
        let Some(charged) = self.dgram.write.charge(0) else { return Err(Error::WouldBlock) };
        Ok(Corked { to, plan, segment, frags: Vec::new(), len: 0, charged })
    }

    /// `UDP_CORK`: while it is on, sends are put together; switching it off sends the datagram.
    pub fn set_cork(self: &Arc<Self>, on: bool) {
        let mut state = self.state.lock();
        state.corked = on;
        let local = state.bound.map_or(0, |b| b.port());
        let Some(corked) = state.pending.take_if(|_| !on) else { return };
        let options = state.options;
        drop(state);
        let (plan, skb) = build(corked, local, &options);
        send_planned(&self.dgram.shared, &plan, skb, self.dgram.shared.now());
    }

    /// Reads `UDP_CORK` back.
    pub fn cork(&self) -> bool {
        self.state.lock().corked
    }

    /// Joins a group on an interface, or on the one that packets to it leave by.
    pub fn join_group(&self, group: IpAddr, interface: Option<u32>) -> Result<(), Error> {
        let group = group.to_canonical();
        let shared = &self.dgram.shared;
        let now = shared.now();
        let mut tx = Vec::new();
        let joined = shared.with_inet(|inet| {
            let index = interface.map(IfIndex).or_else(|| inet.interface_for_group(group));
            let index = index.ok_or(Error::NoDevice)?;
            let mut groups = self.groups.lock();
            if groups.contains(&(index.0, group)) {
                return Err(Error::AddressInUse(SocketAddr::new(group, 0)));
            }
            inet.join_group(now, index, group, &mut tx)?;
            groups.push((index.0, group));
            Ok(())
        });
        egress::send_all(shared, &mut tx);
        shared.wakeup.now();
        joined
    }

    /// Leaves a group.
    pub fn leave_group(&self, group: IpAddr, interface: Option<u32>) -> Result<(), Error> {
        let group = group.to_canonical();
        let mut groups = self.groups.lock();
        let ours = |(i, g): &(u32, IpAddr)| *g == group && interface.is_none_or(|asked| asked == *i);
        let at = groups.iter().position(ours).ok_or(Error::AddressNotAvailable)?;
        let (index, group) = groups.swap_remove(at);
        drop(groups);
        self.leave(index, group);
        Ok(())
    }

    fn leave(&self, index: u32, group: IpAddr) {
        let shared = &self.dgram.shared;
        let now = shared.now();
        let mut tx = Vec::new();
        shared.with_inet(|inet| inet.leave_group(now, IfIndex(index), group, &mut tx));
        egress::send_all(shared, &mut tx);
        shared.wakeup.now();
    }

    /// Whether packets to `group` are for this socket.
    pub(crate) fn hears(&self, group: IpAddr) -> bool {
        self.multicast_all.load(Ordering::Relaxed) || self.groups.lock().iter().any(|(_, g)| *g == group)
    }

    /// Whether it reads several datagrams as one.
    pub(crate) fn merges(&self) -> bool {
        self.gro.load(Ordering::Relaxed)
    }

    /// An ICMP error about a datagram of this socket.
    pub(crate) fn icmp_arrives(&self, judged: Judged) {
        let asked = self.receive_errors.load(Ordering::Relaxed);
        if asked {
            self.dgram.push_error(judged.extended);
        }
        if asked || (judged.hard && self.connected.load(Ordering::Relaxed)) {
            self.dgram.set_error(judged.error);
        }
    }

    /// Closes one or both directions; only a connected socket has them.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Error> {
        if self.state.lock().remote.is_none() {
            return Err(Error::NotConnected);
        }
        self.dgram.shutdown(how);
        Ok(())
    }

    /// The program is done with the socket. What was sent still goes out. Completions are dropped: nobody can
    /// read them any more.
    pub fn close(&self) {
        let (pending, bound) = {
            let mut state = self.state.lock();
            state.closed = true;
            (state.pending.take(), state.bound.take())
        };
        self.dgram.close();
        if let Some(bound) = bound {
            self.dgram.shared.datagrams.remove(bound.port(), self);
        }
        let groups = std::mem::take(&mut *self.groups.lock());
        for (index, group) in groups {
            self.leave(index, group);
        }
        drop(pending);
    }
}

/// Whether a datagram of `len` payload bytes can be sent.
fn check(c: &Corked, len: usize, options: &DgramOptions) -> Result<(), Error> {
    let segmented = c.segment > 0 && len > c.segment;
    c.plan.check_len(HEADER_LEN + len, segmented)?;
    if segmented {
        let fits = c.plan.is_local() || c.plan.header_len() + HEADER_LEN + c.segment <= c.plan.mtu as usize;
        let many = len.div_ceil(c.segment) > MAX_SEGMENTS;
        if !fits || many || options.no_checksum {
            return Err(Error::Invalid);
        }
    }
    Ok(())
}

/// The packet, from its UDP header on.
fn build(c: Corked, src_port: u16, options: &DgramOptions) -> (Plan, SkBuff) {
    let Corked { to, plan, segment, frags, len, charged } = c;
    let mut skb = pack(frags);
    let total = HEADER_LEN + len;
    let unsummed = options.no_checksum && to.is_ipv4();
    let checksum = match unsummed {
        true => 0,
        false => inet::pseudo_sum(plan.meta.src, plan.meta.dst, proto::UDP, total as u32),
    };
    let header = UdpHeader { src_port, dst_port: to.port(), len: total as u16, checksum };
    if let Ok(room) = skb.push(HEADER_LEN) {
        header.emit(room);
    }
    if !unsummed {
        skb.csum = Csum::Partial { start: 0, offset: CHECKSUM_OFFSET as u16 };
    }
    if segment > 0 && len > segment {
        let segs = len.div_ceil(segment) as u16;
        skb.gso = Some(Gso { kind: GsoKind::Udp, size: segment as u16, segs });
    }
    skb.set_charge(Some(charged.into_charge()));
    (plan, skb)
}
