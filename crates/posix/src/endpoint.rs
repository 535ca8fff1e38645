//! What stands behind a socket's descriptor: a socket of this process's stack, or of another process's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stack::skb::{Completion, UbufInfo};
use stack::{Ready, Reuse, Shutdown, TcpSocket};

use crate::errno::Result;
use crate::user::{RecvBuf, SendBuf};

/// A stream socket whose calls never block: what cannot be done now is `EAGAIN`. Its drop closes it.
pub(crate) trait Endpoint: Send + Sync {
    /// Takes a local address; port 0 is replaced by a free one.
    fn bind(&self, local: SocketAddr, reuse: Reuse) -> Result<()>;
    /// Begins to listen.
    fn listen(&self, backlog: usize) -> Result<()>;
    /// The oldest connection that waits.
    fn accept(&self) -> Result<Arc<dyn Endpoint>>;
    /// Begins to connect.
    fn connect(&self, remote: SocketAddr) -> Result<()>;
    /// Begins to connect with the first data in the SYN (`MSG_FASTOPEN`). True: nothing was sent yet, the next send
    /// does it. False: data has to wait for the connection, as it always has to for a stack of another process.
    fn connect_with_data(&self, remote: SocketAddr) -> Result<bool> {
        self.connect(remote).map(|()| false)
    }
    /// `connect(AF_UNSPEC)`.
    fn disconnect(&self) -> Result<()>;
    /// Queues as much as there is room for; the buffer remembers how far it got.
    fn send(&self, buf: &mut SendBuf) -> Result<usize>;
    /// Takes what there is; 0 is the end of the stream.
    fn recv(&self, buf: &mut RecvBuf, how: RecvHow) -> Result<usize>;
    /// The oldest range of completed calls.
    fn completion(&self) -> Option<Completion>;
    /// Closes directions.
    fn shutdown(&self, how: Shutdown) -> Result<()>;
    /// The local address, once there is one.
    fn local_addr(&self) -> Option<SocketAddr>;
    /// The peer's address, while connected.
    fn peer_addr(&self) -> Option<SocketAddr>;
    /// Sets an option that belongs to the stack's socket.
    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()>;
    /// Reads one.
    fn option(&self, level: i32, name: i32) -> Result<Vec<u8>>;
    /// What is in its queues; `EINVAL` while listening.
    fn counts(&self) -> Result<Counts>;
    /// The urgent byte; `None` at the end of the stream.
    fn recv_urgent(&self, peek: bool) -> Result<Option<u8>>;
    /// What `close` does: with `Some(0)` it resets the connection. Waiting is the caller's part.
    fn set_linger(&self, linger: Option<Duration>);
    /// Sending is shut and the peer has everything.
    fn is_drained(&self) -> bool;
    /// Takes the number of a lending call of `bytes` bytes that are copied from another process: it completes
    /// when the record is dropped. `None` without `SO_ZEROCOPY`.
    fn lend_copied(&self, _bytes: u64) -> Result<Option<Arc<UbufInfo>>> {
        Ok(None)
    }
    /// The host's number for it, if the stack is another process's.
    fn number(&self) -> Option<u64> {
        None
    }
    /// The stack's socket, if the stack is in this process.
    fn tcp_socket(&self) -> Option<&Arc<TcpSocket>> {
        None
    }
    /// What it is ready for.
    fn ready(&self) -> Ready;
    /// Wakes `waker` once, at the next news of `interest`.
    fn register(&self, interest: Ready, waker: &Waker);
    /// Forgets `waker`.
    fn deregister(&self, waker: &Waker);
}

/// What is in a socket's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Bytes that can be read (`SIOCINQ`).
    pub(crate) readable: usize,
    /// The same for `TCP_INQ`: the end of the stream counts as one.
    pub(crate) hint: usize,
    /// Bytes queued that the peer has not acknowledged (`SIOCOUTQ`).
    pub(crate) unacked: usize,
    /// Of these, bytes not yet sent (`SIOCOUTQNSD`).
    pub(crate) unsent: usize,
    /// The next byte is the urgent one (`SIOCATMARK`).
    pub(crate) at_mark: bool,
}

/// How to receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecvHow {
    /// Take the bytes.
    #[default]
    Take,
    /// Leave them (`MSG_PEEK`).
    Peek,
    /// Drop them unread (`MSG_TRUNC` on a stream).
    Discard,
}
