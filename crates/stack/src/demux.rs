//! Which socket a segment belongs to.

use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::RwLock;
use siphasher::sip::SipHasher13;

use crate::error::Error;
use crate::ports::{Ports, Reuse, conflict};
use crate::tcp_socket::TcpSocket;

/// A connection's two ends, as seen from here. IPv4-mapped addresses are IPv4 throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// SipHash with the stack's own key: peers choose ports, and must not choose our collisions.
#[derive(Clone, Debug)]
pub(crate) struct Keyed(pub(crate) [u8; 16]);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

/// Listening sockets of one port.
type Listeners = Vec<Listener>;

struct Listener {
    ip: IpAddr,
    says: Reuse,
    socket: Arc<TcpSocket>,
}

/// The tables. Readers of both contexts share them; writers are connects, accepts and closes.
pub(crate) struct Demux {
    connections: RwLock<HashMap<Flow, Arc<TcpSocket>, Keyed>>,
    listeners: RwLock<HashMap<u16, Listeners, Keyed>>,
    /// Ports that sockets have asked for.
    ports: Ports,
    ephemeral: (u16, u16),
    /// Ephemeral ports given so far: the next one is another, so that the peer's TIME-WAIT is left alone.
    given: AtomicU64,
    /// Connections ever added.
    made: AtomicU64,
    seed: Keyed,
}

impl Demux {
    pub(crate) fn new(seed: [u8; 16], ephemeral: (u16, u16)) -> Self {
        let key = Keyed(seed);
        Self {
            connections: RwLock::new(HashMap::with_hasher(key.clone())),
            listeners: RwLock::new(HashMap::with_hasher(key.clone())),
            ports: Ports::default(),
            ephemeral,
            given: AtomicU64::new(0),
            made: AtomicU64::new(0),
            seed: key,
        }
    }

    /// The connection of `flow`.
    pub(crate) fn connection(&self, flow: &Flow) -> Option<Arc<TcpSocket>> {
        self.connections.read().get(flow).cloned()
    }

    /// The socket that listens where `flow` goes: an exact address before the wildcard of its family before
    /// the dual-stack wildcard `[::]`. Of several that share the port, always the same one for a flow.
    pub(crate) fn listener(&self, flow: &Flow) -> Option<Arc<TcpSocket>> {
        let local = flow.local;
        let table = self.listeners.read();
        let of_port = table.get(&local.port())?;
        let rank = |bound: &Listener| match bound.ip {
            ip if ip == local.ip() => 3,
            ip if ip.is_unspecified() && ip.is_ipv4() == local.is_ipv4() => 2,
            ip if ip.is_unspecified() && ip.is_ipv6() && !bound.says.v6only => 1,
            _ => 0,
        };
        let best = of_port.iter().map(rank).max().filter(|best| *best > 0)?;
        let equals = || of_port.iter().filter(|l| rank(l) == best);
        let nth = match equals().count() {
            1 => 0,
            n => self.seed.hash_one(flow) as usize % n,
        };
        equals().nth(nth).map(|l| l.socket.clone())
    }

    /// Gives a local address to a socket that asks for it; a port of 0 is replaced by a free one.
    pub(crate) fn bind(
        &self,
        local: SocketAddr,
        socket: &TcpSocket,
        reuse: Reuse,
    ) -> Result<SocketAddr, Error> {
        let listeners = self.listeners.read();
        let begin = self.seed.hash_one(local).wrapping_add(self.given.fetch_add(1, Ordering::Relaxed));
        let candidates = self.ports(begin).filter(|p| !listeners.contains_key(p));
        self.ports.bind(local, owner(socket), reuse, candidates)
    }

    /// Takes back what [`bind`](Self::bind) gave.
    pub(crate) fn unbind(&self, port: u16, socket: &TcpSocket) {
        self.ports.release(port, owner(socket));
    }

