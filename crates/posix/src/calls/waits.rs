//! Waiting for several descriptors.
//!
//! Contract. Pointers and lengths are the program's, as in [`calls`](super).
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::time::Duration;

use super::{Answer, counted, done};
use crate::epoll::Epoll;
use crate::errno::Errno;
use crate::sys::SigMask;
use crate::table::{self, File};
use crate::{poll, user};

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
    // SAFETY: the caller's promise; the array is the call's own while it lasts. Test: test_poll_mixes_descriptors of sockets.py.
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
        // Test: test_poll_mixes_descriptors of sockets.py.
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
    // SAFETY: the caller's promise. Test: test_epoll_level_and_edge of sockets.py.
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
            // Test: test_epoll_level_and_edge of sockets.py.
            unsafe { user::write(events.wrapping_add(n), *event) }?;
        }
        Ok(found.len())
    });
    counted(result)
}
