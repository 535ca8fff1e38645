//! The calls, as libc has them. Each answers `None` if the descriptor is the kernel's: then the kernel's own
//! call is to be made, with the same arguments.
//!
//! Contract. Pointers and lengths are the program's, valid as the call's man page asks for; with
//! `MSG_ZEROCOPY` a buffer stays mapped until its completion has been read.
#![allow(unsafe_code)]

mod files;
mod moves;
mod waits;

pub use files::*;
pub use moves::*;
pub use waits::*;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fd::{IntoRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use crate::control::Control;
use crate::endpoint::Endpoint;
use crate::errno::{Errno, Result};
use crate::sockaddr::{self, Name};
use crate::socket::Socket;
use crate::sys;
use crate::table::{self, File};
use crate::tcp_options::TCP_INQ;
use crate::user::{self, RecvBuf, SendBuf};

/// What a call answers: the result, or `None` for a descriptor of the kernel's.
pub type Answer = Option<Result<isize>>;

fn done<T>(result: Result<T>) -> Answer {
    Some(result.map(|_| 0))
}

fn counted(result: Result<usize>) -> Answer {
    Some(result.map(|n| n as isize))
}

/// Makes a socket of ours on a placeholder of the kernel's: its number is the descriptor.
pub(crate) fn open(domain: i32, flags: i32, endpoint: Arc<dyn Endpoint>) -> Result<RawFd> {
    let socket = Socket::new(domain, endpoint, flags & libc::SOCK_NONBLOCK != 0);
    install(socket, placeholder(domain, flags)?)
}

/// A kernel socket that lends its number.
fn placeholder(domain: i32, flags: i32) -> Result<OwnedFd> {
    let family = if domain == libc::AF_INET6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::from_bits_truncate(flags as u32);
    socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

fn install(socket: Socket, placeholder: OwnedFd) -> Result<RawFd> {
    if !table::has_room_for(&placeholder) {
        return Err(Errno::MFILE);
    }
    let fd = placeholder.into_raw_fd();
    table::insert(fd, File::Socket(Arc::new(socket)));
    Ok(fd)
}

/// `socket(2)`: the stack has TCP over IPv4 and IPv6; everything else is the kernel's.
pub fn socket(domain: i32, kind: i32, protocol: i32) -> Answer {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let ours = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !flags == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if !ours {
        return None;
    }
    let net = match crate::net::current()? {
        Ok(net) => net,
        Err(e) => return Some(Err(e)),
    };
    Some(net.tcp_socket().and_then(|endpoint| open(domain, flags, endpoint)).map(|fd| fd as isize))
}

/// Gives a socket back to the kernel, whose placeholder then is the socket.
fn give_back(socket: &Arc<Socket>) {
    table::remove_file(&File::Socket(socket.clone()));
}

/// Loopback never reaches a device, and what the configuration says stays with the kernel too.
fn is_kernels(addr: IpAddr) -> bool {
    addr.to_canonical().is_loopback() || crate::net::bypasses(addr)
}

/// `bind(2)`.
///
/// # Safety
/// `addr` is null or readable for `len` bytes.
pub unsafe fn bind(fd: RawFd, addr: *const libc::sockaddr, len: libc::socklen_t) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    let bytes = unsafe { sockaddr::read(addr, len) };
    let name = match bytes.and_then(|b| sockaddr::parse(&b, socket.domain())) {
        Ok(Name::Ip(addr)) => addr,
        // As Linux: AF_UNSPEC on an IPv4 socket is the wildcard.
        Ok(Name::Unspecified) => sockaddr::any(socket.domain()),
        Err(e) => return Some(Err(e)),
    };
    if is_kernels(name.ip()) && socket.may_leave() {
        give_back(&socket);
        return None;
    }
    done(socket.bind(name))
}

/// `listen(2)`.
pub fn listen(fd: RawFd, backlog: i32) -> Answer {
    done(table::socket(fd)?.listen(backlog))
}

/// `accept4(2)`.
///
/// # Safety
/// `addr` is null, or `len` points at the length of the room behind it.
pub unsafe fn accept4(fd: RawFd, addr: *mut libc::sockaddr, len: *mut libc::socklen_t, flags: i32) -> Answer {
    let socket = table::socket(fd)?;
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Some(Err(Errno::INVAL));
    }
    Some(accept(&socket, flags).and_then(|(fd, peer)| {
        // SAFETY: the caller's promise. Test: test_listen_and_accept of sockets.py.
        let written = unsafe { sockaddr::write(addr, len, &sockaddr::to_bytes(peer, socket.domain())) };
        if let Err(e) = written {
            close(fd);
            return Err(e);
        }
        Ok(fd as isize)
    }))
}

