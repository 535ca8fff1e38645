//! `epoll` over sockets of ours and descriptors of the kernel, in one set.
//!
//! The descriptor is the kernel's epoll instance, and the kernel's descriptors are in it as ever. Sockets of
//! ours have their items here; an eventfd within the instance is readable while any of them may be ready, so
//! that sleeping, nesting and `poll` on the epoll descriptor remain the kernel's business.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use stack::Ready;

use crate::errno::{Errno, Result};
use crate::poll::{events_of, interest_of};
use crate::sleep::sleeper;
use crate::socket::Socket;
use crate::sys::{self, SigMask};
use crate::table::Guarded;
use crate::wait::Deadline;

const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const WAKEUP: u32 = libc::EPOLLWAKEUP as u32;
const MODES: u32 = ET | ONESHOT | EXCLUSIVE | WAKEUP;
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// One descriptor's entry.
struct Item {
    set: Weak<Epoll>,
    socket: Weak<Socket>,
    /// What is watched, with the modes; 0 is disabled (after `EPOLLONESHOT`).
    events: AtomicU32,
    data: Mutex<u64>,
    /// On the ready list.
    queued: AtomicBool,
}

impl Wake for Item {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(set) = self.set.upgrade() {
            set.queue(self);
        }
    }
}

/// Items by the descriptor they were added by, and the socket that was behind it then: a number that was
/// closed and given again is another entry.
type Key = (RawFd, usize);

#[derive(Default)]
struct Lists {
    items: HashMap<Key, Arc<Item>>,
    ready: VecDeque<Arc<Item>>,
    /// The eventfd is readable.
    signalled: bool,
}

/// An epoll instance.
pub(crate) struct Epoll {
    /// Readable while the ready list is not empty.
    signal: Guarded,
    /// The eventfd's data in the kernel's instance: not an address, and not a small number.
    mark: u64,
    lists: Mutex<Lists>,
}

