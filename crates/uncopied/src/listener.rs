//! A listening TCP socket.

use std::io;
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use stack::{Error, Ready, Stack};

use crate::TcpStream;
use crate::stream::Socket;
use crate::wait::wait;

/// Connections that wait to be accepted, unless asked otherwise; as Linux's `SOMAXCONN`.
const BACKLOG: usize = 4096;

/// A listening socket. Dropping it resets the connections that nobody accepted.
#[derive(Debug)]
pub struct TcpListener {
    stack: Stack,
    socket: Socket,
    local: SocketAddr,
}

impl TcpListener {
    /// Listens on `local`; port 0 picks a free one, `0.0.0.0` means all IPv4 addresses, `::` all addresses of
    /// both families. Accepted streams have `SO_ZEROCOPY` on.
    pub fn bind(stack: &Stack, local: SocketAddr) -> io::Result<Self> {
        Self::bind_with_backlog(stack, local, BACKLOG)
    }

    /// As [`bind`](Self::bind), with room for `backlog` connections that wait to be accepted.
    pub fn bind_with_backlog(stack: &Stack, local: SocketAddr, backlog: usize) -> io::Result<Self> {
        let socket = Socket(stack.tcp_socket());
        socket.0.set_zerocopy(true);
        socket.0.bind(local)?;
        let local = socket.0.listen(backlog)?;
        Ok(Self { stack: stack.clone(), socket, local })
    }

    /// Waits for a connection and takes it.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_timeout(None)
    }

    /// As [`accept`](Self::accept), at most for `timeout`.
    pub fn accept_timeout(&self, timeout: Option<Duration>) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            match self.try_accept() {
                Err(Error::WouldBlock) => wait(&self.stack, &self.socket.0, Ready::IN, timeout)?,
                done => return Ok(done?),
            }
        }
    }

    /// Takes a connection if one waits.
    pub fn try_accept(&self) -> Result<(TcpStream, SocketAddr), Error> {
        let socket = self.socket.0.accept()?;
        // A connection may be reset between being made and being accepted; its address is then the one
        // thing that cannot be told.
        let peer = socket.peer_addr().unwrap_or(self.local);
        Ok((TcpStream::from_socket(&self.stack, socket), peer))
    }

    /// The address listened on, with its port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Wakes `waker` when a connection waits. Try again after registering.
    pub fn register(&self, waker: &Waker) {
        self.socket.0.register(Ready::IN, waker);
    }
}
