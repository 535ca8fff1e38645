//! One script's world: a stack, its wire, and the time, which moves only here.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use posix::sleep::Sleeper;
use stack::time::{Clock, Instant, ManualClock};
use stack::{Stack, TcpSocket};

use crate::device::{IPV4, IPV6, Sent, Tun, Wire};
use crate::flags::Flags;
use crate::sysctl;
use crate::turn::{Turn, Woke};

/// The turn of this process: packetdrill has one plug-in.
pub(crate) static TURN: Turn = Turn::new();
static WORLD: RwLock<Option<Arc<World>>> = RwLock::new(None);
/// The thread that called `packetdrill_interface_init`.
static MAIN_THREAD: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// When the last call of this thread ended, until it has asked.
    static COMPLETED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The smallest step of the clock, and its unit.
const TICK: Duration = Duration::from_micros(1);
/// packetdrill asks to sleep until so long before an event, and spins over the rest.
const SPIN: Duration = Duration::from_micros(20);
/// Real time between two steps of a sleeper that moves the clock, for others to come in.
const BREATH: Duration = Duration::from_micros(200);

/// Time and its zero point on the clock of `posix`, which is of `std`'s type.
struct Epoch {
    clock: Arc<ManualClock>,
    zero: Instant,
    std_zero: std::time::Instant,
}

/// One clock for all scripts of the process: time does not go back between them.
fn epoch() -> &'static Epoch {
    static EPOCH: OnceLock<Epoch> = OnceLock::new();
    EPOCH.get_or_init(|| {
        let zero = real_time();
        Epoch { clock: Arc::new(ManualClock::new(zero)), zero, std_zero: std::time::Instant::now() }
    })
}

fn real_time() -> Instant {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Instant::from_micros(u64::try_from(since.as_micros()).unwrap_or(0))
}

/// What one script runs in.
pub(crate) struct World {
    flags: Flags,
    clock: Arc<ManualClock>,
    stack: Stack,
    wire: Arc<Wire>,
}

/// The script's world; `None` before the first and between two.
pub(crate) fn current() -> Option<Arc<World>> {
    WORLD.read().clone()
}

/// Ends the script before, and begins one.
pub(crate) fn begin(flags: Flags) -> std::io::Result<()> {
    end();
    MAIN_THREAD.store(thread_id(), Ordering::Relaxed);
    // False from the second script on: it is the same one.
    posix::sleep::set_sleeper(&VirtualTime);
    let clock = epoch().clock.clone();
    clock.set(real_time());
    let wire = Wire::new(clock.clone(), flags.orphan);
    let stack = build(&flags, &wire, &clock)?;
    let parameters = flags.clone();
    posix::installed::install(stack.clone(), Box::new(move |socket| prepare(&parameters, socket)));
    *WORLD.write() = Some(Arc::new(World { flags, clock, stack, wire }));
    Ok(())
}

/// Ends the script: its sockets are forgotten, and what they still say is heard by nobody.
pub(crate) fn end() {
    TURN.enter();
    posix::installed::uninstall();
    *WORLD.write() = None;
    TURN.leave();
}

fn build(flags: &Flags, wire: &Arc<Wire>, clock: &Arc<ManualClock>) -> std::io::Result<Stack> {
    let device_of = |a: &IpAddr| if a.is_ipv4() { IPV4 } else { IPV6 };
    let mut builder = Stack::builder().clock(clock.clone()).configure(|c| {
        c.time_wait = flags.time_wait.unwrap_or(c.time_wait);
    });
    for index in [IPV4, IPV6] {
        let addresses: Vec<_> = flags
            .local
            .iter()
            .filter(|a| device_of(a) == index)
            .map(|a| (*a, if a.is_ipv4() { 32 } else { 128 }))
            .collect();
        let tun = Tun { wire: wire.clone(), index, mtu: flags.mtu[index], gso: flags.gso };
        builder = builder.device(tun, &addresses);
    }
    for (dst, prefix) in &flags.remote {
        let device = device_of(dst);
        builder = builder.route(stack::RouteConfig { dst: *dst, prefix: *prefix, gateway: None, device });
    }
    builder.build()
}

/// A new socket begins with the kernel parameters of this moment.
fn prepare(flags: &Flags, socket: &Arc<TcpSocket>) {
    let values = sysctl::read(flags);
    socket.configure(|c| {
        sysctl::apply(&values, c);
        c.initial_window = flags.initcwnd.unwrap_or(c.initial_window);
        c.delayed_ack = flags.delayed_ack.unwrap_or(c.delayed_ack);
    });
}

impl World {
    /// Does what is due now, lets sleepers go on, and says when there is more to do. The caller has the turn.
    pub(crate) fn run(&self) -> Option<Instant> {
        loop {
            let next = self.stack.poll_all(self.clock.now());
            if !TURN.offer() {
                return next.into_iter().chain(TURN.next_deadline()).min();
            }
        }
    }

    /// Moves the clock to the next event, or to `own`, if it is not after `limit`; whether there was one.
    fn step(&self, limit: Instant, own: Option<Instant>) -> bool {
        match self.run().into_iter().chain(own).min().filter(|at| *at <= limit) {
            Some(at) => {
                self.clock.set(at.max(self.clock.now() + TICK));
                true
            }
            None => false,
        }
    }

