//! A program that loads the plug-in exactly as packetdrill does: the same way of loading, the same record of 33
//! slots, a main thread and a thread for blocking calls, one mutex around the callbacks, and no other time than
//! the plug-in's.
//!
//! Contract. The slots are called with pointers that are valid as each call's man page asks, or deliberately
//! null; one script at a time.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_longlong, c_uint, c_ulong, c_void};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use libc::{epoll_event, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval};

type User = *mut c_void;
type Recv = unsafe extern "C" fn(User, c_int, *mut c_void, size_t) -> ssize_t;
type Send_ = unsafe extern "C" fn(User, c_int, *const c_void, size_t) -> ssize_t;
type Vectors = unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t;
type Name = unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int;

/// The record, in packetdrill's order.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slots {
    pub userdata: User,
    pub free: unsafe extern "C" fn(User),
    pub socket: unsafe extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    pub bind: Name,
    pub listen: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(User, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    pub connect: Name,
    pub read: Recv,
    pub readv: Vectors,
    pub recv: unsafe extern "C" fn(User, c_int, *mut c_void, size_t, c_int) -> ssize_t,
    pub recvfrom: unsafe extern "C" fn(
        User,
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(User, c_int, *mut msghdr, c_int) -> ssize_t,
    pub write: Send_,
    pub writev: Vectors,
    pub send: unsafe extern "C" fn(User, c_int, *const c_void, size_t, c_int) -> ssize_t,
    pub sendto: unsafe extern "C" fn(
        User,
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(User, c_int, *const msghdr, c_int) -> ssize_t,
    pub fcntl: unsafe extern "C" fn(User, c_int, c_int, ...) -> c_int,
    pub ioctl: unsafe extern "C" fn(User, c_int, c_ulong, ...) -> c_int,
    pub close: unsafe extern "C" fn(User, c_int) -> c_int,
    pub shutdown: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    pub getsockopt: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub setsockopt: unsafe extern "C" fn(User, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(User, *mut pollfd, nfds_t, c_int) -> c_int,
    pub netdev_send: unsafe extern "C" fn(User, *const c_void, size_t) -> c_int,
    pub netdev_receive: unsafe extern "C" fn(User, *mut c_void, *mut size_t, *mut c_longlong) -> c_int,
    pub usleep: unsafe extern "C" fn(User, c_uint) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(User, *mut timeval, *mut c_void) -> c_int,
    pub epoll_create: unsafe extern "C" fn(User, c_int) -> c_int,
    pub epoll_ctl: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    pub epoll_wait: unsafe extern "C" fn(User, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pub pipe: unsafe extern "C" fn(User, *mut c_int) -> c_int,
    pub splice: unsafe extern "C" fn(User, c_int, *mut i64, c_int, *mut i64, size_t, c_uint) -> c_int,
}

const _: () = assert!(size_of::<Slots>() == 33 * 8);

// SAFETY: function pointers, and a pointer that only the plug-in looks at. Test: every script.
unsafe impl Send for Slots {}

type Init = unsafe extern "C" fn(*const c_char, *mut Slots);

/// Loads the library as packetdrill does, once.
fn init() -> Init {
    static INIT: OnceLock<Init> = OnceLock::new();
    *INIT.get_or_init(|| {
        let deps = std::env::current_exe().unwrap();
        let path = deps.parent().unwrap().join("libuncopied_packetdrill.so");
        let path = CString::new(path.to_str().unwrap()).unwrap();
        let how = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE | libc::RTLD_DEEPBIND;
        // SAFETY: the library's constructors are Rust's own; the symbol has the type of its declaration.
        // Test: every script.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), how);
            assert!(!library.is_null(), "cannot load {path:?}");
            let symbol = libc::dlsym(library, c"packetdrill_interface_init".as_ptr());
            assert!(!symbol.is_null());
            std::mem::transmute::<*mut c_void, Init>(symbol)
        }
    })
}

/// What a call of the script's came back with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Its result, narrowed to an `int` as packetdrill does.
    pub result: i32,
    /// `errno`, if the result is -1.
    pub errno: i32,
    /// What it wrote: an address, `revents`, control messages.
    pub out: Vec<u8>,
    /// When it ended, in microseconds of the plug-in's clock; for marked calls.
    pub end: u64,
}

/// A call of the script's, to be made on one of the two threads.
pub type Call = Box<dyn FnOnce(&Slots) -> Outcome + Send>;

/// What the two threads share.
#[derive(Default)]
struct State {
    /// A marked call, with the time it is to begin at.
    job: Option<(u64, Call)>,
    /// The call is being made.
    running: bool,
    outcome: Option<Outcome>,
    /// The other thread's number.
    tid: i32,
    quit: bool,
}

static MUTEX: Mutex<State> =
    Mutex::new(State { job: None, running: false, outcome: None, tid: 0, quit: false });
static CHANGED: Condvar = Condvar::new();
/// One script at a time.
static SCRIPT: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, State> {
    MUTEX.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running script.
pub struct Tool {
    slots: Slots,
    /// Held during every callback of the main thread.
    guard: Option<MutexGuard<'static, State>>,
    thread: Option<std::thread::JoinHandle<()>>,
    _one: MutexGuard<'static, ()>,
}

impl Tool {
    /// Loads the plug-in and initialises it with `flags`.
    pub fn new(flags: Option<&str>) -> Self {
        let one = SCRIPT.lock().unwrap_or_else(PoisonError::into_inner);
        *lock() = State::default();
        let mut slots = std::mem::MaybeUninit::<Slots>::zeroed();
        let flags = flags.map(|f| CString::new(f).unwrap());
        let pointer = flags.as_ref().map_or(std::ptr::null(), |f| f.as_ptr());
        // SAFETY: the record is zeroed and then filled in by the plug-in, which is what is tested.
        // Test: every script.
        let slots = unsafe {
            init()(pointer, slots.as_mut_ptr());
            let words = slots.as_ptr().cast::<[usize; 33]>().read();
            assert!(words[1..].iter().all(|w| *w != 0), "every slot is filled in");
            slots.assume_init()
        };
        let thread = std::thread::spawn(move || syscall_thread(slots));
        let mut tool = Self { slots, guard: Some(lock()), thread: Some(thread), _one: one };
        for _ in 0..20 {
            tool.now();
        }
        tool
    }

    /// The time, in microseconds.
    pub fn now(&mut self) -> u64 {
        time_of(&self.slots)
    }

    /// Waits until `at`, as packetdrill does.
    pub fn wait_until(&mut self, at: u64) {
        let left = at.saturating_sub(time_of(&self.slots));
        if left > 20 {
            self.guard = None;
            pause(&self.slots, left - 20);
            self.guard = Some(lock());
        }
        while time_of(&self.slots) < at {}
    }

    /// A call on the main thread; it may block the whole script.
    pub fn call(&mut self, call: Call) -> Outcome {
        assert!(self.guard.as_ref().is_some_and(|s| s.job.is_none() && !s.running), "join it first");
        call(&self.slots)
    }

    /// A call on the main thread while a marked one is under way. packetdrill makes such only after it has waited
    /// for the other in vain.
    pub fn call_meanwhile(&mut self, call: Call) -> Outcome {
        call(&self.slots)
    }

    /// Hands a call over to the other thread, to be begun at `at`, and waits until it sleeps or has ended.
    pub fn hand_over(&mut self, at: u64, call: Call) {
        let mut guard = self.guard.take().unwrap();
        guard.job = Some((at, call));
        CHANGED.notify_all();
        drop(guard);
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < Duration::from_secs(10), "a marked call neither sleeps nor ends");
            let state = lock();
            if state.outcome.is_some() || (state.running && is_sleeping(state.tid)) {
                self.guard = Some(state);
                return;
            }
            drop(state);
            std::thread::yield_now();
        }
    }

    /// Whether the marked call has ended, without waiting.
    pub fn has_ended(&mut self) -> bool {
        // The other thread may be on its way from the callback to the mutex.
        self.guard = None;
        std::thread::sleep(Duration::from_millis(20));
        let state = lock();
        let ended = state.outcome.is_some();
        self.guard = Some(state);
        ended
    }

    /// Waits for the end of the marked call, at most one real second as packetdrill does.
    pub fn join(&mut self) -> Outcome {
        let mut state = self.guard.take().unwrap();
        let deadline = Instant::now() + Duration::from_secs(1);
        while state.outcome.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "a marked call did not end");
            state = CHANGED.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let outcome = state.outcome.take().unwrap();
        self.guard = Some(state);
        outcome
    }

    /// Gives the stack a packet.
    pub fn netdev_send(&mut self, packet: &[u8]) -> i32 {
        // SAFETY: pointer and length are of one slice. Test: handshake.rs.
        unsafe { (self.slots.netdev_send)(self.slots.userdata, packet.as_ptr().cast(), packet.len()) }
    }

    /// The stack's next packet, and when it was sent; `None` if there will be none.
    pub fn netdev_receive(&mut self) -> Option<(u64, Vec<u8>)> {
        let mut buf = vec![0u8; 65_536];
        let (mut len, mut time) = (buf.len(), 0);
        // SAFETY: the buffer has that length, and the variables are ours. Test: handshake.rs.
        let r = unsafe {
            (self.slots.netdev_receive)(
                self.slots.userdata,
                buf.as_mut_ptr().cast(),
                &raw mut len,
                &raw mut time,
            )
        };
        assert_eq!(r, 0, "packetdrill would call again for ever");
        buf.truncate(len);
        (len > 0).then_some((time as u64, buf))
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        {
            let mut state = self.guard.take().unwrap_or_else(lock);
            state.quit = true;
        }
        CHANGED.notify_all();
        // A failed test may leave its call blocked for ever; there is nothing to join then.
        if !std::thread::panicking() {
            self.thread.take().map(std::thread::JoinHandle::join);
            // SAFETY: no call is under way. Test: every script.
            unsafe { (self.slots.free)(self.slots.userdata) };
        }
    }
}

