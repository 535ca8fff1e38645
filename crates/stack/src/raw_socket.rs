//! RAW sockets, with and without a header of the program's own, and ping sockets (`SOCK_DGRAM` with ICMP).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use inet::{Delivered, IcmpError};
use parking_lot::Mutex;
use skb::{Csum, Lent, SkBuff};
use wire::{icmp, proto};

use crate::dgram::{
    Datagram, Dgram, DgramOptions, Family, Judged, Message, OVERHEAD, Piece, Plan, Received, Sent, Target,
    canonical, common_calls, finish_output, local_error, pack, send_planned, total,
};
use crate::egress;
use crate::error::Error;
use crate::shared::Shared;
use crate::tcp_calls::{Shutdown, Ticket};

/// `IPPROTO_RAW`: for sending whole packets only.
const IPPROTO_RAW: u8 = 255;

/// Up to where a checksum field may lie: what a packet's head holds beside the headers below.
const MAX_CHECKSUM_END: usize = skb::HEAD_SIZE - skb::HEADROOM;

/// What a RAW socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawKind {
    /// `SOCK_RAW`: all packets of one protocol; `IPPROTO_RAW` (255) receives none and sends whole packets.
    Protocol(u8),
    /// `SOCK_DGRAM` with `IPPROTO_ICMP` or `IPPROTO_ICMPV6`: echo requests, and the replies to them.
    Ping,
}

/// Settings that only RAW sockets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOptions {
    /// `IP_HDRINCL`, `IPV6_HDRINCL`: sends begin with an IP header. Default off, but on for `IPPROTO_RAW`.
    pub header_included: bool,
    /// `IPV6_CHECKSUM`: where in the payload the stack puts, and checks, an Internet checksum. ICMPv6 has its
    /// own at 2 and cannot have another.
    pub checksum_offset: Option<u16>,
    /// `ICMP_FILTER`, `ICMPV6_FILTER`: one bit per ICMP type; a bit that is set keeps the type out.
    pub icmp_filter: [u32; 8],
}

#[derive(Clone, Copy)]
struct State {
    options: DgramOptions,
    raw: RawOptions,
    device: Option<u32>,
    local: Option<IpAddr>,
    remote: Option<IpAddr>,
    /// Ping: the identifier of its requests.
    ident: u16,
    closed: bool,
}

/// A RAW or ping socket.
pub struct RawSocket {
    pub(crate) dgram: Dgram,
    family: Family,
    kind: RawKind,
    /// Read by the packet side too, for moments only.
    state: Mutex<State>,
}

common_calls!(RawSocket);

impl std::fmt::Debug for RawSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "raw {:?} {:?}", self.family, self.kind)
    }
}

/// Identifiers given to ping sockets: each the next.
static IDENTS: AtomicU64 = AtomicU64::new(0);

impl RawSocket {
    pub(crate) fn new(shared: &Arc<Shared>, family: Family, kind: RawKind) -> Arc<Self> {
        let state = State {
            options: DgramOptions::default(),
            raw: RawOptions {
                header_included: kind == RawKind::Protocol(IPPROTO_RAW),
                checksum_offset: None,
                icmp_filter: [0; 8],
            },
            device: None,
            local: None,
            remote: None,
            ident: 0,
            closed: false,
        };
        let socket = Arc::new(Self { dgram: Dgram::new(shared), family, kind, state: Mutex::new(state) });
        if kind == RawKind::Ping {
            // An identifier that no other ping socket has: there are 65536, and as many sockets are refused
            // long before by whoever hands them out.
            let free = std::iter::repeat_with(|| IDENTS.fetch_add(1, Ordering::Relaxed) as u16 ^ 0x7525)
                .take(1 << 16)
                .find(|n| shared.datagrams.raw(|s| s.ident() == Some(*n)).is_empty());
            socket.state.lock().ident = free.unwrap_or(0);
        }
        shared.with_inet(|inet| inet.want_raw(family == Family::V6, socket.proto(), true));
        shared.datagrams.add_raw(&socket);
        socket
    }

    fn proto(&self) -> u8 {
        match (self.kind, self.family) {
            (RawKind::Protocol(p), _) => p,
            (RawKind::Ping, Family::V4) => proto::ICMP,
            (RawKind::Ping, Family::V6) => proto::ICMPV6,
        }
    }

    /// The identifier of a ping socket's requests.
    pub fn ident(&self) -> Option<u16> {
        (self.kind == RawKind::Ping).then(|| self.state.lock().ident)
    }

    /// The family it was made for. RAW sockets are not dual-stack.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The settings it shares with UDP sockets.
    pub fn options(&self) -> DgramOptions {
        self.state.lock().options
    }

