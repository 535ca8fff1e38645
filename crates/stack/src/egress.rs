//! The way out, top to bottom: a socket's segments become packets on a device.
//!
//! [`push`] runs under the socket's lock, in whichever context made room or data: a send call, an ACK, a
//! timer. It moves no payload. Lent bytes leave here as fragments that point at the caller's memory; what
//! a device cannot take that way is copied by `netdev`, with its reason, for that packet only.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use inet::{Dst, NetError, OutputMeta, OutputVerdict, Resolved};
use netdev::DropReason;
use skb::{Csum, GsoKind, Reason, SkBuff};
use tcp::Tcb;
use time::Instant;

use crate::completion::Effects;
use crate::shared::{Outgoing, Shared};
use crate::stats::Counters;
use crate::tcp_socket::{Core, Role, TcpSocket};

const IPPROTO_TCP: u8 = 6;
/// Where the checksum field lies in a TCP header (RFC 9293, 3.1).
const TCP_CHECKSUM: u16 = 16;

/// ECT(0) in the IP header: the network may mark the packet instead of dropping it (RFC 3168, 5).
const ECT_0: u8 = 2;
/// Both ECN bits in a received IP header: congestion experienced.
pub(crate) const CE: u8 = 3;

/// Sends what the connection may send now.
pub(crate) fn push(shared: &Shared, socket: &Arc<TcpSocket>, core: &mut Core, fx: &mut Effects) {
    let Core { role: Role::Open(tcb), dst, last_push, .. } = core else { return };
    if !tcb.wants_to_send() {
        return;
    }
    // The packet side's time is that of its poll's beginning, and a send call may have come in between: to
    // the peer, a timestamp that goes back is an old duplicate (RFC 7323, 5).
    let now = fx.now(shared).max(*last_push);
    *last_push = now;
    // 1. Where to. Cached in the socket until the network says otherwise.
    refresh_destination(shared, tcb, dst, core.flow.map(|f| (f.local.ip(), f.remote.ip())), now);
    let device = dst.as_ref().and_then(|d| shared.interface(d.ifindex));
    loop {
        // 2. While the device has room; it calls the socket back when it has room again.
        if device.is_some_and(|d| !d.has_room()) {
            shared.waiting.lock().push(Arc::downgrade(socket));
            // Room may have come between the two: whoever made it did not see us waiting.
            if !device.is_some_and(|d| d.has_room()) {
                break;
            }
        }
        // 3. The next segment: window, congestion and Nagle have agreed. A head and counted fragments.
        let Some(mut segment) = tcb.next_segment(now) else { break };
        // 4. The checksum is left to the device, or to whoever finds that it does not sum.
        prepare_checksum(&mut segment, core.flow.is_some_and(|f| f.remote.is_ipv6()));
        // 5. Network and link headers, and out.
        match dst {
            Some(dst) => transmit(shared, dst, segment, if tcb.is_ect() { ECT_0 } else { 0 }),
            None => transmit_slowly(shared, core.flow.map(|f| (f.local.ip(), f.remote.ip())), segment, now),
        }
    }
    // 6. One kick per burst.
    if let Some(device) = device {
        device.kick();
    }
}

/// Looks the destination up again if the cached one is stale; a path MTU that changed is told to TCP.
fn refresh_destination(
    shared: &Shared,
    tcb: &mut Tcb,
    dst: &mut Option<Dst>,
    ends: Option<(std::net::IpAddr, std::net::IpAddr)>,
    now: Instant,
) {
    let generation = shared.inet_generation.load(Ordering::Acquire);
    if dst.as_ref().is_some_and(|d| d.generation == generation && now < d.valid_until) {
        return;
    }
    let Some((local, remote)) = ends else { return };
    let mut tx = Vec::new();
    let resolved = shared.with_inet(|inet| inet.resolve(now, remote, Some(local), &mut tx));
    send_all(shared, &mut tx);
    *dst = match resolved {
        Ok(Resolved::Ready(found)) => {
            tcb.set_path_mtu_payload(max_segment(found.mtu, remote.is_ipv6()));
            Some(found)
        }
        // Nobody has answered for the next hop yet: packets wait in the neighbour's queue. Or there is no
        // route (any more): they are dropped with their reason, and TCP retries as for any loss.
        Ok(Resolved::Pending) | Err(_) => None,
    };
}

