//! The devices between the script and the stack: what the stack sends is queued with its time, what the
//! script sends is handed up.
//!
//! There are two, because the public scripts expect another MTU for IPv6. Both behave as a TUN device does:
//! bare IP packets, and packets that are taken from the stack are orphaned, so that lent bytes count as copied.
//! With `orphan=0` they are read where they lie instead.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use stack::netdev::{Device, DeviceInfo, DeviceRx, DeviceTx, Features, LinkKind, Xmit};
use stack::skb::{Reason, SkBuff};
use stack::time::{Clock, Instant};

/// Positions of the devices in the stack.
pub(crate) const IPV4: usize = 0;
pub(crate) const IPV6: usize = 1;

/// A packet of the stack's, and when it was sent.
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) bytes: Vec<u8>,
}

/// Both directions of both devices.
pub(crate) struct Wire {
    clock: Arc<dyn Clock>,
    orphan: bool,
    sent: Mutex<VecDeque<Sent>>,
    injected: [Mutex<VecDeque<SkBuff>>; 2],
}

impl Wire {
    pub(crate) fn new(clock: Arc<dyn Clock>, orphan: bool) -> Arc<Self> {
        Arc::new(Self { clock, orphan, sent: Mutex::default(), injected: Default::default() })
    }

    /// The oldest packet that the stack has sent.
    pub(crate) fn take(&self) -> Option<Sent> {
        self.sent.lock().pop_front()
    }

    /// A packet for the stack; false if it is neither IPv4 nor IPv6.
    pub(crate) fn inject(&self, packet: &[u8]) -> bool {
        let device = match packet.first().map(|b| b >> 4) {
            Some(4) => IPV4,
            Some(6) => IPV6,
            _ => return false,
        };
        self.injected[device].lock().push_back(SkBuff::from_slice(packet));
        true
    }
}

/// One device.
pub(crate) struct Tun {
    pub(crate) wire: Arc<Wire>,
    /// [`IPV4`] or [`IPV6`].
    pub(crate) index: usize,
    pub(crate) mtu: u32,
    /// Packets of several segments are handed over whole.
    pub(crate) gso: bool,
}

impl Device for Tun {
    fn info(&self) -> DeviceInfo {
        let mut features = Features::SG | Features::CSUM;
        if self.gso {
            features |= Features::TSO4 | Features::TSO6;
        }
        DeviceInfo {
            name: if self.index == IPV4 { "tun0" } else { "tun1" }.into(),
            mtu: self.mtu,
            link: LinkKind::Ip,
            features,
            gso_max_size: 65_535,
        }
    }

    fn open(self: Box<Self>) -> (Box<dyn DeviceTx>, Box<dyn DeviceRx>) {
        (Box::new(Tx(self.wire.clone())), Box::new(Rx { wire: self.wire, index: self.index }))
    }
}

struct Tx(Arc<Wire>);

impl DeviceTx for Tx {
    fn start_xmit(&mut self, mut skb: SkBuff) -> Xmit {
        if self.0.orphan {
            // Linux's TUN does so because its reader may never come. Nobody measures here why; "tap" is who
            // looks at the packet.
            skb.orphan(Reason::Tap);
        }
        // The checksum stays as it is: packetdrill does not look at it.
        let packet = Sent { at: self.0.clock.now(), bytes: skb.to_vec() };
        self.0.sent.lock().push_back(packet);
        Xmit::Sent
    }
}

struct Rx {
    wire: Arc<Wire>,
    index: usize,
}

impl DeviceRx for Rx {
    fn poll_rx(&mut self, budget: usize, out: &mut Vec<SkBuff>) -> usize {
        let mut packets = self.wire.injected[self.index].lock();
        let n = packets.len().min(budget);
        out.extend(packets.drain(..n));
        n
    }
}
