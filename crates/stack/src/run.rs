//! The net thread: the one place that reads a clock for the packet side, and sleeps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use time::Instant;

use crate::ingress;
use crate::shared::{RxSide, Shared};

/// A running net thread; dropping it stops and joins it.
pub(crate) struct NetThread {
    stop: Arc<AtomicBool>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl NetThread {
    pub(crate) fn spawn(shared: Arc<Shared>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("uncopied-net".into()).spawn({
            let (shared, stop) = (shared.clone(), stop.clone());
            move || run(&shared, &stop)
        })?;
        Ok(Self { stop, shared, thread: Some(thread) })
    }
}

impl Drop for NetThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Not only if it sleeps: it may be about to, and looks at `stop` only when it wakes.
        self.shared.wakeup.always();
        let Some(thread) = self.thread.take() else { return };
        // The last handle may be dropped by the net thread itself, in a waker it runs.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Arc<Shared>, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let mut side = shared.rx.lock();
        let polled = ingress::poll(shared, &mut side, shared.now());
        if polled.work > 0 {
            continue;
        }
        sleep(shared, &mut side, polled.next);
    }
}

/// Sleeps until a device, a socket call or `next` wants us. Everything that could be work is looked at
/// again after the sleep was announced.
pub(crate) fn sleep(shared: &Shared, side: &mut RxSide, next: Option<Instant>) {
    shared.wakeup.about_to_sleep(next);
    let earlier = shared.timers.lock().next_deadline().is_some_and(|t| next.is_none_or(|n| t < n));
    let idle = !earlier && shared.loopback.is_empty() && side.devices.iter_mut().all(|d| d.arm());
    if idle {
        let mut fds: Vec<_> = side
            .devices
            .iter()
            .filter_map(|d| d.wait_fd())
            .chain([shared.wakeup.fd()])
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let rest = side.devices.iter().filter_map(|d| d.rest());
        let left = rest.chain(next.map(|n| n - shared.now())).min();
        let timeout =
            left.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
        // A signal (`EINTR`) is a reason to look around, like any other.
        let _ = poll(&mut fds, timeout.as_ref());
    }
    shared.wakeup.awake();
}