/// TCP payload per segment, without options, over a path of `mtu` bytes.
pub(crate) fn max_segment(mtu: u32, ipv6: bool) -> u16 {
    let headers = if ipv6 { 40 + 20 } else { 20 + 20 };
    u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX)
}

fn prepare_checksum(segment: &mut SkBuff, ipv6: bool) {
    segment.csum = Csum::Partial { start: 0, offset: TCP_CHECKSUM };
    if let (true, Some(gso)) = (ipv6, &mut segment.gso) {
        gso.kind = GsoKind::Tcp6;
    }
}

/// Puts the pseudo-header's sum where the device begins from.
fn store_pseudo_sum(segment: &mut SkBuff, sum: u16) {
    let at = usize::from(TCP_CHECKSUM);
    if let Some(field) = segment.head_mut().get_mut(at..at + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// The fast way: everything about the destination is known.
fn transmit(shared: &Shared, dst: &Dst, mut segment: SkBuff, tos: u8) {
    let pseudo = dst.pseudo_sum(IPPROTO_TCP, segment.len() as u32);
    store_pseudo_sum(&mut segment, pseudo);
    if dst.push_headers(&mut segment, IPPROTO_TCP, tos, 64, 0, true).is_err() {
        shared.counters.drop_packet(DropReason::NoHeadroom);
        return;
    }
    match shared.interface(dst.ifindex) {
        Some(_) => to_device(shared, (dst.ifindex, segment)),
        None => to_ourselves(shared, segment),
    }
}

/// The way through the network layer: routing, neighbour queue, fragments. For first packets and for
/// answers that belong to no socket.
pub(crate) fn transmit_slowly(
    shared: &Shared,
    ends: Option<(std::net::IpAddr, std::net::IpAddr)>,
    mut segment: SkBuff,
    now: Instant,
) {
    let Some((src, dst)) = ends else { return };
    let pseudo = inet::pseudo_sum(src, dst, IPPROTO_TCP, segment.len() as u32);
    store_pseudo_sum(&mut segment, pseudo);
    let meta = OutputMeta { src, dst, proto: IPPROTO_TCP, tos: 0, hop_limit: 64, df: true };
    let mut tx = Vec::new();
    let verdict = shared.with_inet(|inet| inet.output(now, segment, meta, &mut tx));
    send_all(shared, &mut tx);
    match verdict {
        OutputVerdict::Sent | OutputVerdict::Queued => {}
        OutputVerdict::Local(packet) => to_ourselves(shared, packet),
        OutputVerdict::TooBig { .. } => shared.counters.drop_packet(DropReason::TooBig),
        OutputVerdict::Error(NetError::NetworkUnreachable) => {
            shared.counters.drop_packet(DropReason::NoRoute)
        }
        OutputVerdict::Error(_) => shared.counters.drop_packet(DropReason::HostUnreachable),
    }
}

/// Sends packets that the network layer made or released.
pub(crate) fn send_all(shared: &Shared, tx: &mut Vec<Outgoing>) {
    for (ifindex, packet) in tx.drain(..) {
        to_device(shared, (ifindex, packet));
        if let Some(device) = shared.interface(ifindex) {
            device.kick();
        }
    }
}

pub(crate) fn to_device(shared: &Shared, (ifindex, packet): Outgoing) {
    let Some(device) = shared.interface(ifindex) else {
        to_ourselves(shared, packet);
        return;
    };
    Counters::add(&shared.counters.tx.tx_packets, 1);
    Counters::add(&shared.counters.tx.tx_bytes, (packet.len() - usize::from(packet.mac_len)) as u64);
    if let Err(reason) = device.xmit(packet) {
        // Counted by the interface; `Stack::stats` adds its drops to ours.
        tracing::trace!(reason = reason.as_str(), "packet refused by the interface");
    }
}

/// A packet to an address of our own. A local reader may never read it, so it must not hold lent memory
/// (Linux: `skb_orphan_frags_rx`).
pub(crate) fn to_ourselves(shared: &Shared, mut packet: SkBuff) {
    packet.orphan(Reason::Loopback);
    // What its reader keeps is no longer its sender's business (Linux: `skb_orphan`).
    packet.set_charge(None);
    packet.csum = Csum::Unnecessary;
    shared.loopback.push(packet);
    shared.wakeup.now();
}
