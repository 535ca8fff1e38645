//! A socket as its descriptors see it: blocking, time-outs, the flags of each call, options of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stack::skb::{Completion, Frag};
use stack::{Ready, Reuse, Shutdown};

use crate::endpoint::{Counts, Endpoint, RecvHow};
use crate::errno::{Errno, Result, errno};
use crate::local::int;
use crate::lock::{ForkArcGuard, ForkMutex};
use crate::sockaddr;
use crate::tcp_options::TCP_INQ;
use crate::user::{RecvBuf, SendBuf, bytes_of};
use crate::wait::{Deadline, wait, wait_until};

/// Room to send, or the certainty that there will be none.
const SENDABLE: Ready = Ready::OUT.union(Ready::HUP);
/// A connection, or the end of listening.
const ACCEPTABLE: Ready = Ready::IN.union(Ready::HUP);
/// Something to read, or the end of it.
const RECEIVABLE: Ready = Ready::IN.union(Ready::RDHUP).union(Ready::HUP);

/// An open socket; descriptors share it.
pub(crate) struct Socket {
    /// `AF_INET` or `AF_INET6`.
    domain: i32,
    /// Another one after a fork: there the stack is the parent's.
    endpoint: Arc<ForkMutex<Arc<dyn Endpoint>>>,
    nonblocking: AtomicBool,
    /// Microseconds; 0 is for ever (`SO_RCVTIMEO`, `SO_SNDTIMEO`).
    receive_timeout: AtomicU64,
    send_timeout: AtomicU64,
    /// Seconds; negative is off (`SO_LINGER`).
    linger: AtomicI32,
    receive_low_water: AtomicI32,
    /// `TCP_INQ`: `recvmsg` says how much more there is.
    tells_inq: AtomicBool,
    reuse: Mutex<Reuse>,
    listening: AtomicBool,
    /// `connect` has begun and nobody was told how it ended.
    connecting: AtomicBool,
    /// Bound or connected: it can no longer be given back to the kernel.
    committed: AtomicBool,
    /// `SO_BINDTODEVICE`.
    bound_to_device: AtomicBool,
    /// Made on a given stack: it is never the kernel's.
    pinned: AtomicBool,
    /// An error that came after part of a call had succeeded; the next call reports it.
    deferred_error: Mutex<Option<Errno>>,
}

impl Socket {
    pub(crate) fn new(domain: i32, endpoint: Arc<dyn Endpoint>, nonblocking: bool) -> Self {
        Self {
            domain,
            endpoint: Arc::new(ForkMutex::new(endpoint)),
            nonblocking: AtomicBool::new(nonblocking),
            receive_timeout: AtomicU64::new(0),
            send_timeout: AtomicU64::new(0),
            linger: AtomicI32::new(-1),
            receive_low_water: AtomicI32::new(1),
            tells_inq: AtomicBool::new(false),
            reuse: Mutex::default(),
            listening: AtomicBool::new(false),
            connecting: AtomicBool::new(false),
            committed: AtomicBool::new(false),
            bound_to_device: AtomicBool::new(false),
            pinned: AtomicBool::new(false),
            deferred_error: Mutex::new(None),
        }
    }

    pub(crate) fn domain(&self) -> i32 {
        self.domain
    }

    pub(crate) fn endpoint(&self) -> Arc<dyn Endpoint> {
        self.endpoint.lock().clone()
    }

    /// Puts another endpoint in place, and returns the old one.
    pub(crate) fn replace_endpoint(&self, new: Arc<dyn Endpoint>) -> Arc<dyn Endpoint> {
        std::mem::replace(&mut *self.endpoint.lock(), new)
    }

