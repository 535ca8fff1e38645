//! What stands behind a socket's descriptor: a socket of this process's stack, or of another process's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

use stack::skb::{Completion, UbufInfo};
use stack::{Ready, Reuse, Shutdown};

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
    /// Bytes to read, bytes sent or queued and not acknowledged (`SIOCINQ`, `SIOCOUTQ`).
    fn queued(&self) -> (usize, usize);
    /// `close` is to reset the connection (`SO_LINGER` of 0 seconds).
    fn reset_on_close(&self, on: bool);
    /// Takes the number of a lending call of `bytes` bytes that are copied from another process: it completes
    /// when the record is dropped. `None` without `SO_ZEROCOPY`.
    fn lend_copied(&self, _bytes: u64) -> Result<Option<UbufInfo>> {
        Ok(None)
    }
    /// The host's number for it, if the stack is another process's.
    fn number(&self) -> Option<u64> {
        None
    }
    /// What it is ready for.
    fn ready(&self) -> Ready;
    /// Wakes `waker` once, at the next news of `interest`.
    fn register(&self, interest: Ready, waker: &Waker);
    /// Forgets `waker`.
    fn deregister(&self, waker: &Waker);
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
