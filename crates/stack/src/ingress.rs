//! The way in, top to bottom: a device's packets become bytes in sockets.
//!
//! [`poll`] is the packet side. It never waits for a socket: a segment whose socket is in use goes to that
//! socket's backlog, and the owner runs it.

use std::net::SocketAddr;
use std::sync::Arc;

use inet::{Delivered, IfIndex, InputVerdict};
use netdev::DropReason;
use skb::SkBuff;
use tcp::{ListenVerdict, SegmentIn};
use time::Instant;
use wire::tcp::TcpHeader;

use crate::completion::{self, Effects};
use crate::demux::Flow;
use crate::dgram;
use crate::egress;
use crate::lock::Delivery;
use crate::shared::{LOOPBACK, RxSide, Shared};
use crate::stats::Counters;
use crate::tcp_socket::{Core, Event, Role, TcpSocket};

const IPPROTO_TCP: u8 = wire::proto::TCP;
const IPPROTO_UDP: u8 = wire::proto::UDP;

/// Packets taken from one device before the others get their turn (NAPI's weight).
const BUDGET: usize = 64;

/// What a poll did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Packets, timers and completions handled. Poll again at once unless 0.
    pub work: usize,
    /// When to poll again if no device has news before. `None`: only devices can bring work.
    pub next: Option<Instant>,
}

/// One round of the packet side.
pub(crate) fn poll(shared: &Arc<Shared>, side: &mut RxSide, now: Instant) -> Polled {
    completion::together(|| round(shared, side, now))
}

fn round(shared: &Arc<Shared>, side: &mut RxSide, now: Instant) -> Polled {
    let mut work = 0;
    // 1. What devices have finished with is dropped, which completes calls; what waited for room goes on.
    work += completion::reclaim(shared, now);
    // 2. Packets, merged into large ones where they belong together.
    for n in 0..side.devices.len() {
        work += receive(shared, side, n, now);
    }
    // 3. Packets to ourselves. Those that they cause wait for the next round.
    for _ in 0..shared.loopback.len().min(BUDGET) {
        if let Some(packet) = shared.loopback.pop() {
            work += 1;
            network_input(shared, side, LOOPBACK, packet, now);
        }
    }
    // 4. Timers of connections and of the network layer.
    work += expire(shared, side, now);
    // 5. Answers of the network layer: ARP, echo replies, packets whose neighbour has answered.
    egress::send_all(shared, &mut side.tx);
    let next = [shared.timers.lock().next_deadline(), shared.inet.lock().next_timeout()];
    Polled { work, next: next.into_iter().flatten().min() }
}

/// Takes a batch from device `n` up the stack.
fn receive(shared: &Arc<Shared>, side: &mut RxSide, n: usize, now: Instant) -> usize {
    let (Some(device), Some(interface)) = (side.devices.get_mut(n), shared.interfaces.get(n)) else {
        return 0;
    };
    let mut batch = std::mem::take(&mut side.batch);
    let mut merged = std::mem::take(&mut side.merged);
    let taken = device.poll_rx(BUDGET, &mut batch);
    for mut packet in batch.drain(..) {
        interface.tap_received(&mut packet);
        side.gro.receive(packet, interface.info(), &mut merged);
    }
    side.gro.flush(&mut merged);
    for packet in merged.drain(..) {
        network_input(shared, side, IfIndex(n as u32 + 1), packet, now);
    }
    (side.batch, side.merged) = (batch, merged);
    taken
}

/// One packet through the network layer to its transport.
fn network_input(shared: &Arc<Shared>, side: &mut RxSide, from: IfIndex, packet: SkBuff, now: Instant) {
    Counters::add(&shared.counters.packet.rx_packets, 1);
    Counters::add(&shared.counters.packet.rx_bytes, packet.len() as u64);
    let (verdict, copies) = shared.with_inet(|inet| {
        let verdict = inet.input(now, from, packet, &mut side.tx);
        (verdict, inet.take_raw())
    });
    let mut taken = false;
    for copy in copies {
        taken |= dgram::raw_input(shared, &copy);
    }
    match verdict {
        InputVerdict::Deliver(d) if d.proto == IPPROTO_TCP => tcp_input(shared, d, now),
        InputVerdict::Deliver(d) if d.proto == IPPROTO_UDP => dgram::udp_input(shared, d, now, &mut side.tx),
        InputVerdict::Deliver(d) if !taken => {
            shared.counters.drop_packet(DropReason::NoHandler);
            shared.with_inet(|inet| inet.send_unreachable(now, &d, &mut side.tx));
        }
        InputVerdict::Deliver(_) => {}
        InputVerdict::Icmp(error) if error.proto == IPPROTO_TCP => icmp_error(shared, error, now),
        InputVerdict::Icmp(error) => dgram::icmp_error(shared, &error, now),
        InputVerdict::Consumed => {}
        InputVerdict::Drop(reason) => shared.counters.drop_packet(reason),
    }
}

