//! Against the kernel's TCP, over a TAP in a private network: both directions, both address families, loss,
//! refusal, half close, closed windows, many short connections.
//!
//! A network namespace belongs to a thread: each test enters its own, and the kernel's sockets are opened
//! there or in threads that it spawns. Where the machine forbids namespaces the tests say so and pass.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sha2::{Digest, Sha256};
use uncopied::impair::{Impair, ImpairConfig, Rules};
use uncopied::netns::enter_private_net;
use uncopied::tap::{TapConfig, TapDevice};
use uncopied::{Clock, Config, Shutdown, Stack, SystemClock, TcpListener, TcpStream};

const WAIT: Duration = Duration::from_secs(60);

const KERNEL: [&str; 2] = ["10.77.0.1", "fd77::1"];
const OURS: [&str; 2] = ["10.77.0.2", "fd77::2"];

fn ours(family: usize, port: u16) -> SocketAddr {
    SocketAddr::new(OURS[family].parse().unwrap(), port)
}

fn kernels(family: usize, port: u16) -> SocketAddr {
    SocketAddr::new(KERNEL[family].parse().unwrap(), port)
}

/// Runs `test` in a private network with a TAP, on a thread of its own.
fn with_tap(name: &'static str, test: impl FnOnce(TapDevice) + Send + 'static) {
    with_tap_of(name, TapConfig::default(), test);
}

fn with_tap_of(name: &'static str, config: TapConfig, test: impl FnOnce(TapDevice) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let net = match enter_private_net() {
            Ok(net) => net,
            Err(e) => return eprintln!("SKIPPED {name}: {e}"),
        };
        let addresses = [(KERNEL[0].parse().unwrap(), 24), (KERNEL[1].parse().unwrap(), 64)];
        let config = TapConfig { name: "tap0".to_owned(), mtu: Some(1500), ..config };
        match net.tap(config, &addresses) {
            Ok(tap) => test(tap),
            Err(e) => eprintln!("SKIPPED {name}: {e}"),
        }
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn addresses() -> [(IpAddr, u8); 2] {
    [(OURS[0].parse().unwrap(), 24), (OURS[1].parse().unwrap(), 64)]
}

fn stack(device: impl uncopied::Device + 'static) -> Stack {
    configured(device, |_| {})
}

fn configured(device: impl uncopied::Device + 'static, change: impl FnOnce(&mut Config)) -> Stack {
    let stack = Stack::builder().device(device, &addresses()).configure(|c| c.memlock = u64::MAX);
    let stack = stack.configure(change).build().unwrap();
    stack.spawn().unwrap();
    stack
}

/// With `WAIT` as the longest that any call may take.
fn patient(mut s: TcpStream) -> TcpStream {
    s.set_read_timeout(Some(WAIT));
    s.set_write_timeout(Some(WAIT));
    s
}

fn connect(stack: &Stack, to: SocketAddr) -> TcpStream {
    patient(TcpStream::connect_timeout(stack, to, Some(WAIT)).unwrap())
}

fn accept(listener: &TcpListener) -> TcpStream {
    patient(listener.accept_timeout(Some(WAIT)).unwrap().0)
}

fn patient_kernel(s: std::net::TcpStream) -> std::net::TcpStream {
    s.set_read_timeout(Some(WAIT)).unwrap();
    s.set_write_timeout(Some(WAIT)).unwrap();
    s
}

/// Block `n` of a stream: no two alike.
fn block(n: usize, len: usize) -> Vec<u8> {
    let mut x = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    });
    words.take(len).collect()
}

/// Reads to the end: length and digest.
fn digest(mut from: impl Read) -> (usize, [u8; 32]) {
    let (mut hash, mut len, mut buf) = (Sha256::new(), 0, vec![0; 256 * 1024]);
    loop {
        let n = from.read(&mut buf).unwrap();
        if n == 0 {
            return (len, hash.finalize().into());
        }
        hash.update(&buf[..n]);
        len += n;
    }
}

