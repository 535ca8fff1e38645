//! A whole run.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use dev::mem::{self, MemConfig, MemPort};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use stack::netdev::{Features, LinkKind};
use stack::tcp::Keepalive;
use stack::time::{Clock, Duration, Instant, ManualClock};
use stack::{Error, Stack, TcpSocket};

use crate::buffer::Graveyard;
use crate::net::{Counts, Faults, Net, mac};
use crate::program::{Fate, Side};

/// Everything must have ended by then.
const BOUND: Duration = Duration::from_secs(3600);
/// Time for closed connections to die out (TIME-WAIT, FIN-WAIT-2).
const AFTERMATH: Duration = Duration::from_secs(300);

/// A rule that was broken.
#[derive(Debug)]
pub struct Failure {
    /// The seed that does it again.
    pub seed: u64,
    /// Virtual time.
    pub at: Instant,
    /// What was found.
    pub what: String,
}

/// What a run was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Hosts.
    pub hosts: usize,
    /// Connections.
    pub connections: usize,
    /// What became of packets.
    pub packets: Counts,
    /// Virtual time at the end.
    pub ended: Instant,
    /// Hash over the times and sizes of everything that happened: equal for equal runs.
    pub trace: u64,
}

/// Frequent enough that a silent end is noticed well within the bound.
const KEEPALIVE: Keepalive =
    Keepalive { on: true, idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 9 };

struct Connection {
    listener: Arc<TcpSocket>,
    client_host: usize,
    to: SocketAddr,
    sides: [Side; 2],
    attempts: u32,
}

/// Hosts, network and programs.
pub struct World {
    seed: u64,
    rng: SmallRng,
    clock: Arc<ManualClock>,
    stacks: Vec<Stack>,
    ports: Vec<MemPort>,
    net: Net,
    connections: Vec<Connection>,
    graveyard: Graveyard,
    trace: DefaultHasher,
}

