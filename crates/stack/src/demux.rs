//! Which socket a segment belongs to.

use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::RwLock;
use siphasher::sip::SipHasher13;

use crate::error::Error;
use crate::tcp_socket::TcpSocket;

/// A connection's two ends, as seen from here. IPv4-mapped addresses are IPv4 throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// SipHash with the stack's own key: peers choose ports, and must not choose our collisions.
#[derive(Clone, Debug)]
pub(crate) struct Keyed([u8; 16]);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

/// Listening sockets of one port.
type Listeners = Vec<(IpAddr, Arc<TcpSocket>)>;

/// The tables. Readers of both contexts share them; writers are connects, accepts and closes.
pub(crate) struct Demux {
    connections: RwLock<HashMap<Flow, Arc<TcpSocket>, Keyed>>,
    listeners: RwLock<HashMap<u16, Listeners, Keyed>>,
    ephemeral: (u16, u16),
    /// Ephemeral ports given so far: the next one is another, so that the peer's TIME-WAIT is left alone.
    given: AtomicU64,
    seed: Keyed,
}

impl Demux {
    pub(crate) fn new(seed: [u8; 16], ephemeral: (u16, u16)) -> Self {
        let key = Keyed(seed);
        Self {
            connections: RwLock::new(HashMap::with_hasher(key.clone())),
            listeners: RwLock::new(HashMap::with_hasher(key.clone())),
            ephemeral,
            given: AtomicU64::new(0),
            seed: key,
        }
    }

    /// The connection of `flow`.
    pub(crate) fn connection(&self, flow: &Flow) -> Option<Arc<TcpSocket>> {
        self.connections.read().get(flow).cloned()
    }

    /// The socket that listens on `local`: an exact address before the wildcard of its family before the
    /// dual-stack wildcard `[::]`.
    pub(crate) fn listener(&self, local: SocketAddr) -> Option<Arc<TcpSocket>> {
        let table = self.listeners.read();
        let of_port = table.get(&local.port())?;
        let rank = |bound: &IpAddr| match bound {
            b if *b == local.ip() => 3,
            b if b.is_unspecified() && b.is_ipv4() == local.is_ipv4() => 2,
            b if b.is_unspecified() && b.is_ipv6() => 1,
            _ => 0,
        };
        of_port.iter().max_by_key(|(b, _)| rank(b)).filter(|(b, _)| rank(b) > 0).map(|(_, s)| s.clone())
    }

    /// Adds a connection.
    pub(crate) fn insert(&self, flow: Flow, socket: &Arc<TcpSocket>) -> Result<(), Error> {
        match self.connections.write().entry(flow) {
            hashbrown::hash_map::Entry::Occupied(_) => Err(Error::AddressInUse(flow.local)),
            hashbrown::hash_map::Entry::Vacant(v) => {
                v.insert(socket.clone());
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
    pub(crate) fn listen(&self, local: SocketAddr, socket: &Arc<TcpSocket>) -> Result<SocketAddr, Error> {
        let mut table = self.listeners.write();
        let free = |table: &HashMap<u16, Listeners, Keyed>, port: u16| {
            table.get(&port).is_none_or(|l| l.iter().all(|(b, _)| !conflict(*b, local.ip())))
        };
        let port = match local.port() {
            0 => self.ports(0).find(|p| free(&table, *p)).ok_or(Error::AddressNotAvailable)?,
            port if free(&table, port) => port,
            _ => return Err(Error::AddressInUse(local)),
        };
        table.entry(port).or_default().push((local.ip(), socket.clone()));
        Ok(SocketAddr::new(local.ip(), port))
    }

    /// Removes a listener.
    pub(crate) fn unlisten(&self, port: u16, socket: &TcpSocket) {
        let mut table = self.listeners.write();
        if let Some(list) = table.get_mut(&port) {
            list.retain(|(_, s)| !std::ptr::eq(Arc::as_ptr(s), socket));
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
            if !table.contains_key(&flow) && !listeners.contains_key(&port) {
                table.insert(flow, socket.clone());
                return Ok(flow);
            }
        }
        Err(Error::AddressNotAvailable)
    }

    /// All connections and listeners, for shutting down and for listing.
    pub(crate) fn sockets(&self) -> Vec<Arc<TcpSocket>> {
        let mut all: Vec<_> = self.connections.read().values().cloned().collect();
        all.extend(self.listeners.read().values().flatten().map(|(_, s)| s.clone()));
        all
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        // Collected first and dropped after: a socket's end may look here again.
        let connections: Vec<_> = self.connections.write().drain().collect();
        let listeners: Vec<_> = self.listeners.write().drain().collect();
        drop((connections, listeners));
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

/// Whether two bound addresses of one port would compete for segments.
fn conflict(a: IpAddr, b: IpAddr) -> bool {
    let dual = |x: IpAddr| x.is_unspecified() && x.is_ipv6();
    a == b || dual(a) || dual(b) || (a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified()))
}