    /// Nobody is looking at the endpoint, or changing it, while the result lives.
    pub(crate) fn freeze(&self) -> ForkArcGuard<Arc<dyn Endpoint>> {
        self.endpoint.lock_arc()
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    /// Whether it could still be the kernel's: neither bound nor connected.
    pub(crate) fn is_uncommitted(&self) -> bool {
        !self.committed.load(Ordering::Relaxed)
    }

    /// Whether it is to be given to the kernel if that turns out to be where it belongs.
    pub(crate) fn may_leave(&self) -> bool {
        self.is_uncommitted() && !self.pinned.load(Ordering::Relaxed)
    }

    /// Why there is no socket of a stack of this process behind it.
    pub(crate) fn no_stack(&self) -> Errno {
        if self.endpoint().number().is_some() { Errno::OPNOTSUPP } else { Errno::NETDOWN }
    }

    /// It stays on its stack.
    pub(crate) fn pin(&self) {
        self.pinned.store(true, Ordering::Relaxed);
    }

    fn take_deferred(&self) -> Result<()> {
        self.deferred_error.lock().take().map_or(Ok(()), Err)
    }

    fn timeout(cell: &AtomicU64) -> Deadline {
        let micros = cell.load(Ordering::Relaxed);
        Deadline::after((micros > 0).then(|| Duration::from_micros(micros)))
    }

    /// `bind(2)`.
    pub(crate) fn bind(&self, local: SocketAddr) -> Result<()> {
        self.endpoint().bind(local, *self.reuse.lock())?;
        self.committed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// `listen(2)`: a negative backlog is as large as can be, as in Linux.
    pub(crate) fn listen(&self, backlog: i32) -> Result<()> {
        let endpoint = self.endpoint();
        if endpoint.local_addr().is_none() {
            endpoint.bind(sockaddr::any(self.domain), *self.reuse.lock())?;
        }
        endpoint.listen(usize::try_from(backlog).unwrap_or(SOMAXCONN).min(SOMAXCONN))?;
        self.committed.store(true, Ordering::Relaxed);
        self.listening.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The oldest connection that waits to be accepted.
    pub(crate) fn accept(&self, nonblocking_child: bool) -> Result<Socket> {
        let child = Socket::new(self.domain, self.endpoint().accept()?, nonblocking_child);
        child.committed.store(true, Ordering::Relaxed);
        child.linger.store(self.linger.load(Ordering::Relaxed), Ordering::Relaxed);
        let low_water = self.receive_low_water.load(Ordering::Relaxed);
        child.receive_low_water.store(low_water, Ordering::Relaxed);
        child.tells_inq.store(self.tells_inq(), Ordering::Relaxed);
        for (from, to) in
            [(&self.receive_timeout, &child.receive_timeout), (&self.send_timeout, &child.send_timeout)]
        {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(child)
    }

    /// Returns when there is a connection to accept, or, without waiting, whether there is one.
    pub(crate) fn await_connection(&self) -> Result<()> {
        if !self.listening.load(Ordering::Relaxed) {
            return Err(Errno::INVAL);
        }
        let endpoint = self.endpoint();
        if endpoint.ready().contains(Ready::IN) {
            return Ok(());
        }
        if self.is_nonblocking() {
            return Err(Errno::AGAIN);
        }
        wait(&*endpoint, ACCEPTABLE, Self::timeout(&self.receive_timeout))
    }

    /// `connect(2)`.
    pub(crate) fn connect(&self, remote: SocketAddr) -> Result<()> {
        let endpoint = self.endpoint();
        match endpoint.connect(remote) {
            Ok(()) => {
                self.committed.store(true, Ordering::Relaxed);
                self.connecting.store(true, Ordering::Relaxed);
                if self.is_nonblocking() && !endpoint.ready().intersects(SENDABLE) {
                    return Err(Errno::INPROGRESS);
                }
            }
            Err(Errno::ALREADY) if !self.is_nonblocking() => {}
            Err(Errno::ISCONN) if self.connecting.swap(false, Ordering::Relaxed) => {
                return self.take_error().map_or(Ok(()), Err);
            }
            Err(e) => return Err(e),
        }
        match wait(&*endpoint, SENDABLE, Self::timeout(&self.send_timeout)) {
            Err(Errno::AGAIN) => return Err(Errno::INPROGRESS),
            done => done?,
        }
        self.connecting.store(false, Ordering::Relaxed);
        self.take_error().map_or(Ok(()), Err)
    }

    /// What `MSG_FASTOPEN` does before its data is sent.
    pub(crate) fn connect_with_data(&self, remote: SocketAddr, flags: i32) -> Result<()> {
        let endpoint = self.endpoint();
        let ready = endpoint.connect_with_data(remote)?;
        self.committed.store(true, Ordering::Relaxed);
        if ready {
            return Ok(());
        }
        self.connecting.store(true, Ordering::Relaxed);
        if self.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return Err(Errno::INPROGRESS);
        }
        match wait(&*endpoint, SENDABLE, Self::timeout(&self.send_timeout)) {
            Err(Errno::AGAIN) => return Err(Errno::INPROGRESS),
            done => done?,
        }
        self.connecting.store(false, Ordering::Relaxed);
        self.take_error().map_or(Ok(()), Err)
    }

    /// `connect(AF_UNSPEC)`.
    pub(crate) fn disconnect(&self) -> Result<()> {
        self.connecting.store(false, Ordering::Relaxed);
        self.endpoint().disconnect()
    }

    /// `getsockname(2)`.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.endpoint().local_addr().unwrap_or_else(|| sockaddr::any(self.domain))
    }

    /// `getpeername(2)`.
    pub(crate) fn peer_addr(&self) -> Result<SocketAddr> {
        self.endpoint().peer_addr().ok_or(Errno::NOTCONN)
    }

    /// `shutdown(2)`.
    pub(crate) fn shutdown(&self, how: i32) -> Result<()> {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::INVAL),
        };
        self.endpoint().shutdown(how)
    }