impl World {
    /// Draws a world.
    pub fn new(seed: u64) -> Result<Self, Failure> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let clock = Arc::new(ManualClock::new(Instant::from_secs(1)));
        let mtu = [1280, 1500, 1500, 4000, 9000][rng.random_range(0..5)];
        let (mut stacks, mut ports) = (Vec::new(), Vec::new());
        for n in 0..rng.random_range(2..=4) {
            let (stack, port) = host(n, mtu, &clock, &mut rng).map_err(|e| Failure {
                seed,
                at: clock.now(),
                what: e.to_string(),
            })?;
            stacks.push(stack);
            ports.push(port);
        }
        let net = Net::new(faults(&mut rng, clock.now()));
        let mut world = Self {
            seed,
            rng,
            clock,
            stacks,
            ports,
            net,
            connections: Vec::new(),
            graveyard: Graveyard::default(),
            trace: DefaultHasher::new(),
        };
        for n in 0..world.rng.random_range(1..=6) {
            world.add_connection(n).map_err(|what| world.failure(what))?;
        }
        Ok(world)
    }

    fn failure(&self, what: String) -> Failure {
        Failure { seed: self.seed, at: self.clock.now(), what }
    }

    fn add_connection(&mut self, n: u64) -> Result<(), String> {
        let client_host = self.rng.random_range(0..self.stacks.len());
        let server_host = (client_host + self.rng.random_range(1..self.stacks.len())) % self.stacks.len();
        let to = SocketAddr::new(address(server_host, self.rng.random_bool(0.5)), 1000 + n as u16);
        let listener = self.stacks[server_host].tcp_socket();
        listener.set_zerocopy(true);
        listener.bind(to).and_then(|_| listener.listen(8)).map_err(|e| e.to_string())?;
        let total = |rng: &mut SmallRng| [0, 1, 3000, 200_000, 1_500_000][rng.random_range(0..5)];
        let (up, down) = (total(&mut self.rng), total(&mut self.rng));
        let (a, b) = (self.fate(up), self.fate(down));
        let appetite = |rng: &mut SmallRng| [200, 20_000, 300_000][rng.random_range(0..3)];
        let client = Side::new((2 * n, 2 * n + 1), (up, down), a, appetite(&mut self.rng));
        let server = Side::new((2 * n + 1, 2 * n), (down, up), b, appetite(&mut self.rng));
        self.connections.push(Connection { listener, client_host, to, sides: [client, server], attempts: 0 });
        Ok(())
    }

    fn fate(&mut self, total: u64) -> Fate {
        match self.rng.random_range(0..10) {
            0 => Fate::Abort(self.rng.random_range(0..=total)),
            1 => Fate::Purge(self.rng.random_range(0..=total)),
            _ => Fate::Finish,
        }
    }

    /// Runs the world to its end.
    pub fn run(mut self) -> Result<Summary, Failure> {
        let start = self.clock.now();
        while !self.connections.iter().all(Connection::is_done) {
            self.turn().map_err(|what| self.failure(what))?;
            if self.clock.now() - start > BOUND {
                let stuck: Vec<_> =
                    self.connections.iter().filter(|c| !c.is_done()).map(Connection::progress).collect();
                return Err(self.failure(format!("no end after {BOUND:?}: {}", stuck.join("; "))));
            }
        }
        for c in &self.connections {
            c.listener.close();
        }
        let over = self.clock.now() + AFTERMATH;
        while self.clock.now() < over {
            self.turn().map_err(|what| self.failure(what))?;
        }
        self.check_end().map_err(|what| self.failure(what))?;
        Ok(Summary {
            hosts: self.stacks.len(),
            connections: self.connections.len(),
            packets: self.net.counts,
            ended: self.clock.now(),
            trace: self.trace.finish(),
        })
    }

    /// Everything that happens at one instant, then on to the next.
    fn turn(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        for c in &mut self.connections {
            c.step(&self.stacks, &mut self.rng, &self.graveyard)?;
        }
        let mut next = now + Duration::from_micros(self.rng.random_range(500..20_000));
        loop {
            let mut moved = self.net.deliver(&self.ports, now, &mut self.rng);
            for (n, stack) in self.stacks.iter().enumerate() {
                if let Some(t) = stack.poll_all(now) {
                    // A timer that is due and stays due would stop time.
                    next = next.min(t.max(now + Duration::from_nanos(1)));
                }
                moved += self.net.take(n, &self.ports, now, &mut self.rng);
            }
            if moved == 0 {
                break;
            }
        }
        if let Some(t) = self.net.next() {
            next = next.min(t);
        }
        (now.as_nanos(), self.net.counts.taken, self.net.counts.delivered).hash(&mut self.trace);
        self.clock.set(next);
        Ok(())
    }

    fn check_end(&self) -> Result<(), String> {
        for (n, stack) in self.stacks.iter().enumerate() {
            if stack.lent_bytes() != 0 {
                return Err(format!("host {n}: {} bytes are still lent", stack.lent_bytes()));
            }
            if stack.connections() != 0 {
                return Err(format!("host {n}: {} connections are left", stack.connections()));
            }
        }
        let c = self.net.counts;
        if c.taken + c.duplicated != c.delivered + c.lost + c.unknown + c.pending {
            return Err(format!("packets are missing: {c:?}"));
        }
        Ok(())
    }
}

impl Connection {
    fn is_done(&self) -> bool {
        let [client, server] = &self.sides;
        // A client that never got through, or gave up before it was accepted, leaves no server side.
        client.done && (server.done || (server.socket.is_none() && client.cut_short))
    }

    fn progress(&self) -> String {
        let [client, server] = &self.sides;
        format!("{}: client {}, server {}", self.to, client.progress(), server.progress())
    }