    /// Changes settings it shares with UDP sockets.
    pub fn configure(&self, change: impl FnOnce(&mut DgramOptions)) {
        change(&mut self.state.lock().options);
    }

    /// The settings that only RAW sockets have.
    pub fn raw_options(&self) -> RawOptions {
        self.state.lock().raw
    }

    /// Changes settings that only RAW sockets have.
    pub fn configure_raw(&self, change: impl FnOnce(&mut RawOptions)) {
        change(&mut self.state.lock().raw);
    }

    /// `SO_BINDTODEVICE`.
    pub fn bind_device(&self, interface: Option<u32>) {
        self.state.lock().device = interface;
    }

    fn of_family(&self, ip: IpAddr) -> Result<IpAddr, Error> {
        let ip = ip.to_canonical();
        if ip.is_ipv4() == (self.family == Family::V4) { Ok(ip) } else { Err(Error::WrongFamily) }
    }

    /// Only packets to `local` are received, and sends come from it. A ping socket takes the port, unless it
    /// is 0, as its identifier.
    pub fn bind(&self, local: SocketAddr) -> Result<(), Error> {
        let ip = self.of_family(local.ip())?;
        let known = ip.is_unspecified() || ip.is_multicast() || self.dgram.shared.inet.lock().is_local(ip);
        if !known {
            return Err(Error::AddressNotAvailable);
        }
        if self.kind == RawKind::Ping && local.port() != 0 {
            let taken = self.dgram.shared.datagrams.raw(|s| {
                !std::ptr::eq(s, self) && s.family == self.family && s.ident() == Some(local.port())
            });
            if !taken.is_empty() {
                return Err(Error::AddressInUse(local));
            }
            self.state.lock().ident = local.port();
        }
        self.state.lock().local = Some(ip).filter(|ip| !ip.is_unspecified());
        Ok(())
    }

    /// Sends go to `remote` unless they say otherwise, and only packets from there are received. `None`
    /// forgets it.
    pub fn connect(&self, remote: Option<IpAddr>) -> Result<(), Error> {
        let remote = remote.map(|r| self.of_family(r)).transpose()?;
        if let Some(remote) = remote {
            let local = self.state.lock().local;
            self.dgram.shared.with_inet(|inet| inet.route(remote, local))?;
        }
        self.state.lock().remote = remote;
        Ok(())
    }