/// The descriptor comes first: where there is none to be had, the connection stays in the queue.
fn accept(socket: &Socket, flags: i32) -> Result<(RawFd, SocketAddr)> {
    loop {
        socket.await_connection()?;
        let placeholder = placeholder(socket.domain(), flags)?;
        match socket.accept(flags & libc::SOCK_NONBLOCK != 0) {
            Ok(child) => {
                // A peer that is gone already has no name.
                let peer = child.peer_addr().unwrap_or_else(|_| sockaddr::any(socket.domain()));
                return Ok((install(child, placeholder)?, peer));
            }
            // Another thread was faster.
            Err(Errno::AGAIN) => {}
            Err(e) => return Err(e),
        }
    }
}

/// `connect(2)`.
///
/// # Safety
/// `addr` is null or readable for `len` bytes.
pub unsafe fn connect(fd: RawFd, addr: *const libc::sockaddr, len: libc::socklen_t) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    let bytes = unsafe { sockaddr::read(addr, len) };
    match bytes.and_then(|b| sockaddr::parse(&b, socket.domain())) {
        Ok(Name::Ip(remote)) if is_kernels(remote.ip()) && socket.may_leave() => {
            give_back(&socket);
            None
        }
        Ok(Name::Ip(remote)) => done(socket.connect(remote)),
        Ok(Name::Unspecified) => done(socket.disconnect()),
        Err(e) => Some(Err(e)),
    }
}

/// `getsockname(2)`.
///
/// # Safety
/// `len` points at the length of the room at `addr`.
pub unsafe fn getsockname(fd: RawFd, addr: *mut libc::sockaddr, len: *mut libc::socklen_t) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    done(unsafe { put_name(&socket, socket.local_addr(), addr, len) })
}

/// `getpeername(2)`.
///
/// # Safety
/// `len` points at the length of the room at `addr`.
pub unsafe fn getpeername(fd: RawFd, addr: *mut libc::sockaddr, len: *mut libc::socklen_t) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    done(socket.peer_addr().and_then(|peer| unsafe { put_name(&socket, peer, addr, len) }))
}

/// # Safety
/// `len` points at the length of the room at `addr`.
unsafe fn put_name(
    socket: &Socket,
    name: SocketAddr,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> Result<()> {
    if addr.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    unsafe { sockaddr::write(addr, len, &sockaddr::to_bytes(name, socket.domain())) }
}

/// `shutdown(2)`.
pub fn shutdown(fd: RawFd, how: i32) -> Answer {
    done(table::socket(fd)?.shutdown(how))
}

pub(crate) fn send_on(socket: &Socket, buf: &mut SendBuf, flags: i32) -> Result<usize> {
    let result = socket.send(buf, flags);
    if result == Err(Errno::PIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        sys::raise(libc::SIGPIPE);
    }
    result
}

/// `send(2)`, and without flags `write(2)`.
///
/// # Safety
/// `buf` is readable for `len` bytes, until the completion if it is lent.
pub unsafe fn send(fd: RawFd, buf: *const libc::c_void, len: usize, flags: i32) -> Answer {
    // SAFETY: the caller's promise; there is no address. Test: test_names and others of sockets.py.
    unsafe { sendto(fd, buf, len, flags, std::ptr::null(), 0) }
}

/// `sendto(2)`. A stream needs no address, but for `MSG_FASTOPEN`.
///
/// # Safety
/// `buf` is readable for `len` bytes, until the completion if it is lent; `addr` is null or readable for `alen`.
pub unsafe fn sendto(
    fd: RawFd,
    buf: *const libc::c_void,
    len: usize,
    flags: i32,
    addr: *const libc::sockaddr,
    alen: libc::socklen_t,
) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: test_fast_open of sockets.py.
    match unsafe { connect_with_data(&socket, flags, addr, alen) } {
        Ok(Some(())) => {}
        Ok(None) => return None,
        Err(e) => return Some(Err(e)),
    }
    counted(user::piece(buf.cast(), len).and_then(|pieces| {
        // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
        let mut buf = unsafe { SendBuf::new(pieces, flags) };
        send_on(&socket, &mut buf, flags)
    }))
}