    fn step(&mut self, stacks: &[Stack], rng: &mut SmallRng, graveyard: &Graveyard) -> Result<(), String> {
        let [client, server] = &mut self.sides;
        if client.socket.is_none() {
            let socket = stacks[self.client_host].tcp_socket();
            socket.set_zerocopy(true);
            if rng.random_bool(0.3) {
                // The numbers of calls wrap during the run.
                socket.set_next_call(u32::MAX - rng.random_range(0..5));
            }
            socket.connect(self.to).map_err(|e| format!("connect: {e}"))?;
            client.socket = Some(socket);
        }
        if let Some(error) = client.socket.as_ref().filter(|_| !client.done).and_then(|s| s.take_error()) {
            match error {
                // Nobody answered ARP during a partition, or the SYNs were lost.
                Error::HostUnreachable | Error::TimedOut if self.attempts < 50 => {
                    self.attempts += 1;
                    client.socket = None;
                    return Ok(());
                }
                Error::Reset | Error::Aborted => client.cut_short = true,
                e => return Err(format!("the connection failed: {e}")),
            }
        }
        if server.socket.is_none()
            && let Ok(socket) = self.listener.accept()
        {
            server.socket = Some(socket);
        }
        client.step(rng, graveyard)?;
        server.step(rng, graveyard)?;
        if client.cut_short
            && client.fate() == Fate::Finish
            && server.fate() == Fate::Finish
            && !server.cut_short
        {
            return Err(format!("a connection broke and nobody broke it: {}", client.progress()));
        }
        Ok(())
    }
}

fn address(host: usize, ipv6: bool) -> IpAddr {
    match ipv6 {
        false => IpAddr::V4(Ipv4Addr::new(10, 0, 0, host as u8 + 1)),
        true => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host as u16 + 1)),
    }
}

fn host(
    n: usize,
    mtu: u32,
    clock: &Arc<ManualClock>,
    rng: &mut SmallRng,
) -> std::io::Result<(Stack, MemPort)> {
    let mut features = Features::all();
    for feature in [Features::SG, Features::CSUM, Features::TSO4, Features::TSO6] {
        features.set(feature, rng.random_bool(0.8));
    }
    let ring = if rng.random_bool(0.2) { 4 } else { usize::MAX };
    let config = MemConfig { mtu, features, ring, link: LinkKind::Ethernet(mac(n)), ..MemConfig::default() };
    let (device, port) = mem::pair(config);
    let stack = Stack::builder()
        .clock(clock.clone())
        .device(device, &[(address(n, false), 24), (address(n, true), 64)])
        .configure(|c| {
            c.seed = rng.random();
            c.memlock = if rng.random_bool(0.2) { 2_000_000 } else { u64::MAX };
            c.sndbuf = [20_000, 300_000, 4 << 20][rng.random_range(0..3)];
            c.rcvbuf = [4000, 60_000, 131_072][rng.random_range(0..3)];
            c.tcp.sack = rng.random_bool(0.8);
            c.tcp.timestamps = rng.random_bool(0.8);
            c.tcp.window_scaling = rng.random_bool(0.8);
            c.tcp.nodelay = rng.random_bool(0.3);
            // A reset may be lost; without probes its peer would wait for ever, and rightly so.
            c.tcp.keepalive = KEEPALIVE;
        })
        .build()?;
    Ok((stack, port))
}

fn faults(rng: &mut SmallRng, now: Instant) -> Faults {
    let mut chance = |most: f64| if rng.random_bool(0.6) { rng.random_range(0.0..most) } else { 0.0 };
    let (loss, duplicate, reorder, corrupt) = (chance(0.1), chance(0.05), chance(0.2), chance(0.02));
    let delay = Duration::from_micros([20, 500, 10_000, 80_000][rng.random_range(0..4)]);
    let partition = rng.random_bool(0.2).then(|| {
        let from = now + Duration::from_millis(rng.random_range(0..500));
        (from, from + Duration::from_millis(rng.random_range(100..5000)))
    });
    Faults { loss, duplicate, reorder, corrupt, delay, partition }
}
