use super::*;
use crate::netns::in_private_net;
use crate::tap::{TapConfig, TapKind};
use std::io::Read;
use std::net::TcpListener;

const TOTAL: u64 = 96 << 20;

fn config(frame: usize) -> BareConfig {
    let local = "10.78.0.2:40000".parse().unwrap();
    BareConfig { local, remote: "10.78.0.1:7000".parse().unwrap(), frame, timeout: Duration::from_secs(5) }
}

/// Sends `total` bytes of a pattern to a kernel socket that checks each one.
fn run(kind: TapKind, frame: usize, total: u64) {
    in_private_net(move |net| {
        let tap = net
            .tap(TapConfig { kind, ..TapConfig::default() }, &[("10.78.0.1".parse().unwrap(), 24)])
            .unwrap();
        let listener = TcpListener::bind("10.78.0.1:7000").unwrap();
        let payload: Vec<u8> = (0..1usize << 20).map(|i| (i % 251) as u8).collect();
        let expect = payload.clone();
        let (tell, cycle) = std::sync::mpsc::channel::<usize>();
        let sink = std::thread::spawn(move || {
            let (mut s, _) = listener.accept().unwrap();
            let cycle = cycle.recv().unwrap();
            let (mut buf, mut at) = (vec![0; 1 << 20], 0u64);
            loop {
                let n = s.read(&mut buf).unwrap();
                if n == 0 {
                    return at;
                }
                let mut got = &buf[..n];
                while !got.is_empty() {
                    let off = (at % cycle as u64) as usize;
                    let (now, later) = got.split_at(got.len().min(cycle - off));
                    assert!(now == &expect[off..off + now.len()], "the stream differs near {at}");
                    at += now.len() as u64;
                    got = later;
                }
            }
        });
        let mut sender = RawTcpSender::connect(tap, config(frame)).unwrap();
        tell.send(payload.len() / sender.frame() * sender.frame()).unwrap();
        let r = sender.blast(&payload, total).unwrap();
        assert_eq!(r.bytes, total);
        let gbits = r.bytes as f64 * 8.0 / r.elapsed.as_secs_f64() / 1e9;
        eprintln!("{kind:?} frames of {}: {gbits:.1} Gbit/s with a checking sink, {r:?}", sender.frame());
        sender.close().unwrap();
        assert_eq!(sink.join().unwrap(), total);
    });
}

#[test]
fn a_kernel_socket_receives_the_stream_over_ethernet() {
    run(TapKind::Tap, 65536, TOTAL + 12345);
}

#[test]
fn a_kernel_socket_receives_the_stream_over_ip() {
    run(TapKind::Tun, 65536, TOTAL);
}

#[test]
fn single_segments_work_too() {
    run(TapKind::Tun, 1, 4 << 20);
}

#[test]
fn nobody_listening_is_said_so() {
    in_private_net(|net| {
        let tap = net.tap(TapConfig::default(), &[("10.78.0.1".parse().unwrap(), 24)]).unwrap();
        let e = RawTcpSender::connect(tap, config(65536)).err().unwrap();
        assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused);
    });
}
