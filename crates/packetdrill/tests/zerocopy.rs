//! `MSG_ZEROCOPY`: completions on the error queue, copied as under a TUN or not, and the out-fields of `recvmsg`.

mod driver;

use driver::{MODES, Mode, Script, calls, seg};

const V4: Mode = Mode::Ipv4;
const SO_ZEROCOPY: i32 = 60;
const MSG_ZEROCOPY: i32 = 0x400_0000;
const TCP_INQ: i32 = 36;

/// A completion as packetdrill compares it: level, type, length, and the fields of the extended error.
#[derive(Debug, PartialEq, Eq)]
struct Notice {
    level: i32,
    kind: i32,
    len: usize,
    errno: u32,
    origin: u8,
    code: u8,
    first: u32,
    last: u32,
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().unwrap())
}

fn notice(control: &[u8]) -> Notice {
    Notice {
        level: number(&control[8..]) as i32,
        kind: number(&control[12..]) as i32,
        len: usize::from_ne_bytes(control[..8].try_into().unwrap()),
        errno: number(&control[16..]),
        origin: control[20],
        code: control[22],
        first: number(&control[24..]),
        last: number(&control[28..]),
    }
}

fn expected(mode: Mode, code: u8, first: u32, last: u32) -> Notice {
    let (level, kind, len) = match mode {
        Mode::Ipv4 => (libc::SOL_IP, libc::IP_RECVERR, 16 + 32),
        Mode::Ipv6 | Mode::Mapped => (libc::SOL_IPV6, libc::IPV6_RECVERR, 16 + 44),
    };
    Notice { level, kind, len, errno: 0, origin: 5, code, first, last }
}

#[test]
fn completions_come_with_the_acknowledgment_and_say_copied_unless_a_flag_says_otherwise() {
    for mode in MODES {
        for (flags, code) in [("", 1), ("orphan=0", 0)] {
            let mut s = Script::new(mode, flags);
            let (listener, fd) = s.accepted();
            s.ok(0.0, calls::set_number(fd, libc::SOL_SOCKET, SO_ZEROCOPY, 1, 4));
            assert_eq!(s.ok(0.0, calls::send(fd, 4000, MSG_ZEROCOPY)), 4000);
            assert_eq!(s.ok(0.0, calls::sendmsg(fd, &[1000, 3000], MSG_ZEROCOPY)), 4000);
            s.expect(0.0, seg("P.", 1, 8000).ack(1));
            s.fails(0.1, calls::recvmsg(fd, 0, 100, libc::MSG_ERRQUEUE), libc::EAGAIN);
            s.inject(0.1, seg(".", 1, 0).ack(8001));
            let polled = s.call(0.0, calls::poll(&[(fd, 0)], 0));
            assert_eq!(polled.out, libc::POLLERR.to_ne_bytes());
            let o = s.call(0.0, calls::recvmsg(fd, 0, 100, libc::MSG_ERRQUEUE));
            assert_eq!(o.result, 0, "{o:?}");
            assert_eq!(number(&o.out), libc::MSG_ERRQUEUE as u32);
            assert_eq!(notice(&o.out[4..]), expected(mode, code, 0, 1));
            s.fails(0.0, calls::recvmsg(fd, 0, 100, libc::MSG_ERRQUEUE), libc::EAGAIN);
            s.finish(&[listener, fd]);
        }
    }
}

#[test]
fn a_closed_window_completes_only_what_was_acknowledged() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::set_number(fd, libc::SOL_SOCKET, SO_ZEROCOPY, 1, 4));
    for _ in 0..3 {
        s.ok(0.0, calls::send(fd, 4000, MSG_ZEROCOPY));
    }
    s.expect(0.0, seg("P.", 1, 8000).ack(1));
    s.inject(0.1, seg(".", 1, 0).ack(8001));
    let o = s.call(0.0, calls::recvmsg(fd, 0, 100, libc::MSG_ERRQUEUE));
    assert_eq!(notice(&o.out[4..]), expected(V4, 1, 0, 1));
    s.finish(&[listener, fd]);
}

#[test]
fn recvmsg_writes_its_out_fields_even_when_there_is_nothing_to_say() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.1, seg("P.", 1, 300).ack(1));
    let o = s.call(0.0, calls::recvmsg(fd, 100, 64, 0));
    assert_eq!((o.result, o.out), (100, vec![0; 4]), "no flags, and no control messages");
    s.ok(0.0, calls::set_number(fd, libc::IPPROTO_TCP, TCP_INQ, 1, 4));
    let o = s.call(0.0, calls::recvmsg(fd, 150, 64, 0));
    assert_eq!((o.result, number(&o.out)), (150, 0));
    assert_eq!(number(&o.out[4 + 8..]) as i32, libc::IPPROTO_TCP);
    assert_eq!(number(&o.out[4 + 12..]) as i32, TCP_INQ);
    assert_eq!(number(&o.out[4 + 16..]), 50, "bytes left in the queue");
    s.finish(&[listener, fd]);
}
