//! Several threads and one stack: nothing is lost, torn, told twice or left waiting (Z5, Z12, Z16; the net
//! thread, the programs' threads and the link's engine run at once).

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{A, B, Owned};
use uncopied::link::{EngineHandle, LinkConfig};
use uncopied::{Config, Error, Ready, Stack, TcpListener, TcpStream, link};

const WAIT: Duration = Duration::from_secs(60);

struct Net {
    a: Stack,
    b: Stack,
    listener: TcpListener,
    _engine: EngineHandle,
}

fn net(config: LinkConfig, configure: impl Fn(&mut Config)) -> Net {
    let (left, right, engine) = link::pair(config);
    let _engine = engine.spawn("nic").unwrap();
    let build = |device, address: [u8; 4]| {
        let s = Stack::builder().device(device, &[(address.into(), 24)]).configure(|c| c.memlock = u64::MAX);
        let s = s.configure(&configure).build().unwrap();
        s.spawn().unwrap();
        s
    };
    let (a, b) = (build(left, A), build(right, B));
    let listener = TcpListener::bind(&b, SocketAddr::from((B, 80))).unwrap();
    Net { a, b, listener, _engine }
}

impl Net {
    fn connect(&self) -> (TcpStream, TcpStream) {
        let patient = |mut s: TcpStream| {
            s.set_read_timeout(Some(WAIT));
            s.set_write_timeout(Some(WAIT));
            s
        };
        let tx = TcpStream::connect_timeout(&self.a, self.listener.local_addr(), Some(WAIT)).unwrap();
        (patient(tx), patient(self.listener.accept_timeout(Some(WAIT)).unwrap().0))
    }
}

/// Reads `len` bytes; how often each value occurred.
fn histogram(rx: &TcpStream, len: usize) -> [usize; 256] {
    let (mut counts, mut buf, mut left) = ([0; 256], vec![0; 1 << 16], len);
    while left > 0 {
        let n = rx.recv(&mut buf).unwrap();
        assert!(n > 0, "ended early");
        buf[..n].iter().for_each(|b| counts[usize::from(*b)] += 1);
        left -= n;
    }
    counts
}