/// Does what `MSG_FASTOPEN` asks for; `None` if the socket is the kernel's after all.
///
/// # Safety
/// `addr` is null or readable for `alen` bytes.
unsafe fn connect_with_data(
    socket: &Arc<Socket>,
    flags: i32,
    addr: *const libc::sockaddr,
    alen: libc::socklen_t,
) -> Result<Option<()>> {
    if flags & libc::MSG_FASTOPEN == 0 {
        return Ok(Some(()));
    }
    // SAFETY: the caller's promise. Test: test_fast_open of sockets.py.
    let name = unsafe { sockaddr::read(addr, alen) }?;
    let Name::Ip(remote) = sockaddr::parse(&name, socket.domain())? else { return Err(Errno::INVAL) };
    if is_kernels(remote.ip()) && socket.is_uncommitted() {
        give_back(socket);
        return Ok(None);
    }
    socket.connect_with_data(remote, flags).map(Some)
}

/// `writev(2)`.
///
/// # Safety
/// `iov` points at `count` pieces that are readable.
pub unsafe fn writev(fd: RawFd, iov: *const libc::iovec, count: i32) -> Answer {
    let socket = table::socket(fd)?;
    let count = match usize::try_from(count) {
        Ok(count) => count,
        Err(_) => return Some(Err(Errno::INVAL)),
    };
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    counted(unsafe { user::pieces(iov, count) }.map_err(invalid_count).and_then(|pieces| {
        // SAFETY: as above.
        let mut buf = unsafe { SendBuf::new(pieces, 0) };
        send_on(&socket, &mut buf, 0)
    }))
}

/// `readv` and `writev` say `EINVAL` where `recvmsg` and `sendmsg` say `EMSGSIZE`.
fn invalid_count(e: Errno) -> Errno {
    if e == Errno::MSGSIZE { Errno::INVAL } else { e }
}

/// `sendmsg(2)`.
///
/// # Safety
/// `msg` is null or a valid message; its pieces are readable, until the completion if they are lent.
pub unsafe fn sendmsg(fd: RawFd, msg: *const libc::msghdr, flags: i32) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    let name = unsafe { user::read(msg) }.map(|msg| (msg.msg_name.cast_const().cast(), msg.msg_namelen));
    // SAFETY: as above.
    match name.and_then(|(addr, len)| unsafe { connect_with_data(&socket, flags, addr, len) }) {
        Ok(Some(())) => {}
        Ok(None) => return None,
        Err(e) => return Some(Err(e)),
    }
    // SAFETY: as above.
    counted(unsafe { sendmsg_on(&socket, msg, flags) })
}

/// # Safety
/// As for [`sendmsg`].
unsafe fn sendmsg_on(socket: &Socket, msg: *const libc::msghdr, flags: i32) -> Result<usize> {
    // SAFETY: the caller's promise. Test: test_vectors of sockets.py.
    let (control, mut buf) = unsafe {
        let msg = user::read(msg)?;
        let control = user::read_bytes(msg.msg_control.cast(), msg.msg_controllen)?;
        (control, SendBuf::new(user::pieces(msg.msg_iov, msg.msg_iovlen)?, flags))
    };
    refuse_control(&control)?;
    send_on(socket, &mut buf, flags)
}

/// A stream's `sendmsg` takes no control messages of `SOL_SOCKET` that it would have to obey.
fn refuse_control(mut control: &[u8]) -> Result<()> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    while control.len() >= HEADER {
        let len = usize::from_ne_bytes(control[..8].try_into().map_err(|_| Errno::INVAL)?);
        let level = i32::from_ne_bytes(control[8..12].try_into().map_err(|_| Errno::INVAL)?);
        if len < HEADER || len > control.len() || level == libc::SOL_SOCKET {
            return Err(Errno::INVAL);
        }
        control = control.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or(&[]);
    }
    Ok(())
}

