//! Initial sequence numbers that others cannot guess (RFC 6528), and timestamp offsets.

use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

use siphasher::sip::SipHasher24;
use time::Instant;
use wire::SeqNum;

/// Makes initial sequence numbers: a clock of 4 µs plus a keyed hash of the connection.
#[derive(Clone, Debug)]
pub struct IsnGenerator {
    key: [u8; 16],
}

impl IsnGenerator {
    /// With a secret key.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    //= rfc6528#section-3
    //# ISN = M + F(localip, localport, remoteip, remoteport, secretkey)
    /// The initial sequence number of a connection begun now.
    pub fn iss(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> SeqNum {
        let clock = (now.as_nanos() / 4000) as u32;
        SeqNum(self.hash(b'i', local, remote)) + clock
    }

    /// What is added to the clock in timestamps, so that they do not tell the host's uptime.
    pub fn ts_offset(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        // By hosts, not ports: a new connection between the same hosts continues the old one's clock.
        let (local, remote) = (SocketAddr::new(local.ip(), 0), SocketAddr::new(remote.ip(), 0));
        self.hash(b't', local, remote)
    }

    fn hash(&self, purpose: u8, local: SocketAddr, remote: SocketAddr) -> u32 {
        let mut h = SipHasher24::new_with_key(&self.key);
        (purpose, local, remote).hash(&mut h);
        h.finish() as u32
    }
}