/// One TCP segment to its socket.
fn tcp_input(shared: &Arc<Shared>, mut d: Delivered, now: Instant) {
    if !inet::verify_transport_checksum(&d) {
        shared.counters.drop_packet(DropReason::BadChecksum);
        return;
    }
    let Some(mut segment) = parse(&mut d.skb) else {
        shared.counters.drop_packet(DropReason::Malformed);
        return;
    };
    segment.ce = d.tos & egress::CE == egress::CE;
    let flow = Flow {
        local: SocketAddr::new(d.dst, segment.header.dst_port),
        remote: SocketAddr::new(d.src, segment.header.src_port),
    };
    if let Some(socket) = shared.demux.connection(&flow) {
        deliver(&socket, Event::Segment(segment), now);
    } else if let Some(listener) = shared.demux.listener(&flow) {
        listener_input(shared, &listener, flow, segment, now);
    } else {
        refuse(shared, flow, &segment, now);
    }
}

/// Takes the header off and understands it.
fn parse(skb: &mut SkBuff) -> Option<SegmentIn> {
    let data_offset = usize::from(skb.may_pull(20)?.get(12)? >> 4) * 4;
    let (header, len) = TcpHeader::parse(skb.may_pull(data_offset.max(20))?).ok()?;
    let gso_size = skb.gso.map_or(0, |g| g.size);
    let mut payload = std::mem::take(skb);
    payload.advance(len);
    Some(SegmentIn { header, payload, gso_size, ce: false })
}

/// A segment nobody expects is answered with a reset (RFC 9293, 3.10.7.1).
fn refuse(shared: &Shared, flow: Flow, segment: &SegmentIn, now: Instant) {
    shared.counters.drop_packet(DropReason::NoSocket);
    if let Some(mut reset) = tcp::reset_for(segment) {
        reset.csum = skb::Csum::Partial { start: 0, offset: 16 };
        egress::transmit_slowly(shared, Some((flow.local.ip(), flow.remote.ip())), reset, now);
    }
}

/// A segment for a listening socket: most likely a SYN, or the ACK of a cookie.
pub(crate) fn listener_input(
    shared: &Arc<Shared>,
    listener: &Arc<TcpSocket>,
    flow: Flow,
    mut segment: SegmentIn,
    now: Instant,
) {
    let Some(queue) = listener.accept_queue() else { return refuse(shared, flow, &segment, now) };
    let syn = segment.header.flags.contains(wire::tcp::TcpFlags::SYN);
    if syn && queue.is_full() {
        // As Linux: the peer tries again, and by then somebody may have accepted.
        shared.counters.drop_packet(DropReason::ListenOverflow);
        return;
    }
    let iss = shared.isn.iss(now, flow.local, flow.remote);
    let ts_offset = shared.isn.ts_offset(flow.local, flow.remote);
    let Ok(route) = shared.with_inet(|inet| inet.route(flow.remote.ip(), Some(flow.local.ip()))) else {
        shared.counters.drop_packet(DropReason::NoRoute);
        return;
    };
    let mss = egress::max_segment(route.mtu, flow.remote.is_ipv6());
    let ends = (flow.local, flow.remote);
    let load = (queue.under_pressure(), queue.unconfirmed.len());
    let verdict = queue.listen.read().segment_arrives(now, ends, &mut segment, mss, iss, ts_offset, load);
    match verdict {
        ListenVerdict::Ignore => shared.counters.drop_packet(DropReason::NoSocket),
        ListenVerdict::Reply(mut reply) => {
            reply.csum = skb::Csum::Partial { start: 0, offset: 16 };
            egress::transmit_slowly(shared, Some((flow.local.ip(), flow.remote.ip())), reply, now);
        }
        ListenVerdict::Spawn(tcb) => {
            if let Some(child) = TcpSocket::spawn(shared, listener, flow, *tcb) {
                completion::with_lock(&child, |_, _| {});
            }
        }
        ListenVerdict::Open(tcb) => {
            if let Some(child) = TcpSocket::spawn(shared, listener, flow, *tcb) {
                completion::with_lock(&child, |core, fx| {
                    core.unconfirmed = Some(queue.unconfirmed.add());
                    fx.connected();
                });
            }
        }
        // No place for it: the cookie will come again with the peer's data, which is not acknowledged.
        ListenVerdict::Established(_) if queue.is_full() => {
            shared.counters.drop_packet(DropReason::ListenOverflow);
        }
        ListenVerdict::Established(tcb) => {
            if let Some(child) = TcpSocket::spawn(shared, listener, flow, *tcb) {
                completion::with_lock(&child, |_, fx| fx.connected());
                deliver(&child, Event::Segment(segment), now);
            }
        }
    }
}

