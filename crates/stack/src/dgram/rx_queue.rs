//! What was received and not yet read.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use skb::SkBuff;

/// Longest datagram that merging makes.
const MAX_MERGED: usize = 65_535;

/// What is known of a received datagram beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its payload in bytes, also where less was copied.
    pub len: usize,
    /// Who sent it. RAW sockets: port 0.
    pub from: SocketAddr,
    /// The address it was sent to (`IP_PKTINFO`).
    pub to: IpAddr,
    /// Where it arrived; 0 is the loopback, devices follow from 1.
    pub interface: u32,
    /// TTL or hop limit it arrived with.
    pub hop_limit: u8,
    /// TOS or traffic class it arrived with.
    pub tos: u8,
    /// It is several datagrams, of so many bytes each but the last (`UDP_GRO`).
    pub segment: Option<u16>,
}

/// A received datagram.
#[derive(Debug)]
pub struct Datagram {
    /// Its payload, in pieces of the packets it came in.
    pub payload: SkBuff,
    /// What is known of it.
    pub info: Received,
    /// The frame's facts, for PACKET sockets.
    pub frame: Option<crate::packet_socket::Frame>,
}

impl Datagram {
    /// What a socket that was shut down for reading gives.
    pub(crate) fn end() -> Self {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let info = Received {
            len: 0,
            from: SocketAddr::new(nobody, 0),
            to: nobody,
            interface: 0,
            hop_limit: 0,
            tos: 0,
            segment: None,
        };
        Self { payload: SkBuff::new(), info, frame: None }
    }

    /// Bytes of payload.
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// Whether it has no payload.
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// Copies `[off, off + out.len())` of the payload; false, copying nothing, if it is shorter.
    pub fn copy_to(&self, off: usize, out: &mut [u8]) -> bool {
        self.payload.copy_bits(off, out)
    }

    fn cost(&self) -> usize {
        self.payload.truesize()
    }

    /// Appends `next` if it continues this one: same ends and fields, and all before it equally long.
    fn merge(&mut self, next: Datagram) -> Result<(), Datagram> {
        let (a, b) = (&self.info, &next.info);
        let size = a.segment.map_or(a.len, usize::from);
        let same = a.from == b.from
            && a.to == b.to
            && a.interface == b.interface
            && (a.hop_limit, a.tos) == (b.hop_limit, b.tos);
        let continues = size > 0
            && a.len % size == 0
            && b.len > 0
            && b.segment.map_or(b.len, usize::from) <= size
            && (b.segment.is_none_or(|s| usize::from(s) == size))
            && a.len + b.len <= MAX_MERGED;
        if !same || !continues {
            return Err(next);
        }
        let Datagram { payload, info, frame } = next;
        match self.payload.append(payload) {
            Ok(()) => {
                self.info.segment = Some(size as u16);
                self.info.len += info.len;
                Ok(())
            }
            Err(payload) => Err(Datagram { payload, info, frame }),
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Datagram>,
    bytes: usize,
}

/// A bounded queue (`SO_RCVBUF`).
#[derive(Debug)]
pub(crate) struct RxQueue {
    inner: Mutex<Inner>,
    len: AtomicUsize,
    limit: AtomicUsize,
    dropped: AtomicU64,
}

impl RxQueue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            inner: Mutex::default(),
            len: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            dropped: AtomicU64::new(0),
        }
    }

    /// Appends a datagram, into the last one if `merge` and it continues that. It comes back if there is no
    /// room; an empty queue takes any.
    pub(crate) fn push(&self, d: Datagram, merge: bool) -> Result<(), Datagram> {
        let mut inner = self.inner.lock();
        let cost = d.cost();
        if inner.bytes + cost > self.limit.load(Ordering::Relaxed) && !inner.queue.is_empty() {
            drop(inner);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return Err(d);
        }
        inner.bytes += cost;
        let d = match inner.queue.back_mut().filter(|_| merge) {
            Some(last) => {
                let before = last.cost();
                match last.merge(d) {
                    Ok(()) => {
                        // What both cost together is a head less.
                        let now = last.cost();
                        inner.bytes = inner.bytes + now - before - cost;
                        return Ok(());
                    }
                    Err(d) => d,
                }
            }
            None => d,
        };
        inner.queue.push_back(d);
        self.len.store(inner.queue.len(), Ordering::Release);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<Datagram> {
        if self.is_empty() {
            return None;
        }
        let mut inner = self.inner.lock();
        let d = inner.queue.pop_front()?;
        inner.bytes -= d.cost();
        self.len.store(inner.queue.len(), Ordering::Release);
        Some(d)
    }

    /// The oldest, for another look; its fragments are counted.
    pub(crate) fn peek(&self) -> Option<Datagram> {
        let inner = self.inner.lock();
        let d = inner.queue.front()?;
        Some(Datagram { payload: d.payload.clone(), info: d.info.clone(), frame: d.frame })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    pub(crate) fn next_len(&self) -> usize {
        self.inner.lock().queue.front().map_or(0, Datagram::len)
    }

    pub(crate) fn clear(&self) {
        let old = std::mem::take(&mut *self.inner.lock());
        self.len.store(0, Ordering::Release);
        drop(old);
    }

    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
