//! Datagram sockets used by many threads at once, over a link with an engine and net threads of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uncopied::{ETH_P_ALL, Error, PacketKind, Stack, UdpSocket, link};

const THREADS: usize = 4;
const EACH: usize = 2000;
const WAIT: Duration = Duration::from_secs(30);

fn two() -> (Stack, Stack, impl Sized) {
    let (left, right, engine) = link::pair(link::LinkConfig::default());
    let engine = engine.spawn("nic").unwrap();
    let stack = |device, address: &str| {
        let builder = Stack::builder().device(device, &[(address.parse().unwrap(), 24)]);
        let stack = builder.configure(|c| c.memlock = u64::MAX).build().unwrap();
        stack.spawn().unwrap();
        stack
    };
    (stack(left, "10.0.0.1"), stack(right, "10.0.0.2"), engine)
}

/// Reads completions until all that is outstanding is told; how many calls they named.
fn drain(tx: &UdpSocket) -> u64 {
    let mut calls = 0;
    while let Some(done) = tx.wait_completion(Some(WAIT)).unwrap() {
        calls += done.calls();
    }
    calls
}

#[test]
fn many_threads_lend_on_one_socket_and_each_call_completes_once() {
    let (a, b, _engine) = two();
    let mut rx = UdpSocket::bind(&b, "10.0.0.2:9".parse().unwrap()).unwrap();
    rx.socket().set_rcvbuf(64 << 20);
    rx.set_read_timeout(Some(Duration::from_millis(300)));
    let tx = UdpSocket::bind(&a, "10.0.0.1:0".parse().unwrap()).unwrap();
    tx.connect(rx.local_addr()).unwrap();
    let calls = AtomicU64::new(0);
    let received = std::thread::scope(|s| {
        for n in 0..THREADS {
            let (tx, calls) = (&tx, &calls);
            s.spawn(move || {
                for i in 0..EACH {
                    let mut message = vec![n as u8; 64 + i % 3000];
                    message[..8].copy_from_slice(&(i as u64).to_le_bytes());
                    loop {
                        match tx.send_lent(message, None) {
                            Ok(_) => break,
                            // Unread completions take option memory: reading them makes room.
                            Err(e) if e.error == Error::OptMem => {
                                calls.fetch_add(tx.completion().map_or(0, |c| c.calls()), Ordering::Relaxed);
                                message = e.buffer.as_slice().to_vec();
                            }
                            Err(e) => panic!("{e}"),
                        }
                    }
                }
            });
        }
        let mut buf = vec![0; 4096];
        let mut received = 0;
        while let Ok((n, _)) = rx.recv_from(&mut buf) {
            let i = u64::from_le_bytes(buf[..8].try_into().unwrap()) as usize;
            assert_eq!(n, 64 + i % 3000);
            assert!(buf[8..n].iter().all(|b| *b == buf[8]), "one datagram, one sender");
            received += 1;
        }
        received
    });
    assert!(received > 0 && received <= THREADS * EACH);
    assert_eq!(calls.load(Ordering::Relaxed) + drain(&tx), (THREADS * EACH) as u64);
    assert!(a.quiesce(WAIT));
}

#[test]
fn watchers_come_and_go_while_packets_pass() {
    let (a, b, _engine) = two();
    let rx = UdpSocket::bind(&b, "10.0.0.2:9".parse().unwrap()).unwrap();
    let tx = UdpSocket::bind(&a, "10.0.0.1:0".parse().unwrap()).unwrap();
    std::thread::scope(|s| {
        let watching = s.spawn(|| {
            let mut seen = 0;
            for _ in 0..300 {
                let watcher = a.packet_socket(PacketKind::Raw, ETH_P_ALL);
                std::thread::sleep(Duration::from_micros(200));
                seen += usize::from(watcher.recv_datagram(false).is_ok());
            }
            seen
        });
        while !watching.is_finished() {
            let _ = tx.send_lent(vec![1; 1000], Some(rx.local_addr()));
            tx.completion();
        }
        assert!(watching.join().unwrap() > 0);
    });
    drain(&tx);
    assert!(a.interfaces()[0].taps().is_empty() && a.quiesce(WAIT));
}
