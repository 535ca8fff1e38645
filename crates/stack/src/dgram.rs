//! What sockets of datagrams (UDP, RAW, PACKET) have in common.
//!
//! A datagram socket has no connection to keep in order, so it needs no backlog: the packet side appends to a
//! bounded receive queue under a lock that is held for moving pointers only. Sends gather their pieces under
//! the socket's state lock and transmit after it is released, so that whatever a packet completes on its way
//! (a copy for a tap, a full queue) completes under no lock of ours.
//!
//! *Write space.* Each packet carries a [`Charge`](skb::Charge), and so do all packets cut out of it; when the
//! device lets go of the last one the bytes are the sender's again, and whoever waits to send is woken.

mod errors;
mod input;
mod message;
mod output;
mod rx_queue;
mod table;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use parking_lot::Mutex;
use skb::{Charge, Completion, ErrorQueue, ExtendedError, Queued};

use crate::error::Error;
use crate::readiness::{Readiness, Ready};
use crate::shared::Shared;
use crate::stats::Counters;
use crate::tcp_calls::Shutdown;
use crate::tcp_socket::Completed;

pub(crate) use errors::{Judged, judge, local as local_error};
pub(crate) use input::{icmp_error, neighbour_failed, raw_input, udp_input};
pub use message::{Control, Message, Piece, Sent};
pub(crate) use message::{pack, total};
pub(crate) use output::{Plan, Target, finish as finish_output, send_planned};
pub(crate) use rx_queue::RxQueue;
pub use rx_queue::{Datagram, Received};
pub(crate) use table::{Datagrams, Entry};

/// `net.core.wmem_default` and `rmem_default`.
pub(crate) const DEFAULT_BUFFER: usize = 212_992;
/// What a packet costs its sender beside its bytes: a head and the records behind it.
pub(crate) const OVERHEAD: usize = 512;

/// Which addresses a socket speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4 (`AF_INET`).
    V4,
    /// IPv6 (`AF_INET6`), and IPv4 too where a socket is dual-stack.
    V6,
}

/// `IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMtuDiscovery {
    /// Never forbid fragmentation (`IP_PMTUDISC_DONT`).
    Dont,
    /// Forbid it to routers where the datagram fits the path, fragment here where it does not
    /// (`IP_PMTUDISC_WANT`, the default).
    #[default]
    Want,
    /// Forbid it: what does not fit is [`Error::MessageTooLong`] (`IP_PMTUDISC_DO`).
    Do,
    /// As `Do`, but against the interface's MTU and not the path's (`IP_PMTUDISC_PROBE`).
    Probe,
}

/// Settings of a UDP or RAW socket, by their socket options' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DgramOptions {
    /// `IP_TTL`, `IPV6_UNICAST_HOPS`. Default 64.
    pub hop_limit: u8,
    /// `IP_TOS`, `IPV6_TCLASS`.
    pub tos: u8,
    /// `IP_MULTICAST_TTL`, `IPV6_MULTICAST_HOPS`. Default 1.
    pub multicast_hop_limit: u8,
    /// `IP_MULTICAST_LOOP`: what is sent to a group is heard on this host too. Default on.
    pub multicast_loop: bool,
    /// `IP_MULTICAST_IF`: the interface that packets to groups leave by.
    pub multicast_interface: Option<u32>,
    /// `IP_MULTICAST_ALL`: hear groups that others on this host have joined. Default on.
    pub multicast_all: bool,
    /// `SO_BROADCAST`: sends to broadcast addresses are allowed.
    pub broadcast: bool,
    /// `IP_MTU_DISCOVER`.
    pub path_mtu_discovery: PathMtuDiscovery,
    /// `IP_RECVERR`: errors go to the error queue, with what they are about.
    pub receive_errors: bool,
    /// `UDP_SEGMENT`: payload bytes per datagram of a longer send; 0: off.
    pub segment: u16,
    /// `UDP_GRO`: several datagrams of one sender may be received as one, [`Received::segment`] bytes each.
    pub gro: bool,
    /// `SO_NO_CHECK`: datagrams over IPv4 have no checksum.
    pub no_checksum: bool,
}

