//! The way in for datagrams: from the network layer to receive queues.

use std::net::SocketAddr;
use std::sync::Arc;

use inet::{Delivered, IcmpError, IcmpKind, TxQueue};
use netdev::DropReason;
use skb::SkBuff;
use time::Instant;
use wire::proto;
use wire::udp::HEADER_LEN;

use crate::dgram::{Datagram, Received, judge};
use crate::shared::Shared;
use crate::udp_socket::UdpSocket;

/// One UDP packet to its socket, or to all of them.
pub(crate) fn udp_input(shared: &Arc<Shared>, mut d: Delivered, now: Instant, tx: &mut TxQueue) {
    let header = match inet::udp_header(&mut d) {
        Ok(header) => header,
        Err(reason) => return shared.counters.drop_packet(reason),
    };
    let from = SocketAddr::new(d.src, header.src_port);
    let to = SocketAddr::new(d.dst, header.dst_port);
    let interface = d.ifindex.0;
    if d.is_to_many() {
        let all = shared.datagrams.udp_all(from, to, interface);
        let hears = |s: &&Arc<UdpSocket>| !d.dst.is_multicast() || s.hears(d.dst);
        let mut heard = false;
        for socket in all.iter().filter(hears) {
            heard = true;
            deliver(socket, datagram(d.duplicate(), from));
        }
        if !heard {
            shared.counters.drop_packet(DropReason::NoSocket);
        }
        return;
    }
    match shared.datagrams.udp_one(from, to, interface) {
        Some(socket) => deliver(&socket, datagram(d, from)),
        None => {
            shared.counters.drop_packet(DropReason::NoSocket);
            shared.with_inet(|inet| inet.send_unreachable(now, &d, tx));
        }
    }
}

/// The payload and what is known of it.
fn datagram(d: Delivered, from: SocketAddr) -> Datagram {
    let mut payload = d.skb;
    let segment = payload.gso.map(|g| g.size);
    payload.advance(HEADER_LEN);
    let info = Received {
        len: payload.len(),
        from,
        to: d.dst,
        interface: d.ifindex.0,
        hop_limit: d.hop_limit,
        tos: d.tos,
        segment: segment.filter(|s| payload.len() > usize::from(*s)),
    };
    Datagram { payload, info, frame: None }
}

/// Several that came as one stay so only for readers who said they understand (`UDP_GRO`).
fn deliver(socket: &UdpSocket, d: Datagram) {
    let merge = socket.merges();
    let Some(size) = d.info.segment.filter(|_| !merge) else { return socket.dgram.receive(d, merge) };
    let size = usize::from(size).max(1);
    for at in (0..d.payload.len()).step_by(size) {
        let payload: SkBuff = d.payload.slice(at, size);
        let info = Received { len: payload.len(), segment: None, ..d.info.clone() };
        socket.dgram.receive(Datagram { payload, info, frame: None }, false);
    }
}

/// A packet for RAW sockets; whether any took it.
pub(crate) fn raw_input(shared: &Arc<Shared>, d: &Delivered) -> bool {
    let sockets = shared.datagrams.raw(|s| s.accepts(d));
    for socket in &sockets {
        socket.deliver(d.duplicate());
    }
    !sockets.is_empty()
}

/// An ICMP error about a packet that was no TCP segment.
pub(crate) fn icmp_error(shared: &Arc<Shared>, error: &IcmpError, now: Instant) {
    let mut sockets: Vec<Arc<UdpSocket>> = Vec::new();
    let mut destination = SocketAddr::new(error.remote, 0);
    if error.proto == proto::UDP
        && let Some(quoted) = error.tcp_ports_and_seq()
    {
        destination.set_port(quoted.dst_port);
        let local = SocketAddr::new(error.local, quoted.src_port);
        // The socket that an answer would have gone to, wherever it would have come in.
        sockets.extend(shared.datagrams.udp_one(destination, local, 0));
    }
    let raw = shared.datagrams.raw(|s| s.sent(error));
    // Errors about nothing that could have been sent are not believed.
    if sockets.is_empty() && raw.is_empty() {
        return;
    }
    if let IcmpKind::FragmentationNeeded { mtu } | IcmpKind::PacketTooBig { mtu } = error.kind {
        shared.with_inet(|inet| inet.update_pmtu(now, error.remote, mtu));
    }
    for socket in sockets {
        socket.icmp_arrives(judge(error, destination, HEADER_LEN));
    }
    for socket in raw {
        socket.icmp_arrives(judge(error, destination, 0));
    }
}

/// Nobody answers for a next hop: sockets that are connected through it hear of it.
pub(crate) fn neighbour_failed(shared: &Arc<Shared>, remote: std::net::IpAddr) {
    for socket in shared.datagrams.udp_connected_to(remote) {
        socket.dgram.set_error(crate::Error::HostUnreachable);
    }
}
