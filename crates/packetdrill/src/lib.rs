//! `packetdrill --so_filename=libuncopied_packetdrill.so`: its scripts run against the stack, in virtual time.
//!
//! packetdrill loads the library, hands it a record of 33 slots and calls through them: the socket calls of the
//! script (`slots`), packets in both directions (`device`), and the clock (`world`). The socket calls are
//! those of `posix`; only their sleeping is different, because time is.
//!
//! # Time
//! Nothing here runs by itself. The clock moves when packetdrill asks for the time, sleeps, or waits for a
//! packet, and the stack's timers fire on the way. A call that blocks sleeps for good; whoever makes its end
//! possible (an injected packet, a timer) lets it finish before the clock moves on (`turn`), so scripts
//! take no real time and their outcome does not depend on the scheduler.
//!
//! # What bypasses the record
//! packetdrill closes leftover sockets, asks for `TCP_INFO` and calls `sendfile` through libc. Descriptors are
//! real ones, so nothing breaks by it; and packetdrill's own imports of these functions are pointed here
//! (`imports`).
#![allow(unsafe_code, clippy::missing_safety_doc, reason = "a C interface: the contract is packetdrill's")]

mod device;
mod flags;
mod imports;
mod options;
mod slots;
mod sysctl;
mod turn;
mod world;

use std::ffi::{CStr, c_char, c_void};

use flags::Flags;

/// What packetdrill calls through: a pointer of ours that it hands back, and the calls in their order.
#[repr(C)]
pub struct Interface {
    userdata: *mut c_void,
    calls: [*const c_void; slots::COUNT],
}

/// packetdrill's entry, called once for each script.
///
/// # Safety
/// `flags` is null or a C string; `interface` points at a record of 33 pointers.
// SAFETY: nothing else of a program is called so. Test: tests/scripts.rs, every script.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut Interface) {
    // SAFETY: the caller's promise. Test: tests/scripts.rs, every script.
    let text = unsafe { text(flags) };
    let begun = Flags::parse(&text)
        .map_err(|e| format!("--so_flags: {e}"))
        .and_then(|flags| world::begin(flags).map_err(|e| format!("no stack: {e}")));
    if let Err(message) = begun {
        // There is no other way to refuse.
        posix::net::say(&format!("packetdrill: {message}"));
        std::process::exit(1);
    }
    imports::patch();
    // SAFETY: the caller's promise. Test: as above.
    unsafe { interface.write(Interface { userdata: std::ptr::null_mut(), calls: slots::all() }) };
}

/// # Safety
/// `flags` is null or a C string.
unsafe fn text(flags: *const c_char) -> String {
    if flags.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise. Test: tests/scripts.rs, no_flags_at_all_are_a_null_pointer.
    unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned()
}
