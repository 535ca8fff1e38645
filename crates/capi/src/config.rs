//! `uc_config`, and the stack that `uc_socket` makes sockets on.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::str::FromStr;
use std::sync::Once;

use posix::config::Config;
use posix::embed::{self, Failure};
use posix::errno::{Errno, Result};

use crate::guard::{explain, status};

/// Where a stack meets the network. Begin with `UC_CONFIG_INIT`, so that what is not set is zero. Strings are
/// read during the call and not kept; lists are separated by commas; null is an empty string.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct uc_config {
    /// `sizeof(uc_config)`: how a library that knows more fields tells which of them its caller knows.
    pub size: usize,
    /// Name of the TAP. One that is there is attached to (which needs no privileges if it is the user's: `ip
    /// tuntap add NAME mode tap user $USER`); another is created (`CAP_NET_ADMIN`).
    pub tap: *const c_char,
    /// The stack's addresses with their prefix lengths: `"10.0.0.2/24,fd00::2/64"`.
    pub addresses: *const c_char,
    /// Default gateways, at most one of each family: `"10.0.0.1"`. May be null.
    pub gateways: *const c_char,
    /// Networks whose connections stay with the kernel, for sockets of `uc_socket` only; loopback always does.
    /// May be null.
    pub bypass: *const c_char,
    /// Largest packet, in bytes, from 68 to 65535; setting that of a TAP needs `CAP_NET_ADMIN`. 0: what the TAP
    /// has, 1500 for a link.
    pub mtu: u32,
    /// Not 0: compare lent memory at completion with what it held at the send, and count changes
    /// (`uc_counters.changed_buffers`). It reads every byte twice.
    pub check_lent: u32,
}

/// A string of C, or the empty one.
///
/// # Safety
/// `text` is null or a string.
unsafe fn string(name: &str, text: *const c_char) -> std::result::Result<String, Failure> {
    if text.is_null() {
        return Ok(String::new());
    }
    // SAFETY: the caller's promise. Test: crates/capi/tests/c/misuse.c.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(str::to_owned).map_err(|_| invalid(format!("{name} is not UTF-8")))
}

fn invalid(message: String) -> Failure {
    Failure { errno: Errno::INVAL, message }
}

fn list<T: FromStr<Err: ToString>>(name: &str, text: &str) -> std::result::Result<Vec<T>, Failure> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| item.parse().map_err(|e: T::Err| invalid(format!("{name}: {}", e.to_string()))))
        .collect()
}

/// Reads a configuration.
///
/// # Safety
/// `config` is null or points at a `uc_config` of the size it says, whose strings are null or strings.
pub(crate) unsafe fn read(config: *const uc_config) -> std::result::Result<Config, Failure> {
    if config.is_null() {
        return Err(Failure { errno: Errno::FAULT, message: "the configuration is null".into() });
    }
    // SAFETY: the caller's promise; the size comes first. Test: crates/capi/tests/c/misuse.c.
    let size = unsafe { std::ptr::addr_of!((*config).size).read_unaligned() };
    if size != size_of::<uc_config>() {
        // As clone3(2) and its like: fields that this library does not know must not be dropped silently.
        let errno = if size > size_of::<uc_config>() { Errno::TOOBIG } else { Errno::INVAL };
        return Err(Failure {
            errno,
            message: format!("uc_config of {size} bytes: begin with UC_CONFIG_INIT"),
        });
    }
    // SAFETY: as above.
    let config = unsafe { config.read_unaligned() };
    // SAFETY: as above.
    let (tap, addresses, gateways, bypass) = unsafe {
        (
            string("tap", config.tap)?,
            string("addresses", config.addresses)?,
            string("gateways", config.gateways)?,
            string("bypass", config.bypass)?,
        )
    };
    Ok(Config {
        tap,
        addr: list("addresses", &addresses)?,
        gw: list("gateways", &gateways)?,
        bypass: list("bypass", &bypass)?,
        mtu: (config.mtu != 0).then_some(config.mtu),
        stats: None,
        check_lent: config.check_lent != 0,
    })
}

/// Says where the sockets of `uc_socket` go: to one stack on the TAP named, started by the first of them.
/// Without it `uc_socket` makes sockets of the kernel. Processes with the same TAP share the stack of the first
/// of them: the others' bytes are copied on the way, they cannot use rings, callbacks and `uc_recv_owned`
/// (`EOPNOTSUPP`), and a child of `fork` is such a process.
///
/// 0, or -1: `EFAULT` null, `EINVAL` or `E2BIG` not to be understood (`uc_last_error` says why), `EBUSY` the
/// stack is running.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_configure(config: *const uc_config) -> c_int {
    status(|| {
        // SAFETY: the caller's promise. Test: crates/capi/tests/c/configured.c.
        let config = unsafe { read(config) }.map_err(explain)?;
        if config.tap.is_empty() || config.addr.is_empty() {
            return Err(explain(invalid("a TAP and an address are needed".into())));
        }
        start_with(config)
    })
}

/// As `uc_configure`, from `UNCOPIED_TAP`, `UNCOPIED_ADDR` and the other variables of the preload library, or the
/// file that `UNCOPIED_CONFIG` names.
///
/// 0, or -1: `ENOENT` none of them is set; otherwise as `uc_configure`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_configure_from_env() -> c_int {
    status(|| match Config::from_env() {
        Ok(Some(config)) => start_with(config),
        Ok(None) => Err(Errno::NOENT),
        Err(e) => Err(explain(invalid(e.to_string()))),
    })
}

fn start_with(config: Config) -> Result<()> {
    if embed::default_stack().is_some() {
        return Err(Errno::BUSY);
    }
    watch_process();
    posix::net::configure(config);
    Ok(())
}

/// From now on the stacks know of `fork` and of the end of the process.
pub(crate) fn watch_process() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: the handlers are functions of this library; what they are for is described where they are.
        // Test: crates/capi/tests/c/configured.c and forked.c.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
            libc::atexit(at_exit);
        }
    });
}

unsafe extern "C" fn before_fork() {
    posix::calls::before_fork();
}

unsafe extern "C" fn in_parent() {
    posix::calls::after_fork_in_parent();
}

unsafe extern "C" fn in_child() {
    crate::handles::disown();
    posix::calls::after_fork_in_child();
}

/// What the sockets have sent goes out first.
extern "C" fn at_exit() {
    posix::net::farewell();
}
