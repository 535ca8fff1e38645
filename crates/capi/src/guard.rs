//! What every function of the library ends with: C's way to say what happened.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use posix::calls::Answer;
use posix::embed::Failure;
use posix::errno::{Errno, Result};

thread_local! {
    /// What was said last, for `uc_last_error`.
    static LAST: RefCell<CString> = RefCell::default();
}

fn set_errno(e: Errno) {
    // SAFETY: errno's cell is the calling thread's own. Test: crates/capi/tests/c/misuse.c.
    unsafe { *libc::__errno_location() = e.raw_os_error() };
}

/// Notes a sentence about the error that the call is about to return.
pub(crate) fn explain(failure: Failure) -> Errno {
    let text = CString::new(failure.message).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    failure.errno
}

/// Runs `f`, and turns its error into `errno` and `bad`. A panic is `EIO`: it has been printed, and nothing is
/// left locked, since the stack's locks do not poison.
pub(crate) fn guard<R>(bad: R, f: impl FnOnce() -> Result<R>) -> R {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(r)) => r,
        Ok(Err(e)) => {
            set_errno(e);
            bad
        }
        Err(_) => {
            set_errno(Errno::IO);
            bad
        }
    }
}

/// For calls that answer 0 or -1.
pub(crate) fn status(f: impl FnOnce() -> Result<()>) -> i32 {
    guard(-1, || f().map(|()| 0))
}

/// Our answer, or, for a descriptor of the kernel's, that of `kernel`, which sets `errno` itself.
pub(crate) fn answered(ours: impl FnOnce() -> Answer, kernel: impl FnOnce() -> isize) -> isize {
    guard(-1, || ours().unwrap_or_else(|| Ok(kernel())))
}

/// A sentence about why the last `uc_stack_new`, `uc_link_pair` or `uc_configure` of this thread failed: what is
/// wrong, and what to do about it. Empty if none has. Valid until the thread's next call of one of them; never
/// null.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_last_error() -> *const c_char {
    guard(c"".as_ptr(), || Ok(LAST.with(|last| last.borrow().as_ptr())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_eio() {
        assert_eq!(guard(-1, || panic!("this test panics")), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
    }

    #[test]
    fn an_error_is_its_number() {
        assert_eq!(status(|| Err(Errno::NOBUFS)), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOBUFS));
        assert_eq!(status(|| Ok(())), 0);
    }
}