    /// Sends all of `buf`, or, without waiting, as much as there is room for.
    pub(crate) fn send(&self, buf: &mut SendBuf, flags: i32) -> Result<usize> {
        self.take_deferred()?;
        let endpoint = self.endpoint();
        let blocking = flags & libc::MSG_DONTWAIT == 0 && !self.is_nonblocking();
        let deadline = Self::timeout(&self.send_timeout);
        loop {
            let stopped = match endpoint.send(buf) {
                Ok(_) if buf.is_done() => return Ok(buf.len()),
                Ok(_) => continue,
                Err(Errno::AGAIN) if blocking => match wait(&*endpoint, SENDABLE, deadline) {
                    Ok(()) => continue,
                    Err(e) => e,
                },
                Err(e) => e,
            };
            if buf.sent() == 0 {
                return Err(stopped);
            }
            if !matches!(stopped, Errno::AGAIN | Errno::INTR) {
                *self.deferred_error.lock() = Some(stopped);
            }
            return Ok(buf.sent());
        }
    }

    /// Receives into `buf`; 0 is the end of the stream, or of an empty buffer.
    pub(crate) fn recv(&self, buf: &mut RecvBuf, flags: i32) -> Result<usize> {
        self.take_deferred()?;
        if flags & libc::MSG_OOB != 0 {
            let byte = self.endpoint().recv_urgent(flags & libc::MSG_PEEK != 0)?;
            buf.put(byte.as_slice());
            return Ok(byte.map_or(0, |_| 1));
        }
        let how = match flags {
            f if f & libc::MSG_PEEK != 0 => RecvHow::Peek,
            f if f & libc::MSG_TRUNC != 0 => RecvHow::Discard,
            _ => RecvHow::Take,
        };
        let endpoint = self.endpoint();
        let blocking = flags & libc::MSG_DONTWAIT == 0 && !self.is_nonblocking();
        let deadline = Self::timeout(&self.receive_timeout);
        let low_water = self.receive_low_water.load(Ordering::Relaxed).max(1) as usize;
        let wanted = if flags & libc::MSG_WAITALL != 0 { buf.len() } else { low_water.min(buf.len()).max(1) };
        let mut got = 0;
        loop {
            let stopped = match endpoint.recv(buf, how) {
                Ok(0) => return Ok(got),
                Ok(n) => {
                    got = if how == RecvHow::Peek { n } else { got + n };
                    if got >= wanted || !blocking {
                        return Ok(got);
                    }
                    // What was taken is gone from the queue; what was peeked at is still there.
                    let known = if how == RecvHow::Peek { n } else { 0 };
                    let more = || endpoint.counts().is_ok_and(|c| c.readable > known);
                    if how == RecvHow::Peek && at_end(&*endpoint) && !more() {
                        return Ok(got);
                    }
                    wait_until(&*endpoint, RECEIVABLE, deadline, || more() || at_end(&*endpoint)).err()
                }
                Err(Errno::AGAIN) if blocking => wait(&*endpoint, RECEIVABLE, deadline).err(),
                Err(e) => Some(e),
            };
            let Some(stopped) = stopped else { continue };
            if got == 0 {
                return Err(stopped);
            }
            if !matches!(stopped, Errno::AGAIN | Errno::INTR) {
                *self.deferred_error.lock() = Some(stopped);
            }
            return Ok(got);
        }
    }

