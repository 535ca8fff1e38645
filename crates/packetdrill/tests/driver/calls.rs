//! The calls of scripts: what packetdrill passes, and what it looks at afterwards.
//!
//! Contract. Buffers live in the call that uses them, or are leaked where the stack may keep a reference
//! (`--send_omit_free`).
#![allow(unsafe_code)]

use std::net::{IpAddr, SocketAddr};

use super::Mode;
use super::tool::{Call, Outcome, Slots, outcome};

/// A call that passes no memory that matters.
fn plain(call: impl FnOnce(&Slots) -> isize + Send + 'static) -> Call {
    Box::new(move |s| outcome(call(s)))
}

pub fn socket(mode: Mode) -> Call {
    // SAFETY: no memory is involved. Test: handshake.rs.
    plain(move |s| unsafe {
        (s.socket)(s.userdata, mode.domain(), libc::SOCK_STREAM, libc::IPPROTO_TCP) as isize
    })
}

/// The `sockaddr` that packetdrill makes of an address: mapped in an IPv6 socket.
pub fn name(addr: SocketAddr, mode: Mode) -> Vec<u8> {
    let port = addr.port().to_be_bytes();
    let family = |f: i32| (f as u16).to_ne_bytes();
    match (mode.domain(), addr.ip()) {
        (libc::AF_INET, IpAddr::V4(ip)) => {
            [&family(libc::AF_INET)[..], &port, &ip.octets(), &[0; 8]].concat()
        }
        (_, ip) => {
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            [&family(libc::AF_INET6)[..], &port, &[0; 4], &ip.octets(), &[0; 4]].concat()
        }
    }
}

pub fn bind(fd: i32, addr: SocketAddr, mode: Mode) -> Call {
    let name = name(addr, mode);
    // SAFETY: pointer and length are of one vector. Test: handshake.rs.
    plain(move |s| unsafe { (s.bind)(s.userdata, fd, name.as_ptr().cast(), name.len() as u32) as isize })
}

pub fn listen(fd: i32, backlog: i32) -> Call {
    // SAFETY: no memory is involved. Test: handshake.rs.
    plain(move |s| unsafe { (s.listen)(s.userdata, fd, backlog) as isize })
}

pub fn connect(fd: i32, mode: Mode) -> Call {
    let name = name(mode.ends().1, mode);
    // SAFETY: pointer and length are of one vector. Test: handshake.rs.
    plain(move |s| unsafe { (s.connect)(s.userdata, fd, name.as_ptr().cast(), name.len() as u32) as isize })
}

/// `connect` with only the family `AF_UNSPEC` set.
pub fn disconnect(fd: i32) -> Call {
    let name = [0u8; 128];
    // SAFETY: pointer and length are of one array. Test: arguments.rs.
    plain(move |s| unsafe { (s.connect)(s.userdata, fd, name.as_ptr().cast(), 128) as isize })
}

/// The outcome has the peer's address, as long as it says.
pub fn accept(fd: i32, _mode: Mode) -> Call {
    Box::new(move |s| {
        let (mut name, mut len) = (vec![0xaau8; 128], 128);
        // SAFETY: the array has that length. Test: handshake.rs.
        let r = unsafe { (s.accept)(s.userdata, fd, name.as_mut_ptr().cast(), &raw mut len) };
        name.truncate(len as usize);
        Outcome { out: name, ..outcome(r as isize) }
    })
}

pub fn read(fd: i32, len: usize) -> Call {
    Box::new(move |s| {
        let mut buf = vec![0xaau8; len];
        // SAFETY: pointer and length are of one vector. Test: blocking.rs.
        let o = outcome(unsafe { (s.read)(s.userdata, fd, buf.as_mut_ptr().cast(), len) });
        if o.result > 0 {
            assert!(buf[..o.result as usize].iter().all(|b| *b == 0), "what was sent is what is read");
        }
        o
    })
}

pub fn recv(fd: i32, len: usize, flags: i32) -> Call {
    plain(move |s| {
        let mut buf = vec![0u8; len];
        // SAFETY: pointer and length are of one vector. Test: arguments.rs.
        unsafe { (s.recv)(s.userdata, fd, buf.as_mut_ptr().cast(), len, flags) }
    })
}

/// Zeros, freed right after.
pub fn write(fd: i32, len: usize) -> Call {
    plain(move |s| {
        let buf = vec![0u8; len];
        // SAFETY: pointer and length are of one vector. Test: transfer.rs.
        unsafe { (s.write)(s.userdata, fd, buf.as_ptr().cast(), len) }
    })
}

/// Zeros, never freed, as with `--send_omit_free`.
pub fn send(fd: i32, len: usize, flags: i32) -> Call {
    plain(move |s| {
        let buf = Vec::leak(vec![0u8; len]);
        // SAFETY: pointer and length are of one slice, which lives for ever. Test: zerocopy.rs.
        unsafe { (s.send)(s.userdata, fd, buf.as_ptr().cast(), len, flags) }
    })
}

