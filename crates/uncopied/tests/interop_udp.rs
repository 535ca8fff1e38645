//! Against the kernel's UDP and ICMP, over a TAP in a private network: lengths up to the largest in both
//! directions and families, segmented sends, errors, groups, echo.
//!
//! A network namespace belongs to a thread: each test enters its own. Where the machine forbids namespaces the
//! tests say so and pass.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use uncopied::netns::enter_private_net;
use uncopied::tap::{TapConfig, TapDevice};
use uncopied::{Error, Family, RawKind, Ready, Stack, UdpSocket};

const WAIT: Duration = Duration::from_secs(20);
const KERNEL: [&str; 2] = ["10.78.0.1", "fd78::1"];
const OURS: [&str; 2] = ["10.78.0.2", "fd78::2"];
const LENGTHS: [usize; 9] = [0, 1, 1452, 1453, 1472, 1473, 9000, 40_000, 65_507];

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn with_tap(name: &'static str, test: impl FnOnce(TapDevice) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let net = match enter_private_net() {
            Ok(net) => net,
            Err(e) => return eprintln!("SKIPPED {name}: {e}"),
        };
        let addresses: [(IpAddr, u8); 2] =
            [(KERNEL[0].parse().unwrap(), 24), (KERNEL[1].parse().unwrap(), 64)];
        let config = TapConfig { name: "tap0".to_owned(), mtu: Some(1500), ..TapConfig::default() };
        match net.tap(config, &addresses) {
            Ok(tap) => test(tap),
            Err(e) => eprintln!("SKIPPED {name}: {e}"),
        }
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn stack(tap: TapDevice) -> Stack {
    let addresses: [(IpAddr, u8); 2] = [(OURS[0].parse().unwrap(), 24), (OURS[1].parse().unwrap(), 64)];
    let stack = Stack::builder().device(tap, &addresses).configure(|c| c.memlock = u64::MAX).build().unwrap();
    stack.spawn().unwrap();
    stack
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 % 251) as u8).collect()
}

fn ours(stack: &Stack, local: SocketAddr) -> UdpSocket {
    let mut socket = UdpSocket::bind(stack, local).unwrap();
    socket.set_read_timeout(Some(WAIT));
    socket.set_write_timeout(Some(WAIT));
    socket
}

fn kernels(local: SocketAddr) -> std::net::UdpSocket {
    let socket = std::net::UdpSocket::bind(local).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    socket
}

#[test]
fn lends_datagrams_of_every_length_to_the_kernel_and_hears_them_back() {
    with_tap("lengths", |tap| {
        let stack = stack(tap);
        let mut buf = vec![0; 70_000];
        for family in 0..2 {
            let (us, them) = (ours(&stack, at(OURS[family], 5000)), kernels(at(KERNEL[family], 5001)));
            us.connect(at(KERNEL[family], 5001)).unwrap();
            for len in LENGTHS {
                let lent = if len == 0 {
                    us.send(&[]).unwrap();
                    None
                } else {
                    Some(us.send_lent(pattern(len), None).unwrap())
                };
                let (n, from) = them.recv_from(&mut buf).unwrap();
                assert_eq!((n, from), (len, at(OURS[family], 5000)));
                assert!(buf[..n] == pattern(len), "{family} {len} out");
                if let Some(ticket) = lent {
                    let done = us.wait_completion(Some(WAIT)).unwrap().unwrap();
                    assert_eq!((done.first, done.last, done.copied), (ticket.id, ticket.id, None));
                    assert!(done.device, "the kernel reads the memory once, and that is said");
                }
                them.send_to(&pattern(len), from).unwrap();
                let (n, from) = us.recv_from(&mut buf).unwrap();
                assert_eq!((n, from), (len, at(KERNEL[family], 5001)));
                assert!(buf[..n] == pattern(len), "{family} {len} in");
            }
        }
        assert_eq!(stack.lent_bytes(), 0);
    });
}

#[test]
fn segmented_sends_arrive_as_datagrams() {
    with_tap("segments", |tap| {
        let stack = stack(tap);
        for family in 0..2 {
            let (us, them) = (ours(&stack, at(OURS[family], 0)), kernels(at(KERNEL[family], 5001)));
            us.configure(|o| o.segment = 1400);
            us.send_lent(pattern(30_000), Some(at(KERNEL[family], 5001))).unwrap();
            let (mut got, mut buf) = (Vec::new(), vec![0; 70_000]);
            while got.len() < 30_000 {
                let n = them.recv(&mut buf).unwrap();
                assert!(n == 1400 || got.len() + n == 30_000);
                got.extend_from_slice(&buf[..n]);
            }
            assert!(got == pattern(30_000));
            assert_eq!(us.wait_completion(Some(WAIT)).unwrap().unwrap().copied, None);
        }
    });
}

#[test]
fn the_kernel_refuses_and_is_refused() {
    with_tap("refusal", |tap| {
        let stack = stack(tap);
        for family in 0..2 {
            let us = ours(&stack, at(OURS[family], 0));
            us.connect(at(KERNEL[family], 9)).unwrap();
            us.send(b"anybody?").unwrap();
            assert!(us.socket().wait(Ready::ERR, Some(WAIT)));
            assert_eq!(us.socket().take_error(), Some(Error::Refused));
            let them = kernels(at(KERNEL[family], 0));
            them.connect(at(OURS[family], 9)).unwrap();
            them.send(b"anybody?").unwrap();
            let e = them.recv(&mut [0; 10]).unwrap_err();
            assert_eq!(e.kind(), std::io::ErrorKind::ConnectionRefused);
        }
    });
}

#[test]
fn the_kernels_groups_hear_us_and_we_hear_ours() {
    with_tap("groups", |tap| {
        let stack = stack(tap);
        let group = at("239.7.7.7", 5001);
        let them = kernels(at("0.0.0.0", 5001));
        them.join_multicast_v4(&"239.7.7.7".parse().unwrap(), &KERNEL[0].parse().unwrap()).unwrap();
        let us = ours(&stack, at("0.0.0.0", 5001));
        us.join_group(group.ip()).unwrap();
        us.configure(|o| o.multicast_loop = false);
        us.send_to(b"from us", group).unwrap();
        let mut buf = [0; 100];
        let (n, from) = them.recv_from(&mut buf).unwrap();
        assert_eq!((&buf[..n], from), (&b"from us"[..], at(OURS[0], 5001)));
        let sender = kernels(at(KERNEL[0], 0));
        sender.send_to(b"from them", group).unwrap();
        let (n, from) = us.recv_from(&mut buf).unwrap();
        assert_eq!((&buf[..n], from), (&b"from them"[..], sender.local_addr().unwrap()));
    });
}

#[test]
fn the_kernel_answers_lent_pings_of_every_length() {
    with_tap("pings", |tap| {
        let stack = stack(tap);
        for (family, request) in [(Family::V4, 8), (Family::V6, 128)] {
            let ping = stack.raw_socket(family, RawKind::Ping);
            let to = at(KERNEL[usize::from(family == Family::V6)], 0).ip();
            for len in [0, 56, 1400, 5000, 60_000] {
                let message = [&[request, 0, 0, 0, 0, 0, 0, 1][..], &pattern(len)].concat();
                ping.send_lent(message.into(), Some(to)).unwrap();
                assert!(ping.wait(Ready::IN, Some(WAIT)), "{family:?} {len}");
                let answer = ping.recv_datagram(false).unwrap().payload.to_vec();
                assert!(answer[8..] == pattern(len), "{family:?} {len}");
            }
        }
    });
}
