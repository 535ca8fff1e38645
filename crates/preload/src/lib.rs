//! `LD_PRELOAD=libuncopied_preload.so`: the program's sockets are the stack's.
//!
//! Every function here has libc's name and libc's contract, and asks `posix::calls` first; what is not ours
//! goes to the next function of that name. For a descriptor of the kernel's that is one load and a jump.
//! The environment says where the stack meets the network (`UNCOPIED_TAP`, `UNCOPIED_ADDR`, …; see
//! `posix::config::Config`); without it nothing changes.
//!
//! The safety contract of each function is that of its man page.
#![allow(unsafe_code, clippy::missing_safety_doc, reason = "libc's functions have libc's contracts")]
#![allow(unreachable_pub, reason = "exported by name, not by path")]
#![allow(missing_docs, reason = "libc's functions have libc's manual")]

mod files;
mod memory;
mod real;
mod start;
mod stdio;
mod streams;
mod waits;

use posix::calls::Answer;

/// Returns as libc does: the result, or -1 and `errno`.
fn libc_result(result: Result<isize, posix::errno::Errno>) -> isize {
    match result {
        Ok(n) => n,
        Err(e) => {
            // SAFETY: errno's cell is the calling thread's own. Test: crates/preload/tests/programs.rs.
            unsafe { *libc::__errno_location() = e.raw_os_error() };
            -1
        }
    }
}

/// Our answer, or the next function's.
fn answered(ours: Answer, real: impl FnOnce() -> isize) -> isize {
    match ours {
        Some(result) => libc_result(result),
        None => real(),
    }
}
