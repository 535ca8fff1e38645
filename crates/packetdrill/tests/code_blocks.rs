//! What packetdrill does without asking the plug-in, through libc: `getsockopt` for code blocks, `sendfile`, and
//! `close` at the end.

mod driver;

use std::os::fd::AsRawFd;

use driver::{Mode, Script, calls, seg};

const V4: Mode = Mode::Ipv4;
const TCP_CC_INFO: i32 = 26;
const SO_MEMINFO: i32 = 55;

fn field(info: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(info[at..at + 4].try_into().unwrap())
}

#[test]
fn a_code_block_sees_the_connection() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::write(fd, 3000));
    s.expect(0.0, seg("P.", 1, 3000).ack(1));
    let (r, info) = calls::getsockopt_by_libc(fd, libc::IPPROTO_TCP, libc::TCP_INFO, 280);
    assert_eq!((r, info.len()), (0, 280));
    assert_eq!(info[0], 1, "tcpi_state is established");
    assert_eq!(field(&info, 16), 1000, "tcpi_snd_mss");
    assert_eq!(field(&info, 24), 3, "tcpi_unacked");
    assert_eq!(field(&info, 80), 10, "tcpi_snd_cwnd");
    let rtt = field(&info, 68);
    assert!((99_000..102_000).contains(&rtt), "tcpi_rtt is that of the handshake: {rtt}");
    assert_eq!(field(&info, 276), 0, "what is not known is 0");
    // A later tool asks for more.
    let (r, info) = calls::getsockopt_by_libc(fd, libc::IPPROTO_TCP, libc::TCP_INFO, 400);
    assert_eq!((r, info.len()), (0, 400));
    let (r, info) = calls::getsockopt_by_libc(fd, libc::IPPROTO_TCP, TCP_CC_INFO, 20);
    assert_eq!((r, info.len()), (0, 0));
    let (r, memory) = calls::getsockopt_by_libc(fd, libc::SOL_SOCKET, SO_MEMINFO, 36);
    assert_eq!((r, memory.len()), (0, 36));
    assert!(field(&memory, 4) > 0 && field(&memory, 12) > 0, "both buffers have a size");
    s.inject(0.1, seg(".", 1, 0).ack(3001));
    let (_, info) = calls::getsockopt_by_libc(fd, libc::IPPROTO_TCP, libc::TCP_INFO, 280);
    assert_eq!(field(&info, 24), 0, "nothing is unacknowledged");
    s.finish(&[listener, fd]);
}

#[test]
fn a_code_block_sees_a_recovery() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::write(fd, 10_000));
    s.expect(0.0, seg("P.", 1, 10_000).ack(1));
    s.inject(0.1, seg(".", 1, 0).ack(1).sack(1001, 2001));
    s.inject(0.0, seg(".", 1, 0).ack(1).sack(1001, 3001));
    s.inject(0.0, seg(".", 1, 0).ack(1).sack(1001, 4001));
    s.expect(0.0, seg(".", 1, 1000).ack(1));
    let info = |s: &mut Script| {
        // Time stands still while the tool asks.
        let before = s.tool.now();
        let (r, info) = calls::getsockopt_by_libc(fd, libc::IPPROTO_TCP, libc::TCP_INFO, 280);
        assert_eq!((r, s.tool.now() - before), (0, 1));
        info
    };
    let seen = info(&mut s);
    assert_eq!(seen[1], 3, "tcpi_ca_state is recovery");
    assert_eq!(seen[5] & 7, 2 | 4, "tcpi_options: what the peer offered");
    let counts = [24, 28, 32, 36].map(|at| field(&seen, at));
    assert_eq!(counts, [10, 3, 1, 1], "unacked, sacked, lost, retrans");
    assert_eq!(field(&seen, 192), 3 + 1, "tcpi_delivered counts the SYN");
    assert!(field(&seen, 76) < 10, "tcpi_snd_ssthresh");
    s.inject(0.1, seg(".", 1, 0).ack(10_001));
    let seen = info(&mut s);
    assert_eq!(seen[1], 0, "tcpi_ca_state is open");
    assert_eq!([24, 28, 32, 36].map(|at| field(&seen, at)), [0; 4]);
    let busy = u64::from_ne_bytes(seen[168..176].try_into().unwrap());
    assert!((199_000..205_000).contains(&busy), "tcpi_busy_time, in script time: {busy}");
    s.finish(&[listener, fd]);
}

#[test]
fn the_hosts_own_descriptors_are_not_touched() {
    let s = Script::new(V4, "");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (r, value) = calls::getsockopt_by_libc(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TYPE, 4);
    assert_eq!((r, field(&value, 0)), (0, libc::SOCK_DGRAM as u32));
    s.finish(&[]);
}

#[test]
fn sendfile_goes_through_the_stack() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    let path = std::env::temp_dir().join(format!("uncopied-sendfile-{}", std::process::id()));
    std::fs::write(&path, [0; 2500]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(calls::sendfile_by_libc(fd, file.as_raw_fd(), 2500), 2500);
    s.expect(0.0, seg("P.", 1, 2500).ack(1));
    s.finish(&[listener, fd]);
}

#[test]
fn closing_through_libc_closes_the_connection() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    assert_eq!(calls::close_by_libc(fd), 0);
    s.expect(0.0, seg("F.", 1, 0).ack(1));
    assert_eq!(calls::getsockopt_by_libc(fd, libc::SOL_SOCKET, libc::SO_TYPE, 4).0, -1, "it is closed");
    s.finish(&[listener]);
}
