//! Descriptors: closed, duplicated, asked; and processes, which share them.
//!
//! Contract. Pointers are the program's, as in [`calls`](super).
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Answer, done};
use crate::errno::{Errno, Result};
use crate::table::{self, File};
use crate::{sys, user};

/// `close(2)`. The kernel's placeholder is closed too. A program that closes every number it can think of
/// must not close those the stack lives on: `EBADF`.
pub fn close(fd: RawFd) -> Answer {
    if table::is_kernels(fd) || table::in_vfork_child() {
        return None;
    }
    let Some(file) = table::remove(fd) else { return Some(Err(Errno::BADF)) };
    sys::close(fd);
    if let File::Socket(socket) = file
        && let Some(last) = Arc::into_inner(socket)
    {
        last.linger();
    }
    Some(Ok(0))
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

/// `close_range(2)`: all but those the stack lives on.
pub fn close_range(first: u32, last: u32, flags: i32) -> Answer {
    const CLOSE_RANGE_CLOEXEC: i32 = 4;
    if flags & CLOSE_RANGE_CLOEXEC != 0 || first > last || table::in_vfork_child() {
        return None;
    }
    let in_range = |fd: RawFd| (first..=last).contains(&(fd as u32));
    let ours: Vec<_> = table::all().into_iter().filter(|(fd, _)| in_range(*fd)).collect();
    for (fd, _) in &ours {
        table::remove(*fd);
    }
    let mut from = first;
    for kept in table::internal().into_iter().filter(|fd| in_range(*fd)) {
        let kept = kept as u32;
        if kept > from
            && let Err(e) = sys::close_range(from, kept - 1, flags)
        {
            return Some(Err(e));
        }
        if kept == last {
            return Some(Ok(0));
        }
        from = kept + 1;
    }
    done(sys::close_range(from, last, flags))
}

/// `fcntl(2)`: what the placeholder knows, it answers; we listen in.
pub fn fcntl(fd: RawFd, command: i32, argument: usize) -> Answer {
    if !table::is_ours(fd) || table::in_vfork_child() {
        return None;
    }
    let result = sys::fcntl(fd, command, argument);
    match (command, &result) {
        (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC, Ok(new)) => {
            if let Some(file) = table::get(fd)
                && !table::insert(*new, file)
            {
                sys::close(*new);
                return Some(Err(Errno::MFILE));
            }
        }
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
        // SAFETY: these requests point at an int. Test: test_names and others of sockets.py.
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