/// `sendmsg` of pieces of these lengths, never freed.
pub fn sendmsg(fd: i32, pieces: &[usize], flags: i32) -> Call {
    let pieces = pieces.to_vec();
    plain(move |s| {
        let mut iov: Vec<_> = pieces
            .iter()
            .map(|n| libc::iovec { iov_base: Vec::leak(vec![0u8; *n]).as_mut_ptr().cast(), iov_len: *n })
            .collect();
        // SAFETY: zero is a value of every field. Test: zerocopy.rs.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        (msg.msg_iov, msg.msg_iovlen) = (iov.as_mut_ptr(), iov.len());
        // SAFETY: the message and its pieces are valid. Test: zerocopy.rs.
        unsafe { (s.sendmsg)(s.userdata, fd, &raw const msg, flags) }
    })
}

/// `recvmsg` with out-fields filled with what they are not to be; the outcome has `msg_flags`, then the control
/// messages that were stored.
pub fn recvmsg(fd: i32, len: usize, room: usize, flags: i32) -> Call {
    Box::new(move |s| {
        let mut buf = vec![0u8; len.max(1)];
        let mut control = vec![0xaau8; room];
        let mut iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: len };
        // SAFETY: zero is a value of every field. Test: zerocopy.rs.
        let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
        (msg.msg_iov, msg.msg_iovlen) = (&raw mut iov, 1);
        (msg.msg_control, msg.msg_controllen) = (control.as_mut_ptr().cast(), room);
        msg.msg_flags = -1;
        // SAFETY: the message and its buffers are valid. Test: zerocopy.rs.
        let o = outcome(unsafe { (s.recvmsg)(s.userdata, fd, &raw mut msg, flags) });
        control.truncate(msg.msg_controllen);
        Outcome { out: [&msg.msg_flags.to_ne_bytes()[..], &control].concat(), ..o }
    })
}

pub fn close(fd: i32) -> Call {
    // SAFETY: no memory is involved. Test: closing.rs.
    plain(move |s| unsafe { (s.close)(s.userdata, fd) as isize })
}

pub fn shutdown(fd: i32, how: i32) -> Call {
    // SAFETY: no memory is involved. Test: closing.rs.
    plain(move |s| unsafe { (s.shutdown)(s.userdata, fd, how) as isize })
}

/// `fcntl` with one argument.
pub fn fcntl(fd: i32, command: i32, argument: i32) -> Call {
    // SAFETY: the commands that are used take an int. Test: arguments.rs.
    plain(move |s| unsafe { (s.fcntl)(s.userdata, fd, command, argument) as isize })
}

/// `ioctl` for one int, which the outcome has.
pub fn ioctl(fd: i32, request: i32) -> Call {
    Box::new(move |s| {
        let mut n = -1i32;
        // SAFETY: the requests that are used write an int. Test: arguments.rs.
        let r = unsafe { (s.ioctl)(s.userdata, fd, request as libc::c_ulong, &raw mut n) };
        Outcome { out: n.to_ne_bytes().to_vec(), ..outcome(r as isize) }
    })
}

/// `setsockopt` of a number, with the length that the script says.
pub fn set_number(fd: i32, level: i32, name: i32, value: i32, len: i32) -> Call {
    plain(move |s| {
        // Four bytes on the heap, and none behind them.
        let value = Box::new(value);
        let at = std::ptr::from_ref(&*value).cast();
        // SAFETY: an int; that the length may be wrong is what is tested. Test: arguments.rs.
        unsafe { (s.setsockopt)(s.userdata, fd, level, name, at, len as u32) as isize }
    })
}

pub fn reuse_address(fd: i32) -> Call {
    set_number(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1, 4)
}

pub fn set_bytes(fd: i32, level: i32, name: i32, value: Vec<u8>) -> Call {
    // SAFETY: pointer and length are of one vector. Test: blocking.rs.
    plain(move |s| unsafe {
        (s.setsockopt)(s.userdata, fd, level, name, value.as_ptr().cast(), value.len() as u32) as isize
    })
}

/// `SO_RCVTIMEO` or `SO_SNDTIMEO`.
pub fn timeout(fd: i32, name: i32, micros: i64) -> Call {
    let value = [(micros / 1_000_000).to_ne_bytes(), (micros % 1_000_000).to_ne_bytes()].concat();
    set_bytes(fd, libc::SOL_SOCKET, name, value)
}

/// `SO_LINGER`.
pub fn linger(fd: i32, seconds: i32) -> Call {
    let value = [1i32.to_ne_bytes(), seconds.to_ne_bytes()].concat();
    set_bytes(fd, libc::SOL_SOCKET, libc::SO_LINGER, value)
}

/// The outcome has the value, as long as the plug-in says.
pub fn getsockopt(fd: i32, level: i32, name: i32, len: usize) -> Call {
    Box::new(move |s| {
        let (mut value, mut out_len) = (vec![0u8; len], len as u32);
        // SAFETY: the vector has that length. Test: arguments.rs.
        let r = unsafe {
            (s.getsockopt)(s.userdata, fd, level, name, value.as_mut_ptr().cast(), &raw mut out_len)
        };
        value.truncate(out_len as usize);
        Outcome { out: value, ..outcome(r as isize) }
    })
}