#[test]
fn calls_of_many_threads_on_one_stream_are_numbered_and_completed_once_each() {
    const THREADS: usize = 4;
    const CALLS: usize = 300;
    const LEN: usize = 7001;
    let net = net(LinkConfig::default(), |c| c.sndbuf = 200_000);
    let (tx, rx) = net.connect();
    let tx = Arc::new(tx);
    let reader = std::thread::spawn(move || histogram(&rx, THREADS * CALLS * LEN));
    let senders: Vec<_> = (0..THREADS)
        .map(|t| {
            let tx = tx.clone();
            std::thread::spawn(move || {
                (0..CALLS).map(|_| tx.send_lent(vec![t as u8; LEN]).unwrap().id).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut told = Vec::new();
    while told.len() < THREADS * CALLS {
        assert!(tx.wait_ready(Ready::ERR, Some(WAIT)));
        while let Some(done) = tx.completion() {
            told.extend(done.ids());
        }
    }
    let mut taken: Vec<_> = senders.into_iter().flat_map(|s| s.join().unwrap()).collect();
    let counts = reader.join().unwrap();
    assert_eq!(&counts[..THREADS], [CALLS * LEN; THREADS]);
    // Whoever dropped a packet last completed its calls: threads finish in any order.
    told.sort_unstable();
    taken.sort_unstable();
    assert!(told.iter().copied().eq(0..(THREADS * CALLS) as u32), "each once");
    assert!(taken == told);
}

#[test]
fn both_directions_of_many_connections_at_once() {
    let net = net(LinkConfig { ring: 16, ..LinkConfig::default() }, |c| c.sndbuf = 100_000);
    const LEN: usize = 2_000_000;
    let ends: Vec<_> = (0..8).map(|_| net.connect()).collect();
    std::thread::scope(|s| {
        for (n, (x, y)) in ends.iter().enumerate() {
            for (from, to) in [(x, y), (y, x)] {
                s.spawn(move || {
                    for _ in 0..LEN / 50_000 {
                        from.send_lent(vec![n as u8; 50_000]).unwrap();
                    }
                });
                s.spawn(move || assert_eq!(histogram(to, LEN)[n], LEN));
            }
        }
    });
    for (x, y) in &ends {
        for s in [x, y] {
            let mut calls = 0;
            while let Some(done) = s.wait_completion(Some(WAIT)).unwrap() {
                calls += done.calls();
            }
            assert_eq!(calls, (LEN / 50_000) as u64);
        }
    }
    assert_eq!((net.a.lent_bytes(), net.b.lent_bytes()), (0, 0));
}

#[test]
fn a_link_that_drops_what_does_not_fit_loses_nothing_that_tcp_does_not_bring_back() {
    let config = LinkConfig { ring: 8, backpressure: false, ..LinkConfig::default() };
    let net = net(config, |_| {});
    let (tx, rx) = net.connect();
    let reader = std::thread::spawn(move || histogram(&rx, 20 << 20));
    let mut backs = Vec::new();
    for n in 0..20 {
        let (buffer, back) = Owned::lend(vec![n; 1 << 20]);
        tx.send_lent(buffer).unwrap();
        backs.push(back);
    }
    assert_eq!(&reader.join().unwrap()[..20], [1 << 20; 20]);
    let mut calls = 0;
    while let Some(done) = tx.wait_completion(Some(WAIT)).unwrap() {
        calls += done.calls();
    }
    assert_eq!(calls, 20);
    assert!(backs.iter().all(|b| b.load(Ordering::SeqCst) == 1));
}

#[test]
fn a_sender_blocked_on_a_full_buffer_is_woken_by_a_reset_and_by_a_purge() {
    for purge in [false, true] {
        let net =
            net(LinkConfig::default(), |c| (c.rcvbuf, c.rcvbuf_max, c.sndbuf) = (20_000, 20_000, 50_000));
        let (tx, rx) = net.connect();
        let tx = Arc::new(tx);
        let sender = std::thread::spawn({
            let tx = tx.clone();
            move || loop {
                if let Err(e) = tx.send_lent(vec![1; 30_000]) {
                    return e.error;
                }
            }
        });
        // Until nothing has moved for a while: window and buffer are full.
        let (mut last, mut same) = (0, 0);
        while same < 10 {
            std::thread::sleep(Duration::from_millis(20));
            let queued = tx.queued().1;
            same = if queued == last && queued > 0 { same + 1 } else { 0 };
            last = queued;
        }
        if purge {
            tx.purge().unwrap()
        } else {
            rx.abort()
        }
        let error = sender.join().unwrap();
        let expected: &[Error] =
            if purge { &[Error::NotConnected, Error::Pipe] } else { &[Error::Reset, Error::Pipe] };
        assert!(expected.contains(&error), "{error}");
        assert!(net.a.quiesce(WAIT));
    }
}

#[test]
fn a_blocked_reader_is_woken_by_data_by_the_end_and_by_a_reset() {
    let net = net(LinkConfig::default(), |_| {});
    for how in 0..3 {
        let (tx, rx) = net.connect();
        let reader = std::thread::spawn(move || {
            let mut buf = [0; 10];
            (rx.recv(&mut buf).map_err(|e| e.kind()), buf[0])
        });
        std::thread::sleep(Duration::from_millis(20));
        match how {
            0 => drop(tx.send(&[9]).unwrap()),
            1 => tx.shutdown(uncopied::Shutdown::Write).unwrap(),
            _ => {
                tx.abort();
                assert_eq!(reader.join().unwrap().0, Err(std::io::ErrorKind::ConnectionReset));
                continue;
            }
        }
        assert_eq!(reader.join().unwrap(), if how == 0 { (Ok(1), 9) } else { (Ok(0), 0) });
    }
}

#[test]
fn stacks_that_go_in_any_order_with_lent_memory_everywhere_give_all_of_it_back() {
    for order in 0..6 {
        let net = net(LinkConfig::default(), |_| {});
        let (tx, rx) = net.connect();
        let mut backs = Vec::new();
        for stream in [&tx, &rx] {
            for n in 0..10 {
                let (buffer, back) = Owned::lend(vec![n; 400_000]);
                stream.send_lent(buffer).unwrap();
                backs.push(back);
            }
        }
        let Net { a, b, listener, _engine } = net;
        match order {
            0 => drop((a, b, _engine, tx, rx, listener)),
            1 => drop((tx, rx, listener, b, a, _engine)),
            2 => drop((_engine, tx, a, rx, b, listener)),
            3 => drop((listener, rx, b, tx, a, _engine)),
            4 => drop((b, rx, listener, _engine, a, tx)),
            _ => drop((rx, a, tx, b, listener, _engine)),
        }
        // A net thread or an engine may be letting go of a last packet.
        let deadline = std::time::Instant::now() + WAIT;
        while backs.iter().any(|b| b.load(Ordering::SeqCst) == 0) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let back: Vec<_> = backs.iter().map(|b| b.load(Ordering::SeqCst)).collect();
        assert_eq!(back, [1; 20], "order {order}");
    }
}

#[test]
fn connections_made_and_closed_by_many_threads_leave_nothing_behind() {
    let net = net(LinkConfig::default(), |c| c.time_wait = Duration::from_millis(100));
    std::thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..400 {
                let (rx, _) = net.listener.accept_timeout(Some(WAIT)).unwrap();
                let mut buf = [0; 5000];
                let n = rx.recv(&mut buf).unwrap();
                rx.send_lent(buf[..n].to_vec()).unwrap();
            }
        });
        for t in 0..4_u8 {
            let net = &net;
            s.spawn(move || {
                for n in 0..100 {
                    let mut c =
                        TcpStream::connect_timeout(&net.a, net.listener.local_addr(), Some(WAIT)).unwrap();
                    c.set_read_timeout(Some(WAIT));
                    c.send_lent(vec![t; 1 + n]).unwrap();
                    let mut got = Vec::new();
                    std::io::Read::read_to_end(&mut c, &mut got).unwrap();
                    assert_eq!(got, vec![t; 1 + n]);
                }
            });
        }
    });
    assert!(net.a.quiesce(WAIT) && net.b.quiesce(WAIT));
    let deadline = std::time::Instant::now() + WAIT;
    while net.a.connections() + net.b.connections() > 0 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((net.a.connections(), net.b.connections()), (0, 0));
}
