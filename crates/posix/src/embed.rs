//! Stacks of the embedding program: made by handle rather than by the first socket, with completions that
//! come without error queues, and received bytes that stay where they are.
//!
//! A socket made here stays on its stack, whatever its destination. When the stack goes, its descriptors stay
//! open, and every call on them is `ENETDOWN`, until they are closed.

mod completions;
mod gone;

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dev::TapError;
use dev::link::{LinkConfig, pair};
use stack::Stack;
use stack::netdev::Device;
use stack::skb::Frag;

pub use dev::EngineHandle as LinkEngine;

pub use completions::{CompletionRing, Reaped, send_lent};

use crate::calls;
use crate::config::{Cidr, Config};
use crate::errno::{Errno, Result};
use crate::local::Local;
use crate::net;
use crate::sys;
use crate::table::{self, File};
use crate::wait::Deadline;

/// Why there is no stack: the errno, and a sentence for whoever configured it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The number.
    pub errno: Errno,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl Failure {
    fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Self::new(Errno::from_io_error(&e).unwrap_or(Errno::IO), e.to_string())
    }
}

impl From<TapError> for Failure {
    fn from(e: TapError) -> Self {
        let errno = match &e {
            TapError::NoTun => Errno::NODEV,
            TapError::TunDenied | TapError::NotPermitted(_) => Errno::PERM,
            TapError::Busy(_) => Errno::BUSY,
            TapError::NameTooLong(_) => Errno::NAMETOOLONG,
            TapError::BadName(_) => Errno::INVAL,
            TapError::OtherKind(_) => Errno::EXIST,
            TapError::Io { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
        };
        Self::new(errno, e.to_string())
    }
}

/// A running stack on the TAP that `config` names. Nobody else is served by it, unlike the stack that sockets
/// are on by default; `bypass` and `stats` are not looked at.
///
/// # Errors
/// The TAP cannot be had, or an address or gateway is not to be used.
pub fn open(config: &Config) -> std::result::Result<Stack, Failure> {
    if config.tap.is_empty() {
        return Err(Failure::new(Errno::INVAL, "no TAP named"));
    }
    table::noting_internal(|| {
        let device = net::open(config)?;
        build(config, device)
    })
}

/// Two running stacks of this process, on the ends of a link in it. The engine that moves the packets stops
/// when its handle is dropped.
///
/// # Errors
/// A configuration names a TAP, or the two differ about the MTU.
pub fn open_pair(left: &Config, right: &Config) -> std::result::Result<(Stack, Stack, LinkEngine), Failure> {
    if !left.tap.is_empty() || !right.tap.is_empty() {
        return Err(Failure::new(Errno::INVAL, "the ends of a link have no TAP"));
    }
    if left.mtu != right.mtu {
        return Err(Failure::new(Errno::INVAL, "the ends of a link have one MTU"));
    }
    table::noting_internal(|| {
        let standard = LinkConfig::default();
        let (a, b, engine) = pair(LinkConfig { mtu: left.mtu.unwrap_or(standard.mtu), ..standard });
        let engine = sys::with_signals_blocked(|| engine.spawn("uncopied-link"))?;
        Ok((build(left, a)?, build(right, b)?, engine))
    })
}

/// Whether a stack was ever made here.
static MADE: AtomicBool = AtomicBool::new(false);

/// Whether there may be sockets of stacks made here.
pub(crate) fn has_stacks() -> bool {
    MADE.load(Ordering::Relaxed)
}

/// In a child of `fork`: nobody runs the copies of its parent's stacks, so their sockets are gone. The copies are
/// not even dropped, since that would send.
pub(crate) fn leave_to_parent() {
    for (_, file) in table::all() {
        if let File::Socket(socket) = &file
            && socket.endpoint().tcp_socket().is_some()
        {
            std::mem::forget(socket.replace_endpoint(Arc::new(gone::Gone)));
        }
    }
}

/// The smallest MTU that IPv4 hosts must take (RFC 791), and the largest packet.
const MTUS: std::ops::RangeInclusive<u32> = 68..=65_535;

fn build(config: &Config, device: impl Device + 'static) -> std::result::Result<Stack, Failure> {
    if config.addr.is_empty() {
        return Err(Failure::new(Errno::INVAL, "the stack has no address"));
    }
    if let Some(mtu) = config.mtu.filter(|mtu| !MTUS.contains(mtu)) {
        return Err(Failure::new(Errno::INVAL, format!("an MTU of {mtu}: from 68 to 65535")));
    }
    for gw in &config.gw {
        let reachable = |a: &Cidr| a.contains(*gw) || link_local(*gw);
        if !config.addr.iter().any(reachable) {
            return Err(Failure::new(
                Errno::NETUNREACH,
                format!("gateway {gw} is on no network of the stack"),
            ));
        }
    }
    let addresses: Vec<_> = config.addr.iter().map(|c| (c.addr, c.prefix)).collect();
    let builder = Stack::builder().configure(|c| c.check_lent = config.check_lent).device(device, &addresses);
    let stack = config.gw.iter().fold(builder, |b, gw| b.gateway(*gw)).build()?;
    sys::with_signals_blocked(|| stack.spawn())?;
    MADE.store(true, Ordering::Relaxed);
    Ok(stack)
}

fn link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// `socket(2)` on a given stack: stream sockets of `AF_INET` and `AF_INET6`.
///
/// # Errors
/// As the man page has them for what a system does not support.
pub fn socket_on(stack: &Stack, domain: i32, kind: i32, protocol: i32) -> Result<RawFd> {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
        return Err(Errno::AFNOSUPPORT);
    }
    if kind & !flags != libc::SOCK_STREAM {
        return Err(Errno::SOCKTNOSUPPORT);
    }
    if !matches!(protocol, 0 | libc::IPPROTO_TCP) {
        return Err(Errno::PROTONOSUPPORT);
    }
    let fd = calls::open(domain, flags, Local::open(stack.tcp_socket()))?;
    if let Some(socket) = table::socket(fd) {
        socket.pin();
    }
    Ok(fd)
}

