//! `fdopen` on a socket: libc's streams make their system calls without asking us, so a stream over a socket
//! of ours is one with functions of ours (`fopencookie`).

use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{FILE, c_char, c_int, c_void, size_t, ssize_t};
use posix::calls;

use crate::{int, size};

#[repr(C)]
struct CookieFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: *const c_void,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: glibc's own declaration. Test: test_stdio of sockets.py.
unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
}

/// The streams we made, and their descriptors: `fileno` is asked for them.
static STREAMS: Mutex<Option<HashMap<usize, c_int>>> = Mutex::new(None);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Looks at our streams, if there are any.
fn with_streams<R>(look: impl FnOnce(&mut HashMap<usize, c_int>) -> Option<R>) -> Option<R> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    look(STREAMS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).as_mut()?)
}

/// A cookie is the descriptor's number.
fn number(cookie: *mut c_void) -> c_int {
    cookie as usize as c_int
}

// SAFETY: libc calls it with a buffer of that length. Test: test_stdio of sockets.py, here and below.
unsafe extern "C" fn read_cookie(cookie: *mut c_void, buf: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: as said.
    size(unsafe { calls::recvfrom(number(cookie), buf.cast(), len, 0, null_mut()) }).unwrap_or(-1)
}

// SAFETY: as above.
unsafe extern "C" fn write_cookie(cookie: *mut c_void, buf: *const c_char, len: size_t) -> ssize_t {
    // A cookie says 0 for an error.
    // SAFETY: as said.
    size(unsafe { calls::send(number(cookie), buf.cast(), len, 0) }).unwrap_or(0).max(0)
}

// SAFETY: no memory is involved.
unsafe extern "C" fn close_cookie(cookie: *mut c_void) -> c_int {
    int(calls::close(number(cookie))).unwrap_or(-1)
}

unsafe fn open(fd: c_int, mode: *const c_char) -> Option<*mut FILE> {
    if !posix::is_ours(fd) {
        return None;
    }
    let functions = CookieFunctions {
        read: read_cookie,
        write: write_cookie,
        seek: std::ptr::null(),
        close: close_cookie,
    };
    // SAFETY: mode is the program's string; the functions are never unloaded.
    let stream = unsafe { fopencookie(fd as usize as *mut c_void, mode, functions) };
    if !stream.is_null() {
        let mut streams = STREAMS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        streams.get_or_insert_default().insert(stream as usize, fd);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    Some(stream)
}

interpose! {
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = open(fd, mode);
    fn fileno(stream: *mut FILE) -> c_int = with_streams(|streams| streams.get(&(stream as usize)).copied());
    fn fclose(stream: *mut FILE) -> c_int = {
        if with_streams(|streams| streams.remove(&(stream as usize))).is_some() {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
        None
    };
}