impl Default for DgramOptions {
    fn default() -> Self {
        Self {
            hop_limit: 64,
            tos: 0,
            multicast_hop_limit: 1,
            multicast_loop: true,
            multicast_interface: None,
            multicast_all: true,
            broadcast: false,
            path_mtu_discovery: PathMtuDiscovery::default(),
            receive_errors: false,
            segment: 0,
            gro: false,
            no_checksum: false,
        }
    }
}

/// Bytes on their way that a socket answers for (`SO_SNDBUF`).
pub(crate) struct WriteSpace {
    used: AtomicUsize,
    limit: AtomicUsize,
    ready: Arc<Readiness>,
}

/// A part of a write space in use.
pub(crate) struct Charged {
    space: Arc<WriteSpace>,
    bytes: usize,
}

impl Charged {
    /// Takes `other` in.
    pub(crate) fn join(&mut self, mut other: Charged) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// To be carried by a packet.
    pub(crate) fn into_charge(self) -> Charge {
        Arc::new(self)
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        let before = self.space.used.fetch_sub(self.bytes, Ordering::AcqRel);
        let half = self.space.limit.load(Ordering::Relaxed) / 2;
        if before > half && before - self.bytes <= half {
            self.space.ready.wake(Ready::OUT);
        }
    }
}

impl WriteSpace {
    /// Room for `bytes` more; `None` while the space is used up. Like Linux it may be exceeded once, so that
    /// a datagram is never torn.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charged> {
        let before = self.used.fetch_add(bytes, Ordering::AcqRel);
        let charged = Charged { space: self.clone(), bytes };
        (before < self.limit.load(Ordering::Relaxed)).then_some(charged)
    }

    fn is_writable(&self) -> bool {
        self.used.load(Ordering::Acquire) <= self.limit.load(Ordering::Relaxed) / 2
    }

    /// Bytes on their way (`SIOCOUTQ`).
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

const SHUT_READ: u8 = 1;
const SHUT_WRITE: u8 = 2;

/// The part that all datagram sockets have.
pub(crate) struct Dgram {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ready: Arc<Readiness>,
    pub(crate) errors: Arc<ErrorQueue>,
    pub(crate) write: Arc<WriteSpace>,
    pub(crate) rx: RxQueue,
    zerocopy: AtomicBool,
    /// `SO_ERROR`.
    error: Mutex<Option<Error>>,
    /// Whether `error` is worth locking.
    has_error: AtomicBool,
    shut: AtomicU8,
}