/// The [number](Stack::number) of the stack that `fd` is a socket of; `None` for descriptors of the kernel's
/// and sockets of other processes' stacks.
pub fn stack_number(fd: RawFd) -> Option<u64> {
    Some(table::socket(fd)?.endpoint().tcp_socket()?.stack_number())
}

/// Why a socket of ours has no stack in this process: it is another process's (`EOPNOTSUPP`), or gone.
pub fn why_no_stack(fd: RawFd) -> Errno {
    match table::socket(fd) {
        Some(socket) => socket.no_stack(),
        None => Errno::BADF,
    }
}

/// The stack that `socket(2)` makes sockets on, if it was started and is in this process.
pub fn default_stack() -> Option<Stack> {
    net::started().and_then(|net| net.stack())
}

/// Takes the sockets of `stack` off it, resets every connection, and waits at most `timeout` until nothing is
/// lent any more; whether that came about. Then the last handle may be dropped, which stops the stack.
pub fn close(stack: &Stack, timeout: Duration) -> bool {
    for (_, file) in table::all() {
        if let File::Socket(socket) = file
            && let Some(tcp) = socket.endpoint().tcp_socket()
            && tcp.stack_number() == stack.number()
        {
            drop(socket.replace_endpoint(Arc::new(gone::Gone)));
            // Calls that wait on it are told.
            tcp.abort();
        }
    }
    stack.abort_all();
    stack.quiesce(timeout)
}

/// Waits, at most `timeout`, until what closed sockets of `stack` have sent is acknowledged and nothing is
/// lent; whether that came about.
pub fn drain(stack: &Stack, timeout: Option<Duration>) -> bool {
    let deadline = Deadline::after(timeout);
    while stack.undelivered().0 > 0 || stack.lent_bytes() > 0 {
        if deadline.is_over() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Receives at most `max` bytes in at most `most` pieces, without copying them. The pieces are added to `out`;
/// 0 is the end of the stream. `MSG_DONTWAIT` is the one flag. `None` if `fd` is no socket of ours.
pub fn recv_owned(
    fd: RawFd,
    max: usize,
    most: usize,
    flags: i32,
    out: &mut Vec<Frag>,
) -> Option<Result<usize>> {
    let socket = table::socket(fd)?;
    Some(if flags & !libc::MSG_DONTWAIT != 0 || max == 0 || most == 0 {
        Err(Errno::INVAL)
    } else {
        socket.recv_owned(max, most, flags, out)
    })
}

/// Runs `f`, which makes threads, so that they never run the program's signal handlers.
pub fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    sys::with_signals_blocked(f)
}
