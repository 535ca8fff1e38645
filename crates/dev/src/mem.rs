//! A device with nothing behind it: a test or a simulation takes the sent packets and puts in the
//! received ones.
//!
//! Everything is deterministic: packets come out in the order they went in, nothing happens by itself,
//! and the packet that comes out *is* the one the stack sent, lent fragments and all.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netdev::{Device, DeviceInfo, DeviceRx, DeviceTx, Features, LinkKind, Xmit};
use parking_lot::Mutex;
use skb::SkBuff;

use crate::wake::Wake;

/// Facts of a [`MemDevice`].
#[derive(Clone, Debug)]
pub struct MemConfig {
    /// Interface name.
    pub name: String,
    /// Largest network-layer packet, bytes. Default 1500.
    pub mtu: u32,
    /// Framing. Default bare IP.
    pub link: LinkKind,
    /// Offloads. Default: all that exist.
    pub features: Features,
    /// Largest TSO packet, bytes. Default 65535.
    pub gso_max_size: usize,
    /// Packets that fit before `start_xmit` answers `Busy`. Default: no limit.
    pub ring: usize,
    /// Whether there is a descriptor to sleep on. Default no: a simulation polls, and has many devices.
    pub wakeups: bool,
}

impl Default for MemConfig {
    fn default() -> Self {
        Self {
            name: "mem0".to_owned(),
            mtu: 1500,
            link: LinkKind::Ip,
            features: Features::all(),
            gso_max_size: 65535,
            ring: usize::MAX,
            wakeups: false,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    tx: VecDeque<SkBuff>,
    rx: VecDeque<SkBuff>,
    busy: bool,
    /// A sender was told `Busy` and has not been told of room yet.
    blocked: bool,
    room: bool,
    kicks: u64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    ring: usize,
    wake: Option<Wake>,
}

impl Shared {
    fn signal(&self) {
        if let Some(wake) = &self.wake {
            wake.signal();
        }
    }

    fn made_room(&self, state: &mut State) {
        if std::mem::take(&mut state.blocked) {
            state.room = true;
            self.signal();
        }
    }
}

/// A device and the port behind it.
///
/// Panics if `wakeups` are asked for and the process has no descriptor left.
pub fn pair(config: MemConfig) -> (MemDevice, MemPort) {
    let wake = config.wakeups.then(|| Wake::new().expect("a descriptor for the wake-ups of a MemDevice"));
    let shared = Arc::new(Shared { state: Mutex::default(), ring: config.ring, wake });
    (MemDevice { config, shared: shared.clone() }, MemPort { shared })
}

/// The stack's end.
#[derive(Debug)]
pub struct MemDevice {
    config: MemConfig,
    shared: Arc<Shared>,
}

impl Device for MemDevice {
    fn info(&self) -> DeviceInfo {
        let c = &self.config;
        DeviceInfo {
            name: c.name.clone(),
            mtu: c.mtu,
            link: c.link,
            features: c.features,
            gso_max_size: c.gso_max_size,
        }
    }

    fn open(self: Box<Self>) -> (Box<dyn DeviceTx>, Box<dyn DeviceRx>) {
        (Box::new(MemTx(self.shared.clone())), Box::new(MemRx(self.shared)))
    }
}

/// The test's end. Clones share the device.
#[derive(Clone, Debug)]
pub struct MemPort {
    shared: Arc<Shared>,
}

impl MemPort {
    /// The oldest packet sent and not yet taken. Dropping it is its transmit completion.
    pub fn pop_tx(&self) -> Option<SkBuff> {
        let mut state = self.shared.state.lock();
        let skb = state.tx.pop_front();
        if skb.is_some() && !state.busy {
            self.shared.made_room(&mut state);
        }
        skb
    }

    /// Lets a packet arrive.
    pub fn push_rx(&self, skb: SkBuff) {
        self.shared.state.lock().rx.push_back(skb);
        self.shared.signal();
    }

    /// While `true`, every `start_xmit` answers `Busy`.
    pub fn set_busy(&self, busy: bool) {
        let mut state = self.shared.state.lock();
        state.busy = busy;
        if !busy {
            self.shared.made_room(&mut state);
        }
    }

    /// Packets sent and not yet taken.
    pub fn tx_len(&self) -> usize {
        self.shared.state.lock().tx.len()
    }

    /// Packets put in and not yet polled.
    pub fn rx_len(&self) -> usize {
        self.shared.state.lock().rx.len()
    }

    /// How many bursts ended (`kick`).
    pub fn kicks(&self) -> u64 {
        self.shared.state.lock().kicks
    }
}

struct MemTx(Arc<Shared>);

impl DeviceTx for MemTx {
    fn start_xmit(&mut self, skb: SkBuff) -> Xmit {
        let mut state = self.0.state.lock();
        if state.busy || state.tx.len() >= self.0.ring {
            state.blocked = true;
            return Xmit::Busy(skb);
        }
        state.tx.push_back(skb);
        Xmit::Sent
    }

    fn kick(&mut self) {
        self.0.state.lock().kicks += 1;
    }
}

struct MemRx(Arc<Shared>);

impl DeviceRx for MemRx {
    fn poll_rx(&mut self, budget: usize, out: &mut Vec<SkBuff>) -> usize {
        let mut state = self.0.state.lock();
        let n = budget.min(state.rx.len());
        out.extend(state.rx.drain(..n));
        n
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.wake.as_ref().map(Wake::fd)
    }

    fn arm(&mut self) -> bool {
        if let Some(wake) = &self.0.wake {
            wake.prepare();
        }
        let mut state = self.0.state.lock();
        let idle = state.rx.is_empty() && !std::mem::take(&mut state.room);
        if let (false, Some(wake)) = (idle, &self.0.wake) {
            wake.cancel();
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_that_comes_out_is_the_one_that_was_sent() {
        let (dev, port) = pair(MemConfig::default());
        let (mut tx, mut rx) = Box::new(dev).open();
        assert!(matches!(tx.start_xmit(SkBuff::from_slice(b"one")), Xmit::Sent));
        assert!(matches!(tx.start_xmit(SkBuff::from_slice(b"two")), Xmit::Sent));
        tx.kick();
        assert_eq!((port.tx_len(), port.kicks()), (2, 1));
        assert_eq!(port.pop_tx().unwrap().to_vec(), b"one");
        port.push_rx(SkBuff::from_slice(b"in"));
        assert!(!rx.arm());
        let mut got = Vec::new();
        assert_eq!(rx.poll_rx(8, &mut got), 1);
        assert_eq!(got[0].to_vec(), b"in");
        assert!(rx.arm());
    }

    #[test]
    fn a_full_ring_gives_the_packet_back_and_room_counts_as_work() {
        let (dev, port) = pair(MemConfig { ring: 1, wakeups: true, ..MemConfig::default() });
        let (mut tx, mut rx) = Box::new(dev).open();
        assert!(matches!(tx.start_xmit(SkBuff::from_slice(b"a")), Xmit::Sent));
        let Xmit::Busy(back) = tx.start_xmit(SkBuff::from_slice(b"b")) else { panic!("room for two") };
        assert_eq!(back.to_vec(), b"b");
        assert!(rx.arm(), "no room yet");
        drop(port.pop_tx());
        assert!(!rx.arm(), "there is room now");
        assert!(rx.arm(), "which is said once");
        port.set_busy(true);
        assert!(matches!(tx.start_xmit(back), Xmit::Busy(_)));
        port.set_busy(false);
        assert!(!rx.arm());
    }
}