fn time_of(slots: &Slots) -> u64 {
    let mut tv = timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: the variable is ours. Test: every script.
    let r = unsafe { (slots.gettimeofday)(slots.userdata, &raw mut tv, std::ptr::null_mut()) };
    assert!(r >= 0, "packetdrill would give up");
    tv.tv_sec as u64 * 1_000_000 + tv.tv_usec as u64
}

fn pause(slots: &Slots, micros: u64) {
    // SAFETY: no memory is involved. Test: every script.
    unsafe { (slots.usleep)(slots.userdata, micros as c_uint) };
}

/// Whether the kernel says that a thread sleeps interruptibly.
fn is_sleeping(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}

fn syscall_thread(slots: Slots) {
    let mut state = lock();
    // SAFETY: no memory is involved. Test: blocking.rs.
    state.tid = unsafe { libc::gettid() };
    loop {
        if state.quit {
            return;
        }
        let Some((at, call)) = state.job.take() else {
            state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        // The wait before the call runs here, without the mutex while it sleeps.
        let left = at.saturating_sub(time_of(&slots));
        if left > 20 {
            drop(state);
            pause(&slots, left - 20);
            state = lock();
        }
        while time_of(&slots) < at {}
        state.running = true;
        drop(state);
        let mut outcome = call(&slots);
        // The call's end is asked for before the mutex is taken again.
        outcome.end = time_of(&slots);
        state = lock();
        state.running = false;
        state.outcome = Some(outcome);
        CHANGED.notify_all();
    }
}

/// Makes an outcome of a result, before anything else can change `errno`.
pub fn outcome(result: isize) -> Outcome {
    let errno = if result < 0 { std::io::Error::last_os_error().raw_os_error().unwrap() } else { 0 };
    Outcome { result: result as i32, errno, ..Outcome::default() }
}
