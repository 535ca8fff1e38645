//! Which descriptors are ours.
//!
//! Every descriptor is a real one: the kernel's number for a placeholder that we opened. Asking whether a
//! number is ours is one load, so that calls on the kernel's descriptors cost next to nothing.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use parking_lot::{RwLock, RwLockWriteGuard};

use crate::epoll::Epoll;
use crate::socket::Socket;

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

static OURS: [AtomicBool; MAX_FD] = [const { AtomicBool::new(false) }; MAX_FD];
static FILES: [RwLock<Option<HashMap<RawFd, File>>>; SHARDS] = [const { RwLock::new(None) }; SHARDS];
/// The process the table belongs to. A child of `vfork` runs in our memory and must leave it alone.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Whether `fd` is a descriptor of ours.
#[inline]
pub fn is_ours(fd: RawFd) -> bool {
    usize::try_from(fd).ok().and_then(|n| OURS.get(n)).is_some_and(|ours| ours.load(Ordering::Acquire))
}

/// What `fd` stands for, if it is ours.
#[inline]
pub(crate) fn get(fd: RawFd) -> Option<File> {
    if is_ours(fd) { find(fd) } else { None }
}

fn shard(fd: RawFd) -> &'static RwLock<Option<HashMap<RawFd, File>>> {
    &FILES[fd as usize % SHARDS]
}

fn find(fd: RawFd) -> Option<File> {
    shard(fd).read().as_ref()?.get(&fd).cloned()
}

/// The socket behind `fd`.
pub(crate) fn socket(fd: RawFd) -> Option<Arc<Socket>> {
    match get(fd)? {
        File::Socket(s) => Some(s),
        File::Epoll(_) => None,
    }
}

/// Makes `fd` ours; false if its number is too large for the table.
pub(crate) fn insert(fd: RawFd, file: File) -> bool {
    let Some(ours) = usize::try_from(fd).ok().and_then(|n| OURS.get(n)) else { return false };
    if OWNER.load(Ordering::Relaxed) == 0 {
        OWNER.store(own_pid(), Ordering::Relaxed);
    }
    shard(fd).write().get_or_insert_default().insert(fd, file);
    ours.store(true, Ordering::Release);
    true
}

/// Makes `fd` the kernel's again.
pub(crate) fn remove(fd: RawFd) -> Option<File> {
    let ours = usize::try_from(fd).ok().and_then(|n| OURS.get(n))?;
    let mut files = shard(fd).write();
    ours.store(false, Ordering::Release);
    files.as_mut()?.remove(&fd)
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
        .flat_map(|s| s.read().iter().flatten().map(|(fd, f)| (*fd, f.clone())).collect::<Vec<_>>())
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

/// Descriptors that this library itself lives on.
static INTERNAL: RwLock<Vec<RawFd>> = RwLock::new(Vec::new());

/// Whether `fd` is one of them.
pub(crate) fn is_internal(fd: RawFd) -> bool {
    INTERNAL.read().contains(&fd)
}

/// All of them, sorted.
pub(crate) fn internal() -> Vec<RawFd> {
    INTERNAL.read().clone()
}

/// Runs `open` and notes which descriptors it leaves open: TAPs, eventfds and sockets.
pub(crate) fn noting_internal<R>(open: impl FnOnce() -> R) -> R {
    let before = open_numbers();
    let r = open();
    let mut internal = INTERNAL.write();
    internal.extend(open_numbers().into_iter().filter(|fd| !before.contains(fd) && is_machinery(*fd)));
    internal.sort_unstable();
    r
}

/// Other processes' stack, other descriptors.
pub(crate) fn forget_internal() {
    INTERNAL.write().clear();
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
}

type Shard = RwLockWriteGuard<'static, Option<HashMap<RawFd, File>>>;

impl Frozen {
    /// Every open file, once for each of its descriptors.
    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.shards.iter().filter_map(|s| s.as_ref()).flat_map(HashMap::values)
    }
}

/// Locks the table: no other thread is in the middle of a change while the result lives.
pub(crate) fn freeze() -> Frozen {
    Frozen { shards: FILES.iter().map(RwLock::write).collect() }
}
