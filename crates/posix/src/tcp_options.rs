//! Socket options that the stack's TCP has. What is not here is `ENOPROTOOPT`: an option that would do
//! nothing is not taken.

use std::time::Duration;

use stack::tcp::{State, TcpInfo};

use crate::errno::{Errno, Result, errno};
use crate::local::{Local, int};

pub(crate) fn set(local: &Local, level: i32, name: i32, value: &[u8]) -> Result<()> {
    let socket = &local.socket;
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_CONGESTION) {
        let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
        let name = std::str::from_utf8(&value[..end]).map_err(|_| Errno::NOENT)?;
        return socket.set_congestion(name).map_err(errno);
    }
    let n = int(value)?;
    let on = n != 0;
    // As the kernel: a size is unsigned, and a negative one is as large as can be.
    let size = n as u32 as usize;
    let unsigned = || u32::try_from(n).map_err(|_| Errno::INVAL);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => match n {
            0 | 1 => socket.set_zerocopy(on),
            _ => return Err(Errno::INVAL),
        },
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => socket.set_sndbuf(size, false),
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE) => socket.set_sndbuf(size, true),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => socket.set_rcvbuf(size, false),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE) => socket.set_rcvbuf(size, true),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => socket.set_rcvlowat(n),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => socket.set_keepalive(on),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => socket.set_oob_inline(on),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => socket.set_nodelay(on),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => socket.set_cork(on),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => socket.set_quickack(on),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => socket.set_maxseg(unsigned()?).map_err(errno)?,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => socket.set_keepidle(unsigned()?).map_err(errno)?,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => socket.set_keepintvl(unsigned()?).map_err(errno)?,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => socket.set_keepcnt(unsigned()?).map_err(errno)?,
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => socket.set_syncnt(unsigned()?).map_err(errno)?,
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => socket.set_user_timeout(unsigned()?).map_err(errno)?,
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => socket.set_linger2(n),
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => socket.set_defer_accept(n),
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => socket.set_window_clamp(n as u32).map_err(errno)?,
        (libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT) => socket.set_notsent_lowat(n as u32),
        (libc::IPPROTO_TCP, TCP_INQ) => match n {
            0 | 1 => socket.set_recv_inq(on),
            _ => return Err(Errno::INVAL),
        },
        _ => return Err(Errno::NOPROTOOPT),
    }
    Ok(())
}

pub(crate) fn get(local: &Local, level: i32, name: i32) -> Result<Vec<u8>> {
    let socket = &local.socket;
    let (idle, interval, probes) = socket.keepalive_parameters();
    let n = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => u32::from(socket.zerocopy()),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => saturate(socket.sndbuf()),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => saturate(socket.rcvbuf()),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => saturate(socket.rcvlowat()),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => u32::from(socket.keepalive()),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => u32::from(socket.oob_inline()),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => u32::from(socket.nodelay()),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => u32::from(socket.cork()),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => u32::from(socket.quickack()),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => socket.maxseg(),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => idle,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => interval,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => probes,
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => socket.syncnt(),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => socket.user_timeout(),
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => socket.linger2() as u32,
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => socket.defer_accept(),
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => socket.window_clamp(),
        (libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT) => socket.notsent_lowat(),
        (libc::IPPROTO_TCP, TCP_INQ) => u32::from(socket.recv_inq()),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            let mut name = socket.congestion().as_bytes().to_vec();
            name.resize(TCP_CA_NAME_MAX, 0);
            return Ok(name);
        }
        (libc::IPPROTO_TCP, libc::TCP_INFO) => return Ok(tcp_info(socket.info(), socket.state()).to_vec()),
        _ => return Err(Errno::NOPROTOOPT),
    };
    Ok(n.to_ne_bytes().to_vec())
}

/// Bytes of a congestion control's name.
const TCP_CA_NAME_MAX: usize = 16;
const TCP_NOTSENT_LOWAT: i32 = 25;
/// `TCP_INQ`, which is also the type of its control message (`TCP_CM_INQ`).
pub(crate) const TCP_INQ: i32 = 36;

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

fn saturate(n: usize) -> u32 {
    i32::try_from(n).unwrap_or(i32::MAX) as u32
}
