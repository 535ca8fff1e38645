//! The way out for datagrams: what is decided before anything is taken from the program, and the transmission.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;

use inet::{Dst, NetError, OutputMeta, OutputVerdict, Resolved};
use netdev::{DropReason, Features};
use skb::{Csum, Reason, SkBuff};
use time::Instant;

use crate::dgram::{Dgram, DgramOptions, PathMtuDiscovery};
use crate::egress;
use crate::error::Error;
use crate::shared::Shared;

/// Where a datagram goes, as its sender says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) dst: IpAddr,
    /// Source asked for.
    pub(crate) src: Option<IpAddr>,
    /// Interface asked for.
    pub(crate) interface: Option<u32>,
    pub(crate) proto: u8,
}

/// Everything decided about a datagram.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) meta: OutputMeta,
    /// Prepared headers, if the next hop is known.
    dst: Option<Dst>,
    /// Longest packet that leaves in one piece, in bytes from the IP header on.
    pub(crate) mtu: u32,
    /// What does not fit is an error.
    strict: bool,
    /// Forbid routers to fragment what fits.
    df: bool,
    /// It comes back to this host too.
    looped: bool,
    /// It is for many.
    many: bool,
}

impl Plan {
    /// Bytes of the IP header.
    pub(crate) fn header_len(&self) -> usize {
        if self.meta.dst.is_ipv4() { 20 } else { 40 }
    }

    /// Whether `len` bytes from the transport header on can be sent at all: by IP, and as the socket wants it.
    pub(crate) fn check_len(&self, len: usize, segmented: bool) -> Result<(), Error> {
        // IPv4's length counts its header, IPv6's does not.
        let most = if self.meta.dst.is_ipv4() { 65_535 - 20 } else { 65_535 };
        let fits = segmented || len + self.header_len() <= self.mtu as usize;
        if len > most || (self.strict && !fits) { Err(Error::MessageTooLong) } else { Ok(()) }
    }

    /// Whether it may be used again at `now`. Who hears a group changes without notice.
    pub(crate) fn is_current(&self, shared: &Shared, now: Instant) -> bool {
        let generation = shared.inet_generation.load(Ordering::Acquire);
        let good = |d: &Dst| d.generation == generation && now < d.valid_until;
        !self.many && self.dst.as_ref().is_some_and(good)
    }

    /// Whether it is for this host.
    pub(crate) fn is_local(&self) -> bool {
        self.dst.as_ref().is_some_and(|d| d.local)
    }
}