/// `sendmmsg(2)`.
///
/// # Safety
/// `msgs` points at `count` valid messages, as for [`sendmsg`].
pub unsafe fn sendmmsg(fd: RawFd, msgs: *mut libc::mmsghdr, count: u32, flags: i32) -> Answer {
    let socket = table::socket(fd)?;
    let mut sent = 0;
    for n in 0..count.min(1024) as usize {
        // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
        let result = unsafe {
            let msg = msgs.wrapping_add(n);
            if msgs.is_null() {
                Err(Errno::FAULT)
            } else {
                sendmsg_on(&socket, std::ptr::addr_of!((*msg).msg_hdr), flags)
                    .and_then(|bytes| user::write(std::ptr::addr_of_mut!((*msg).msg_len), bytes as u32))
            }
        };
        match result {
            Ok(()) => sent += 1,
            Err(e) if sent == 0 => return Some(Err(e)),
            Err(_) => break,
        }
    }
    Some(Ok(sent))
}

/// `recvfrom(2)`; with a null address `recv(2)` and `read(2)`.
///
/// # Safety
/// `buf` is writable for `len` bytes; `addr_len`, if not null, points at a length.
pub unsafe fn recvfrom(
    fd: RawFd,
    buf: *mut libc::c_void,
    len: usize,
    flags: i32,
    addr_len: *mut libc::socklen_t,
) -> Answer {
    let socket = table::socket(fd)?;
    if flags & libc::MSG_ERRQUEUE != 0 {
        return counted(socket.completion().map(|_| 0));
    }
    // What is dropped unread needs no buffer: programs give a null one.
    let unread = flags & libc::MSG_TRUNC != 0 && flags & libc::MSG_PEEK == 0;
    let buf = if unread && buf.is_null() { std::ptr::dangling_mut() } else { buf };
    let received = user::piece(buf.cast(), len).and_then(|pieces| {
        // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
        let mut buf = unsafe { RecvBuf::new(pieces) };
        socket.recv(&mut buf, flags)
    });
    if received.is_ok() && !addr_len.is_null() {
        // A stream names no sender.
        // SAFETY: the caller's promise. Test: as above.
        let _ = unsafe { user::write(addr_len, 0) };
    }
    counted(received)
}

/// `readv(2)`.
///
/// # Safety
/// `iov` points at `count` pieces that are writable.
pub unsafe fn readv(fd: RawFd, iov: *const libc::iovec, count: i32) -> Answer {
    let socket = table::socket(fd)?;
    let count = match usize::try_from(count) {
        Ok(count) => count,
        Err(_) => return Some(Err(Errno::INVAL)),
    };
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    counted(unsafe { user::pieces(iov, count) }.map_err(invalid_count).and_then(|pieces| {
        // SAFETY: as above.
        socket.recv(&mut unsafe { RecvBuf::new(pieces) }, 0)
    }))
}

/// `recvmsg(2)`.
///
/// # Safety
/// `msg` is null or a valid message whose pieces are writable.
pub unsafe fn recvmsg(fd: RawFd, msg: *mut libc::msghdr, flags: i32) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    counted(unsafe { recvmsg_on(&socket, msg, flags) })
}