/// Lends `blocks` blocks and closes the sending direction; what was sent. Checks the completions.
fn lend(tx: &TcpStream, blocks: usize, len: usize) -> (usize, [u8; 32]) {
    let mut hash = Sha256::new();
    for n in 0..blocks {
        let bytes = block(n, len);
        hash.update(&bytes);
        assert_eq!(tx.send_lent(bytes).unwrap().id, n as u32);
    }
    tx.shutdown(Shutdown::Write).unwrap();
    let mut ids = Vec::new();
    while let Some(done) = tx.wait_completion(Some(WAIT)).unwrap() {
        assert!(done.copied.is_none(), "the stack copies nothing on the way to a TAP: {done:?}");
        assert!(done.device, "but the kernel reads the memory once, and that is said");
        assert_eq!((done.ee_code(), done.ee_pad()), (0, 11));
        ids.extend(done.ids());
    }
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..blocks as u32), "each call completes exactly once");
    (blocks * len, hash.finalize().into())
}

fn lent_to_the_kernel(family: usize, tap: TapDevice) {
    let listener = std::net::TcpListener::bind(kernels(family, 80)).unwrap();
    let reader = std::thread::spawn(move || digest(patient_kernel(listener.accept().unwrap().0)));
    let stack = stack(tap);
    let tx = connect(&stack, kernels(family, 80));
    let sent = lend(&tx, 64, 1 << 20);
    assert!(reader.join().unwrap() == sent);
    assert_eq!(stack.lent_bytes(), 0);
}

#[test]
fn lends_64_megabytes_to_the_kernel_over_ipv4() {
    with_tap("ipv4 out", |tap| lent_to_the_kernel(0, tap));
}

#[test]
fn lends_64_megabytes_to_the_kernel_over_ipv6() {
    with_tap("ipv6 out", |tap| lent_to_the_kernel(1, tap));
}

fn received_from_the_kernel(family: usize, tap: TapDevice) {
    let stack = stack(tap);
    let listener = TcpListener::bind(&stack, ours(family, 80)).unwrap();
    let writer = std::thread::spawn(move || {
        let mut tx = patient_kernel(std::net::TcpStream::connect_timeout(&ours(family, 80), WAIT).unwrap());
        let mut hash = Sha256::new();
        for n in 0..64 {
            let bytes = block(n, 1 << 20);
            hash.update(&bytes);
            tx.write_all(&bytes).unwrap();
        }
        <[u8; 32]>::from(hash.finalize())
    });
    let got = digest(accept(&listener));
    assert!(got == (64 << 20, writer.join().unwrap()));
}

#[test]
fn receives_64_megabytes_from_the_kernel_over_ipv4() {
    with_tap("ipv4 in", |tap| received_from_the_kernel(0, tap));
}

#[test]
fn receives_64_megabytes_from_the_kernel_over_ipv6() {
    with_tap("ipv6 in", |tap| received_from_the_kernel(1, tap));
}

#[test]
fn the_kernel_connects_to_our_listener_and_we_lend_to_it_while_it_sends() {
    with_tap("both ways", |tap| {
        let stack = stack(tap);
        let listener = TcpListener::bind(&stack, "[::]:80".parse().unwrap()).unwrap();
        for family in 0..2 {
            let peer = std::thread::spawn(move || {
                let s =
                    patient_kernel(std::net::TcpStream::connect_timeout(&ours(family, 80), WAIT).unwrap());
                let mut tx = s.try_clone().unwrap();
                let writer = std::thread::spawn(move || {
                    (0..8).for_each(|n| tx.write_all(&block(n, 1 << 20)).unwrap());
                    tx.shutdown(std::net::Shutdown::Write).unwrap();
                });
                let got = digest(s);
                writer.join().unwrap();
                got
            });
            let s = Arc::new(accept(&listener));
            let reader = std::thread::spawn({
                let s = s.clone();
                move || digest(&*s)
            });
            let sent = lend(&s, 8, 1 << 20);
            assert!(peer.join().unwrap() == sent);
            assert!(reader.join().unwrap() == sent, "the same blocks came back the other way");
        }
    });
}