    /// Receives up to `max` bytes as at most `most` counted pieces, added to `out`; 0 is the end of the stream.
    pub(crate) fn recv_owned(
        &self,
        max: usize,
        most: usize,
        flags: i32,
        out: &mut Vec<Frag>,
    ) -> Result<usize> {
        self.take_deferred()?;
        let endpoint = self.endpoint();
        let socket = endpoint.tcp_socket().ok_or_else(|| self.no_stack())?;
        let blocking = flags & libc::MSG_DONTWAIT == 0 && !self.is_nonblocking();
        let deadline = Self::timeout(&self.receive_timeout);
        loop {
            match socket.recv_few_pieces(max, most, out).map_err(errno) {
                Err(Errno::AGAIN) if blocking => wait(&*endpoint, RECEIVABLE, deadline)?,
                received => return received,
            }
        }
    }

    /// The oldest notification of completed calls (`MSG_ERRQUEUE`).
    pub(crate) fn completion(&self) -> Result<Completion> {
        self.endpoint().completion().ok_or(Errno::AGAIN)
    }

    /// Poll conditions.
    pub(crate) fn ready(&self) -> Ready {
        let mut ready = self.endpoint().ready();
        ready.set(Ready::ERR, ready.contains(Ready::ERR) || self.deferred_error.lock().is_some());
        ready
    }

    /// What is in the queues; `EINVAL` while listening, as in Linux.
    pub(crate) fn counts(&self) -> Result<Counts> {
        self.endpoint().counts()
    }

    /// Whether `recvmsg` says how much more there is (`TCP_INQ`).
    pub(crate) fn tells_inq(&self) -> bool {
        self.tells_inq.load(Ordering::Relaxed)
    }

