use super::*;
use crate::netns::in_private_net;
use skb::{Csum, Frag, Gso, GsoKind};
use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

const KERNEL4: &str = "10.77.0.1";
const OURS: [u8; 4] = [10, 77, 0, 2];

fn config(name: &str) -> TapConfig {
    TapConfig { name: name.to_owned(), ..TapConfig::default() }
}

/// A UDP packet for port 7777 of the kernel, without a link header.
fn udp(payload: usize) -> SkBuff {
    let mut h = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    h.extend(OURS);
    h.extend([10, 77, 0, 1]);
    h[2..4].copy_from_slice(&(28 + payload as u16).to_be_bytes());
    let sum = !crate::hdr::fold(crate::hdr::sum(&h));
    h[10..12].copy_from_slice(&sum.to_be_bytes());
    h.extend(5555u16.to_be_bytes());
    h.extend(7777u16.to_be_bytes());
    h.extend((8 + payload as u16).to_be_bytes());
    h.extend([0, 0]);
    let mut skb = SkBuff::new();
    skb.put(&h).unwrap();
    for part in vec![0x5a; payload].chunks(payload.div_ceil(10).max(1)) {
        skb.add_frag(Frag::copied_from(part)).unwrap();
    }
    skb
}

fn wait_for(rx: &mut dyn DeviceRx, mut wanted: impl FnMut(&SkBuff) -> bool) -> Option<SkBuff> {
    let end = Instant::now() + std::time::Duration::from_secs(3);
    let mut got = Vec::new();
    while Instant::now() < end {
        rx.poll_rx(1, &mut got);
        if let Some(skb) = got.pop() {
            if wanted(&skb) {
                return Some(skb);
            }
            continue;
        }
        assert!(rx.arm());
        let soon = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let _ = poll(&mut [PollFd::new(&rx.wait_fd().unwrap(), PollFlags::IN)], Some(&soon));
    }
    None
}

#[test]
fn head_and_fragments_reach_a_kernel_socket_as_one_packet() {
    in_private_net(|net| {
        let tun = TapConfig { kind: TapKind::Tun, mtu: Some(9000), ..config("utest0") };
        let dev = net.tap(tun, &[(KERNEL4.parse().unwrap(), 24)]).unwrap();
        assert_eq!((dev.info().mtu, dev.info().link), (9000, LinkKind::Ip));
        let (mut tx, _rx) = Box::new(dev).open();
        let socket = UdpSocket::bind((KERNEL4, 7777)).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(3))).unwrap();
        assert!(matches!(tx.start_xmit(udp(8000)), Xmit::Sent));
        let mut buf = [0; 10000];
        assert_eq!(socket.recv(&mut buf).unwrap(), 8000);
        assert!(buf[..8000].iter().all(|b| *b == 0x5a));
    });
}

#[test]
fn lent_bytes_are_noted_as_read_by_the_device_and_completed() {
    in_private_net(|net| {
        let dev =
            net.tap(TapConfig { kind: TapKind::Tun, ..config("utest1") }, &[(KERNEL4.parse().unwrap(), 24)]);
        let (mut tx, _rx) = Box::new(dev.unwrap()).open();
        let queue = skb::ErrorQueue::new(1 << 20, Arc::new(skb::MemLock::new(1 << 20)), Box::new(()));
        let mut skb = udp(1000);
        skb.take_frags();
        skb.add_frag(sys::tests::lent(&queue, &[0x5a; 1000])).unwrap();
        let copy = skb.clone();
        assert!(matches!(tx.start_xmit(skb), Xmit::Sent));
        assert_eq!(queue.pop(), None, "a clone still refers to the memory");
        drop(copy);
        let done = queue.pop().unwrap();
        assert_eq!((done.copied, done.device), (None, true));
    });
}

#[test]
fn small_and_large_frames_from_the_kernel_arrive_with_their_offloads() {
    in_private_net(|net| {
        let tun = TapConfig { kind: TapKind::Tun, mtu: Some(9000), ..config("utest2") };
        let dev = net.tap(tun, &[(KERNEL4.parse().unwrap(), 24)]).unwrap();
        let (_tx, mut rx) = Box::new(dev).open();
        let socket = UdpSocket::bind((KERNEL4, 0)).unwrap();
        for size in [20usize, 500, 5000] {
            socket.send_to(&vec![7; size], (IpAddr::from(OURS), 9)).unwrap();
            let skb =
                wait_for(&mut *rx, |s| s.len() == size + 28 && s.to_vec()[0] == 0x45).expect("the datagram");
            assert!(skb.to_vec()[28..].iter().all(|b| *b == 7));
            assert_eq!(skb.csum, Csum::Unnecessary, "partial: it comes from this machine");
        }
    });
}