/// Both directions over a wire that loses `loss` of the packets.
fn over_a_bad_wire(tap: TapDevice, rules: Rules) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let wire = Impair::new(Box::new(tap), ImpairConfig { tx: rules, rx: rules, seed: 5 }, clock.clone());
    let stats = wire.stats();
    let stack = Stack::builder().device(wire, &addresses()).clock(clock).configure(|c| c.memlock = u64::MAX);
    let stack = stack.build().unwrap();
    stack.spawn().unwrap();
    let listener = std::net::TcpListener::bind(kernels(0, 80)).unwrap();
    let echo = std::thread::spawn(move || {
        let mut s = patient_kernel(listener.accept().unwrap().0);
        let mut back = s.try_clone().unwrap();
        let mut all = Vec::new();
        s.read_to_end(&mut all).unwrap();
        back.write_all(&all).unwrap();
    });
    let tx = connect(&stack, kernels(0, 80));
    let sent = lend(&tx, 32, 1 << 17);
    assert!(digest(&tx) == sent, "there and back");
    echo.join().unwrap();
    assert!(stats.iter().any(|s| s.lost.load(Ordering::Relaxed) + s.corrupted.load(Ordering::Relaxed) > 0));
}

/// Large packets are cut before the wire: thousands of them, so that some are certain to be lost.
fn small_packets() -> TapConfig {
    TapConfig { gso_max_size: 1500, ..TapConfig::default() }
}

#[test]
fn lends_over_a_wire_that_loses_one_packet_in_a_hundred() {
    with_tap_of("loss", small_packets(), |tap| {
        over_a_bad_wire(tap, Rules { loss: 0.01, ..Rules::default() })
    });
}

#[test]
fn lends_over_a_wire_that_repeats_reorders_and_damages() {
    let rules = Rules { loss: 0.02, duplicate: 0.02, reorder: 0.02, corrupt: 0.01, ..Rules::default() };
    with_tap_of("bad wire", small_packets(), move |tap| over_a_bad_wire(tap, rules));
}

#[test]
fn a_port_where_nobody_listens_refuses_in_both_directions() {
    with_tap("refused", |tap| {
        let stack = stack(tap);
        for family in 0..2 {
            let e = TcpStream::connect_timeout(&stack, kernels(family, 81), Some(WAIT)).unwrap_err();
            assert_eq!(e.kind(), std::io::ErrorKind::ConnectionRefused);
            let e = std::net::TcpStream::connect_timeout(&ours(family, 81), WAIT).unwrap_err();
            assert_eq!(e.kind(), std::io::ErrorKind::ConnectionRefused);
        }
    });
}

#[test]
fn a_reset_by_the_kernel_gives_lent_memory_back() {
    with_tap("reset", |tap| {
        let listener = std::net::TcpListener::bind(kernels(0, 80)).unwrap();
        let stack = stack(tap);
        let tx = connect(&stack, kernels(0, 80));
        let (peer, _) = listener.accept().unwrap();
        tx.send_lent(block(0, 4 << 20)).unwrap();
        let mut one = [0];
        patient_kernel(peer.try_clone().unwrap()).read_exact(&mut one).unwrap();
        drop(peer); // with unread data: a reset
        let mut calls = 0;
        loop {
            match tx.wait_completion(Some(WAIT)) {
                Ok(Some(c)) => calls += c.calls(),
                Ok(None) => break,
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset),
            }
        }
        assert_eq!(calls, 1);
        assert_eq!(stack.lent_bytes(), 0);
    });
}