/// # Safety
/// As for [`recvmsg`].
unsafe fn recvmsg_on(socket: &Socket, msg: *mut libc::msghdr, flags: i32) -> Result<usize> {
    // SAFETY: the caller's promise. Test: test_vectors of sockets.py.
    let (mut head, mut buf) = unsafe {
        let head = user::read(msg)?;
        (head, RecvBuf::new(user::pieces(head.msg_iov, head.msg_iovlen)?))
    };
    let room = if head.msg_control.is_null() { 0 } else { head.msg_controllen };
    let mut control = Control::new(room);
    let mut out_flags = flags & libc::MSG_CMSG_CLOEXEC;
    let n = if flags & libc::MSG_ERRQUEUE != 0 {
        let completion = socket.completion()?;
        control.put_completion(socket.domain(), &completion);
        out_flags |= libc::MSG_ERRQUEUE;
        0
    } else {
        let n = socket.recv(&mut buf, flags)?;
        if flags & libc::MSG_OOB != 0 {
            out_flags |= libc::MSG_OOB;
        }
        if socket.tells_inq() {
            let left = i32::try_from(socket.counts()?.hint).unwrap_or(i32::MAX);
            control.put(libc::IPPROTO_TCP, TCP_INQ, &left.to_ne_bytes());
        }
        n
    };
    if control.truncated {
        out_flags |= libc::MSG_CTRUNC;
    }
    let control_at = head.msg_control.cast();
    head.msg_controllen = control.bytes().len();
    head.msg_namelen = 0;
    head.msg_flags = out_flags;
    // SAFETY: as above; `room` is what the program said there is.
    unsafe {
        user::write_bytes(control_at, room, control.bytes())?;
        user::write(msg, head)?;
    }
    Ok(n)
}

/// `recvmmsg(2)`.
///
/// # Safety
/// `msgs` points at `count` valid messages, as for [`recvmsg`].
pub unsafe fn recvmmsg(
    fd: RawFd,
    msgs: *mut libc::mmsghdr,
    count: u32,
    flags: i32,
    timeout: Option<Duration>,
) -> Answer {
    const MSG_WAITFORONE: i32 = 0x10000;
    let socket = table::socket(fd)?;
    let begun = std::time::Instant::now();
    let mut received = 0;
    let mut flags = flags;
    for n in 0..count.min(1024) as usize {
        // SAFETY: the caller's promise. Test: test_zerocopy of sockets.py.
        let result = unsafe {
            let msg = msgs.wrapping_add(n);
            if msgs.is_null() {
                Err(Errno::FAULT)
            } else {
                recvmsg_on(&socket, std::ptr::addr_of_mut!((*msg).msg_hdr), flags & !MSG_WAITFORONE)
                    .and_then(|bytes| user::write(std::ptr::addr_of_mut!((*msg).msg_len), bytes as u32))
            }
        };
        match result {
            Ok(()) => received += 1,
            Err(e) if received == 0 => return Some(Err(e)),
            Err(_) => break,
        }
        if flags & MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        // As Linux: the time-out is looked at after each message only.
        if timeout.is_some_and(|t| begun.elapsed() >= t) {
            break;
        }
    }
    Some(Ok(received))
}

/// `setsockopt(2)`.
///
/// # Safety
/// `value` is null or readable for `len` bytes.
pub unsafe fn setsockopt(
    fd: RawFd,
    level: i32,
    name: i32,
    value: *const libc::c_void,
    len: libc::socklen_t,
) -> Answer {
    let socket = table::socket(fd)?;
    // No option of ours is longer; a negative length is an enormous one here.
    let result = usize::try_from(len as i32).map_err(|_| Errno::INVAL).and_then(|len| {
        // SAFETY: the caller's promise. Test: test_options of sockets.py.
        let value = unsafe { user::read_bytes(value.cast(), len.min(4096)) }?;
        if value.is_empty() {
            return Err(Errno::INVAL);
        }
        socket.set_option(level, name, &value)?;
        if socket.is_uncommitted() {
            // It may yet turn out to be the kernel's socket.
            let _ = sys::setsockopt(fd, level, name, &value);
        }
        Ok(())
    });
    done(result)
}

/// `getsockopt(2)`.
///
/// # Safety
/// `len` points at the length of the room at `value`.
pub unsafe fn getsockopt(
    fd: RawFd,
    level: i32,
    name: i32,
    value: *mut libc::c_void,
    len: *mut libc::socklen_t,
) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: test_options of sockets.py.
    let result = unsafe { user::read(len) }.and_then(|room| {
        let room = usize::try_from(room as i32).map_err(|_| Errno::INVAL)?;
        let bytes = socket.option(level, name)?;
        // SAFETY: as above.
        unsafe {
            let n = user::write_bytes(value.cast(), room, &bytes)?;
            user::write(len, n as libc::socklen_t)
        }
    });
    done(result)
}
