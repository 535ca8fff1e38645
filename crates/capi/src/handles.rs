//! Handles: numbers that look like pointers, and are never followed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::RwLock;
use posix::errno::{Errno, Result};

/// No address on any 64-bit machine: a program that follows a handle learns it at once. Numbers are given
/// once, so a handle that was freed is never somebody else's.
static NEXT: AtomicUsize = AtomicUsize::new(0x7563_0000_0000_0001);

/// This is a child of `fork`: handles are its parent's, and the registries may be locked for ever.
static INHERITED: AtomicBool = AtomicBool::new(false);

/// In a child of `fork`: every handle is `EBADF` from now on.
pub(crate) fn disown() {
    INHERITED.store(true, Ordering::Relaxed);
}

fn check(handle: usize) -> Result<()> {
    match handle {
        0 => Err(Errno::FAULT),
        _ if INHERITED.load(Ordering::Relaxed) => Err(Errno::BADF),
        _ => Ok(()),
    }
}

/// The living things of one kind, by handle.
pub(crate) struct Registry<T>(RwLock<Option<HashMap<usize, Arc<T>>>>);

impl<T> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(None))
    }

    /// A new handle.
    pub(crate) fn insert(&self, thing: Arc<T>) -> usize {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.write().get_or_insert_default().insert(handle, thing);
        handle
    }

    /// What `handle` stands for: `EFAULT` for null, `EBADF` for what was freed or never was.
    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>> {
        check(handle)?;
        self.0.read().as_ref().and_then(|all| all.get(&handle)).cloned().ok_or(Errno::BADF)
    }

    /// Ends a handle.
    pub(crate) fn remove(&self, handle: usize) -> Result<Arc<T>> {
        check(handle)?;
        self.0.write().as_mut().and_then(|all| all.remove(&handle)).ok_or(Errno::BADF)
    }

    /// Gives a handle that was [removed](Self::remove) its meaning back.
    pub(crate) fn restore(&self, handle: usize, thing: Arc<T>) {
        self.0.write().get_or_insert_default().insert(handle, thing);
    }

    /// The first that `wanted` says yes to.
    pub(crate) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.0.read().as_ref()?.values().find(|t| wanted(t)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_ends_once_and_is_never_given_again() {
        let r = Registry::new();
        let a = r.insert(Arc::new(1));
        assert_eq!(*r.get(a).unwrap(), 1);
        assert_eq!(*r.remove(a).unwrap(), 1);
        assert_eq!(r.remove(a).err(), Some(Errno::BADF));
        assert_ne!(r.insert(Arc::new(2)), a);
        assert_eq!(r.get(a).err(), Some(Errno::BADF));
        assert_eq!(r.get(0).err(), Some(Errno::FAULT));
    }
}
