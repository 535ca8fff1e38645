//! Socket options that the stack's TCP has. What is not here is `ENOPROTOOPT`: an option that would do
//! nothing is not taken.

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
    if (level, name) == (libc::IPPROTO_TCP, TCP_FASTOPEN_KEY) {
        socket.set_fastopen_key(value.try_into().map_err(|_| Errno::INVAL)?);
        return Ok(());
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
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) => socket.set_fastopen(unsigned()?),
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) => match n {
            0 | 1 => socket.set_fastopen_connect(on),
            _ => return Err(Errno::INVAL),
        },
        (libc::IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE) => match n {
            0 | 1 => socket.set_fastopen_no_cookie(on),
            _ => return Err(Errno::INVAL),
        },
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
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) => socket.fastopen(),
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) => u32::from(socket.fastopen_connect()),
        (libc::IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE) => u32::from(socket.fastopen_no_cookie()),
        (libc::IPPROTO_TCP, TCP_INQ) => u32::from(socket.recv_inq()),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            let mut name = socket.congestion().as_bytes().to_vec();
            name.resize(TCP_CA_NAME_MAX, 0);
            return Ok(name);
        }
        (libc::IPPROTO_TCP, libc::TCP_INFO) => {
            let info = socket.info().map(|i| i.to_linux());
            return Ok(info.unwrap_or_else(|| state_only(socket.state())).to_vec());
        }
        _ => return Err(Errno::NOPROTOOPT),
    };
    Ok(n.to_ne_bytes().to_vec())
}

/// Bytes of a congestion control's name.
const TCP_CA_NAME_MAX: usize = 16;
const TCP_NOTSENT_LOWAT: i32 = 25;
const TCP_FASTOPEN_KEY: i32 = 33;
const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
/// `TCP_INQ`, which is also the type of its control message (`TCP_CM_INQ`).
pub(crate) const TCP_INQ: i32 = 36;

/// `struct tcp_info` of a socket without a connection.
fn state_only(state: State) -> [u8; TcpInfo::LINUX_LEN] {
    let mut out = [0; TcpInfo::LINUX_LEN];
    out[0] = state.number();
    out
}

fn saturate(n: usize) -> u32 {
    i32::try_from(n).unwrap_or(i32::MAX) as u32
}
