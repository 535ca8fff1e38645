//! The calls, as libc has them. Each answers `None` if the descriptor is the kernel's: then the kernel's own
//! call is to be made, with the same arguments.
//!
//! Contract. Pointers and lengths are the program's, valid as the call's man page asks for; with
//! `MSG_ZEROCOPY` a buffer stays mapped until its completion has been read.
#![allow(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fd::IntoRawFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use crate::control::Control;
use crate::endpoint::Endpoint;
use crate::epoll::Epoll;
use crate::errno::{Errno, Result};
use crate::poll;
use crate::sockaddr::{self, Name};
use crate::socket::Socket;
use crate::sys::{self, SigMask};
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
    install(socket, flags)
}

fn install(socket: Socket, flags: i32) -> Result<RawFd> {
    let family = if socket.domain() == libc::AF_INET6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::from_bits_truncate(flags as u32);
    let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?.into_raw_fd();
    if !table::insert(fd, File::Socket(Arc::new(socket))) {
        sys::close(fd);
        return Err(Errno::MFILE);
    }
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
    // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
    let bytes = unsafe { sockaddr::read(addr, len) };
    let name = match bytes.and_then(|b| sockaddr::parse(&b, socket.domain())) {
        Ok(Name::Ip(addr)) => addr,
        // As Linux: AF_UNSPEC on an IPv4 socket is the wildcard.
        Ok(Name::Unspecified) => sockaddr::any(socket.domain()),
        Err(e) => return Some(Err(e)),
    };
    if is_kernels(name.ip()) && socket.is_uncommitted() {
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
    let child = match socket.accept(flags & libc::SOCK_NONBLOCK != 0) {
        Ok(child) => child,
        Err(e) => return Some(Err(e)),
    };
    // A peer that is gone already has no address; Linux reports it as it was.
    let peer = child.peer_addr().unwrap_or_else(|_| sockaddr::any(socket.domain()));
    // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
    let written = unsafe { sockaddr::write(addr, len, &sockaddr::to_bytes(peer, socket.domain())) };
    Some(written.and_then(|()| install(child, flags)).map(|fd| fd as isize))
}

/// `connect(2)`.
///
/// # Safety
/// `addr` is null or readable for `len` bytes.
pub unsafe fn connect(fd: RawFd, addr: *const libc::sockaddr, len: libc::socklen_t) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
    let bytes = unsafe { sockaddr::read(addr, len) };
    match bytes.and_then(|b| sockaddr::parse(&b, socket.domain())) {
        Ok(Name::Ip(remote)) if is_kernels(remote.ip()) && socket.is_uncommitted() => {
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
    // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
    done(unsafe { put_name(&socket, socket.local_addr(), addr, len) })
}

/// `getpeername(2)`.
///
/// # Safety
/// `len` points at the length of the room at `addr`.
pub unsafe fn getpeername(fd: RawFd, addr: *mut libc::sockaddr, len: *mut libc::socklen_t) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
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
    // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
    unsafe { sockaddr::write(addr, len, &sockaddr::to_bytes(name, socket.domain())) }
}

/// `shutdown(2)`.
pub fn shutdown(fd: RawFd, how: i32) -> Answer {
    done(table::socket(fd)?.shutdown(how))
}

/// `close(2)`. The kernel's placeholder is closed too.
pub fn close(fd: RawFd) -> Answer {
    if !table::is_ours(fd) || table::in_vfork_child() {
        return None;
    }
    let file = table::remove(fd)?;
    sys::close(fd);
    if let File::Socket(socket) = file
        && let Some(last) = Arc::into_inner(socket)
    {
        last.linger();
    }
    Some(Ok(0))
}

/// `dup(2)`, and `fcntl`'s forms of it: `new` is the kernel's duplicate of `old`'s placeholder.
pub fn duplicated(old: RawFd, new: RawFd) {
    if let Some(file) = table::get(old)
        && !table::in_vfork_child()
        && !table::insert(new, file)
    {
        sys::close(new);
    }
}

/// `dup3(2)`; `dup2` with equal numbers is not for us.
pub fn dup3(old: RawFd, new: RawFd, flags: i32) -> Answer {
    if (!table::is_ours(old) && !table::is_ours(new)) || table::in_vfork_child() || old == new {
        return None;
    }
    let result = sys::dup3(old, new, flags);
    if result.is_ok() {
        let closed = table::remove(new);
        if let Some(file) = table::get(old) {
            table::insert(new, file);
        }
        drop(closed);
    }
    Some(result.map(|fd| fd as isize))
}

/// Forgets all descriptors of ours from `first` to `last`, which are about to be closed by the kernel.
pub fn close_range(first: u32, last: u32) {
    if table::in_vfork_child() {
        return;
    }
    for (fd, _) in table::all() {
        if (first..=last).contains(&(fd as u32)) {
            table::remove(fd);
        }
    }
}

fn send(socket: &Socket, buf: &mut SendBuf, flags: i32) -> Result<usize> {
    let result = socket.send(buf, flags);
    if result == Err(Errno::PIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        sys::raise(libc::SIGPIPE);
    }
    result
}

/// `sendto(2)`, and with a null address `send(2)` and `write(2)`.
///
/// # Safety
/// `buf` is readable for `len` bytes, until the completion if it is lent.
pub unsafe fn sendto(fd: RawFd, buf: *const libc::c_void, len: usize, flags: i32) -> Answer {
    let socket = table::socket(fd)?;
    counted(user::piece(buf.cast(), len).and_then(|pieces| {
        // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
        let mut buf = unsafe { SendBuf::new(pieces, flags) };
        send(&socket, &mut buf, flags)
    }))
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
    // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
    counted(unsafe { user::pieces(iov, count) }.map_err(invalid_count).and_then(|pieces| {
        // SAFETY: as above.
        let mut buf = unsafe { SendBuf::new(pieces, 0) };
        send(&socket, &mut buf, 0)
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
    // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
    counted(unsafe { sendmsg_on(&socket, msg, flags) })
}

/// # Safety
/// As for [`sendmsg`].
unsafe fn sendmsg_on(socket: &Socket, msg: *const libc::msghdr, flags: i32) -> Result<usize> {
    // SAFETY: the caller's promise, here and below. Test: posix/tests/calls.rs.
    let msg = unsafe { user::read(msg) }?;
    let control = unsafe { user::read_bytes(msg.msg_control.cast(), msg.msg_controllen) }?;
    refuse_control(&control)?;
    let pieces = unsafe { user::pieces(msg.msg_iov, msg.msg_iovlen) }?;
    let mut buf = unsafe { SendBuf::new(pieces, flags) };
    send(socket, &mut buf, flags)
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
        // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
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
        // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
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
    // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
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
    // SAFETY: the caller's promise. Test: posix/tests/calls.rs.
    counted(unsafe { recvmsg_on(&socket, msg, flags) })
}

/// # Safety
/// As for [`recvmsg`].
unsafe fn recvmsg_on(socket: &Socket, msg: *mut libc::msghdr, flags: i32) -> Result<usize> {
    // SAFETY: the caller's promise, here and below. Test: posix/tests/calls.rs.
    let mut head = unsafe { user::read(msg) }?;
    let pieces = unsafe { user::pieces(head.msg_iov, head.msg_iovlen) }?;
    let room = if head.msg_control.is_null() { 0 } else { head.msg_controllen };
    let mut control = Control::new(room);
    let mut out_flags = flags & libc::MSG_CMSG_CLOEXEC;
    let n = if flags & libc::MSG_ERRQUEUE != 0 {
        let completion = socket.completion()?;
        control.put_completion(socket.domain(), &completion);
        out_flags |= libc::MSG_ERRQUEUE;
        0
    } else {
        let n = socket.recv(&mut unsafe { RecvBuf::new(pieces) }, flags)?;
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
    unsafe { user::write_bytes(head.msg_control.cast(), room, control.bytes()) }?;
    head.msg_controllen = control.bytes().len();
    head.msg_namelen = 0;
    head.msg_flags = out_flags;
    unsafe { user::write(msg, head) }?;
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
        // SAFETY: the caller's promise. Test: posix/tests/zerocopy.rs.
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
        // SAFETY: the caller's promise. Test: posix/tests/options.rs.
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
    // SAFETY: the caller's promise. Test: posix/tests/options.rs.
    let result = unsafe { user::read(len) }.and_then(|room| {
        let room = usize::try_from(room as i32).map_err(|_| Errno::INVAL)?;
        let bytes = socket.option(level, name)?;
        // SAFETY: as above.
        let n = unsafe { user::write_bytes(value.cast(), room, &bytes) }?;
        unsafe { user::write(len, n as libc::socklen_t) }
    });
    done(result)
}

/// `fcntl(2)`: what the placeholder knows, it answers; we listen in.
pub fn fcntl(fd: RawFd, command: i32, argument: usize) -> Answer {
    if !table::is_ours(fd) || table::in_vfork_child() {
        return None;
    }
    let result = sys::fcntl(fd, command, argument);
    match (command, &result) {
        (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC, Ok(new)) => duplicated(fd, *new),
        (libc::F_SETFL, Ok(_)) => {
            if let Some(socket) = table::socket(fd) {
                socket.set_nonblocking(argument as i32 & libc::O_NONBLOCK != 0);
            }
        }
        _ => {}
    }
    Some(result.map(|n| n as isize))
}

/// `ioctl(2)`: questions about queues are ours, and `FIONBIO`; the rest (interfaces, flags of the
/// descriptor) is the placeholder's.
///
/// # Safety
/// `argument` is what the request asks for.
pub unsafe fn ioctl(fd: RawFd, request: u64, argument: *mut libc::c_int) -> Answer {
    const SIOCOUTQNSD: u64 = 0x894b;
    const SIOCATMARK: u64 = 0x8905;
    let socket = table::socket(fd)?;
    let answer = |n: Result<usize>| {
        let n = n.map(|n| i32::try_from(n).unwrap_or(i32::MAX));
        // SAFETY: these requests point at an int. Test: posix/tests/calls.rs.
        Some(n.and_then(|n| unsafe { user::write(argument, n) }).map(|()| 0))
    };
    match request & 0xffff_ffff {
        libc::FIONREAD => answer(socket.counts().map(|c| c.readable)),
        libc::TIOCOUTQ => answer(socket.counts().map(|c| c.unacked)),
        SIOCOUTQNSD => answer(socket.counts().map(|c| c.unsent)),
        SIOCATMARK => answer(socket.counts().map(|c| c.at_mark.into())),
        libc::FIONBIO => {
            // SAFETY: as above.
            match unsafe { user::read(argument) } {
                Ok(on) => socket.set_nonblocking(on != 0),
                Err(e) => return Some(Err(e)),
            }
            // The placeholder's flag is what F_GETFL reads.
            None
        }
        _ => None,
    }
}

/// `poll(2)` and `ppoll(2)`; `None` if no descriptor is ours.
///
/// # Safety
/// `fds` points at `count` entries.
pub unsafe fn ppoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: Option<Duration>,
    mask: SigMask,
) -> Answer {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if fds.is_null() || count == 0 || count > table::MAX_FD {
        return None;
    }
    // SAFETY: the caller's promise; the array is the call's own while it lasts. Test: posix/tests/poll.rs.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count) };
    if !fds.iter().any(|p| table::is_ours(p.fd)) {
        return None;
    }
    counted(poll::poll(fds, timeout, mask))
}

/// `select(2)` and `pselect(2)`; `None` if no descriptor is ours.
///
/// # Safety
/// Each set is null or holds `nfds` bits.
pub unsafe fn pselect(
    nfds: i32,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: Option<Duration>,
    mask: SigMask,
) -> Answer {
    let nfds = usize::try_from(nfds).ok().filter(|n| *n <= table::MAX_FD)?;
    let words = nfds.div_ceil(64);
    let sets = [read, write, except].map(|set| {
        let set: *mut u64 = set.cast();
        // SAFETY: a set that is not null holds nfds bits, in words as the kernel lays them out.
        // Test: posix/tests/poll.rs.
        (!set.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(set, words) })
    });
    let has = |set: &Option<&mut [u64]>, fd: usize| {
        set.as_ref().is_some_and(|words| words[fd / 64] >> (fd % 64) & 1 != 0)
    };
    let mut fds = Vec::new();
    for fd in 0..nfds {
        let mut events = 0;
        for (set, bits) in sets.iter().zip([libc::POLLIN, libc::POLLOUT, libc::POLLPRI]) {
            if has(set, fd) {
                events |= bits;
            }
        }
        if events != 0 {
            fds.push(libc::pollfd { fd: fd as RawFd, events, revents: 0 });
        }
    }
    if !fds.iter().any(|p| table::is_ours(p.fd)) {
        return None;
    }
    let result = poll::poll(&mut fds, timeout, mask).and_then(|_| {
        if fds.iter().any(|p| p.revents & libc::POLLNVAL != 0) {
            return Err(Errno::BADF);
        }
        let mut sets = sets;
        for set in sets.iter_mut().flatten() {
            set.fill(0);
        }
        let mut found = 0;
        for p in &fds {
            let hits = [
                p.events & libc::POLLIN != 0
                    && p.revents & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0,
                p.events & libc::POLLOUT != 0 && p.revents & (libc::POLLOUT | libc::POLLERR) != 0,
                p.events & libc::POLLPRI != 0 && p.revents & libc::POLLPRI != 0,
            ];
            for (set, hit) in sets.iter_mut().zip(hits) {
                if let (Some(words), true) = (set, hit) {
                    words[p.fd as usize / 64] |= 1 << (p.fd % 64);
                    found += 1;
                }
            }
        }
        Ok(found)
    });
    counted(result)
}

/// `epoll_ctl(2)`; `None` if the watched descriptor is the kernel's.
///
/// # Safety
/// `event` is null or points at an event.
pub unsafe fn epoll_ctl(ep: RawFd, op: i32, fd: RawFd, event: *const libc::epoll_event) -> Answer {
    let socket = table::socket(fd)?;
    // SAFETY: the caller's promise. Test: posix/tests/epoll.rs.
    let event = unsafe { user::read(event) }.ok();
    let set = match table::get(ep) {
        Some(File::Epoll(set)) => set,
        Some(File::Socket(_)) => return Some(Err(Errno::INVAL)),
        None => match Epoll::attach(ep) {
            Ok(set) => {
                table::insert(ep, File::Epoll(set.clone()));
                set
            }
            // Not an epoll descriptor, or none at all: the kernel says which.
            Err(e) => return Some(Err(e)),
        },
    };
    done(set.ctl(op, fd, &socket, event))
}

/// `epoll_pwait2(2)` and its kin; `None` if the set has nothing of ours.
///
/// # Safety
/// `events` has room for `max` events.
pub unsafe fn epoll_wait(
    ep: RawFd,
    events: *mut libc::epoll_event,
    max: i32,
    timeout: Option<Duration>,
    mask: SigMask,
) -> Answer {
    let Some(File::Epoll(set)) = table::get(ep) else { return None };
    let result = usize::try_from(max).ok().filter(|n| *n > 0).ok_or(Errno::INVAL).and_then(|max| {
        let found = set.wait(ep, max, timeout, mask)?;
        for (n, event) in found.iter().enumerate() {
            // SAFETY: there is room for max events, and no more than that were found.
            // Test: posix/tests/epoll.rs.
            unsafe { user::write(events.wrapping_add(n), *event) }?;
        }
        Ok(found.len())
    });
    counted(result)
}

/// Bytes moved per step of `sendfile` and `splice`.
const CHUNK: usize = 256 * 1024;

/// `sendfile(2)` to a socket of ours. The file's bytes are copied once, into the stack.
///
/// # Safety
/// `offset` is null or points at an offset.
pub unsafe fn sendfile(out: RawFd, file: RawFd, offset: *mut i64, count: usize) -> Answer {
    let socket = table::socket(out)?;
    // SAFETY: the caller's promise, here and at the end. Test: posix/tests/calls.rs.
    let mut at = match offset.is_null() {
        true => None,
        false => match unsafe { user::read(offset) } {
            Ok(at) => Some(at),
            Err(e) => return Some(Err(e)),
        },
    };
    let mut chunk = vec![0; CHUNK.min(count)];
    let mut total = 0;
    let result = loop {
        let want = chunk.len().min(count - total);
        if want == 0 {
            break Ok(());
        }
        let n = match sys::read(file, &mut chunk[..want], at) {
            Ok(0) => break Ok(()),
            Ok(n) => n,
            Err(e) => break Err(e),
        };
        let mut buf = SendBuf::of(&chunk[..n], if total + n < count { libc::MSG_MORE } else { 0 });
        let sent = send(&socket, &mut buf, 0);
        let moved = *sent.as_ref().unwrap_or(&0);
        total += moved;
        match &mut at {
            Some(at) => *at += moved as i64,
            // What was read and not sent is put back.
            None if moved < n => drop(sys::lseek(file, moved as i64 - n as i64, libc::SEEK_CUR)),
            None => {}
        }
        match sent {
            Ok(moved) if moved == n => {}
            Ok(_) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    if let Some(at) = at {
        // SAFETY: as above.
        let _ = unsafe { user::write(offset, at) };
    }
    counted(if total > 0 { Ok(total) } else { result.map(|()| 0) })
}

/// `splice(2)` between a pipe and a socket of ours, through a buffer.
///
/// # Safety
/// The offsets are null, or pointers whose target is not looked at: neither end can seek.
pub unsafe fn splice(
    from: RawFd,
    off_in: *const i64,
    to: RawFd,
    off_out: *const i64,
    len: usize,
    flags: u32,
) -> Answer {
    if !table::is_ours(from) && !table::is_ours(to) {
        return None;
    }
    if !off_in.is_null() || !off_out.is_null() {
        return Some(Err(Errno::SPIPE));
    }
    let wait = if flags & libc::SPLICE_F_NONBLOCK != 0 { libc::MSG_DONTWAIT } else { 0 };
    let mut chunk = vec![0; len.min(64 * 1024)];
    if chunk.is_empty() {
        return Some(Ok(0));
    }
    counted(match (table::socket(from), table::socket(to)) {
        // One end of a splice is a pipe.
        (Some(_), Some(_)) => Err(Errno::INVAL),
        (Some(socket), None) => from_socket(&socket, to, &mut chunk, wait),
        (None, Some(socket)) => to_socket(from, &socket, &mut chunk, wait),
        (None, None) => Err(Errno::INVAL),
    })
}

/// Looks first and takes what the pipe took: nothing is lost if it is full.
fn from_socket(socket: &Socket, pipe: RawFd, chunk: &mut [u8], wait: i32) -> Result<usize> {
    let n = socket.recv(&mut RecvBuf::of(chunk), wait | libc::MSG_PEEK)?;
    if n == 0 {
        return Ok(0);
    }
    let written = sys::write(pipe, &chunk[..n])?;
    socket.recv(&mut RecvBuf::of(&mut chunk[..written]), libc::MSG_DONTWAIT)
}

/// Reads no more than there is room for, so that all of it can be sent.
fn to_socket(pipe: RawFd, socket: &Socket, chunk: &mut [u8], wait: i32) -> Result<usize> {
    if (wait != 0 || socket.is_nonblocking()) && !socket.ready().contains(stack::Ready::OUT) {
        return Err(Errno::AGAIN);
    }
    let n = sys::read(pipe, chunk, None)?;
    socket.send_all(&mut SendBuf::of(&chunk[..n], 0))
}

/// Before `fork`, in the parent.
pub fn before_fork() {
    crate::remote::fork::prepare();
}

/// After `fork`, in the parent.
pub fn after_fork_in_parent() {
    crate::remote::fork::parent();
}

/// After `fork`, in the child.
pub fn after_fork_in_child() {
    crate::remote::fork::child();
}

/// The process is about to end without running its exit handlers. A child of `vfork` says nothing.
pub fn exiting() {
    if !table::in_vfork_child() {
        crate::net::farewell();
    }
}

/// Whether `fd` is one that the stack itself needs: its TAP, its eventfds, its way to other processes.
pub fn is_internal(fd: RawFd) -> bool {
    table::is_internal(fd) && !table::in_vfork_child()
}

/// The parts of `first..=last` that the stack itself does not need.
pub fn without_internal(first: u32, last: u32) -> Vec<(u32, u32)> {
    let internal = if table::in_vfork_child() { Vec::new() } else { table::internal() };
    let mut parts = Vec::new();
    let mut from = u64::from(first);
    for fd in internal
        .into_iter()
        .map(|fd| u64::from(fd as u32))
        .filter(|fd| (first.into()..=last.into()).contains(fd))
    {
        if fd > from {
            parts.push((from as u32, (fd - 1) as u32));
        }
        from = fd + 1;
    }
    if from <= u64::from(last) {
        parts.push((from as u32, last));
    }
    parts
}