#[test]
fn a_tap_carries_ethernet_and_the_kernel_asks_for_us_by_arp() {
    in_private_net(|net| {
        let dev = net.tap(
            TapConfig { mac: Some([2, 0, 0, 0, 0, 9]), ..config("ttest0") },
            &[(KERNEL4.parse().unwrap(), 24)],
        );
        let dev = dev.unwrap();
        assert_ne!(dev.kernel_mac().unwrap(), [0; 6]);
        assert_eq!(dev.info().link, LinkKind::Ethernet([2, 0, 0, 0, 0, 9]));
        let (_tx, mut rx) = Box::new(dev).open();
        UdpSocket::bind((KERNEL4, 0)).unwrap().send_to(b"x", (IpAddr::from(OURS), 9)).unwrap();
        let arp = wait_for(&mut *rx, |s| s.to_vec().get(12..14) == Some(&[8, 6])).expect("an ARP request");
        assert_eq!(arp.to_vec()[38..42], OURS);
    });
}

#[test]
fn both_families_are_configured() {
    in_private_net(|net| {
        let v6: IpAddr = "fd77::1".parse().unwrap();
        let _dev = net.tap(config("ttest1"), &[(KERNEL4.parse().unwrap(), 24), (v6, 64)]).unwrap();
        UdpSocket::bind((KERNEL4, 0)).unwrap();
        UdpSocket::bind((v6, 0)).expect("usable at once, without duplicate detection");
    });
}

#[test]
fn a_large_tcp_frame_is_taken_whole() {
    in_private_net(|net| {
        let tun = TapConfig { kind: TapKind::Tun, ..config("utest3") };
        let dev = net.tap(tun, &[(KERNEL4.parse().unwrap(), 24)]).unwrap();
        let (mut tx, mut rx) = Box::new(dev).open();
        // Out of the blue, so the kernel answers with a reset: it took the frame for a TCP segment.
        let mut skb = udp(60_000);
        let head = skb.head_mut();
        head[9] = 6;
        head[2..4].copy_from_slice(&(20 + 20 + 60_000u16 - 12).to_be_bytes());
        head[10..12].fill(0);
        let sum = !crate::hdr::fold(crate::hdr::sum(&head[..20]));
        head[10..12].copy_from_slice(&sum.to_be_bytes());
        // The last 12 bytes of the TCP header come out of the payload's first fragment.
        skb.may_pull(40).unwrap();
        let pseudo = crate::hdr::pseudo(IpAddr::from(OURS), KERNEL4.parse().unwrap(), 20 + 60_000 - 12);
        let tcp = &mut skb.head_mut()[20..40];
        tcp[4..].fill(0);
        tcp[12] = 5 << 4;
        tcp[13] = crate::hdr::ACK;
        tcp[16..18].copy_from_slice(&pseudo.to_be_bytes());
        skb.csum = Csum::Partial { start: 20, offset: 16 };
        skb.gso = Some(Gso { kind: GsoKind::Tcp4, size: 1460, segs: 42 });
        assert!(matches!(tx.start_xmit(skb), Xmit::Sent));
        let reset = wait_for(&mut *rx, |s| s.to_vec().get(33).is_some_and(|f| f & crate::hdr::RST != 0));
        assert!(reset.is_some(), "the kernel answered the frame");
    });
}

#[test]
fn a_second_opener_is_told_that_it_is_in_use() {
    in_private_net(|net| {
        let _first = net.tap(config("ttest2"), &[]).unwrap();
        let e = TapDevice::open(config("ttest2")).err().unwrap();
        assert!(matches!(&e, TapError::Busy(n) if n == "ttest2"), "{e}");
        let e = TapDevice::open(config("lo")).err().unwrap();
        assert!(matches!(e, TapError::OtherKind(_)), "{e}");
        let e = TapDevice::open(config("sixteen-bytes-is")).err().unwrap();
        assert!(matches!(e, TapError::NameTooLong(_)));
        let e = TapDevice::open(config("a/b")).err().unwrap();
        assert!(matches!(e, TapError::BadName(_)));
    });
}

#[test]
fn an_interface_that_is_down_fails_the_packet_and_not_the_device() {
    in_private_net(|_net| {
        let dev = TapDevice::open(TapConfig { kind: TapKind::Tun, ..config("") }).unwrap();
        assert!(dev.name().starts_with("tun"), "the kernel chose {}", dev.name());
        let (mut tx, mut rx) = Box::new(dev).open();
        let Xmit::Failed(e) = tx.start_xmit(udp(10)) else { panic!("it is down") };
        assert_eq!(e.raw_os_error(), Some(libc::EIO));
        assert_eq!(rx.poll_rx(1, &mut Vec::new()), 0);
    });
}

#[test]
fn an_attached_descriptor_tells_what_it_is() {
    in_private_net(|net| {
        let dev = net.tap(TapConfig { kind: TapKind::Tun, ..config("utest4") }, &[]).unwrap();
        let fd = dev.fd().try_clone_to_owned().unwrap();
        drop(dev);
        let dev = TapDevice::from_fd(fd, TapConfig::default()).unwrap();
        assert_eq!((dev.name(), dev.info().link, dev.vnet()), ("utest4", LinkKind::Ip, true));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(TapDevice::from_fd(file.into(), TapConfig::default()).is_err());
    });
}