    /// Sends all of `buf`, waiting for room even on a nonblocking socket.
    pub(crate) fn send_all(&self, buf: &mut SendBuf) -> Result<usize> {
        let endpoint = self.endpoint();
        while !buf.is_done() {
            match endpoint.send(buf) {
                Ok(_) => {}
                Err(Errno::AGAIN) => wait(&*endpoint, SENDABLE, Deadline::after(None))?,
                Err(e) if buf.sent() == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(buf.sent())
    }

    fn take_error(&self) -> Option<Errno> {
        if let Some(e) = self.deferred_error.lock().take() {
            return Some(e);
        }
        let value = self.endpoint().option(libc::SOL_SOCKET, libc::SO_ERROR).ok()?;
        match int(&value).ok()? {
            0 => None,
            n => Some(Errno::from_raw_os_error(n)),
        }
    }

    /// `setsockopt(2)`.
    pub(crate) fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        let flag = || int(value).map(|n| n != 0);
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.reuse.lock().addr = flag()?,
            (libc::SOL_SOCKET, libc::SO_REUSEPORT) => self.reuse.lock().port = flag()?,
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if self.domain == libc::AF_INET6 => {
                if !self.is_uncommitted() {
                    return Err(Errno::INVAL);
                }
                self.reuse.lock().v6only = flag()?;
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => set_timeout(&self.receive_timeout, value)?,
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => set_timeout(&self.send_timeout, value)?,
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
                self.endpoint().set_option(level, name, value)?;
                let kept = int(&self.endpoint().option(level, name)?)?;
                self.receive_low_water.store(kept, Ordering::Relaxed);
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => self.set_linger(value)?,
            (libc::SOL_SOCKET, libc::SO_BINDTODEVICE) => self.bind_to_device(value)?,
            (libc::IPPROTO_TCP, TCP_INQ) => {
                self.endpoint().set_option(level, name, value)?;
                self.tells_inq.store(flag()?, Ordering::Relaxed);
            }
            _ => self.endpoint().set_option(level, name, value)?,
        }
        Ok(())
    }

    /// There is one device to be bound to; no name is any device.
    fn bind_to_device(&self, name: &[u8]) -> Result<()> {
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        let bound = end > 0;
        if bound && name[..end] != *crate::net::device().as_bytes() {
            return Err(Errno::NODEV);
        }
        self.bound_to_device.store(bound, Ordering::Relaxed);
        Ok(())
    }

    fn set_linger(&self, value: &[u8]) -> Result<()> {
        if value.len() < size_of::<libc::linger>() {
            return Err(Errno::INVAL);
        }
        let (on, seconds) = (int(value)?, int(&value[4..])?);
        let seconds = if on == 0 { -1 } else { seconds.max(0) };
        self.linger.store(seconds, Ordering::Relaxed);
        self.endpoint().set_linger(u64::try_from(seconds).ok().map(Duration::from_secs));
        Ok(())
    }

    /// `getsockopt(2)`.
    pub(crate) fn option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        let load = |cell: &AtomicU64| {
            let micros = cell.load(Ordering::Relaxed) as i64;
            let (tv_sec, tv_usec) = (micros / 1_000_000, micros % 1_000_000);
            Ok([tv_sec.to_ne_bytes(), tv_usec.to_ne_bytes()].concat())
        };
        let n = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => self.domain,
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => i32::from(self.listening.load(Ordering::Relaxed)),
            (libc::SOL_SOCKET, libc::SO_ERROR) => self.take_error().map_or(0, Errno::raw_os_error),
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => i32::from(self.reuse.lock().addr),
            (libc::SOL_SOCKET, libc::SO_REUSEPORT) => i32::from(self.reuse.lock().port),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if self.domain == libc::AF_INET6 => {
                i32::from(self.reuse.lock().v6only)
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => return load(&self.receive_timeout),
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => return load(&self.send_timeout),
            (libc::SOL_SOCKET, libc::SO_SNDLOWAT) => 1,
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let seconds = self.linger.load(Ordering::Relaxed);
                let linger = libc::linger { l_onoff: i32::from(seconds >= 0), l_linger: seconds.max(0) };
                return Ok(bytes_of(&linger).to_vec());
            }
            (libc::SOL_SOCKET, libc::SO_BINDTODEVICE) => {
                let bound = self.bound_to_device.load(Ordering::Relaxed);
                return Ok(if bound {
                    [crate::net::device().as_bytes(), b"\0"].concat()
                } else {
                    Vec::new()
                });
            }
            _ => return self.endpoint().option(level, name),
        };
        Ok(n.to_ne_bytes().to_vec())
    }

    /// What `close` of the last descriptor waits for (`SO_LINGER`): until everything is acknowledged.
    pub(crate) fn linger(&self) {
        let Ok(seconds @ 1..) = u64::try_from(self.linger.load(Ordering::Relaxed)) else { return };
        let endpoint = self.endpoint();
        let _ = endpoint.shutdown(Shutdown::Write);
        let deadline = Deadline::after(Some(Duration::from_secs(seconds)));
        let _ = wait_until(&*endpoint, Ready::DRAINED, deadline, || endpoint.is_drained());
    }
}

/// Largest backlog (`net.core.somaxconn`).
const SOMAXCONN: usize = 4096;
fn at_end(endpoint: &dyn Endpoint) -> bool {
    endpoint.ready().intersects(Ready::RDHUP | Ready::HUP)
}

fn set_timeout(cell: &AtomicU64, value: &[u8]) -> Result<()> {
    if value.len() < size_of::<libc::timeval>() {
        return Err(Errno::INVAL);
    }
    let read = |at: usize| i64::from_ne_bytes(value[at..at + 8].try_into().unwrap_or_default());
    let (seconds, micros) = (read(0), read(8));
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::DOM);
    }
    // As Linux: a negative time-out is over at once.
    let total = if seconds < 0 { 1 } else { seconds.saturating_mul(1_000_000).saturating_add(micros) };
    cell.store(total as u64, Ordering::Relaxed);
    Ok(())
}
