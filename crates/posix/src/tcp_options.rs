//! Socket options that the stack's TCP has. What is not here is `ENOPROTOOPT`: an option that would do
//! nothing is not taken.

use std::sync::Arc;
use std::time::Duration;

use stack::TcpSocket;
use stack::tcp::{State, TcpInfo};

use crate::errno::{Errno, Result, errno};
use crate::local::{Local, int};

pub(crate) fn set(local: &Local, level: i32, name: i32, value: &[u8]) -> Result<()> {
    let socket = &local.socket;
    let force = matches!(name, libc::SO_SNDBUFFORCE | libc::SO_RCVBUFFORCE);
    let size = |n: i32| usize::try_from(n).unwrap_or(0);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => match int(value)? {
            on @ (0 | 1) => socket.set_zerocopy(on == 1),
            _ => return Err(Errno::INVAL),
        },
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => {
            socket.set_sndbuf(size(int(value)?), force);
        }
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
            socket.set_rcvbuf(size(int(value)?), force);
        }
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => socket.set_keepalive(int(value)? != 0),
        (libc::IPPROTO_TCP, name) => set_tcp(socket, name, value)?,
        _ => return Err(Errno::NOPROTOOPT),
    }
    Ok(())
}

fn set_tcp(socket: &Arc<TcpSocket>, name: i32, value: &[u8]) -> Result<()> {
    if name == libc::TCP_CONGESTION {
        let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
        let name = std::str::from_utf8(&value[..end]).map_err(|_| Errno::NOENT)?;
        return socket.set_congestion(name).map_err(|_| Errno::NOENT);
    }
    let n = int(value)?;
    // What is negative is out of every range that is unsigned.
    let unsigned = u32::try_from(n).map_err(|_| Errno::INVAL);
    match name {
        libc::TCP_NODELAY => socket.set_nodelay(n != 0),
        libc::TCP_CORK => socket.set_cork(n != 0),
        libc::TCP_MAXSEG => socket.set_maxseg(unsigned?).map_err(errno)?,
        libc::TCP_KEEPIDLE => socket.set_keepidle(unsigned?).map_err(errno)?,
        libc::TCP_KEEPINTVL => socket.set_keepintvl(unsigned?).map_err(errno)?,
        libc::TCP_KEEPCNT => socket.set_keepcnt(unsigned?).map_err(errno)?,
        libc::TCP_SYNCNT => socket.set_syncnt(unsigned?).map_err(errno)?,
        libc::TCP_USER_TIMEOUT => socket.set_user_timeout(unsigned?).map_err(errno)?,
        libc::TCP_LINGER2 => socket.set_linger2(n),
        libc::TCP_DEFER_ACCEPT => socket.set_defer_accept(n),
        libc::TCP_WINDOW_CLAMP => socket.set_window_clamp(unsigned?).map_err(errno)?,
        libc::TCP_QUICKACK => socket.set_quickack(n != 0),
        libc::TCP_NOTSENT_LOWAT => socket.set_notsent_lowat(n as u32),
        _ => return Err(Errno::NOPROTOOPT),
    }
    Ok(())
}

pub(crate) fn get(local: &Local, level: i32, name: i32) -> Result<Vec<u8>> {
    let socket = &local.socket;
    let (idle, interval, probes) = socket.keepalive_parameters();
    let n = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => i32::from(socket.zerocopy()),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => saturate(socket.sndbuf()),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => saturate(socket.rcvbuf()),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => i32::from(socket.keepalive()),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => i32::from(socket.nodelay()),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => i32::from(socket.cork()),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => socket.maxseg() as i32,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => idle as i32,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => interval as i32,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => probes as i32,
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => socket.syncnt() as i32,
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => socket.user_timeout() as i32,
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => socket.linger2(),
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => socket.defer_accept() as i32,
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => socket.window_clamp() as i32,
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => i32::from(socket.quickack()),
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => socket.notsent_lowat() as i32,
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            let mut name = socket.congestion().as_bytes().to_vec();
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
