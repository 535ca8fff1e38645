//! Two stacks with both address families, for datagrams; the wire between them is the test.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses a part of it")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use stack::skb::SkBuff;
use stack::{Family, UdpSocket};
use uncopied::mem::{MemConfig, MemPort};
use uncopied::{Clock, Completion, Config, Features, Instant, ManualClock, Stack, mem};

use super::arriving;

pub const A: [&str; 2] = ["10.0.0.1", "fd00::1"];
pub const B: [&str; 2] = ["10.0.0.2", "fd00::2"];
pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

pub fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

/// `a`'s and `b`'s address of a family, with a port.
pub fn at(ends: [&str; 2], family: Family, port: u16) -> SocketAddr {
    SocketAddr::new(ip(ends[usize::from(family == Family::V6)]), port)
}

pub struct Duo {
    pub clock: Arc<ManualClock>,
    pub a: Stack,
    pub b: Stack,
    pub at_a: MemPort,
    pub at_b: MemPort,
}

fn stack(
    own: [&str; 2],
    mtu: u32,
    features: Features,
    clock: &Arc<ManualClock>,
    change: impl FnOnce(&mut Config),
) -> (Stack, MemPort) {
    let (device, port) = mem::pair(MemConfig { features, mtu, ..MemConfig::default() });
    let addresses = [(ip(own[0]), 24), (ip(own[1]), 64)];
    let clock: Arc<dyn Clock> = clock.clone();
    let builder = Stack::builder().device(device, &addresses).clock(clock).configure(|c| {
        c.seed = [7; 16];
        c.memlock = u64::MAX;
    });
    (builder.configure(change).build().unwrap(), port)
}

impl Duo {
    pub fn new() -> Self {
        Self::with(1500, Features::all(), |_| {})
    }

    /// `a`'s device has `features`; both have `mtu`.
    pub fn with(mtu: u32, features: Features, change: impl FnOnce(&mut Config)) -> Self {
        let clock = Arc::new(ManualClock::new(Instant::from_secs(1000)));
        let (a, at_a) = stack(A, mtu, features, &clock, change);
        let (b, at_b) = stack(B, mtu, Features::all(), &clock, |_| {});
        Self { clock, a, b, at_a, at_b }
    }

    /// Moves packets until nothing moves.
    pub fn pump(&self) {
        loop {
            self.a.poll_all(self.clock.now());
            self.b.poll_all(self.clock.now());
            let mut moved = 0;
            while let Some(skb) = self.at_a.pop_tx() {
                self.at_b.push_rx(arriving(&skb));
                moved += 1;
            }
            while let Some(skb) = self.at_b.pop_tx() {
                self.at_a.push_rx(arriving(&skb));
                moved += 1;
            }
            if moved == 0 {
                return;
            }
        }
    }

    pub fn run(&self, time: Duration) {
        for _ in 0..time.as_millis().div_ceil(20) {
            self.clock.advance(Duration::from_millis(20));
            self.pump();
        }
    }

    /// What `a` has sent and nobody has taken.
    pub fn sent(&self) -> Vec<SkBuff> {
        self.a.poll_all(self.clock.now());
        std::iter::from_fn(|| self.at_a.pop_tx()).collect()
    }

    /// A socket of `a`, lending, connected to one of `b` on port 9.
    pub fn connected(&self, family: Family) -> (Arc<UdpSocket>, Arc<UdpSocket>) {
        let (tx, rx) = (self.a.udp_socket(family), self.b.udp_socket(family));
        rx.bind(at(B, family, 9)).unwrap();
        tx.set_zerocopy(true);
        tx.connect(at(B, family, 9)).unwrap();
        (tx, rx)
    }
}

/// The payload of the oldest datagram.
pub fn next(rx: &UdpSocket) -> Option<Vec<u8>> {
    rx.recv_datagram(false).ok().map(|d| d.payload.to_vec())
}

/// All that waits.
pub fn all(rx: &UdpSocket) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| next(rx)).collect()
}

pub fn completions(tx: &UdpSocket) -> Vec<Completion> {
    std::iter::from_fn(|| tx.pop_completion()).collect()
}

pub fn ids(tx: &UdpSocket) -> Vec<u32> {
    completions(tx).iter().flat_map(|c| c.ids()).collect()
}
