//! A UDP socket with blocking calls.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use stack::skb::{Completion, Lent, Queued};
use stack::{Datagram, DgramOptions, Error, Family, Message, Ready, Received, Sent, Stack, Ticket};

use crate::LendFailed;
use crate::wait::{Waits, wait};

/// A UDP socket of one stack.
///
/// Calls block unless [`set_nonblocking`](Self::set_nonblocking) says otherwise. Any number of threads may use one
/// socket. Dropping it closes it: what was sent still goes out.
///
/// ```
/// use uncopied::{Stack, UdpSocket, link};
///
/// # fn main() -> std::io::Result<()> {
/// let (left, right, engine) = link::pair(link::LinkConfig::default());
/// let engine = engine.spawn("nic")?;
/// let a = Stack::builder().device(left, &[("10.0.0.1".parse().unwrap(), 24)]).build()?;
/// let b = Stack::builder().device(right, &[("10.0.0.2".parse().unwrap(), 24)]).build()?;
/// a.spawn()?;
/// b.spawn()?;
/// let rx = UdpSocket::bind(&b, "10.0.0.2:9000".parse().unwrap())?;
/// let tx = UdpSocket::bind(&a, "0.0.0.0:0".parse().unwrap())?;
///
/// let ticket = tx.send_lent(vec![7u8; 1400], Some(rx.local_addr()))?; // lent, not copied
/// let mut buf = [0; 2048];
/// let (n, from) = rx.recv_from(&mut buf)?;
/// assert_eq!((n, from.ip()), (1400, "10.0.0.1".parse::<std::net::IpAddr>().unwrap()));
/// let done = tx.wait_completion(None)?.expect("one call, one completion");
/// assert!(done.contains(ticket.id) && done.copied.is_none());
/// # drop((tx, rx)); drop(engine); Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UdpSocket {
    stack: Stack,
    socket: Arc<stack::UdpSocket>,
    nonblocking: bool,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.socket.close();
    }
}

impl UdpSocket {
    /// Binds to `local`; port 0 picks a free one, `0.0.0.0` means all IPv4 addresses, `::` all addresses of both
    /// families. `SO_ZEROCOPY` is on.
    pub fn bind(stack: &Stack, local: SocketAddr) -> io::Result<Self> {
        let family = if local.is_ipv4() { Family::V4 } else { Family::V6 };
        let socket = stack.udp_socket(family);
        socket.set_zerocopy(true);
        socket.bind(local)?;
        Ok(Self { stack: stack.clone(), socket, nonblocking: false, read_timeout: None, write_timeout: None })
    }

