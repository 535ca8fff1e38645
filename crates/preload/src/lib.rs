//! `LD_PRELOAD=libuncopied_preload.so`: the program's sockets are the stack's.
//!
//! Every function here has libc's name and libc's contract, and asks `posix::calls` first; what is not ours
//! goes to the next function of that name. For a descriptor of the kernel's that is a load, a call and a jump.
//! The environment says where the stack meets the network (`UNCOPIED_TAP`, `UNCOPIED_ADDR`, …; see
//! `posix::config::Config`); without it nothing changes.
//!
//! The safety contract of each function is that of its man page. Variadic functions take their one optional
//! argument where a fixed one would be, which on x86-64 and AArch64 is the same.
#![allow(unsafe_code, clippy::missing_safety_doc, reason = "libc's functions have libc's contracts")]
#![allow(unreachable_pub, reason = "exported by name, not by path")]
#![allow(missing_docs, reason = "libc's functions have libc's manual")]

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_void, ssize_t};
use posix::calls::Answer;

/// Declares functions with libc's names. Each has an expression that says what we answer: `None` is "not ours",
/// and then the next function of that name is called with the same arguments.
macro_rules! interpose {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $ours:expr;)*) => {$(
        $(#[$meta])*
        // SAFETY: a function of libc's name and type, which asks libc's own for what it does not do itself.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            static NEXT: $crate::Next = $crate::Next::new($crate::symbol(concat!(stringify!($name), "\0")));
            // SAFETY: what our functions ask for is what the man page asks of the caller.
            // Test: crates/cli/tests/programs.rs.
            #[allow(unused_unsafe, reason = "some of our answers need none")]
            let ours: Option<$ret> = unsafe { $ours };
            match ours {
                Some(answer) => answer,
                None => {
                    type Function = unsafe extern "C" fn($($ty),*) -> $ret;
                    // SAFETY: the symbol is libc's function of that name, whose C type this is; the caller
                    // keeps its contract. Test: as above.
                    unsafe { std::mem::transmute::<*mut libc::c_void, Function>(NEXT.get())($($arg),*) }
                }
            }
        }
    )*};
}

mod files;
mod memory;
mod start;
mod stdio;
mod streams;
mod waits;

/// The next function of a name, looked up when it is first needed.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

/// A symbol's name with its end.
const fn symbol(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name without its end"),
    }
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address. A libc without it ends the program: there is nothing to call.
    #[inline]
    fn get(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with a NUL. Test: crates/cli/tests/programs.rs.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            posix::net::say(&format!("libc has no {}", self.name.to_string_lossy()));
            std::process::abort();
        }
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// An answer as libc gives it: the result, or -1 and `errno`.
fn size(answer: Answer) -> Option<ssize_t> {
    Some(match answer? {
        Ok(n) => n,
        Err(e) => {
            // SAFETY: errno's cell is the calling thread's own. Test: test_null_and_nonsense of sockets.py.
            unsafe { *libc::__errno_location() = e.raw_os_error() };
            -1
        }
    })
}

/// The same for functions that return an `int`.
fn int(answer: Answer) -> Option<c_int> {
    size(answer).map(|n| n as c_int)
}
