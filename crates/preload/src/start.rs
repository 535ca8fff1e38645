//! What happens when the library is loaded.

use posix::config::Config;

/// Called by the loader, before the program's own constructors.
// SAFETY: that section holds pointers to functions of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

extern "C" fn init() {
    let configured = Config::from_env().map_err(|e| e.to_string());
    match configured.and_then(|c| posix::log::to_stderr("warn").map(|()| c)) {
        Ok(Some(config)) => {
            posix::lent::watch();
            posix::net::configure(config);
        }
        Ok(None) => posix::net::say("UNCOPIED_TAP is not set: sockets stay with the kernel"),
        Err(e) => {
            posix::net::say(&e);
            // SAFETY: a program that runs on another network than it was told to would be worse.
            // Test: crates/cli/tests/programs.rs.
            unsafe { libc::_exit(127) };
        }
    }
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    // Test: crates/cli/tests/programs.rs.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
        libc::atexit(at_exit);
    }
}

unsafe extern "C" fn before_fork() {
    posix::calls::before_fork();
}

unsafe extern "C" fn in_parent() {
    posix::calls::after_fork_in_parent();
}

unsafe extern "C" fn in_child() {
    posix::calls::after_fork_in_child();
}

extern "C" fn at_exit() {
    posix::net::farewell();
}
