//! Which local ports are taken by sockets that asked for them: the bind table.
//!
//! As Linux: two sockets may have the same port if their addresses differ, if both said `SO_REUSEPORT`, or
//! if both said `SO_REUSEADDR` and neither listens.

use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::error::Error;

/// What a socket has said about sharing its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// `SO_REUSEADDR`.
    pub addr: bool,
    /// `SO_REUSEPORT`.
    pub port: bool,
    /// `IPV6_V6ONLY`: the wildcard `[::]` does not stand for IPv4 too.
    pub v6only: bool,
}

#[derive(Debug)]
struct Bound {
    ip: IpAddr,
    /// The socket, by its address: it takes its entry along when it goes.
    owner: usize,
    reuse: Reuse,
    listening: bool,
}

/// Ports taken by `bind`.
#[derive(Debug, Default)]
pub(crate) struct Ports(Mutex<HashMap<u16, Vec<Bound>>>);

impl Ports {
    /// Gives `local` to `owner`; a port of 0 takes the first of `candidates` that nobody has.
    pub(crate) fn bind(
        &self,
        local: SocketAddr,
        owner: usize,
        reuse: Reuse,
        mut candidates: impl Iterator<Item = u16>,
    ) -> Result<SocketAddr, Error> {
        let mut table = self.0.lock();
        let shared = |b: &Bound| {
            !conflict((b.ip, b.reuse), (local.ip(), reuse))
                || (b.reuse.port && reuse.port)
                || (b.reuse.addr && reuse.addr && !b.listening)
        };
        let port = match local.port() {
            0 => candidates.find(|p| !table.contains_key(p)).ok_or(Error::AddressInUse(local))?,
            port if table.get(&port).is_none_or(|list| list.iter().all(shared)) => port,
            _ => return Err(Error::AddressInUse(local)),
        };
        table.entry(port).or_default().push(Bound { ip: local.ip(), owner, reuse, listening: false });
        Ok(SocketAddr::new(local.ip(), port))
    }

    /// `owner` begins to listen: from now on it shares its port only by `SO_REUSEPORT`.
    pub(crate) fn listens(&self, port: u16, owner: usize) -> Result<(), ()> {
        let mut table = self.0.lock();
        let Some(list) = table.get_mut(&port) else { return Ok(()) };
        let Some(me) = list.iter().position(|b| b.owner == owner) else { return Ok(()) };
        let mine = (list[me].ip, list[me].reuse);
        let taken = list.iter().any(|b| {
            b.owner != owner
                && b.listening
                && conflict((b.ip, b.reuse), mine)
                && !(b.reuse.port && mine.1.port)
        });
        if taken {
            return Err(());
        }
        list[me].listening = true;
        Ok(())
    }

    /// Takes back what `owner` was given.
    pub(crate) fn release(&self, port: u16, owner: usize) {
        let mut table = self.0.lock();
        if let Some(list) = table.get_mut(&port) {
            list.retain(|b| b.owner != owner);
            if list.is_empty() {
                table.remove(&port);
            }
        }
    }

    /// Whether anybody asked for `port`.
    pub(crate) fn is_taken(&self, port: u16) -> bool {
        self.0.lock().contains_key(&port)
    }
}

/// Whether two bound addresses of one port would compete for packets.
pub(crate) fn conflict((a, a_says): (IpAddr, Reuse), (b, b_says): (IpAddr, Reuse)) -> bool {
    let dual = |x: IpAddr, says: Reuse| x.is_unspecified() && x.is_ipv6() && !says.v6only;
    a == b
        || dual(a, a_says)
        || dual(b, b_says)
        || (a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDR: Reuse = Reuse { addr: true, port: false, v6only: false };
    const PORT: Reuse = Reuse { addr: false, port: true, v6only: false };

    fn at(s: &str) -> SocketAddr {
        s.parse().unwrap()
    }

    #[test]
    fn a_port_has_one_owner_unless_both_agree() {
        let ports = Ports::default();
        let none = std::iter::empty::<u16>;
        assert!(ports.bind(at("10.0.0.1:80"), 1, Reuse::default(), none()).is_ok());
        assert!(ports.bind(at("10.0.0.1:80"), 2, ADDR, none()).is_err(), "the first did not agree");
        assert!(ports.bind(at("10.0.0.2:80"), 3, Reuse::default(), none()).is_ok(), "another address");
        assert!(ports.bind(at("0.0.0.0:80"), 4, Reuse::default(), none()).is_err(), "the wildcard has both");
        assert!(ports.bind(at("[fe80::1]:80"), 5, Reuse::default(), none()).is_ok(), "another family");
        ports.release(80, 1);
        assert!(ports.bind(at("10.0.0.1:80"), 2, ADDR, none()).is_ok());
        assert!(ports.bind(at("10.0.0.1:80"), 6, ADDR, none()).is_ok(), "both agree and neither listens");
        assert!(ports.listens(80, 2).is_ok());
        assert!(ports.listens(80, 6).is_err(), "one listens already");
        assert!(ports.bind(at("10.0.0.1:80"), 7, ADDR, none()).is_err());
    }

    #[test]
    fn a_v6only_wildcard_leaves_ipv4_alone() {
        let ports = Ports::default();
        let none = std::iter::empty::<u16>;
        let v6only = Reuse { v6only: true, ..Reuse::default() };
        assert!(ports.bind(at("0.0.0.0:80"), 1, Reuse::default(), none()).is_ok());
        assert!(ports.bind(at("[::]:80"), 2, Reuse::default(), none()).is_err(), "a dual-stack wildcard");
        assert!(ports.bind(at("[::]:80"), 2, v6only, none()).is_ok());
    }

    #[test]
    fn listeners_share_a_port_they_all_offered() {
        let ports = Ports::default();
        for owner in 1..4 {
            ports.bind(at("0.0.0.0:80"), owner, PORT, std::iter::empty()).unwrap();
            ports.listens(80, owner).unwrap();
        }
    }

    #[test]
    fn port_0_is_a_port_that_nobody_has() {
        let ports = Ports::default();
        let first = ports.bind(at("0.0.0.0:0"), 1, ADDR, 5000..5002).unwrap();
        let second = ports.bind(at("0.0.0.0:0"), 2, ADDR, 5000..5002).unwrap();
        assert_eq!((first.port(), second.port()), (5000, 5001));
        assert!(ports.bind(at("0.0.0.0:0"), 3, ADDR, 5000..5002).is_err());
        assert!(ports.is_taken(5000));
        ports.release(5000, 1);
        assert!(!ports.is_taken(5000));
    }
}