    /// Adds a connection.
    pub(crate) fn insert(&self, flow: Flow, socket: &Arc<TcpSocket>) -> Result<(), Error> {
        match self.connections.write().entry(flow) {
            hashbrown::hash_map::Entry::Occupied(_) => Err(Error::AddressInUse(flow.local)),
            hashbrown::hash_map::Entry::Vacant(v) => {
                v.insert(socket.clone());
                self.made.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Removes the connection of `flow` if it is `socket`'s.
    pub(crate) fn remove(&self, flow: &Flow, socket: &TcpSocket) -> Option<Arc<TcpSocket>> {
        let mut table = self.connections.write();
        let ours = table.get(flow).is_some_and(|s| std::ptr::eq(Arc::as_ptr(s), socket));
        if ours { table.remove(flow) } else { None }
    }

    /// Adds a listener; a port of 0 picks a free one. Returns the address with its port.
    pub(crate) fn listen(
        &self,
        local: SocketAddr,
        socket: &Arc<TcpSocket>,
        reuse: Reuse,
    ) -> Result<SocketAddr, Error> {
        self.ports.listens(local.port(), owner(socket)).map_err(|()| Error::AddressInUse(local))?;
        let mut table = self.listeners.write();
        let free = |table: &HashMap<u16, Listeners, Keyed>, port: u16| {
            let allows = |l: &Listener| reuse.port || !conflict((l.ip, l.says), (local.ip(), reuse));
            table.get(&port).is_none_or(|list| list.iter().all(allows))
        };
        let port = match local.port() {
            0 => self
                .ports(0)
                .find(|p| free(&table, *p) && !self.ports.is_taken(*p))
                .ok_or(Error::AddressNotAvailable)?,
            port if free(&table, port) => port,
            _ => return Err(Error::AddressInUse(local)),
        };
        table.entry(port).or_default().push(Listener { ip: local.ip(), says: reuse, socket: socket.clone() });
        Ok(SocketAddr::new(local.ip(), port))
    }

    /// Removes a listener.
    pub(crate) fn unlisten(&self, port: u16, socket: &TcpSocket) {
        let mut table = self.listeners.write();
        if let Some(list) = table.get_mut(&port) {
            list.retain(|l| !std::ptr::eq(Arc::as_ptr(&l.socket), socket));
            if list.is_empty() {
                table.remove(&port);
            }
        }
    }

    /// Picks a local port for a connection and adds it, in one step (RFC 6056, algorithm 3: the walk
    /// begins at a keyed hash of the destination).
    pub(crate) fn insert_ephemeral(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        socket: &Arc<TcpSocket>,
    ) -> Result<Flow, Error> {
        let mut table = self.connections.write();
        let listeners = self.listeners.read();
        let begin =
            self.seed.hash_one((local, remote)).wrapping_add(self.given.fetch_add(1, Ordering::Relaxed));
        for port in self.ports(begin) {
            let flow = Flow { local: SocketAddr::new(local, port), remote };
            if !table.contains_key(&flow) && !listeners.contains_key(&port) && !self.ports.is_taken(port) {
                table.insert(flow, socket.clone());
                self.made.fetch_add(1, Ordering::Relaxed);
                return Ok(flow);
            }
        }
        Err(Error::AddressNotAvailable)
    }

    /// All connections and listeners, for shutting down and for listing.
    pub(crate) fn sockets(&self) -> Vec<Arc<TcpSocket>> {
        let mut all: Vec<_> = self.connections.read().values().cloned().collect();
        all.extend(self.listeners.read().values().flatten().map(|l| l.socket.clone()));
        all
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        // Collected first and dropped after: a socket's end may look here again.
        let connections: Vec<_> = self.connections.write().drain().collect();
        let listeners: Vec<_> = self.listeners.write().drain().collect();
        drop((connections, listeners));
    }

    /// Connections ever added.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Connections in the table, those in TIME-WAIT included.
    pub(crate) fn connections(&self) -> usize {
        self.connections.read().len()
    }

    fn ports(&self, begin: u64) -> impl Iterator<Item = u16> + use<> {
        let (first, last) = self.ephemeral;
        let count = u64::from(last.saturating_sub(first)) + 1;
        (0..count).map(move |n| first + (begin.wrapping_add(n) % count) as u16)
    }
}

/// A socket's name in the bind table.
fn owner(socket: &TcpSocket) -> usize {
    std::ptr::from_ref(socket) as usize
}
