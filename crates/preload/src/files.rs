//! Descriptors: closed, duplicated, asked.

use libc::{c_int, c_uint};
use posix::{calls, is_ours};

use crate::{answered, real};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if calls::is_internal(fd) {
        // Programs that close every number they can think of must not close the stack's.
        return crate::libc_result(Err(posix::errno::Errno::BADF)) as c_int;
    }
    answered(calls::close(fd), || unsafe { real::close(fd) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOSE_RANGE_CLOEXEC: c_int = 4;
    if flags & CLOSE_RANGE_CLOEXEC != 0 || first > last {
        return unsafe { real::close_range(first, last, flags) };
    }
    calls::close_range(first, last);
    for (from, to) in calls::without_internal(first, last) {
        let n = unsafe { real::close_range(from, to, flags) };
        if n != 0 {
            return n;
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    let new = unsafe { real::dup(fd) };
    if new >= 0 && is_ours(fd) {
        calls::duplicated(fd, new);
    }
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    answered(calls::dup3(old, new, 0), || unsafe { real::dup2(old, new) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    answered(calls::dup3(old, new, flags), || unsafe { real::dup3(old, new, flags) } as isize) as c_int
}

/// Variadic in C: on x86-64 and AArch64 the one optional argument comes where a fixed one would.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    unsafe { fcntl64(fd, command, argument) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    if !is_ours(fd) {
        return unsafe { real::fcntl64(fd, command, argument) };
    }
    answered(calls::fcntl(fd, command, argument), || unsafe { real::fcntl64(fd, command, argument) } as isize)
        as c_int
}

/// Variadic in C; as `fcntl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int {
    if !is_ours(fd) {
        return unsafe { real::ioctl(fd, request, argument) };
    }
    let ours = unsafe { calls::ioctl(fd, request, argument as *mut c_int) };
    answered(ours, || unsafe { real::ioctl(fd, request, argument) } as isize) as c_int
}

/// The process ends: what its sockets have sent goes out first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    calls::exiting();
    unsafe { real::exit_now(status) };
    // SAFETY: `_exit` does not return; this says so. Test: crates/preload/tests/programs.rs.
    unsafe { libc::abort() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    unsafe { _exit(status) }
}
