//! A socket of this process's own stack.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use stack::skb::{Completion, Reason, UbufInfo};
use stack::{Ready, Reuse, Shutdown, TcpSocket};

use crate::endpoint::{Counts, Endpoint, RecvHow};
use crate::errno::{Errno, Result, errno};
use crate::tcp_options;
use crate::user::{RecvBuf, SendBuf};

pub(crate) struct Local {
    pub(crate) socket: Arc<TcpSocket>,
}

impl Local {
    /// A socket that is closed when the last one who has it lets go.
    pub(crate) fn open(socket: Arc<TcpSocket>) -> Arc<dyn Endpoint> {
        Arc::new(Self { socket })
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Resets the connection if `SO_LINGER` says so.
        self.socket.close();
    }
}

impl Endpoint for Local {
    fn bind(&self, local: SocketAddr, reuse: Reuse) -> Result<()> {
        self.socket.set_reuse(reuse);
        self.socket.bind(local).map(drop).map_err(errno)
    }

    fn listen(&self, backlog: usize) -> Result<()> {
        self.socket.listen(backlog).map(drop).map_err(errno)
    }

    fn accept(&self) -> Result<Arc<dyn Endpoint>> {
        self.socket.accept().map(Local::open).map_err(errno)
    }

    fn connect(&self, remote: SocketAddr) -> Result<()> {
        self.socket.connect(remote).map_err(errno)
    }

    fn connect_with_data(&self, remote: SocketAddr) -> Result<bool> {
        self.socket.connect_with_data(remote).map_err(errno)
    }

    fn disconnect(&self) -> Result<()> {
        match self.socket.purge() {
            // As Linux: there is nothing to undo.
            Err(stack::Error::NotConnected) => Ok(()),
            done => done.map_err(errno),
        }
    }

    fn send(&self, buf: &mut SendBuf) -> Result<usize> {
        // As Linux: a stream that was never connected is a broken pipe to its writer.
        buf.attempt(&self.socket).map_err(|e| if e == Errno::NOTCONN { Errno::PIPE } else { e })
    }

    fn recv(&self, buf: &mut RecvBuf, how: RecvHow) -> Result<usize> {
        match how {
            RecvHow::Take => {
                let mut pieces = Vec::new();
                let n = self.socket.recv_pieces(buf.room(), &mut pieces).map_err(errno)?;
                buf.put_frags(&pieces);
                Ok(n)
            }
            RecvHow::Peek => {
                buf.rewind();
                let readable = self.socket.queued().0.clamp(1, buf.len().max(1));
                let mut bytes = vec![0; readable.min(buf.len())];
                let n = self.socket.peek(&mut bytes).map_err(errno)?;
                buf.put(bytes.get(..n).unwrap_or(&[]));
                Ok(n)
            }
            RecvHow::Discard => {
                let n = self.socket.discard(buf.room()).map_err(errno)?;
                buf.skip(n);
                Ok(n)
            }
        }
    }

    fn completion(&self) -> Option<Completion> {
        self.socket.pop_completion()
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.socket.shutdown(how).map_err(errno)
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr()
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.socket.peer_addr()
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        tcp_options::set(self, level, name, value)
    }

    fn option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
            let error = self.socket.take_error().map_or(0, |e| errno(e).raw_os_error());
            return Ok(error.to_ne_bytes().to_vec());
        }
        tcp_options::get(self, level, name)
    }

    fn counts(&self) -> Result<Counts> {
        let socket = &self.socket;
        Ok(Counts {
            readable: socket.inq().map_err(errno)?,
            hint: socket.inq_hint(),
            unacked: socket.outq().map_err(errno)?,
            unsent: socket.outq_not_sent().map_err(errno)?,
            at_mark: socket.is_at_mark(),
        })
    }

    fn set_linger(&self, linger: Option<Duration>) {
        self.socket.set_linger(linger);
    }

    fn recv_urgent(&self, peek: bool) -> Result<Option<u8>> {
        self.socket.recv_urgent(peek).map_err(errno)
    }

    fn is_drained(&self) -> bool {
        self.socket.is_drained()
    }

    fn lend_copied(&self, bytes: u64) -> Result<Option<Arc<UbufInfo>>> {
        self.socket.lend_copied(bytes, Reason::Process).map_err(errno)
    }

    fn tcp_socket(&self) -> Option<&Arc<TcpSocket>> {
        Some(&self.socket)
    }

    fn ready(&self) -> Ready {
        self.socket.ready()
    }

    fn register(&self, interest: Ready, waker: &Waker) {
        self.socket.register(interest, waker);
    }

    fn deregister(&self, waker: &Waker) {
        self.socket.deregister(waker);
    }
}

/// An `int` option's value.
pub(crate) fn int(value: &[u8]) -> Result<i32> {
    value.first_chunk().map(|b| i32::from_ne_bytes(*b)).ok_or(Errno::INVAL)
}