/// `poll`, with `revents` preset; the outcome has them.
pub fn poll(fds: &[(i32, i16)], timeout: i32) -> Call {
    let fds = fds.to_vec();
    Box::new(move |s| {
        let mut fds: Vec<_> =
            fds.into_iter().map(|(fd, events)| libc::pollfd { fd, events, revents: 0x5555 }).collect();
        // SAFETY: pointer and count are of one vector. Test: polling.rs.
        let r = unsafe { (s.poll)(s.userdata, fds.as_mut_ptr(), fds.len() as u64, timeout) };
        let revents = fds.iter().flat_map(|p| p.revents.to_ne_bytes()).collect();
        Outcome { out: revents, ..outcome(r as isize) }
    })
}

pub fn epoll_create() -> Call {
    // SAFETY: no memory is involved. Test: polling.rs.
    plain(|s| unsafe { (s.epoll_create)(s.userdata, 1) as isize })
}

pub fn epoll_ctl(ep: i32, op: i32, fd: i32, events: u32, data: u64) -> Call {
    plain(move |s| {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: the event is valid. Test: polling.rs.
        unsafe { (s.epoll_ctl)(s.userdata, ep, op, fd, &raw mut event) as isize }
    })
}

/// The outcome has the first event, zeros if there was none.
pub fn epoll_wait(ep: i32, timeout: i32) -> Call {
    Box::new(move |s| {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        // SAFETY: there is room for four. Test: polling.rs.
        let r = unsafe { (s.epoll_wait)(s.userdata, ep, events.as_mut_ptr(), 4, timeout) };
        let (bits, data) = (events[0].events, events[0].u64);
        Outcome { out: [&bits.to_ne_bytes()[..], &data.to_ne_bytes()].concat(), ..outcome(r as isize) }
    })
}

/// The outcome has both ends.
pub fn pipe() -> Call {
    Box::new(|s| {
        let mut fds = [-1i32; 2];
        // SAFETY: room for two. Test: arguments.rs.
        let r = unsafe { (s.pipe)(s.userdata, fds.as_mut_ptr()) };
        Outcome { out: fds.iter().flat_map(|fd| fd.to_ne_bytes()).collect(), ..outcome(r as isize) }
    })
}

/// `splice` with both offsets null in the script, which packetdrill passes as pointers to 0.
pub fn splice(from: i32, to: i32, len: usize) -> Call {
    plain(move |s| {
        let (mut off_in, mut off_out) = (0i64, 0i64);
        // SAFETY: two variables. Test: arguments.rs.
        unsafe { (s.splice)(s.userdata, from, &raw mut off_in, to, &raw mut off_out, len, 0) as isize }
    })
}

/// A call with a null buffer.
pub fn null_buffer(fd: i32, len: usize, call: &'static str) -> Call {
    plain(move |s| {
        let buf = std::ptr::null_mut::<libc::c_void>();
        let (addr, addr_len) = (std::ptr::null_mut::<libc::sockaddr>(), std::ptr::null_mut::<u32>());
        // SAFETY: null is what is tested. Test: arguments.rs.
        unsafe {
            match call {
                "read" => (s.read)(s.userdata, fd, buf, len),
                "recv" => (s.recv)(s.userdata, fd, buf, len, 0),
                "recvfrom" => (s.recvfrom)(s.userdata, fd, buf, len, 0, addr, addr_len),
                "write" => (s.write)(s.userdata, fd, buf, len),
                "send" => (s.send)(s.userdata, fd, buf, len, 0),
                "sendto" => (s.sendto)(s.userdata, fd, buf, len, 0, addr, 0),
                "readv" => (s.readv)(s.userdata, fd, std::ptr::null(), 1),
                "writev" => (s.writev)(s.userdata, fd, std::ptr::null(), 1),
                other => panic!("{other}"),
            }
        }
    })
}

/// The host's `close`, as packetdrill calls it at the end.
pub fn close_by_libc(fd: i32) -> i32 {
    // SAFETY: a descriptor of the script's. Test: code_blocks.rs.
    unsafe { libc::close(fd) }
}

/// The host's `getsockopt`, as packetdrill calls it for a code block.
pub fn getsockopt_by_libc(fd: i32, level: i32, name: i32, len: usize) -> (i32, Vec<u8>) {
    let (mut value, mut out_len) = (vec![0xaau8; len], len as u32);
    // SAFETY: the vector has that length. Test: code_blocks.rs.
    let r = unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut out_len) };
    value.truncate(out_len as usize);
    (r, value)
}

/// The host's `sendfile`.
pub fn sendfile_by_libc(out: i32, file: i32, count: usize) -> isize {
    // SAFETY: no offset is passed. Test: code_blocks.rs.
    unsafe { libc::sendfile(out, file, std::ptr::null_mut(), count) }
}
