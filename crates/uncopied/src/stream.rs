//! A TCP connection with blocking calls.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use stack::skb::{Completion, Lent};
use stack::tcp::{State, TcpInfo};
use stack::{Error, Ready, Shutdown, Stack, TcpSocket, Ticket};

use crate::wait::wait;

/// A lending send that queued nothing: the buffer comes back with the reason.
#[derive(Debug)]
pub struct LendFailed {
    /// Why.
    pub error: Error,
    /// The buffer, as it was given.
    pub buffer: Lent,
}

impl std::fmt::Display for LendFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for LendFailed {}

impl From<LendFailed> for io::Error {
    fn from(e: LendFailed) -> Self {
        e.error.into()
    }
}

/// A TCP connection of one stack.
///
/// Calls block unless [`set_nonblocking`](Self::set_nonblocking) says otherwise. Any number of threads may
/// use one stream; reads and writes do not wait for each other. Dropping it closes the connection: what
/// was sent still goes out; unread data resets it (RFC 2525).
#[derive(Debug)]
pub struct TcpStream {
    pub(crate) stack: Stack,
    pub(crate) socket: Socket,
    nonblocking: bool,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

/// A socket that is closed when its owner goes.
pub(crate) struct Socket(pub(crate) Arc<TcpSocket>);

impl Drop for Socket {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} -> {:?} {:?}", self.0.local_addr(), self.0.peer_addr(), self.0.state())
    }
}

impl TcpStream {
    pub(crate) fn from_socket(stack: &Stack, socket: Arc<TcpSocket>) -> Self {
        Self {
            stack: stack.clone(),
            socket: Socket(socket),
            nonblocking: false,
            read_timeout: None,
            write_timeout: None,
        }
    }

    /// Connects to `remote` and waits until the connection is made. `SO_ZEROCOPY` is on.
    pub fn connect(stack: &Stack, remote: SocketAddr) -> io::Result<Self> {
        Self::connect_timeout(stack, remote, None)
    }

    /// As [`connect`](Self::connect), at most for `timeout`.
    pub fn connect_timeout(stack: &Stack, remote: SocketAddr, timeout: Option<Duration>) -> io::Result<Self> {
        let stream = Self::begin_connect(stack, remote)?;
        wait(stack, &stream.socket.0, Ready::OUT, timeout)?;
        match stream.socket.0.take_error() {
            Some(e) => Err(e.into()),
            None => Ok(stream),
        }
    }

    /// Sends the SYN and returns: the connection is made when [`ready`](Self::ready) says `OUT` and
    /// [`take_error`](Self::take_error) nothing.
    pub fn begin_connect(stack: &Stack, remote: SocketAddr) -> io::Result<Self> {
        let socket = stack.tcp_socket();
        socket.set_zerocopy(true);
        let stream = Self::from_socket(stack, socket);
        stream.socket.0.connect(remote)?;
        Ok(stream)
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

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking
    }

