//! Which datagram sockets a packet belongs to.

use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::demux::Keyed;
use crate::error::Error;
use crate::ports::{Ports, Reuse};
use crate::raw_socket::RawSocket;
use crate::udp_socket::UdpSocket;

/// A UDP socket as the packet side sees it.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) socket: Arc<UdpSocket>,
    /// The address it is bound to; unspecified for all of its family, or of both.
    pub(crate) local: IpAddr,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) device: Option<u32>,
    pub(crate) reuse: Reuse,
}

impl Entry {
    /// How well it fits a packet from `from` to `to` that came in by `interface`; 0: not at all. A wildcard
    /// of the packet's family before a dual-stack one, a bound address before both, a peer or a device of
    /// one's own before all (Linux's `compute_score`).
    fn score(&self, from: SocketAddr, to: IpAddr, interface: u32) -> u32 {
        let local = match self.local {
            ip if ip == to => 3,
            ip if ip.is_unspecified() && ip.is_ipv4() == to.is_ipv4() => 2,
            ip if ip.is_unspecified() && ip.is_ipv6() && !self.reuse.v6only => 1,
            _ => return 0,
        };
        let exact = |asked: bool, fits: bool| if asked { fits.then_some(4) } else { Some(0) };
        let remote = exact(self.remote.is_some(), self.remote == Some(from));
        let device = exact(self.device.is_some(), self.device == Some(interface));
        match (remote, device) {
            (Some(r), Some(d)) => local + r + d,
            _ => 0,
        }
    }
}

/// The tables.
pub(crate) struct Datagrams {
    udp: RwLock<HashMap<u16, Vec<Entry>, Keyed>>,
    pub(crate) ports: Ports,
    /// RAW sockets, by protocol.
    raw: RwLock<Vec<Arc<RawSocket>>>,
    ephemeral: (u16, u16),
    given: AtomicU64,
    seed: Keyed,
}

impl Datagrams {
    pub(crate) fn new(seed: [u8; 16], ephemeral: (u16, u16)) -> Self {
        let seed = Keyed(seed);
        Self {
            udp: RwLock::new(HashMap::with_hasher(seed.clone())),
            ports: Ports::default(),
            raw: RwLock::default(),
            ephemeral,
            given: AtomicU64::new(0),
            seed,
        }
    }

    /// Gives a port to a socket and adds it.
    pub(crate) fn bind(&self, local: SocketAddr, mut entry: Entry) -> Result<SocketAddr, Error> {
        let n = self.given.fetch_add(1, Ordering::Relaxed);
        let (first, last) = self.ephemeral;
        let count = u64::from(last.saturating_sub(first)) + 1;
        let begin = self.seed.hash_one((local, n));
        let candidates = (0..count).map(|n| first + (begin.wrapping_add(n) % count) as u16);
        let owner = Arc::as_ptr(&entry.socket) as usize;
        let bound = self.ports.bind(local, owner, entry.reuse, candidates)?;
        entry.local = bound.ip();
        self.udp.write().entry(bound.port()).or_default().push(entry);
        Ok(bound)
    }

    /// Changes a socket's entry.
    pub(crate) fn change(&self, port: u16, socket: &UdpSocket, change: impl FnOnce(&mut Entry)) {
        let mut table = self.udp.write();
        let entries = table.get_mut(&port);
        if let Some(e) =
            entries.and_then(|l| l.iter_mut().find(|e| std::ptr::eq(&raw const *e.socket, socket)))
        {
            change(e);
        }
    }

    /// Takes a socket out and its port back.
    pub(crate) fn remove(&self, port: u16, socket: &UdpSocket) {
        self.ports.release(port, std::ptr::from_ref(socket) as usize);
        let mut removed = Vec::new();
        let mut table = self.udp.write();
        if let Some(list) = table.get_mut(&port) {
            removed.extend(list.extract_if(.., |e| std::ptr::eq(&raw const *e.socket, socket)));
            if list.is_empty() {
                table.remove(&port);
            }
        }
        drop(table);
        drop(removed);
    }

    /// The one socket for a packet to one host: the best that fits. Of equals, those that share the port by
    /// `SO_REUSEPORT` get each flow by its hash; else the one that was bound last.
    pub(crate) fn udp_one(&self, from: SocketAddr, to: SocketAddr, interface: u32) -> Option<Arc<UdpSocket>> {
        let table = self.udp.read();
        let of_port = table.get(&to.port())?;
        let score = |e: &Entry| e.score(from, to.ip(), interface);
        let best = of_port.iter().map(score).max().filter(|best| *best > 0)?;
        let equals = || of_port.iter().filter(|e| score(e) == best);
        let sharing = equals().filter(|e| e.reuse.port).count();
        let found = match sharing {
            0 | 1 => equals().next_back(),
            n => equals().filter(|e| e.reuse.port).nth(self.seed.hash_one((from, to)) as usize % n),
        };
        found.map(|e| e.socket.clone())
    }

    /// All sockets for a packet to many.
    pub(crate) fn udp_all(&self, from: SocketAddr, to: SocketAddr, interface: u32) -> Vec<Arc<UdpSocket>> {
        let table = self.udp.read();
        let of_port = table.get(&to.port()).map_or(&[][..], Vec::as_slice);
        let fits = |e: &&Entry| e.score(from, to.ip(), interface) > 0;
        of_port.iter().filter(fits).map(|e| e.socket.clone()).collect()
    }

    pub(crate) fn add_raw(&self, socket: &Arc<RawSocket>) {
        self.raw.write().push(socket.clone());
    }

    pub(crate) fn remove_raw(&self, socket: &RawSocket) {
        let mut removed = Vec::new();
        let mut table = self.raw.write();
        removed.extend(table.extract_if(.., |s| std::ptr::eq(Arc::as_ptr(s), socket)));
        drop(table);
        drop(removed);
    }

    /// RAW and ping sockets that `fits` says yes to.
    pub(crate) fn raw(&self, fits: impl Fn(&RawSocket) -> bool) -> Vec<Arc<RawSocket>> {
        self.raw.read().iter().filter(|s| fits(s)).cloned().collect()
    }

    /// UDP sockets that are connected to `remote`.
    pub(crate) fn udp_connected_to(&self, remote: IpAddr) -> Vec<Arc<UdpSocket>> {
        let table = self.udp.read();
        let theirs = table.values().flatten().filter(|e| e.remote.is_some_and(|r| r.ip() == remote));
        theirs.map(|e| e.socket.clone()).collect()
    }

    /// Forgets everything: sockets and tables refer to each other.
    pub(crate) fn clear(&self) {
        let udp: Vec<_> = self.udp.write().drain().collect();
        let raw = std::mem::take(&mut *self.raw.write());
        drop((udp, raw));
    }
}