#[test]
fn an_abort_of_ours_resets_the_kernels_connection() {
    with_tap("abort", |tap| {
        let listener = std::net::TcpListener::bind(kernels(0, 80)).unwrap();
        let stack = stack(tap);
        let tx = connect(&stack, kernels(0, 80));
        let mut peer = patient_kernel(listener.accept().unwrap().0);
        tx.abort();
        let e = peer.read(&mut [0]).unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_half_closed_connection_still_carries_the_other_direction() {
    with_tap("half close", |tap| {
        let listener = std::net::TcpListener::bind(kernels(1, 80)).unwrap();
        let stack = stack(tap);
        let tx = connect(&stack, kernels(1, 80));
        let mut peer = patient_kernel(listener.accept().unwrap().0);
        tx.shutdown(Shutdown::Write).unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "our end of stream");
        peer.write_all(&block(0, 100_000)).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let (len, hash) = digest(&tx);
        assert_eq!((len, hash), (100_000, Sha256::digest(block(0, 100_000)).into()));
        // And the kernel first.
        let tx = connect(&stack, kernels(1, 80));
        let peer = patient_kernel(listener.accept().unwrap().0);
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(tx.recv(&mut [0]).unwrap(), 0);
        let sent = lend(&tx, 2, 10_000); // fits into the kernel's buffer
        assert!(digest(peer) == sent);
    });
}

#[test]
fn a_peer_that_does_not_read_stops_us_and_reading_lets_us_go_on() {
    with_tap("zero window", |tap| {
        let listener = std::net::TcpListener::bind(kernels(0, 80)).unwrap();
        let stack = configured(tap, |c| c.sndbuf = 1 << 20);
        let tx = Arc::new(connect(&stack, kernels(0, 80)));
        let peer = patient_kernel(listener.accept().unwrap().0);
        let sender = std::thread::spawn({
            let tx = tx.clone();
            move || lend(&tx, 32, 1 << 20)
        });
        // Until nothing has moved for half a second: buffers and window are full.
        let mut last = (usize::MAX, 0);
        while last.1 < 10 {
            std::thread::sleep(Duration::from_millis(50));
            let queued = tx.queued().1;
            last = if queued == last.0 && queued > 0 { (queued, last.1 + 1) } else { (queued, 0) };
        }
        assert!(!sender.is_finished());
        assert!(digest(peer) == sender.join().unwrap());
    });
}

#[test]
fn a_reader_of_ours_that_does_not_read_stops_the_kernel_and_reading_lets_it_go_on() {
    with_tap("our zero window", |tap| {
        let stack = configured(tap, |c| (c.rcvbuf, c.rcvbuf_max) = (65_536, 65_536));
        let listener = TcpListener::bind(&stack, ours(0, 80)).unwrap();
        let writer = std::thread::spawn(|| {
            let mut tx = patient_kernel(std::net::TcpStream::connect_timeout(&ours(0, 80), WAIT).unwrap());
            (0..16).for_each(|n| tx.write_all(&block(n, 1 << 20)).unwrap());
        });
        let rx = accept(&listener);
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!writer.is_finished());
        assert!(rx.queued().0 <= 65_536, "bounded: {}", rx.queued().0);
        let (len, hash) = digest(&rx);
        writer.join().unwrap();
        let mut sent = Sha256::new();
        (0..16).for_each(|n| sent.update(block(n, 1 << 20)));
        assert!((len, hash) == (16 << 20, sent.finalize().into()));
    });
}

#[test]
fn two_hundred_short_connections_each_way() {
    with_tap("short", |tap| {
        let stack = stack(tap);
        let kernel = std::net::TcpListener::bind(kernels(0, 80)).unwrap();
        let ours_ = TcpListener::bind(&stack, ours(0, 80)).unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..200 {
                let mut s = patient_kernel(kernel.accept().unwrap().0);
                let mut all = Vec::new();
                s.read_to_end(&mut all).unwrap();
                s.write_all(&all).unwrap();
            }
        });
        for n in 0..200 {
            let tx = connect(&stack, kernels(0, 80));
            let sent = lend(&tx, 1, 1 + n * 37);
            assert!(digest(&tx) == sent, "{n}");
        }
        server.join().unwrap();
        let client = std::thread::spawn(|| {
            for n in 0..200 {
                let mut s = patient_kernel(std::net::TcpStream::connect_timeout(&ours(0, 80), WAIT).unwrap());
                s.write_all(&block(n, 1 + n * 37)).unwrap();
                s.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(digest(s), (1 + n * 37, Sha256::digest(block(n, 1 + n * 37)).into()));
            }
        });
        for _ in 0..200 {
            let s = accept(&ours_);
            let mut all = Vec::new();
            (&s).read_to_end(&mut all).unwrap();
            s.send_lent(all).unwrap();
        }
        client.join().unwrap();
        assert!(stack.quiesce(WAIT), "closed streams have given everything back");
    });
}

#[test]
fn a_large_window_is_used() {
    with_tap("window", |tap| {
        let listener = std::net::TcpListener::bind(kernels(0, 80)).unwrap();
        let stack = stack(tap);
        let tx = connect(&stack, kernels(0, 80));
        let reader = std::thread::spawn(move || digest(patient_kernel(listener.accept().unwrap().0)));
        let sent = lend(&tx, 32, 1 << 20);
        let info = tx.info();
        assert!(reader.join().unwrap() == sent);
        if let Some(info) = info {
            assert!(info.snd_wnd > 65_535, "scaled: {info:?}");
        }
    });
}
