//! Socket options with Linux's names, units, ranges and meanings. A value out of range is
//! [`Error::Invalid`] (`EINVAL`). Set on a listener, they hold for the connections that come to it later.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tcp::{Config, CongestionKind, State, UrgentByte};
use time::Duration;

use crate::completion;
use crate::error::Error;
use crate::tcp_socket::{Role, TcpSocket};

/// Least and largest `TCP_MAXSEG`.
const MAXSEG: std::ops::RangeInclusive<u32> = 88..=32_767;
/// Largest `TCP_KEEPIDLE` and `TCP_KEEPINTVL`, in seconds.
const KEEPALIVE_MAX: u32 = 32_767;
/// Largest `TCP_LINGER2`, in seconds.
const LINGER2_MAX: i32 = 120;
/// Least buffers, in bytes (Linux: `SOCK_MIN_RCVBUF`, `SOCK_MIN_SNDBUF`).
const MIN_RCVBUF: usize = 2304;
const MIN_SNDBUF: usize = 4608;

impl TcpSocket {
    /// Changes parameters of the connection, or of those to come.
    pub fn configure(self: &Arc<Self>, change: impl FnOnce(&mut Config)) {
        completion::with_lock(self, |core, fx| {
            change(Arc::make_mut(&mut core.config));
            match &mut core.role {
                Role::Open(tcb) => tcb.set_config(fx.now(&self.shared), core.config.clone()),
                Role::Listening => {
                    if let Some(queue) = self.accept_queue() {
                        queue.listen.write().set_config(core.config.clone());
                    }
                }
                Role::Idle => {}
            }
        });
    }

    /// The parameters.
    pub fn config(&self) -> Arc<Config> {
        self.lock.lock().config.clone()
    }

    /// `TCP_NODELAY`: no Nagle. Switching it on sends what waits.
    pub fn set_nodelay(self: &Arc<Self>, on: bool) {
        self.configure(|c| c.nodelay = on);
    }

    /// Reads `TCP_NODELAY` back.
    pub fn nodelay(&self) -> bool {
        self.config().nodelay
    }

    /// `TCP_CORK`: holds a last segment that is not full, for 200 ms or a retransmission timeout at most.
    pub fn set_cork(self: &Arc<Self>, on: bool) {
        self.configure(|c| c.cork = on);
    }

    /// Reads `TCP_CORK` back.
    pub fn cork(&self) -> bool {
        self.config().cork
    }

    /// `TCP_MAXSEG` in bytes, for connections to come; 0 for none. 88 to 32767.
    pub fn set_maxseg(self: &Arc<Self>, bytes: u32) -> Result<(), Error> {
        if bytes != 0 && !MAXSEG.contains(&bytes) {
            return Err(Error::Invalid);
        }
        self.configure(|c| c.user_mss = bytes as u16);
        Ok(())
    }

    /// `TCP_MAXSEG`: payload of a full segment; before there is a connection what was set, or 536.
    pub fn maxseg(&self) -> u32 {
        let core = self.lock.lock();
        match &core.role {
            Role::Open(tcb) if tcb.state() != State::SynSent => tcb.mss().into(),
            _ if core.config.user_mss > 0 => core.config.user_mss.into(),
            _ => 536,
        }
    }

    /// `TCP_USER_TIMEOUT` in milliseconds; 0 for none.
    pub fn set_user_timeout(self: &Arc<Self>, ms: u32) -> Result<(), Error> {
        i32::try_from(ms).map_err(|_| Error::Invalid)?;
        self.configure(|c| c.user_timeout = (ms > 0).then(|| Duration::from_millis(ms.into())));
        Ok(())
    }

    /// Reads `TCP_USER_TIMEOUT` back, in milliseconds.
    pub fn user_timeout(&self) -> u32 {
        self.config().user_timeout.map_or(0, |t| t.as_millis() as u32)
    }

    /// `SO_KEEPALIVE`.
    pub fn set_keepalive(self: &Arc<Self>, on: bool) {
        self.configure(|c| c.keepalive.on = on);
    }

    /// Reads `SO_KEEPALIVE` back.
    pub fn keepalive(&self) -> bool {
        self.config().keepalive.on
    }

