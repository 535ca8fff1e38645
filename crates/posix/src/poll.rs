//! `poll` and `select` over sockets of ours and descriptors of the kernel.

use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use stack::Ready;

use crate::errno::Result;
use crate::sleep::sleeper;
use crate::socket::Socket;
use crate::sys::{self, SigMask};
use crate::table::{self, Guarded};
use crate::wait::Deadline;

const IN: u32 = (libc::POLLIN | libc::POLLRDNORM) as u32;
const OUT: u32 = (libc::POLLOUT | libc::POLLWRNORM) as u32;

/// What the stack calls ready, in the bits of `poll` and `epoll`, which agree.
pub(crate) fn events_of(ready: Ready) -> u32 {
    let mut events = 0;
    for (level, bits) in [
        (Ready::IN, IN),
        (Ready::OUT, OUT),
        (Ready::PRI, libc::POLLPRI as u32),
        (Ready::ERR, libc::POLLERR as u32),
        (Ready::HUP, libc::POLLHUP as u32),
        (Ready::RDHUP, libc::POLLRDHUP as u32),
    ] {
        if ready.contains(level) {
            events |= bits;
        }
    }
    events
}

/// The news to be told of, for bits of `poll` or `epoll`.
pub(crate) fn interest_of(events: u32) -> Ready {
    let mut interest = Ready::ALWAYS;
    interest.set(Ready::IN, events & IN != 0);
    interest.set(Ready::OUT, events & OUT != 0);
    interest.set(Ready::PRI, events & libc::POLLPRI as u32 != 0);
    interest.set(Ready::RDHUP, events & libc::POLLRDHUP as u32 != 0);
    interest
}

pub(crate) fn c_timespec(d: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(d.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(d.subsec_nanos() as i32),
    }
}

/// An eventfd that a sleeping thread polls along with its descriptors.
struct Bell {
    fd: Guarded,
    /// Somebody listens.
    armed: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.armed.swap(false, Ordering::AcqRel) {
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

thread_local! {
    static BELL: RefCell<Option<Arc<Bell>>> = const { RefCell::new(None) };
}

/// The thread's bell.
fn bell() -> Result<Arc<Bell>> {
    BELL.with_borrow_mut(|bell| {
        if let Some(bell) = bell {
            return Ok(bell.clone());
        }
        let fd = Guarded::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(bell.insert(Arc::new(Bell { fd, armed: AtomicBool::new(false) })).clone())
    })
}

/// In a child of `fork`: the bell is shared with the parent, and must not be heard by both.
pub(crate) fn forget_bell() {
    BELL.take();
}

/// `ppoll`: fills in `revents` and returns how many are not zero.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>, mask: SigMask) -> Result<usize> {
    let ours: Vec<(usize, Arc<Socket>)> =
        fds.iter().enumerate().filter_map(|(n, p)| Some((n, table::socket(p.fd)?))).collect();
    if ours.is_empty() {
        return sys::ppoll(fds, timeout.map(c_timespec), mask);
    }
    let bell = bell()?;
    let waker = Waker::from(bell.clone());
    let result = poll_mixed(fds, &ours, &bell, &waker, Deadline::after(timeout), mask);
    if bell.armed.swap(false, Ordering::AcqRel) {
        for (_, socket) in &ours {
            socket.endpoint().deregister(&waker);
        }
    } else {
        let _ = rustix::io::read(&bell.fd, &mut [0u8; 8]);
    }
    result
}

fn poll_mixed(
    fds: &mut [libc::pollfd],
    ours: &[(usize, Arc<Socket>)],
    bell: &Arc<Bell>,
    waker: &Waker,
    deadline: Deadline,
    mask: SigMask,
) -> Result<usize> {
    // The kernel looks at its own: ours are negative numbers to it, which it skips.
    let mut kernel = fds.to_vec();
    for (n, _) in ours {
        kernel[*n].fd = -1;
    }
    kernel.push(libc::pollfd { fd: bell.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let last = kernel.len() - 1;
    loop {
        let found = look(fds, ours);
        let limit = if found > 0 {
            Some(Duration::ZERO)
        } else {
            match deadline.left() {
                Ok(left) if arm(fds, ours, bell, waker) == 0 => left,
                Ok(_) | Err(_) => Some(Duration::ZERO),
            }
        };
        let sleeps = limit != Some(Duration::ZERO);
        let limit = match sleeper() {
            Some(sleeper) if sleeps => {
                sleeper.sleep(&|| sys::any_ready(&kernel), deadline.at());
                Some(Duration::ZERO)
            }
            _ => limit,
        };
        sys::ppoll(&mut kernel, limit.map(c_timespec), mask)?;
        if kernel[last].revents != 0 {
            let _ = rustix::io::read(&bell.fd, &mut [0u8; 8]);
        }
        let mut count = look(fds, ours);
        for (n, p) in kernel[..last].iter().enumerate() {
            if p.fd >= 0 || fds[n].fd < 0 {
                fds[n].revents = p.revents;
                count += usize::from(p.revents != 0);
            }
        }
        if count > 0 || (!sleeps && deadline.is_over()) {
            return Ok(count);
        }
    }
}

/// Registers with every socket; how many are ready after all.
fn arm(fds: &mut [libc::pollfd], ours: &[(usize, Arc<Socket>)], bell: &Arc<Bell>, waker: &Waker) -> usize {
    bell.armed.store(true, Ordering::Release);
    for (n, socket) in ours {
        socket.endpoint().register(interest_of(fds[*n].events as u32), waker);
    }
    look(fds, ours)
}

/// Fills in `revents` of ours; how many are not zero.
fn look(fds: &mut [libc::pollfd], ours: &[(usize, Arc<Socket>)]) -> usize {
    let mut found = 0;
    for (n, socket) in ours {
        let p = &mut fds[*n];
        let wanted = p.events as u32 | Ready::ALWAYS.bits();
        p.revents = (events_of(socket.ready()) & wanted) as libc::c_short;
        found += usize::from(p.revents != 0);
    }
    found
}