    /// Sends go to `remote` unless they say otherwise, and only what comes from there is received.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        Ok(self.socket.connect(remote)?)
    }

    /// The socket of the layer below, whose calls never block: for everything that is not here.
    pub fn socket(&self) -> &Arc<stack::UdpSocket> {
        &self.socket
    }

    /// Makes calls return `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&mut self, on: bool) {
        self.nonblocking = on;
    }

    /// How long a receiving call may wait; `None`, the default: for ever.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    /// How long a sending call may wait; `None`, the default: for ever.
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.write_timeout = timeout;
    }

    fn retry<R>(
        &self,
        interest: Ready,
        timeout: Option<Duration>,
        mut call: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        loop {
            match call() {
                Err(Error::WouldBlock) if !self.nonblocking => {
                    wait(&self.stack, &self.socket, interest, timeout)?;
                }
                done => return done,
            }
        }
    }

    /// Copies `buf` and sends it to `to`.
    pub fn send_to(&self, buf: &[u8], to: SocketAddr) -> io::Result<usize> {
        Ok(self.retry(Ready::OUT, self.write_timeout, || self.socket.send_to(buf, to))?)
    }

    /// Copies `buf` and sends it to the peer.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        Ok(self.retry(Ready::OUT, self.write_timeout, || self.socket.send(buf))?)
    }

    /// Lends a buffer and sends it, to `to` or to the peer: nothing is copied, and its completion will name the
    /// ticket. On error the buffer comes back.
    pub fn send_lent(&self, buffer: impl Into<Lent>, to: Option<SocketAddr>) -> Result<Ticket, LendFailed> {
        let mut waiting = Some(buffer.into());
        let result = self.retry(Ready::OUT, self.write_timeout, || {
            let Some(buffer) = waiting.take() else { return Err(Error::Invalid) };
            self.socket.send_lent(buffer, to).map_err(|(error, buffer)| {
                waiting = Some(buffer);
                error
            })
        });
        result
            .map_err(|error| LendFailed { error, buffer: waiting.unwrap_or_else(|| Lent::from(Vec::new())) })
    }

    /// Sends a message of copied and lent pieces, with its own source, hop limit, service or segment size.
    pub fn sendmsg(&self, message: &Message<'_>) -> io::Result<Sent> {
        Ok(self.retry(Ready::OUT, self.write_timeout, || self.socket.sendmsg(message))?)
    }

    /// Receives one datagram into `buf`: how much of it there was room for, and from whom.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (n, info) = self.recv_info(buf)?;
        Ok((n, info.from))
    }

    /// As [`recv_from`](Self::recv_from), with everything that is known of the datagram.
    pub fn recv_info(&self, buf: &mut [u8]) -> io::Result<(usize, Received)> {
        Ok(self.retry(Ready::IN, self.read_timeout, || self.socket.recv_from(buf))?)
    }

    /// Receives one datagram in the packets it came in, without copying it.
    pub fn recv_datagram(&self) -> io::Result<Datagram> {
        Ok(self.retry(Ready::IN, self.read_timeout, || self.socket.recv_datagram(false))?)
    }

    /// The oldest completion, if there is one. Never waits.
    pub fn completion(&self) -> Option<Completion> {
        self.socket.pop_completion()
    }

    /// The oldest entry of the error queue: a completion, or an error about something that was sent.
    pub fn error_queue(&self) -> Option<Queued> {
        self.socket.pop_error_queue()
    }

    /// Waits for a completion, at most for `timeout`. `None` if nothing is outstanding.
    pub fn wait_completion(&self, timeout: Option<Duration>) -> io::Result<Option<Completion>> {
        loop {
            if let Some(c) = self.completion() {
                return Ok(Some(c));
            }
            if self.socket.outstanding() == 0 {
                // It may have completed between the two looks.
                return Ok(self.completion());
            }
            wait(&self.stack, &self.socket, Ready::ERR, timeout)?;
            if let Some(e) = self.socket.take_error() {
                return Err(e.into());
            }
        }
    }

    /// Lending calls that are not complete.
    pub fn outstanding(&self) -> usize {
        self.socket.outstanding()
    }

    /// What the socket is ready for.
    pub fn ready(&self) -> Ready {
        Waits::ready(&self.socket)
    }

    /// Wakes `waker` when the socket becomes ready for `interest` or has an error. Look at
    /// [`ready`](Self::ready) again after registering.
    pub fn register(&self, interest: Ready, waker: &Waker) {
        self.socket.register(interest, waker);
    }

    /// The settings.
    pub fn options(&self) -> DgramOptions {
        self.socket.options()
    }

    /// Changes settings.
    pub fn configure(&self, change: impl FnOnce(&mut DgramOptions)) {
        self.socket.configure(change);
    }

    /// While it is on, sends are put together to one datagram, which leaves when it is switched off (`UDP_CORK`).
    pub fn set_cork(&self, on: bool) {
        self.socket.set_cork(on);
    }

    /// Joins a group, where packets to it would leave.
    pub fn join_group(&self, group: IpAddr) -> io::Result<()> {
        Ok(self.socket.join_group(group, None)?)
    }

    /// Leaves a group.
    pub fn leave_group(&self, group: IpAddr) -> io::Result<()> {
        Ok(self.socket.leave_group(group, None)?)
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        let unbound = SocketAddr::from(([0, 0, 0, 0], 0));
        self.socket.local_addr().unwrap_or(unbound)
    }

    /// The peer's address, while connected.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.socket.peer_addr()
    }
}