    /// `TCP_KEEPIDLE` in seconds, 1 to 32767.
    pub fn set_keepidle(self: &Arc<Self>, s: u32) -> Result<(), Error> {
        let idle = seconds(s, KEEPALIVE_MAX)?;
        self.configure(|c| c.keepalive.idle = idle);
        Ok(())
    }

    /// `TCP_KEEPINTVL` in seconds, 1 to 32767.
    pub fn set_keepintvl(self: &Arc<Self>, s: u32) -> Result<(), Error> {
        let interval = seconds(s, KEEPALIVE_MAX)?;
        self.configure(|c| c.keepalive.interval = interval);
        Ok(())
    }

    /// `TCP_KEEPCNT`, 1 to 127.
    pub fn set_keepcnt(self: &Arc<Self>, probes: u32) -> Result<(), Error> {
        let probes = count(probes)?;
        self.configure(|c| c.keepalive.probes = probes);
        Ok(())
    }

    /// `TCP_KEEPIDLE`, `TCP_KEEPINTVL` (in seconds) and `TCP_KEEPCNT`.
    pub fn keepalive_parameters(&self) -> (u32, u32, u32) {
        let k = self.config().keepalive;
        (k.idle.as_secs() as u32, k.interval.as_secs() as u32, k.probes.into())
    }

    /// `TCP_SYNCNT`: SYNs sent again, 1 to 127.
    pub fn set_syncnt(self: &Arc<Self>, retries: u32) -> Result<(), Error> {
        let retries = count(retries)?;
        self.configure(|c| c.syn_retries = retries);
        Ok(())
    }

    /// Reads `TCP_SYNCNT` back.
    pub fn syncnt(&self) -> u32 {
        self.config().syn_retries.into()
    }

    /// `TCP_LINGER2` in seconds: a connection that the program left stays so long in FIN-WAIT-2. 0 for the
    /// default, less for not at all, 120 at most.
    pub fn set_linger2(self: &Arc<Self>, s: i32) {
        let default = self.shared.config.tcp.fin_timeout;
        let timeout = match s.min(LINGER2_MAX) {
            0 => default,
            s => Duration::from_secs(s.max(0) as u64),
        };
        self.configure(|c| c.fin_timeout = timeout);
    }

    /// Reads `TCP_LINGER2` back, in seconds; -1 for not at all.
    pub fn linger2(&self) -> i32 {
        match self.config().fin_timeout.as_secs() {
            0 => -1,
            s => s as i32,
        }
    }

    /// `TCP_DEFER_ACCEPT` in seconds; 0 for off. It is rounded up to a number of SYN-ACKs.
    pub fn set_defer_accept(self: &Arc<Self>, s: i32) {
        let mut retransmits = 0;
        while i64::from(defer_seconds(retransmits)) < i64::from(s) && retransmits < u8::MAX {
            retransmits += 1;
        }
        self.configure(|c| c.defer_accept = retransmits);
    }

    /// Reads `TCP_DEFER_ACCEPT` back, in seconds.
    pub fn defer_accept(&self) -> u32 {
        defer_seconds(self.config().defer_accept)
    }

    /// `TCP_WINDOW_CLAMP` in bytes: the largest window advertised, 1152 at least. 0 for none, which only an
    /// unconnected socket may ask for.
    pub fn set_window_clamp(self: &Arc<Self>, bytes: u32) -> Result<(), Error> {
        if bytes == 0 && self.state() != State::Closed {
            return Err(Error::Invalid);
        }
        self.configure(|c| c.window_clamp = if bytes == 0 { 0 } else { bytes.max(MIN_RCVBUF as u32 / 2) });
        Ok(())
    }

    /// Reads `TCP_WINDOW_CLAMP` back.
    pub fn window_clamp(&self) -> u32 {
        self.config().window_clamp
    }

    /// `TCP_QUICKACK`: acknowledge at once for a while, or hold acknowledgments back for data to carry them.
    pub fn set_quickack(self: &Arc<Self>, on: bool) {
        completion::with_lock(self, |core, _| {
            if let Role::Open(tcb) = &mut core.role {
                tcb.set_quickack(on);
            }
        });
    }