impl Dgram {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let ready = Arc::new(Readiness::default());
        let notify = Completed { ready: ready.clone(), counters: shared.counters.clone() };
        let errors = ErrorQueue::new(shared.config.optmem_max, shared.memlock.clone(), Box::new(notify));
        let (used, limit) = (AtomicUsize::new(0), AtomicUsize::new(DEFAULT_BUFFER));
        Self {
            shared: shared.clone(),
            write: Arc::new(WriteSpace { used, limit, ready: ready.clone() }),
            ready,
            errors,
            rx: RxQueue::new(DEFAULT_BUFFER),
            zerocopy: AtomicBool::new(false),
            error: Mutex::new(None),
            has_error: AtomicBool::new(false),
            shut: AtomicU8::new(0),
        }
    }

    pub(crate) fn set_zerocopy(&self, on: bool) {
        self.zerocopy.store(on, Ordering::Relaxed);
    }

    pub(crate) fn zerocopy(&self) -> bool {
        self.zerocopy.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sndbuf(&self, bytes: usize) {
        self.write.limit.store(bytes, Ordering::Relaxed);
        self.ready.wake(Ready::OUT);
    }

    pub(crate) fn sndbuf(&self) -> usize {
        self.write.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn take_error(&self) -> Option<Error> {
        if !self.has_error.load(Ordering::Acquire) {
            return None;
        }
        let mut error = self.error.lock();
        self.has_error.store(false, Ordering::Release);
        error.take()
    }

    /// The pending error fails this call.
    pub(crate) fn check_error(&self) -> Result<(), Error> {
        self.take_error().map_or(Ok(()), Err)
    }

    pub(crate) fn set_error(&self, e: Error) {
        *self.error.lock() = Some(e);
        self.has_error.store(true, Ordering::Release);
        self.ready.wake(Ready::ERR | Ready::IN | Ready::OUT);
    }

    pub(crate) fn push_error(&self, e: ExtendedError) {
        self.errors.push_error(e);
    }

    pub(crate) fn is_shut_for_sending(&self) -> bool {
        self.shut.load(Ordering::Relaxed) & SHUT_WRITE != 0
    }

    pub(crate) fn shutdown(&self, how: Shutdown) {
        let bits = match how {
            Shutdown::Read => SHUT_READ,
            Shutdown::Write => SHUT_WRITE,
            Shutdown::Both => SHUT_READ | SHUT_WRITE,
        };
        self.shut.fetch_or(bits, Ordering::Relaxed);
        self.ready.wake(Ready::all());
    }

    pub(crate) fn ready(&self) -> Ready {
        let shut = self.shut.load(Ordering::Relaxed);
        let mut ready = Ready::empty();
        ready.set(Ready::IN, !self.rx.is_empty() || shut & SHUT_READ != 0);
        ready.set(Ready::RDHUP, shut & SHUT_READ != 0);
        ready.set(Ready::OUT, self.write.is_writable() || shut & SHUT_WRITE != 0);
        ready.set(Ready::HUP, shut == SHUT_READ | SHUT_WRITE);
        ready.set(Ready::ERR, self.has_error.load(Ordering::Acquire) || self.errors.is_ready());
        ready
    }

    /// Queues what was received; counted as dropped if the buffer is full.
    pub(crate) fn receive(&self, d: Datagram, merge: bool) {
        match self.rx.push(d, merge) {
            Ok(()) => self.ready.wake(Ready::IN),
            Err(_) => self.shared.counters.drop_packet(netdev::DropReason::ReceiveBufferFull),
        }
    }

    /// The oldest datagram; with `peek` it stays.
    pub(crate) fn take(&self, peek: bool) -> Result<Datagram, Error> {
        self.check_error()?;
        let found = if peek { self.rx.peek() } else { self.rx.pop() };
        match found {
            Some(d) => Ok(d),
            None if self.shut.load(Ordering::Relaxed) & SHUT_READ != 0 => Ok(Datagram::end()),
            None => Err(Error::WouldBlock),
        }
    }

    /// Copies a datagram out, after the queue's lock is released.
    pub(crate) fn recv_from(&self, buf: &mut [u8], peek: bool) -> Result<(usize, Received), Error> {
        let d = self.take(peek)?;
        let n = d.len().min(buf.len());
        d.copy_to(0, &mut buf[..n]);
        Ok((n, d.info))
    }

    pub(crate) fn pop_completion(&self) -> Option<Completion> {
        let c = self.errors.pop();
        if c.is_some() {
            Counters::add(&self.shared.counters.send.notifications, 1);
        }
        c
    }

    pub(crate) fn pop_error_queue(&self) -> Option<Queued> {
        let q = self.errors.pop_any();
        if matches!(q, Some(Queued::Completion(_))) {
            Counters::add(&self.shared.counters.send.notifications, 1);
        }
        q
    }

    /// Nobody reads any more.
    pub(crate) fn close(&self) {
        self.errors.close();
        self.rx.clear();
    }
}

/// IPv4-mapped IPv6 addresses are IPv4 inside the stack.
pub(crate) fn canonical(a: SocketAddr) -> SocketAddr {
    SocketAddr::new(a.ip().to_canonical(), a.port())
}

/// The calls that every datagram socket has, spelled once.
macro_rules! common_calls {
    ($socket:ident) => {
        impl $socket {
            /// `SO_ZEROCOPY`: whether borrowed pieces that ask for it are lent. Pieces lent by value always are.
            pub fn set_zerocopy(&self, on: bool) {
                self.dgram.set_zerocopy(on);
            }

            /// Reads `SO_ZEROCOPY` back.
            pub fn zerocopy(&self) -> bool {
                self.dgram.zerocopy()
            }

            /// `SO_SNDBUF`, in bytes on their way. Default 212992.
            pub fn set_sndbuf(&self, bytes: usize) {
                self.dgram.set_sndbuf(bytes);
            }

            /// Reads `SO_SNDBUF` back.
            pub fn sndbuf(&self) -> usize {
                self.dgram.sndbuf()
            }

            /// `SO_RCVBUF`, in bytes of received packets with what keeping them costs. Default 212992.
            pub fn set_rcvbuf(&self, bytes: usize) {
                self.dgram.rx.set_limit(bytes);
            }

            /// Reads `SO_RCVBUF` back.
            pub fn rcvbuf(&self) -> usize {
                self.dgram.rx.limit()
            }

            /// Payload of the next datagram in bytes (`SIOCINQ`), and bytes on their way out (`SIOCOUTQ`).
            pub fn queued(&self) -> (usize, usize) {
                (self.dgram.rx.next_len(), self.dgram.write.used())
            }

            /// Packets dropped because the receive buffer was full (`SO_RXQ_OVFL`).
            pub fn rx_dropped(&self) -> u64 {
                self.dgram.rx.dropped()
            }

            /// Takes the oldest datagram with everything known about it, without copying its payload. With
            /// `peek` it can be taken again.
            pub fn recv_datagram(&self, peek: bool) -> Result<$crate::Datagram, $crate::Error> {
                self.dgram.take(peek)
            }

            /// Copies the oldest datagram into `buf`: bytes copied, and where it came from. What does not fit
            /// is lost; [`Received::len`]($crate::Received::len) says how long it was.
            pub fn recv_from(&self, buf: &mut [u8]) -> Result<(usize, $crate::Received), $crate::Error> {
                self.dgram.recv_from(buf, false)
            }

            /// Takes the oldest completion off the error queue, leaving errors there.
            pub fn pop_completion(&self) -> Option<skb::Completion> {
                self.dgram.pop_completion()
            }

            /// Takes the oldest entry off the error queue: a completion, or an error about something sent.
            pub fn pop_error_queue(&self) -> Option<skb::Queued> {
                self.dgram.pop_error_queue()
            }

            /// Whether the error queue has something.
            pub fn has_completion(&self) -> bool {
                self.dgram.errors.is_ready()
            }

            /// Lending calls that are not complete.
            pub fn outstanding(&self) -> usize {
                self.dgram.errors.outstanding()
            }

            /// Starts the counter of lending calls at `id`: for tests of programs against the wrap at 2^32.
            pub fn set_next_call(&self, id: u32) {
                self.dgram.errors.set_next_id(id);
            }

            /// The pending error, once (`SO_ERROR`).
            pub fn take_error(&self) -> Option<$crate::Error> {
                self.dgram.take_error()
            }

            /// What the socket is ready for.
            pub fn ready(&self) -> $crate::Ready {
                self.dgram.ready()
            }

            /// Sleeps until the socket is ready for any of `interest`; false if `timeout` ran out first.
            pub fn wait(&self, interest: $crate::Ready, timeout: Option<time::Duration>) -> bool {
                self.dgram.ready.wait(interest, timeout, || self.ready().intersects(interest))
            }

            /// Wakes `waker` the next time the socket becomes ready for `interest` or has an error, or, being
            /// ready, gets more to read. Look at [`ready`](Self::ready) again after registering.
            pub fn register(&self, interest: $crate::Ready, waker: &std::task::Waker) {
                self.dgram.ready.register(interest, waker);
            }

            /// Forgets `waker`, if it still waits.
            pub fn deregister(&self, waker: &std::task::Waker) {
                self.dgram.ready.deregister(waker);
            }
        }
    };
}
pub(crate) use common_calls;
