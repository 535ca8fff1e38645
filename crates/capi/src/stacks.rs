//! Stacks by handle.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use posix::config::Config;
use posix::embed;
use posix::errno::{Errno, Result};
use stack::Stack;

use crate::callbacks;
use crate::config::{self, uc_config};
use crate::guard::{explain, guard, status};
use crate::handles::Registry;
use crate::reason::UC_REASONS;

/// A TCP/IP stack of this process, with threads of its own that run it. A handle: it is never followed, and
/// using it after `uc_stack_free` is `EBADF`.
pub struct uc_stack(());

/// A stack, and what it needs to run.
struct Running {
    stack: Stack,
    /// What moves packets on the link to another stack of this process; it stops with the last of the two.
    _engine: Option<Arc<embed::LinkEngine>>,
}

static STACKS: Registry<Running> = Registry::new();

fn find(handle: *mut uc_stack) -> Result<Arc<Running>> {
    STACKS.get(handle as usize)
}

/// The stack behind a handle.
pub(crate) fn stack(handle: *mut uc_stack) -> Result<Stack> {
    find(handle).map(|s| s.stack.clone())
}

/// The stack with a number.
pub(crate) fn by_number(number: u64) -> Option<Stack> {
    let found = STACKS.find(|s| s.stack.number() == number).map(|s| s.stack.clone());
    found.or_else(|| embed::default_stack().filter(|s| s.number() == number))
}

/// Time that devices have to let go of lent memory when a stack is freed: longer than a packet waits for an
/// answer of the neighbour (RFC 4861: three probes, a second apart).
const LETTING_GO: Duration = Duration::from_secs(5);

/// Starts a stack on the TAP that `config` names. It is the program's own: unlike that of `uc_configure` it
/// serves no other processes. In a child of `fork` its handle, and all others, are `EBADF`, and calls on its
/// descriptors `ENETDOWN`.
///
/// The handle, or null and `errno`: `EFAULT` null; `EINVAL`, `E2BIG` not to be understood; `ENODEV`, `EPERM`,
/// `EBUSY`, `EEXIST`, `ENAMETOOLONG` the TAP cannot be had; `ENETUNREACH` a gateway on no network of the stack.
/// `uc_last_error` says it in a sentence.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_stack_new(config: *const uc_config) -> *mut uc_stack {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise. Test: crates/capi/tests/c/misuse.c.
        let config = unsafe { config::read(config) }.map_err(explain)?;
        config::watch_process();
        let stack = embed::open(&config).map_err(explain)?;
        Ok(STACKS.insert(Arc::new(Running { stack, _engine: None })) as *mut uc_stack)
    })
}

/// Starts two stacks of this process on the two ends of a link in it, which does what a network card does:
/// lent memory goes over it without a copy of the sender's. The configurations name no TAP, and the same MTU.
///
/// 0, and the handles in `stacks[0]` and `stacks[1]`; or -1: `EFAULT`, `EINVAL`, `E2BIG`, `ENETUNREACH` as
/// `uc_stack_new`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_link_pair(
    left: *const uc_config,
    right: *const uc_config,
    stacks: *mut *mut uc_stack,
) -> c_int {
    status(|| {
        if stacks.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: the caller's promise, here and below. Test: crates/capi/tests/c/misuse.c.
        let configs: (Config, Config) =
            unsafe { (config::read(left).map_err(explain)?, config::read(right).map_err(explain)?) };
        config::watch_process();
        let (a, b, engine) = embed::open_pair(&configs.0, &configs.1).map_err(explain)?;
        let engine = Arc::new(engine);
        for (n, stack) in [a, b].into_iter().enumerate() {
            let running = Running { stack, _engine: Some(engine.clone()) };
            // SAFETY: there is room for two. Test: crates/capi/examples/link_pair.c.
            unsafe { stacks.add(n).write_unaligned(STACKS.insert(Arc::new(running)) as *mut uc_stack) };
        }
        Ok(())
    })
}

/// Stops a stack: resets its connections, waits until no byte is lent any more, which is immediate but for
/// packets that wait for a neighbour's answer, and calls the callbacks of all calls on it. Calls that wait in it
/// end with an error: `ECONNABORTED`, `accept` with `EINVAL` or `ENETDOWN`. Its descriptors stay open, and calls on them are `ENETDOWN`;
/// close them as ever. Rings can still be reaped. To deliver first what was sent: `uc_close` the sockets, then
/// `uc_stack_drain`.
///
/// 0, or -1: `EFAULT`, `EBADF` no stack; `EDEADLK` from a callback of the same stack; `EBUSY` a device would not
/// let go of lent memory within 5 seconds, and the stack is still there to be freed.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_stack_free(stack: *mut uc_stack) -> c_int {
    status(|| {
        let number = find(stack)?.stack.number();
        if callbacks::is_running_for(number) {
            return Err(Errno::DEADLK);
        }
        let running = STACKS.remove(stack as usize)?;
        if !embed::close(&running.stack, LETTING_GO) {
            STACKS.restore(stack as usize, running);
            return Err(Errno::BUSY);
        }
        drop(running);
        callbacks::finish(number);
        Ok(())
    })
}