/// `0.0.0.0` and `::` as destinations mean this host.
fn named(dst: IpAddr) -> IpAddr {
    match dst {
        IpAddr::V4(a) if a.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(a) if a.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

impl Dgram {
    /// Decides everything that does not depend on the payload.
    pub(crate) fn plan(
        &self,
        target: Target,
        options: &DgramOptions,
        (hop_limit, tos): (Option<u8>, Option<u8>),
        now: Instant,
    ) -> Result<Plan, Error> {
        let dst = named(target.dst);
        let mut tx = Vec::new();
        let found = self.shared.with_inet(|inet| {
            let broadcast = inet.is_broadcast(dst);
            let many = broadcast || dst.is_multicast();
            if broadcast && !options.broadcast {
                return Err(Error::AccessDenied);
            }
            let interface = target.interface.or(options.multicast_interface.filter(|_| many));
            let of_interface = || inet.source_on(inet::IfIndex(interface?), dst);
            let asked = target.src.filter(|s| !s.is_unspecified());
            let src = asked.or_else(of_interface);
            let route = inet.route(dst, src)?;
            let looped = many && options.multicast_loop && inet.hears(dst);
            let device_mtu = inet.mtu(route.ifindex).unwrap_or(route.mtu);
            let resolved = inet.resolve(now, dst, Some(route.src), &mut tx)?;
            Ok((resolved, route, many, looped, device_mtu))
        });
        egress::send_all(&self.shared, &mut tx);
        let (resolved, route, many, looped, device_mtu) = found?;
        let (mut mtu, prepared) = match resolved {
            Resolved::Ready(d) => (d.mtu, Some(d)),
            Resolved::Pending => (route.mtu, None),
        };
        let discovery = options.path_mtu_discovery;
        if discovery == PathMtuDiscovery::Probe {
            mtu = device_mtu;
        }
        let default = match dst.is_multicast() {
            true => options.multicast_hop_limit,
            false => options.hop_limit,
        };
        let meta = OutputMeta {
            src: route.src,
            dst,
            proto: target.proto,
            tos: tos.unwrap_or(options.tos),
            hop_limit: hop_limit.unwrap_or(default),
            df: false,
        };
        Ok(Plan {
            meta,
            dst: prepared,
            mtu,
            strict: matches!(discovery, PathMtuDiscovery::Do | PathMtuDiscovery::Probe),
            df: discovery != PathMtuDiscovery::Dont && !many,
            looped,
            many,
        })
    }
}

/// Sends a packet that begins with its transport header, pseudo-header's sum in place. No lock is held. The call
/// has its number by now: what goes wrong from here on is a lost packet, counted by its reason.
pub(crate) fn send_planned(shared: &Shared, plan: &Plan, mut skb: SkBuff, now: Instant) {
    let meta = OutputMeta { df: plan.df, ..plan.meta };
    if plan.looped {
        // As a clone: the copy that a local reader needs is made of it, and the other goes on as it is.
        let copy = shared.with_inet(|inet| inet.local_copy(skb.clone(), meta));
        if let Some(copy) = copy {
            egress::to_ourselves(shared, copy);
        }
    }
    let device = plan.dst.as_ref().and_then(|d| shared.interface(d.ifindex));
    let fits = skb.gso.is_some() || plan.is_local() || skb.len() + plan.header_len() <= plan.mtu as usize;
    // 1. The fast way: a destination that is known, in one piece.
    if let (true, true, Some(dst)) = (fits, meta.df, &plan.dst) {
        if dst.push_headers(&mut skb, meta.proto, meta.tos, meta.hop_limit, 0, true).is_err() {
            return shared.counters.drop_packet(DropReason::NoHeadroom);
        }
        match device {
            Some(device) => {
                egress::to_device(shared, (dst.ifindex, skb));
                device.kick();
            }
            None => egress::to_ourselves(shared, skb),
        }
        return;
    }
    // 2. In pieces: no device sums over several. Lent bytes are summed where they lie, unless the device
    // could not have taken them without a copy anyway.
    if !fits && matches!(skb.csum, Csum::Partial { .. }) {
        let able = device.or_else(|| shared.interfaces.first()).map(|d| d.info().features);
        if !able.is_some_and(|f| f.contains(Features::CSUM)) {
            skb.orphan(Reason::NoChecksum);
        }
        inet::finish_udp_checksum(&mut skb);
    }
    // 3. Through the network layer: identification, fragments, neighbour.
    let meta = OutputMeta { df: meta.df && fits, ..meta };
    let mut tx = Vec::new();
    let verdict = shared.with_inet(|inet| inet.output(now, skb, meta, &mut tx));
    egress::send_all(shared, &mut tx);
    finish(shared, verdict);
}

/// Takes note of what became of a packet.
pub(crate) fn finish(shared: &Shared, verdict: OutputVerdict) {
    match verdict {
        OutputVerdict::Sent | OutputVerdict::Queued => {}
        OutputVerdict::Local(packet) => egress::to_ourselves(shared, packet),
        OutputVerdict::TooBig { .. } => shared.counters.drop_packet(DropReason::TooBig),
        OutputVerdict::Error(NetError::NetworkUnreachable) => {
            shared.counters.drop_packet(DropReason::NoRoute);
        }
        OutputVerdict::Error(_) => shared.counters.drop_packet(DropReason::HostUnreachable),
    }
}