impl Epoll {
    /// Adds what sockets of ours need to the kernel's instance `ep`.
    pub(crate) fn attach(ep: RawFd) -> Result<Arc<Self>> {
        let signal = Guarded::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mark = 0x8cad_3f51_0000_0000 | signal.as_raw_fd() as u64;
        let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: mark };
        sys::epoll_ctl(ep, libc::EPOLL_CTL_ADD, signal.as_raw_fd(), Some(event))?;
        Ok(Arc::new(Self { signal, mark, lists: Mutex::default() }))
    }

    /// `epoll_ctl` for a socket of ours.
    pub(crate) fn ctl(
        self: &Arc<Self>,
        op: i32,
        fd: RawFd,
        socket: &Arc<Socket>,
        event: Option<libc::epoll_event>,
    ) -> Result<()> {
        let key = (fd, Arc::as_ptr(socket) as usize);
        let event = || event.ok_or(Errno::FAULT);
        match op {
            libc::EPOLL_CTL_ADD => {
                let event = event()?;
                let item = Arc::new(Item {
                    set: Arc::downgrade(self),
                    socket: Arc::downgrade(socket),
                    events: AtomicU32::new(event.events | ALWAYS),
                    data: Mutex::new(event.u64),
                    queued: AtomicBool::new(false),
                });
                {
                    let mut lists = self.lists.lock();
                    lists.items.retain(|_, item| item.socket.strong_count() > 0);
                    if lists.items.contains_key(&key) {
                        return Err(Errno::EXIST);
                    }
                    lists.items.insert(key, item.clone());
                }
                self.watch(&item, socket);
            }
            libc::EPOLL_CTL_MOD => {
                let event = event()?;
                let item = self.lists.lock().items.get(&key).cloned().ok_or(Errno::NOENT)?;
                if event.events & EXCLUSIVE != 0 || item.events.load(Ordering::Relaxed) & EXCLUSIVE != 0 {
                    return Err(Errno::INVAL);
                }
                *item.data.lock() = event.u64;
                item.events.store(event.events | ALWAYS, Ordering::Relaxed);
                self.watch(&item, socket);
            }
            libc::EPOLL_CTL_DEL => {
                let item = self.lists.lock().items.remove(&key).ok_or(Errno::NOENT)?;
                item.events.store(0, Ordering::Relaxed);
                socket.endpoint().deregister(&Waker::from(item));
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// Registers for news, and queues the item if there is some already.
    fn watch(&self, item: &Arc<Item>, socket: &Arc<Socket>) {
        let events = item.events.load(Ordering::Relaxed);
        socket.endpoint().register(interest_of(events), &Waker::from(item.clone()));
        if events_of(socket.ready()) & events != 0 {
            self.queue(item);
        }
    }

    fn queue(&self, item: &Arc<Item>) {
        if item.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut lists = self.lists.lock();
        lists.ready.push_back(item.clone());
        if !lists.signalled {
            lists.signalled = true;
            let _ = rustix::io::write(&self.signal, &1u64.to_ne_bytes());
        }
    }

    /// Reports ready items, at most `max`. Level-triggered ones stay on the list, to be looked at again.
    fn collect(&self, out: &mut Vec<libc::epoll_event>, max: usize) {
        let mut again = Vec::new();
        let mut left = { self.lists.lock().ready.len() };
        while left > 0 && out.len() < max {
            left -= 1;
            let Some(item) = self.lists.lock().ready.pop_front() else { break };
            item.queued.store(false, Ordering::Release);
            let events = item.events.load(Ordering::Relaxed);
            let Some(socket) = item.socket.upgrade() else { continue };
            if events & !MODES == 0 {
                continue;
            }
            if events & ET != 0 && events & ONESHOT == 0 {
                // First register, then look: what comes between the two is reported again.
                socket.endpoint().register(interest_of(events), &Waker::from(item.clone()));
            }
            let now = events_of(socket.ready()) & events & !MODES;
            if now == 0 {
                if events & ET == 0 {
                    self.watch(&item, &socket);
                } else if events & ONESHOT != 0 {
                    socket.endpoint().register(interest_of(events), &Waker::from(item.clone()));
                }
                continue;
            }
            out.push(libc::epoll_event { events: now, u64: *item.data.lock() });
            if events & ONESHOT != 0 {
                item.events.store(0, Ordering::Relaxed);
            } else if events & ET == 0 {
                again.push(item);
            }
        }
        for item in &again {
            self.queue(item);
        }
    }

    /// Makes the eventfd agree with the list, before sleeping on it.
    fn settle(&self) -> bool {
        let mut lists = self.lists.lock();
        if !lists.ready.is_empty() {
            return false;
        }
        if lists.signalled {
            lists.signalled = false;
            let _ = rustix::io::read(&self.signal, &mut [0u8; 8]);
        }
        true
    }

    /// `epoll_wait` on the instance `ep`.
    pub(crate) fn wait(
        &self,
        ep: RawFd,
        max: usize,
        timeout: Option<Duration>,
        mask: SigMask,
    ) -> Result<Vec<libc::epoll_event>> {
        let deadline = Deadline::after(timeout);
        let mut out = Vec::new();
        loop {
            self.collect(&mut out, max);
            let sleeps = out.is_empty() && self.settle();
            let limit = if sleeps {
                deadline.left().ok().map_or(Some(Duration::ZERO), |left| left)
            } else {
                Some(Duration::ZERO)
            };
            let limit = match sleeper() {
                Some(sleeper) if sleeps && limit != Some(Duration::ZERO) => {
                    let instance = [libc::pollfd { fd: ep, events: libc::POLLIN, revents: 0 }];
                    sleeper.sleep(&|| sys::any_ready(&instance), deadline.at());
                    Some(Duration::ZERO)
                }
                _ => limit,
            };
            let ours = out.len();
            if ours < max {
                sys::epoll_wait(ep, &mut out, max - ours, limit.map(crate::poll::c_timespec), mask)?;
                if let Some(at) = out[ours..].iter().position(|e| e.u64 == self.mark) {
                    out.remove(ours + at);
                }
            }
            if !out.is_empty() || (sleeps && deadline.is_over()) {
                return Ok(out);
            }
        }
    }
}

impl std::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoll").field("signal", &self.signal.as_fd()).finish_non_exhaustive()
    }
}

/// Interest is never empty of what is always reported.
const _: () = assert!(ALWAYS == Ready::ALWAYS.bits());
