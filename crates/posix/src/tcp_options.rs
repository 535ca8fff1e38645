//! Socket options that the stack's TCP has. What is not here is `ENOPROTOOPT`: an option that would do
//! nothing is not taken.

use std::sync::atomic::Ordering;
use std::time::Duration;

use stack::tcp::{CongestionKind, Keepalive, State, TcpInfo};

use crate::errno::{Errno, Result};
use crate::local::{Local, int};

/// As Linux: what `SO_SNDBUF` asks for is doubled, for its own overhead there, and read back doubled.
const BUF_FACTOR: usize = 2;
/// Least and largest buffer that may be asked for, after doubling (`SOCK_MIN_SNDBUF`; `wmem_max` is ours).
const BUF_RANGE: (usize, usize) = (4608, 64 << 20);

pub(crate) fn set(local: &Local, level: i32, name: i32, value: &[u8]) -> Result<()> {
    let socket = &local.socket;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => match int(value)? {
            on @ (0 | 1) => socket.set_zerocopy(on == 1),
            _ => return Err(Errno::INVAL),
        },
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => {
            let size = buffer(int(value)?);
            socket.configure(|c| c.sndbuf = size);
        }
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
            let size = buffer(int(value)?);
            socket.configure(|c| (c.rcvbuf, c.rcvbuf_max) = (size, size));
        }
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
            let probing = (int(value)? != 0).then(|| *local.keepalive.lock());
            socket.configure(|c| c.keepalive = probing);
        }
        (libc::IPPROTO_TCP, name) => set_tcp(local, name, value)?,
        _ => return Err(Errno::NOPROTOOPT),
    }
    Ok(())
}

fn set_tcp(local: &Local, name: i32, value: &[u8]) -> Result<()> {
    let socket = &local.socket;
    if name == libc::TCP_CONGESTION {
        let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
        let kind = match &value[..end] {
            b"cubic" => CongestionKind::Cubic,
            b"reno" => CongestionKind::NewReno,
            _ => return Err(Errno::NOENT),
        };
        socket.configure(|c| c.congestion = kind);
        return Ok(());
    }
    let n = int(value)?;
    let within =
        |low: i32, high: i32| if (low..=high).contains(&n) { Ok(n as u64) } else { Err(Errno::INVAL) };
    match name {
        libc::TCP_NODELAY => socket.configure(|c| c.nodelay = n != 0),
        libc::TCP_CORK => {
            local.corked.store(n != 0, Ordering::Relaxed);
            socket.set_more(n != 0);
        }
        libc::TCP_KEEPIDLE => {
            let s = Duration::from_secs(within(1, 32767)?);
            set_keepalive(local, |k| k.idle = s);
        }
        libc::TCP_KEEPINTVL => {
            let s = Duration::from_secs(within(1, 32767)?);
            set_keepalive(local, |k| k.interval = s);
        }
        libc::TCP_KEEPCNT => {
            let probes = within(1, 127)? as u8;
            set_keepalive(local, |k| k.probes = probes);
        }
        libc::TCP_SYNCNT => {
            let retries = within(1, 127)? as u8;
            socket.configure(|c| c.syn_retries = retries);
        }
        libc::TCP_USER_TIMEOUT => {
            let ms = within(0, i32::MAX)?;
            socket.configure(|c| c.user_timeout = (ms > 0).then(|| Duration::from_millis(ms)));
        }
        libc::TCP_LINGER2 => {
            let s = within(i32::MIN, i32::MAX).map(|_| n.clamp(0, 120))?;
            socket.configure(|c| c.fin_timeout = Duration::from_secs(s as u64));
        }
        _ => return Err(Errno::NOPROTOOPT),
    }
    Ok(())
}

/// Changes the keepalive parameters, of the connection too if it probes already.
fn set_keepalive(local: &Local, change: impl FnOnce(&mut Keepalive)) {
    let mut keepalive = local.keepalive.lock();
    change(&mut keepalive);
    let now = *keepalive;
    local.socket.configure(|c| c.keepalive = c.keepalive.map(|_| now));
}

fn buffer(asked: i32) -> usize {
    (usize::try_from(asked).unwrap_or(0) * BUF_FACTOR).clamp(BUF_RANGE.0, BUF_RANGE.1)
}

pub(crate) fn get(local: &Local, level: i32, name: i32) -> Result<Vec<u8>> {
    let socket = &local.socket;
    let config = socket.config();
    let keepalive = *local.keepalive.lock();
    let n = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => i32::from(socket.zerocopy()),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => saturate(config.sndbuf),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => saturate(socket.info().map_or(config.rcvbuf, |i| i.rcvbuf)),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => i32::from(config.keepalive.is_some()),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => i32::from(config.nodelay),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => i32::from(local.corked.load(Ordering::Relaxed)),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => socket.info().map_or(536, |i| i32::from(i.mss)),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => saturate(keepalive.idle.as_secs() as usize),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => saturate(keepalive.interval.as_secs() as usize),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => i32::from(keepalive.probes),
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => i32::from(config.syn_retries),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
            saturate(config.user_timeout.map_or(0, |t| t.as_millis() as usize))
        }
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => saturate(config.fin_timeout.as_secs() as usize),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            let mut name = match config.congestion {
                CongestionKind::Cubic => b"cubic".to_vec(),
                CongestionKind::NewReno => b"reno".to_vec(),
            };
            name.resize(16, 0);
            return Ok(name);
        }
        (libc::IPPROTO_TCP, libc::TCP_INFO) => {
            return Ok(tcp_info(socket.info(), socket.state()).to_vec());
        }
        _ => return Err(Errno::NOPROTOOPT),
    };
    Ok(n.to_ne_bytes().to_vec())
}

/// `struct tcp_info`, as far as the connection measures it; the rest is zero.
fn tcp_info(info: Option<TcpInfo>, state: State) -> [u8; TCP_INFO_LEN] {
    let mut out = [0; TCP_INFO_LEN];
    out[0] = state_number(state);
    let Some(info) = info else { return out };
    let micros = |d: Duration| u32::try_from(d.as_micros()).unwrap_or(u32::MAX);
    let mss = u32::from(info.mss).max(1);
    let mut put = |at: usize, n: u32| out[at..at + 4].copy_from_slice(&n.to_ne_bytes());
    put(8, micros(info.rto));
    put(16, mss);
    put(24, info.in_flight.div_ceil(mss));
    put(28, info.sacked.div_ceil(mss));
    put(32, info.lost.div_ceil(mss));
    put(68, micros(info.rtt));
    put(72, micros(info.rttvar));
    put(76, if info.ssthresh == u32::MAX { i32::MAX as u32 } else { info.ssthresh / mss });
    put(80, info.cwnd / mss);
    put(84, mss);
    put(100, u32::try_from(info.retransmits).unwrap_or(u32::MAX));
    put(144, u32::try_from(info.unsent).unwrap_or(u32::MAX));
    put(228, info.snd_wnd);
    put(232, info.rcv_wnd);
    out
}

/// Bytes of `struct tcp_info` with the fields of Linux 6.
const TCP_INFO_LEN: usize = 248;

/// Linux's number of a state.
fn state_number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Listen => 10,
        State::Closing => 11,
    }
}

fn saturate(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