/// Waits until the peers have acknowledged everything that closed sockets of the stack have sent, and nothing
/// is lent any more; at most `timeout_ms` milliseconds, or for ever if that is negative.
///
/// 0, or -1: `EFAULT`, `EBADF` no stack; `ETIMEDOUT`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_stack_drain(stack: *mut uc_stack, timeout_ms: c_int) -> c_int {
    status(|| {
        let stack = self::stack(stack)?;
        let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        if embed::drain(&stack, limit) { Ok(()) } else { Err(Errno::TIMEDOUT) }
    })
}

/// `socket(2)` on a given stack: `AF_INET` or `AF_INET6`, `SOCK_STREAM` with `SOCK_NONBLOCK` and
/// `SOCK_CLOEXEC`, protocol 0 or `IPPROTO_TCP`. It stays on the stack whatever it is bound or connected to;
/// 127.0.0.1 is the stack's own.
///
/// The descriptor, or -1: `EFAULT`, `EBADF` no stack; `EAFNOSUPPORT`, `ESOCKTNOSUPPORT`, `EPROTONOSUPPORT`,
/// `EMFILE`, `ENFILE`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_socket_on(stack: *mut uc_stack, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    guard(-1, || embed::socket_on(&self::stack(stack)?, domain, kind, protocol))
}

/// What a stack has counted since it was made. A GSO or GRO packet counts once.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct uc_counters {
    /// Connections begun, from either side.
    pub connections: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes of those, IP header on.
    pub rx_bytes: u64,
    /// Packets handed to devices.
    pub tx_packets: u64,
    /// Bytes of those, IP header on.
    pub tx_bytes: u64,
    /// Packets dropped, for any reason.
    pub dropped_packets: u64,
    /// Send calls that lent memory.
    pub lent_calls: u64,
    /// Bytes lent.
    pub lent_bytes: u64,
    /// Bytes that are lent now.
    pub lent_now: u64,
    /// Bytes copied by copying sends.
    pub copied_bytes: u64,
    /// Lending calls completed.
    pub completions: u64,
    /// Those by `uc_reason`; `[0]` counts the calls whose bytes nobody copied.
    pub calls_by_reason: [u64; UC_REASONS],
    /// Changes to lent bytes that `uc_config.check_lent` found.
    pub changed_buffers: u64,
}

/// Reads a stack's counters. `size` is `sizeof *counters`: a caller that knows fewer fields gets fewer.
///
/// 0, or -1: `EFAULT` null; `EBADF` no stack; `E2BIG` more fields than this library has.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_stats(stack: *mut uc_stack, counters: *mut uc_counters, size: usize) -> c_int {
    status(|| {
        let stack = self::stack(stack)?;
        if counters.is_null() {
            return Err(Errno::FAULT);
        }
        if size > size_of::<uc_counters>() {
            return Err(Errno::TOOBIG);
        }
        let now = counted(&stack);
        // SAFETY: `size` bytes are the caller's to write, and no more than there are to read; the struct is
        // of integers without padding. Test: crates/capi/examples/link_pair.c.
        unsafe {
            std::ptr::copy_nonoverlapping(std::ptr::from_ref(&now).cast::<u8>(), counters.cast(), size);
        }
        Ok(())
    })
}

fn counted(stack: &Stack) -> uc_counters {
    let s = stack.stats();
    let mut calls_by_reason = [0; UC_REASONS];
    calls_by_reason[0] = s.calls_not_copied;
    for (reason, n) in s.calls_by_reason {
        calls_by_reason[usize::from(reason as u8)] = n;
    }
    uc_counters {
        connections: s.connections,
        rx_packets: s.rx_packets,
        rx_bytes: s.rx_bytes,
        tx_packets: s.tx_packets,
        tx_bytes: s.tx_bytes,
        dropped_packets: s.drops.iter().map(|(_, n)| n).sum(),
        lent_calls: s.lent_calls,
        lent_bytes: s.lent_bytes,
        lent_now: stack.lent_bytes(),
        copied_bytes: s.copied_bytes,
        completions: s.completions,
        calls_by_reason,
        changed_buffers: s.changed_buffers,
    }
}
