//! `fdopen` on a socket: libc's streams make their system calls without asking us, so a stream over a socket
//! of ours is one with functions of ours (`fopencookie`).

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{FILE, c_char, c_int, c_void, size_t, ssize_t};

use crate::{files, real, streams};

#[repr(C)]
struct CookieFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: *const c_void,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
}

/// The streams we made, and their descriptors: `fileno` is asked for them.
static STREAMS: Mutex<Option<HashMap<usize, c_int>>> = Mutex::new(None);
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn streams_of_ours() -> std::sync::MutexGuard<'static, Option<HashMap<usize, c_int>>> {
    STREAMS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A cookie is the descriptor's number.
fn number(cookie: *mut c_void) -> c_int {
    cookie as usize as c_int
}

unsafe extern "C" fn read_cookie(cookie: *mut c_void, buf: *mut c_char, len: size_t) -> ssize_t {
    unsafe { streams::read(number(cookie), buf.cast(), len) }
}

unsafe extern "C" fn write_cookie(cookie: *mut c_void, buf: *const c_char, len: size_t) -> ssize_t {
    // A cookie says 0 for an error.
    unsafe { streams::write(number(cookie), buf.cast(), len) }.max(0)
}

unsafe extern "C" fn close_cookie(cookie: *mut c_void) -> c_int {
    unsafe { files::close(number(cookie)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if !posix::is_ours(fd) {
        return unsafe { real::fdopen(fd, mode) };
    }
    let functions = CookieFunctions {
        read: read_cookie,
        write: write_cookie,
        seek: std::ptr::null(),
        close: close_cookie,
    };
    // SAFETY: mode is the program's string; the functions outlive the stream. Test:
    // crates/preload/tests/programs.rs.
    let stream = unsafe { fopencookie(fd as usize as *mut c_void, mode, functions) };
    if !stream.is_null() {
        streams_of_ours().get_or_insert_default().insert(stream as usize, fd);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    stream
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fileno(stream: *mut FILE) -> c_int {
    if COUNT.load(Ordering::Relaxed) > 0
        && let Some(fd) = streams_of_ours().as_ref().and_then(|s| s.get(&(stream as usize)).copied())
    {
        return fd;
    }
    unsafe { real::fileno(stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    if COUNT.load(Ordering::Relaxed) > 0
        && streams_of_ours().as_mut().and_then(|s| s.remove(&(stream as usize))).is_some()
    {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
    unsafe { real::fclose(stream) }
}
