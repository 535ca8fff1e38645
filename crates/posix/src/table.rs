//! Which descriptors are ours.
//!
//! Every descriptor is a real one: the kernel's number for a placeholder that we opened. Asking whether a
//! number is ours is one load, so that calls on the kernel's descriptors cost next to nothing.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use crate::epoll::Epoll;
use crate::lock::{ForkGuard, ForkMutex};
use crate::socket::Socket;
use crate::sys;

/// What a descriptor of ours stands for.
#[derive(Clone)]
pub(crate) enum File {
    /// A socket.
    Socket(Arc<Socket>),
    /// An epoll instance that watches sockets of ours.
    Epoll(Arc<Epoll>),
}

impl File {
    /// Whether two descriptors share one open file.
    fn is(&self, other: &File) -> bool {
        match (self, other) {
            (File::Socket(a), File::Socket(b)) => Arc::ptr_eq(a, b),
            (File::Epoll(a), File::Epoll(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// Descriptors beyond this are the kernel's (`fs.nr_open` of Linux).
pub(crate) const MAX_FD: usize = 1 << 20;
const SHARDS: usize = 64;

/// What each number is: [`KERNELS`], [`OURS`] or [`INTERNAL`].
static KINDS: [AtomicU8; MAX_FD] = [const { AtomicU8::new(KERNELS) }; MAX_FD];
const KERNELS: u8 = 0;
const OURS: u8 = 1;
/// A descriptor that this library itself lives on.
const INTERNAL: u8 = 2;

static FILES: [ForkMutex<Option<HashMap<RawFd, File>>>; SHARDS] = [const { ForkMutex::new(None) }; SHARDS];
/// The process the table belongs to. A child of `vfork` runs in our memory and must leave it alone.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Whether `fd` is a descriptor of ours.
#[inline]
pub fn is_ours(fd: RawFd) -> bool {
    kind(fd) == OURS
}

/// Whether `fd` is neither ours nor one that this library lives on.
#[inline]
pub(crate) fn is_kernels(fd: RawFd) -> bool {
    kind(fd) == KERNELS
}

#[inline]
fn kind(fd: RawFd) -> u8 {
    usize::try_from(fd).ok().and_then(|n| KINDS.get(n)).map_or(KERNELS, |k| k.load(Ordering::Acquire))
}

fn set_kind(fd: RawFd, kind: u8) -> bool {
    let cell = usize::try_from(fd).ok().and_then(|n| KINDS.get(n));
    cell.inspect(|k| k.store(kind, Ordering::Release)).is_some()
}

/// What `fd` stands for, if it is ours.
#[inline]
pub(crate) fn get(fd: RawFd) -> Option<File> {
    if is_ours(fd) { find(fd) } else { None }
}

fn shard(fd: RawFd) -> &'static ForkMutex<Option<HashMap<RawFd, File>>> {
    &FILES[fd as usize % SHARDS]
}

fn find(fd: RawFd) -> Option<File> {
    shard(fd).lock().as_ref()?.get(&fd).cloned()
}

/// The socket behind `fd`.
pub(crate) fn socket(fd: RawFd) -> Option<Arc<Socket>> {
    match get(fd)? {
        File::Socket(s) => Some(s),
        File::Epoll(_) => None,
    }
}

/// Whether a descriptor's number is small enough for the table.
pub(crate) fn has_room_for(fd: &impl AsRawFd) -> bool {
    usize::try_from(fd.as_raw_fd()).is_ok_and(|n| n < MAX_FD)
}

/// Makes `fd` ours; false if its number is too large for the table.
pub(crate) fn insert(fd: RawFd, file: File) -> bool {
    if usize::try_from(fd).is_ok_and(|n| n >= MAX_FD) {
        return false;
    }
    if OWNER.load(Ordering::Relaxed) == 0 {
        OWNER.store(own_pid(), Ordering::Relaxed);
    }
    let mut files = shard(fd).lock();
    files.get_or_insert_default().insert(fd, file);
    set_kind(fd, OURS)
}

/// Makes `fd` the kernel's again, if it is ours.
pub(crate) fn remove(fd: RawFd) -> Option<File> {
    if !is_ours(fd) {
        return None;
    }
    let mut files = shard(fd).lock();
    let file = files.as_mut()?.remove(&fd)?;
    set_kind(fd, KERNELS);
    Some(file)
}

/// Makes every descriptor of `file` the kernel's again.
pub(crate) fn remove_file(file: &File) {
    for (fd, other) in all() {
        if other.is(file) {
            remove(fd);
        }
    }
}

/// All descriptors of ours, sorted.
pub(crate) fn all() -> Vec<(RawFd, File)> {
    let mut all: Vec<_> = FILES
        .iter()
        .flat_map(|s| s.lock().iter().flatten().map(|(fd, f)| (*fd, f.clone())).collect::<Vec<_>>())
        .collect();
    all.sort_by_key(|(fd, _)| *fd);
    all
}

/// Whether this is a child of `vfork`: another process in our memory.
pub(crate) fn in_vfork_child() -> bool {
    own_pid() != OWNER.load(Ordering::Relaxed)
}

/// The table is this process's now.
pub(crate) fn adopt() {
    OWNER.store(own_pid(), Ordering::Relaxed);
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// All descriptors that this library itself lives on, sorted.
pub(crate) fn internal() -> Vec<RawFd> {
    INTERNALS.lock().clone()
}

static INTERNALS: ForkMutex<Vec<RawFd>> = ForkMutex::new(Vec::new());

/// Runs `open` and notes which descriptors it leaves open: TAPs, eventfds and sockets.
pub(crate) fn noting_internal<R>(open: impl FnOnce() -> R) -> R {
    let before = open_numbers();
    let r = open();
    for fd in open_numbers().into_iter().filter(|fd| !before.contains(fd) && is_machinery(*fd)) {
        guard(fd);
    }
    r
}

/// The program's `close` is not for `fd`, which this library lives on.
pub(crate) fn guard(fd: RawFd) {
    let mut internals = INTERNALS.lock();
    if let Err(at) = internals.binary_search(&fd)
        && set_kind(fd, INTERNAL)
    {
        internals.insert(at, fd);
    }
}

/// `fd` is about to be closed by this library.
pub(crate) fn unguard(fd: RawFd) {
    let mut internals = INTERNALS.lock();
    if let Ok(at) = internals.binary_search(&fd) {
        internals.remove(at);
        set_kind(fd, KERNELS);
    }
}

/// A descriptor this library lives on, guarded while it does.
#[derive(Debug)]
pub(crate) struct Guarded(OwnedFd);

impl Guarded {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        guard(fd.as_raw_fd());
        Self(fd)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        unguard(self.0.as_raw_fd());
    }
}

impl AsFd for Guarded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Guarded {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// In a child of `fork`: what the parent's stack lives on is closed, but for `kept`.
pub(crate) fn close_internal(kept: &[RawFd]) {
    for fd in internal().into_iter().filter(|fd| !kept.contains(fd)) {
        unguard(fd);
        sys::close(fd);
    }
}

fn open_numbers() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

fn is_machinery(fd: RawFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|link| {
        let link = link.to_string_lossy();
        link == "/dev/net/tun" || link.starts_with("anon_inode:[eventfd") || link.starts_with("socket:")
    })
}

/// The table's locks, and what is in it.
pub(crate) struct Frozen {
    shards: Vec<Shard>,
    _internals: ForkGuard<'static, Vec<RawFd>>,
}

type Shard = ForkGuard<'static, Option<HashMap<RawFd, File>>>;

impl Frozen {
    /// Every open file, once for each of its descriptors.
    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.shards.iter().filter_map(|s| s.as_ref()).flat_map(HashMap::values)
    }
}

/// Locks the table: no other thread is in the middle of a change while the result lives.
pub(crate) fn freeze() -> Frozen {
    Frozen { shards: FILES.iter().map(ForkMutex::lock).collect(), _internals: INTERNALS.lock() }
}