    /// Reads `TCP_QUICKACK` back.
    pub fn quickack(&self) -> bool {
        match &self.lock.lock().role {
            Role::Open(tcb) => tcb.quickack(),
            Role::Idle | Role::Listening => true,
        }
    }

    /// `TCP_CONGESTION`: `cubic` or `reno`; [`Error::NotFound`] for others.
    pub fn set_congestion(self: &Arc<Self>, name: &str) -> Result<(), Error> {
        let kind = CongestionKind::from_name(name).ok_or(Error::NotFound)?;
        self.configure(|c| c.congestion = kind);
        Ok(())
    }

    /// Reads `TCP_CONGESTION` back.
    pub fn congestion(&self) -> &'static str {
        self.config().congestion.name()
    }

    /// `TCP_NOTSENT_LOWAT` in bytes: with so much unsent a socket takes no more; `u32::MAX` for none. It is
    /// writable again below half of it.
    pub fn set_notsent_lowat(self: &Arc<Self>, bytes: u32) {
        self.configure(|c| c.notsent_lowat = bytes);
    }

    /// Reads `TCP_NOTSENT_LOWAT` back.
    pub fn notsent_lowat(&self) -> u32 {
        self.config().notsent_lowat
    }

    /// `TCP_INQ`: whether receives tell how much is left. Acted upon by whoever fills in control messages.
    pub fn set_recv_inq(&self, on: bool) {
        self.recv_inq.store(on, Ordering::Relaxed);
    }

    /// Reads `TCP_INQ` back.
    pub fn recv_inq(&self) -> bool {
        self.recv_inq.load(Ordering::Relaxed)
    }

    /// `SO_LINGER`: what closing does. `Some(0)` resets the connection. With another time a blocking close
    /// waits so long for [`is_drained`](Self::is_drained), which is its caller's part.
    pub fn set_linger(self: &Arc<Self>, linger: Option<Duration>) {
        self.configure(|c| c.linger = linger);
    }

    /// Reads `SO_LINGER` back.
    pub fn linger(&self) -> Option<Duration> {
        self.config().linger
    }

    /// Whether sending is shut and the peer has acknowledged everything, or the connection is gone: a
    /// lingering close waits for it with [`Ready::DRAINED`](crate::Ready::DRAINED).
    pub fn is_drained(&self) -> bool {
        match &self.lock.lock().role {
            Role::Open(tcb) => tcb.is_drained(),
            Role::Idle | Role::Listening => true,
        }
    }

    /// `SO_RCVBUF` in bytes. Doubled, as Linux does for its overhead, and from then on it does not tune
    /// itself. `force` exceeds the limit (`SO_RCVBUFFORCE`).
    pub fn set_rcvbuf(self: &Arc<Self>, bytes: usize, force: bool) {
        let most = if force { i32::MAX as usize / 2 } else { self.shared.config.rmem_max };
        let size = (2 * bytes.min(most)).max(MIN_RCVBUF);
        self.configure(|c| (c.rcvbuf, c.rcvbuf_max) = (size, size));
    }

    /// `SO_RCVBUF` as it is now, in bytes.
    pub fn rcvbuf(&self) -> usize {
        let core = self.lock.lock();
        match &core.role {
            Role::Open(tcb) => tcb.rcvbuf(),
            Role::Idle | Role::Listening => core.config.rcvbuf,
        }
    }

    /// `SO_SNDBUF` in bytes, doubled. `force` exceeds the limit (`SO_SNDBUFFORCE`).
    pub fn set_sndbuf(self: &Arc<Self>, bytes: usize, force: bool) {
        let most = if force { i32::MAX as usize / 2 } else { self.shared.config.wmem_max };
        self.configure(|c| c.sndbuf = (2 * bytes.min(most)).max(MIN_SNDBUF));
    }

    /// Reads `SO_SNDBUF` back, in bytes.
    pub fn sndbuf(&self) -> usize {
        self.config().sndbuf
    }

    /// `SO_RCVLOWAT`: bytes from which on the socket is readable. At least 1, at most half of what the
    /// receive buffer can become; negative means that.
    pub fn set_rcvlowat(self: &Arc<Self>, bytes: i32) {
        self.configure(|c| {
            let asked = usize::try_from(bytes).unwrap_or(usize::MAX);
            c.rcvlowat = asked.min(c.rcvbuf_max.max(c.rcvbuf) / 2).max(1);
        });
    }

    /// Reads `SO_RCVLOWAT` back.
    pub fn rcvlowat(&self) -> usize {
        self.config().rcvlowat
    }

    /// `SO_OOBINLINE`: urgent bytes stay in the stream.
    pub fn set_oob_inline(self: &Arc<Self>, on: bool) {
        self.configure(|c| c.oob_inline = on);
    }

    /// Reads `SO_OOBINLINE` back.
    pub fn oob_inline(&self) -> bool {
        self.config().oob_inline
    }

    /// Receives the urgent byte (`MSG_OOB`). [`Error::Invalid`] if none was announced, it was read already
    /// or stays in the stream; [`Error::WouldBlock`] if it has not come. `None` at the end of the stream.
    pub fn recv_urgent(self: &Arc<Self>, peek: bool) -> Result<Option<u8>, Error> {
        completion::with_lock(self, |core, _| {
            let Role::Open(tcb) = &mut core.role else {
                return if core.ended { Ok(None) } else { Err(Error::NotConnected) };
            };
            match tcb.take_urgent(peek) {
                Some(UrgentByte::Here(byte)) => Ok(Some(byte)),
                Some(_) if tcb.peer_closed() || tcb.receive_shut() => Ok(None),
                Some(_) => Err(Error::WouldBlock),
                None => Err(Error::Invalid),
            }
        })
    }

    /// Whether the next byte to be read is the urgent one, or would be were it in line (`SIOCATMARK`).
    pub fn is_at_mark(&self) -> bool {
        match &self.lock.lock().role {
            Role::Open(tcb) => tcb.is_at_mark(),
            Role::Idle | Role::Listening => false,
        }
    }

    /// Bytes a read can give (`SIOCINQ`). [`Error::Invalid`] on a listener, here and below.
    pub fn inq(&self) -> Result<usize, Error> {
        self.count(|tcb| tcb.inq())
    }

    /// What `TCP_INQ` tells beside a read: bytes left, or 1 if the end of the stream is.
    pub fn inq_hint(&self) -> usize {
        self.count(|tcb| tcb.inq_hint()).unwrap_or(0)
    }

    /// Bytes queued that the peer has not acknowledged (`SIOCOUTQ`), a FIN counting as one.
    pub fn outq(&self) -> Result<usize, Error> {
        self.count(|tcb| tcb.queued())
    }

    /// Bytes queued that were not sent (`SIOCOUTQNSD`).
    pub fn outq_not_sent(&self) -> Result<usize, Error> {
        self.count(|tcb| tcb.outq_not_sent())
    }

    fn count(&self, of: impl FnOnce(&tcp::Tcb) -> usize) -> Result<usize, Error> {
        match &self.lock.lock().role {
            Role::Open(tcb) if matches!(tcb.state(), State::SynSent | State::SynReceived) => Ok(0),
            Role::Open(tcb) => Ok(of(tcb)),
            Role::Idle => Ok(0),
            Role::Listening => Err(Error::Invalid),
        }
    }
}

fn seconds(s: u32, most: u32) -> Result<Duration, Error> {
    if (1..=most).contains(&s) { Ok(Duration::from_secs(s.into())) } else { Err(Error::Invalid) }
}

fn count(n: u32) -> Result<u8, Error> {
    if (1..=127).contains(&n) { Ok(n as u8) } else { Err(Error::Invalid) }
}

/// When so many SYN-ACKs were sent again: the first after a second, each twice as long after the last, two
/// minutes at most.
fn defer_seconds(retransmits: u8) -> u32 {
    (0..u32::from(retransmits)).map(|n| (1 << n.min(7)).min(120)).sum()
}

// Locks of the model checker work only inside a model.
#[cfg(all(test, not(loom)))]
mod tests;