    /// The local address, if bound; a ping socket's port is its identifier.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let state = self.state.lock();
        Some(SocketAddr::new(state.local?, state.ident))
    }

    /// The peer's address, while connected.
    pub fn peer_addr(&self) -> Option<IpAddr> {
        self.state.lock().remote
    }

    /// Copies `buf` and sends it.
    pub fn send_to(&self, buf: &[u8], to: IpAddr) -> Result<usize, Error> {
        let pieces = [Piece::Copy(buf)];
        let to = Some(SocketAddr::new(to, 0));
        self.sendmsg(&Message { to, pieces: &pieces, ..Message::default() }).map(|sent| sent.len)
    }

    /// Lends a buffer by value and sends it. On error it comes back.
    pub fn send_lent(&self, lent: Lent, to: Option<IpAddr>) -> Result<Ticket, (Error, Lent)> {
        let pieces = [Piece::Lent(lent)];
        let to = to.map(|ip| SocketAddr::new(ip, 0));
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

    /// Sends one packet: what follows the IP header, or with `header_included` all of it. The ports in
    /// addresses do not matter; `more` and `segment` are `Invalid`.
    pub fn sendmsg(&self, m: &Message<'_>) -> Result<Sent, Error> {
        self.dgram.check_error()?;
        let state = *self.state.lock();
        if self.dgram.is_shut_for_sending() {
            return Err(Error::Pipe);
        }
        if m.more || m.control.segment.is_some() || state.closed {
            return Err(Error::Invalid);
        }
        let to = m.to.map(|to| canonical(to).ip()).or(state.remote).ok_or(Error::DestinationRequired)?;
        let to = self.of_family(to)?;
        let target = Target {
            dst: to,
            src: m.control.source.map(|s| s.to_canonical()).or(state.local),
            interface: m.control.interface.or(state.device),
            proto: self.proto(),
        };
        // 1. Whether it can be sent, before anything is taken.
        let now = self.dgram.shared.now();
        let plan = self.dgram.plan(target, &state.options, (m.control.hop_limit, m.control.tos), now)?;
        let len = total(m.pieces);
        self.check(&state, &plan, len).inspect_err(|e| {
            if *e == Error::MessageTooLong && state.options.receive_errors {
                self.dgram.push_error(local_error(*e, SocketAddr::new(to, 0), plan.mtu));
            }
        })?;
        let whole = self.kind != RawKind::Ping && state.raw.header_included;
        let header = match self.kind {
            RawKind::Ping => self.echo_header(&state, m.pieces)?,
            RawKind::Protocol(_) if whole => self.ip_header(&plan, m.pieces, len)?,
            RawKind::Protocol(_) => Vec::new(),
        };
        let charged = self.dgram.write.charge(len + OVERHEAD).ok_or(Error::WouldBlock)?;
        // 2. The bytes. A header that was looked at is sent as it was then.
        let mut frags = Vec::new();
        let ticket = self.dgram.gather(m.pieces, &mut frags)?;
        let mut skb = pack(frags);
        skb.set_charge(Some(charged.into_charge()));
        put_front(&mut skb, 0, &header);
        // 3. The headers that are ours, and out.
        if whole {
            let mut tx = Vec::new();
            let ends = (plan.meta.src, plan.meta.dst);
            let shared = &self.dgram.shared;
            let verdict = shared.with_inet(|inet| inet.output_whole(now, skb, ends, &mut tx));
            egress::send_all(shared, &mut tx);
            finish_output(shared, verdict);
        } else {
            if let Some(offset) = self.checksum_offset(&state) {
                leave_checksum(&plan, &mut skb, offset);
            }
            send_planned(&self.dgram.shared, &plan, skb, now);
        }
        Ok(Sent { len, ticket })
    }

    fn check(&self, state: &State, plan: &Plan, len: usize) -> Result<(), Error> {
        if self.kind == RawKind::Ping {
            if len < icmp::HEADER_LEN {
                return Err(Error::Invalid);
            }
        } else if state.raw.header_included {
            // The program's header is not torn: what does not fit is its problem.
            let fits = plan.is_local() || len <= plan.mtu as usize;
            let whole = len >= plan.header_len();
            return match (whole, fits && len <= 65_535) {
                (false, _) => Err(Error::Invalid),
                (_, false) => Err(Error::MessageTooLong),
                _ => Ok(()),
            };
        }
        // The field must be in the packet, and where a head has room for it.
        if self.checksum_offset(state).is_some_and(|o| usize::from(o) + 2 > len.min(MAX_CHECKSUM_END)) {
            return Err(Error::Invalid);
        }
        plan.check_len(len, false)
    }

    fn checksum_offset(&self, state: &State) -> Option<u16> {
        match (self.family, self.proto()) {
            _ if self.kind == RawKind::Ping => Some(icmp::CHECKSUM_OFFSET as u16),
            (Family::V6, proto::ICMPV6) => Some(icmp::CHECKSUM_OFFSET as u16),
            (Family::V6, _) => state.raw.checksum_offset,
            (Family::V4, _) => None,
        }
    }

    /// The header of an echo request, with this socket's identifier.
    fn echo_header(&self, state: &State, pieces: &[Piece<'_>]) -> Result<Vec<u8>, Error> {
        let request = match self.family {
            Family::V4 => icmp::v4::ECHO_REQUEST,
            Family::V6 => icmp::v6::ECHO_REQUEST,
        };
        let mut header = self.dgram.front(pieces, icmp::HEADER_LEN);
        if header.get(..2) != Some(&[request, 0]) {
            return Err(Error::Invalid);
        }
        header[4..6].copy_from_slice(&state.ident.to_be_bytes());
        Ok(header)
    }

    /// The program's IP header, with what it left open. As Linux: lengths and checksum are always filled in,
    /// source and identification where they are 0. IPv6's is sent as it is.
    fn ip_header(&self, plan: &Plan, pieces: &[Piece<'_>], total: usize) -> Result<Vec<u8>, Error> {
        let mut header = self.dgram.front(pieces, wire::ipv4::MAX_HEADER_LEN);
        let first = header.first().copied().unwrap_or(0);
        let len = match self.family {
            Family::V4 => usize::from(first & 0xf) * 4,
            Family::V6 => plan.header_len(),
        };
        if len < plan.header_len() || header.len() < len {
            return Err(Error::Invalid);
        }
        header.truncate(len);
        if self.family == Family::V4 {
            complete_ipv4(plan, total as u16, &mut header);
        }
        Ok(header)
    }

    /// Whether a received packet is for this socket. Packet side.
    pub(crate) fn accepts(&self, d: &Delivered) -> bool {
        if d.proto != self.proto() || d.src.is_ipv4() != (self.family == Family::V4) {
            return false;
        }
        let state = *self.state.lock();
        let ends = state.local.is_none_or(|l| l == d.dst || d.is_to_many())
            && state.remote.is_none_or(|r| r == d.src)
            && state.device.is_none_or(|i| i == d.ifindex.0);
        if !ends || d.proto == IPPROTO_RAW {
            return false;
        }
        if !matches!(d.proto, proto::ICMP | proto::ICMPV6) {
            return true;
        }
        let mut header = [0; icmp::HEADER_LEN];
        if !d.skb.copy_bits(0, &mut header) {
            return false;
        }
        let [kind, _, _, _, a, b, ..] = header;
        let reply = if self.family == Family::V4 { icmp::v4::ECHO_REPLY } else { icmp::v6::ECHO_REPLY };
        match self.kind {
            RawKind::Ping => kind == reply && u16::from_be_bytes([a, b]) == state.ident,
            RawKind::Protocol(_) => {
                let word = state.raw.icmp_filter.get(usize::from(kind) / 32);
                // ICMP_FILTER has one word only: other types always pass.
                word.is_none_or(|w| w & (1 << (kind % 32)) == 0)
            }
        }
    }

    /// Queues a received packet.
    pub(crate) fn deliver(&self, mut d: Delivered) {
        let state = *self.state.lock();
        if let (Family::V6, Some(_), RawKind::Protocol(_)) =
            (self.family, state.raw.checksum_offset, self.kind)
            && d.proto != proto::ICMPV6
            && !inet::verify_internet_checksum(&d)
        {
            self.dgram.shared.counters.drop_packet(netdev::DropReason::BadChecksum);
            return;
        }
        if self.family == Family::V4 && self.kind != RawKind::Ping && d.restore_header().is_err() {
            self.dgram.shared.counters.drop_packet(netdev::DropReason::NoHeadroom);
            return;
        }
        let info = Received {
            len: d.skb.len(),
            from: SocketAddr::new(d.src, 0),
            to: d.dst,
            interface: d.ifindex.0,
            hop_limit: d.hop_limit,
            tos: d.tos,
            segment: None,
        };
        self.dgram.receive(Datagram { payload: d.skb, info, frame: None }, false);
    }

    /// Whether an ICMP error may be about a packet of this socket.
    pub(crate) fn sent(&self, e: &IcmpError) -> bool {
        if e.proto != self.proto() || e.local.is_ipv4() != (self.family == Family::V4) {
            return false;
        }
        let state = *self.state.lock();
        let ends = state.local.is_none_or(|l| l == e.local) && state.remote.is_none_or(|r| r == e.remote);
        let ident = e.transport_header().get(4..6).map(|b| u16::from_be_bytes([b[0], b[1]]));
        ends && (self.kind != RawKind::Ping || ident == Some(state.ident))
    }

    /// An ICMP error about a packet of this socket.
    pub(crate) fn icmp_arrives(&self, judged: Judged) {
        let state = *self.state.lock();
        let asked = state.options.receive_errors;
        if asked {
            self.dgram.push_error(judged.extended);
        }
        if asked || (judged.hard && state.remote.is_some()) {
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

    /// The program is done with the socket. What was sent still goes out.
    pub fn close(&self) {
        if std::mem::replace(&mut self.state.lock().closed, true) {
            return;
        }
        let shared = &self.dgram.shared;
        shared.with_inet(|inet| inet.want_raw(self.family == Family::V6, self.proto(), false));
        shared.datagrams.remove_raw(self);
        self.dgram.close();
    }
}

/// Overwrites `bytes.len()` bytes from `at` on, in the packet's own head and in nobody's memory. Whoever calls has
/// checked that they are there and that a head has room for them.
fn put_front(skb: &mut SkBuff, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if skb.may_pull(end).is_some()
        && let Some(place) = skb.head_mut().get_mut(at..end)
    {
        place.copy_from_slice(bytes);
    }
}

/// Leaves the checksum at `offset` to the device, with what is summed before the payload in its field.
fn leave_checksum(plan: &Plan, skb: &mut SkBuff, offset: u16) {
    let pseudo = match plan.meta.proto {
        proto::ICMP => 0,
        p => inet::pseudo_sum(plan.meta.src, plan.meta.dst, p, skb.len() as u32),
    };
    put_front(skb, usize::from(offset), &pseudo.to_be_bytes());
    skb.csum = Csum::Partial { start: 0, offset };
}

/// Fills in what a program may leave open in its IPv4 header.
fn complete_ipv4(plan: &Plan, total: u16, header: &mut [u8]) {
    header[2..4].copy_from_slice(&total.to_be_bytes());
    if let IpAddr::V4(src) = plan.meta.src
        && header[12..16] == [0; 4]
    {
        header[12..16].copy_from_slice(&src.octets());
    }
    if header[4..6] == [0; 2] {
        let ident = IDENTS.fetch_add(1, Ordering::Relaxed) as u16;
        header[4..6].copy_from_slice(&ident.to_be_bytes());
    }
    header[10..12].fill(0);
    let sum = wire::checksum::finish(wire::checksum::sum(header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}