/// An ICMP error about a segment of ours goes to its connection, which decides whether to believe it.
fn icmp_error(shared: &Arc<Shared>, error: inet::IcmpError, now: Instant) {
    let Some(quoted) = error.tcp_ports_and_seq() else { return };
    let flow = Flow {
        local: SocketAddr::new(error.local, quoted.src_port),
        remote: SocketAddr::new(error.remote, quoted.dst_port),
    };
    if let Some(socket) = shared.demux.connection(&flow) {
        deliver(&socket, Event::Icmp(error.kind, quoted.seq), now);
    }
}

/// Runs the timers that are due.
fn expire(shared: &Arc<Shared>, side: &mut RxSide, now: Instant) -> usize {
    let fired = shared.timers.lock().expire(now);
    let n = fired.len();
    for socket in fired.iter().filter_map(std::sync::Weak::upgrade) {
        Counters::add(&shared.counters.packet.timers, 1);
        deliver(&socket, Event::Timer, now);
    }
    shared.timers.lock().reuse(fired);
    if shared.inet.lock().next_timeout().is_some_and(|t| t <= now) {
        let failed = shared.with_inet(|inet| inet.on_timeout(now, &mut side.tx));
        for end in failed {
            neighbour_failed(shared, end, now);
            dgram::neighbour_failed(shared, end);
        }
    }
    n
}

/// Nobody answers for a next hop: connections that are still being made through it fail now.
fn neighbour_failed(shared: &Arc<Shared>, remote: std::net::IpAddr, now: Instant) {
    for socket in shared.demux.sockets() {
        if socket.peer_addr().is_some_and(|p| p.ip() == remote) {
            deliver(&socket, Event::HostUnreachable, now);
        }
    }
}

/// Hands an event to a socket without waiting for it.
pub(crate) fn deliver(socket: &Arc<TcpSocket>, event: Event, now: Instant) {
    match socket.lock.deliver(event) {
        Delivery::Now(mut core, event) => {
            let mut fx = Effects::new(now);
            handle(socket, &mut core, event, &mut fx);
            completion::release_sock(socket, core, fx);
        }
        Delivery::Run(core) => completion::release_sock(socket, core, Effects::new(now)),
        Delivery::Queued => Counters::add(&socket.shared.counters.packet.backlogged, 1),
        Delivery::Full(_) => socket.shared.counters.drop_packet(DropReason::BacklogFull),
    }
}

/// One event on a socket whose lock we hold.
pub(crate) fn handle(socket: &Arc<TcpSocket>, core: &mut Core, event: Event, fx: &mut Effects) {
    let Role::Open(tcb) = &mut core.role else {
        // The connection went while the segment was in the backlog.
        if let (Event::Segment(segment), Some(flow)) = (event, core.flow) {
            refuse(&socket.shared, flow, &segment, fx.now(&socket.shared));
        }
        return;
    };
    match event {
        Event::Segment(segment) => {
            let header = (tcb.state() == tcp::State::TimeWait).then(|| segment.header.clone());
            let outcome = tcb.segment_arrives(fx.now(&socket.shared), segment, &mut fx.released);
            if outcome.contains(tcp::Outcome::CONNECTED)
                && let (Some(cookie), Some(flow)) = (tcb.take_cookie(), core.flow)
            {
                socket.shared.cookies.insert(flow.remote.ip(), cookie);
            }
            if let (Some(header), Some(flow)) = (header, core.flow)
                && outcome.contains(tcp::Outcome::REUSE)
            {
                fx.next_connection =
                    Some((flow, SegmentIn { header, payload: SkBuff::new(), gso_size: 0, ce: false }));
            }
            fx.note(socket, outcome);
        }
        Event::Timer => {
            core.timer = None;
            if tcb.next_timeout().is_some_and(|t| t <= fx.now(&socket.shared)) {
                let outcome = tcb.on_timeout(fx.now(&socket.shared), &mut fx.released);
                fx.note(socket, outcome);
            }
        }
        Event::Icmp(kind, seq) => {
            let outcome = socket.icmp_arrives(core, kind, seq, fx);
            fx.note(socket, outcome);
        }
        Event::HostUnreachable => {
            let outcome = tcb.soft_error(tcp::TcpError::HostUnreachable, &mut fx.released);
            fx.note(socket, outcome);
        }
        Event::Room => {}
    }
}