    fn advance(&self, to: Instant) {
        while self.step(to, None) {}
        self.clock.set(to);
        self.run();
    }

    /// `gettimeofday`: microseconds.
    pub(crate) fn time_of_day(&self) -> u64 {
        if let Some(at) = COMPLETED.take() {
            return at.as_micros();
        }
        TURN.enter();
        self.advance(self.clock.now() + TICK);
        let now = self.clock.now();
        TURN.leave();
        now.as_micros()
    }

    /// `usleep`.
    pub(crate) fn sleep(&self, time: Duration) {
        TURN.enter();
        self.advance(self.clock.now() + time + SPIN);
        TURN.leave();
    }

    /// `netdev_send`; false if it is no IP packet.
    pub(crate) fn inject(&self, packet: &[u8]) -> bool {
        TURN.enter();
        let taken = self.wire.inject(packet);
        self.run();
        TURN.leave();
        taken
    }

    /// `netdev_receive`: the next packet of the stack's; `None` if there will be none in time.
    pub(crate) fn receive(&self) -> Option<Sent> {
        TURN.enter();
        let limit = self.clock.now() + self.flags.patience;
        let sent = loop {
            self.run();
            let sent = self.wire.take();
            if sent.is_some() || !self.step(limit, None) {
                break sent;
            }
        };
        TURN.leave();
        sent
    }

    /// Runs a call: what it did is done before it returns, and the time it ended at is kept for the thread.
    pub(crate) fn call<R>(&self, call: impl FnOnce() -> R) -> R {
        TURN.enter();
        let result = call();
        self.run();
        if !on_main_thread() {
            COMPLETED.set(Some(self.clock.now()));
        }
        TURN.leave();
        result
    }

    /// Makes `address` the stack's, if it is not yet: a script may name any with `--local_ip`.
    pub(crate) fn learn(&self, address: IpAddr) {
        let address = address.to_canonical();
        let (device, prefix) = if address.is_ipv4() { (IPV4, 32) } else { (IPV6, 128) };
        let ordinary = !address.is_unspecified() && !address.is_loopback() && !address.is_multicast();
        if ordinary && !self.stack.is_local(address) {
            self.stack.add_address(device, address, prefix);
        }
    }

    /// A sleep on the main thread: nobody else moves the clock.
    fn drive_until(&self, until: Option<Instant>, over: &dyn Fn() -> bool) {
        loop {
            self.run();
            if over() {
                return;
            }
            if !self.step(Instant::MAX, until) {
                posix::net::say("packetdrill: a call of the script waits for what can never happen");
                std::process::exit(1);
            }
        }
    }

    /// A sleep on another thread: the main thread moves the clock, unless it waits for this one.
    fn sleep_until(&self, until: Option<Instant>, over: &dyn Fn() -> bool) {
        let mut idle = self.flags.idle;
        loop {
            self.run();
            if over() {
                return;
            }
            let calls = TURN.calls();
            if TURN.sleep(until, idle, over) == Woke::Offered {
                return;
            }
            // Nobody came: move the clock one step, and go on quickly until somebody does.
            let visited = idle == BREATH && TURN.calls() != calls;
            let steps = !visited && main_thread_may_wait() && self.step(Instant::MAX, until);
            idle = if steps { BREATH } else { self.flags.idle };
        }
    }
}

/// How the calls of `posix` sleep here.
struct VirtualTime;

impl Sleeper for VirtualTime {
    fn now(&self) -> std::time::Instant {
        let epoch = epoch();
        epoch.std_zero + epoch.clock.now().saturating_since(epoch.zero)
    }

    fn sleep(&self, awake: &dyn Fn() -> bool, until: Option<std::time::Instant>) {
        let Some(world) = current() else { return };
        let epoch = epoch();
        let until = until.map(|at| epoch.zero + at.saturating_duration_since(epoch.std_zero));
        let over = || until.is_some_and(|at| world.clock.now() >= at) || awake();
        if on_main_thread() {
            world.drive_until(until, &over);
        } else {
            world.sleep_until(until, &over);
        }
    }
}

/// The clock's reading in microseconds, when no script runs.
pub(crate) fn reading() -> u64 {
    epoch().clock.now().as_micros()
}

/// The time that calls see.
pub(crate) fn now() -> std::time::Instant {
    VirtualTime.now()
}

/// Sleeps as `posix` does.
pub(crate) fn sleep(awake: &dyn Fn() -> bool, until: Option<std::time::Instant>) {
    VirtualTime.sleep(awake, until);
}

fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn on_main_thread() -> bool {
    MAIN_THREAD.load(Ordering::Relaxed) == thread_id()
}

/// Whether the main thread may be waiting for a call of another one: it sleeps in the kernel, and not for a child,
/// which would be a shell command of the script's. Where the kernel does not say, it may.
fn main_thread_may_wait() -> bool {
    let path = format!("/proc/self/task/{}/syscall", MAIN_THREAD.load(Ordering::Relaxed));
    let Ok(text) = std::fs::read_to_string(path) else { return true };
    // A number, -1 for a page fault, or "running".
    let call = text.split_whitespace().next().and_then(|n| n.parse::<i64>().ok()).unwrap_or(-1);
    call >= 0 && ![libc::SYS_wait4, libc::SYS_waitid, libc::SYS_read].contains(&call)
}