    pub(crate) fn write_timeout(&self) -> Option<Duration> {
        self.write_timeout
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
                    wait(&self.stack, &self.socket.0, interest, timeout)?;
                }
                done => return done,
            }
        }
    }

    /// Copies as much of `buf` as there is room for, waiting for some room; how much that was.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        let room = Ready::OUT | Ready::HUP;
        Ok(self.retry(room, self.write_timeout, || self.socket.0.send(buf))?)
    }

    /// Copies all of `buf`.
    pub fn send_all(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let n = self.send(buf)?;
            buf = buf.get(n..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// Lends a buffer: nothing is copied, all of it is queued, and its completion will name the ticket.
    ///
    /// Waits while the send buffer is full. When a limit on lent memory is reached it fails with
    /// [`Error::MemLock`] or [`Error::OptMem`] (`ENOBUFS`) and gives the buffer back: read completions and
    /// try again, or use [`send_lent_or_copy`](Self::send_lent_or_copy).
    pub fn send_lent(&self, buffer: impl Into<Lent>) -> Result<Ticket, LendFailed> {
        let mut waiting = Some(buffer.into());
        let result = self.retry(Ready::OUT | Ready::HUP, self.write_timeout, || {
            let Some(buffer) = waiting.take() else { return Err(Error::Invalid) };
            self.socket.0.send_lent(buffer).map_err(|(error, buffer)| {
                waiting = Some(buffer);
                error
            })
        });
        result
            .map_err(|error| LendFailed { error, buffer: waiting.unwrap_or_else(|| Lent::from(Vec::new())) })
    }

    /// Lends a buffer, or copies it when a limit on lent memory is reached: never a dead end. `None` means
    /// copied: the buffer is free at once and no completion will come.
    pub fn send_lent_or_copy(&self, buffer: impl Into<Lent>) -> io::Result<Option<Ticket>> {
        match self.send_lent(buffer) {
            Ok(ticket) => Ok(Some(ticket)),
            Err(LendFailed { error: Error::MemLock | Error::OptMem, buffer }) => {
                self.send_all(buffer.as_slice())?;
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Receives into `buf`, waiting for at least one byte; 0 is the end of the stream.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.retry(Ready::IN | Ready::HUP, self.read_timeout, || self.socket.0.recv(buf))?)
    }

    /// As [`recv`](Self::recv), leaving the bytes to be received again.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.retry(Ready::IN | Ready::HUP, self.read_timeout, || self.socket.0.peek(buf))?)
    }

    /// The oldest completion, if there is one. Never waits.
    pub fn completion(&self) -> Option<Completion> {
        self.socket.0.pop_completion()
    }

    /// Waits for a completion, at most for `timeout`. `None` if nothing is outstanding.
    pub fn wait_completion(&self, timeout: Option<Duration>) -> io::Result<Option<Completion>> {
        loop {
            if let Some(c) = self.completion() {
                return Ok(Some(c));
            }
            if self.outstanding() == 0 {
                // It may have completed between the two looks.
                return Ok(self.completion());
            }
            wait(&self.stack, &self.socket.0, Ready::ERR, timeout)?;
            if !self.socket.0.has_completion()
                && let Some(e) = self.socket.0.take_error()
            {
                return Err(e.into());
            }
        }
    }

    /// Lending calls that are not complete.
    pub fn outstanding(&self) -> usize {
        self.socket.0.outstanding()
    }

    /// What the stream is ready for.
    pub fn ready(&self) -> Ready {
        self.socket.0.ready()
    }

    /// Waits until the stream is ready for any of `interest`, or has an error or hang-up if asked for;
    /// false if `timeout` ran out.
    pub fn wait_ready(&self, interest: Ready, timeout: Option<Duration>) -> bool {
        wait(&self.stack, &self.socket.0, interest, timeout).is_ok()
    }

    /// Wakes `waker` when the stream becomes ready for `interest`, an error or a hang-up. Look at
    /// [`ready`](Self::ready) again after registering.
    pub fn register(&self, interest: Ready, waker: &Waker) {
        self.socket.0.register(interest, waker);
    }

    /// The pending error, once.
    pub fn take_error(&self) -> Option<Error> {
        self.socket.0.take_error()
    }

    /// Closes one or both directions.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        Ok(self.socket.0.shutdown(how)?)
    }

    /// Resets the connection and drops everything queued. Completions can no longer be read.
    pub fn abort(self) {
        self.socket.0.abort();
    }

    /// `connect(AF_UNSPEC)`: resets the connection and drops the send queue. The calls it held complete and
    /// can be read: a way to get lent memory back from a peer that does not read.
    pub fn purge(&self) -> io::Result<()> {
        Ok(self.socket.0.purge()?)
    }

    /// Connects a purged stream again. Numbers of lending calls go on where they were.
    pub fn reconnect(&self, remote: SocketAddr) -> io::Result<()> {
        self.socket.0.connect(remote)?;
        wait(&self.stack, &self.socket.0, Ready::OUT, self.write_timeout)?;
        self.socket.0.take_error().map_or(Ok(()), |e| Err(e.into()))
    }

    /// Sends small segments at once (`TCP_NODELAY`).
    pub fn set_nodelay(&self, on: bool) {
        self.socket.0.configure(|c| c.nodelay = on);
    }

    /// Sends probes on an idle connection (`SO_KEEPALIVE`): the first after `idle`.
    pub fn set_keepalive(&self, keepalive: Option<stack::tcp::Keepalive>) {
        self.socket.0.configure(|c| {
            c.keepalive = keepalive.unwrap_or(stack::tcp::Keepalive { on: false, ..c.keepalive });
        });
    }

    /// Holds back a last small segment until switched off (`TCP_CORK`).
    pub fn set_cork(&self, on: bool) {
        self.socket.0.set_cork(on);
    }

    /// Starts the numbers of lending calls at `id`, to test a program against the wrap at 2^32.
    pub fn set_next_call(&self, id: u32) {
        self.socket.0.set_next_call(id);
    }

    /// The local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.0.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.socket.0.peer_addr()
    }

    /// The connection's state.
    pub fn state(&self) -> State {
        self.socket.0.state()
    }

    /// Measurements of the connection.
    pub fn info(&self) -> Option<TcpInfo> {
        self.socket.0.info()
    }

    /// Bytes that can be read, and bytes queued or sent that the peer has not acknowledged.
    pub fn queued(&self) -> (usize, usize) {
        self.socket.0.queued()
    }
}

impl io::Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv(buf)
    }
}

impl io::Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv(buf)
    }
}

impl io::Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(buf)
    }
    /// Nothing is held back here; what TCP holds back leaves by its own rules.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
