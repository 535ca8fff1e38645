//! RAW, ping and PACKET sockets: Z1 (they lend too), Z5, Z8 (headers are never in lent memory; small frames are
//! copied), Z19 (a tap makes copies, the loopback does).

mod common;

use common::borrowed::Area;
use common::duo::*;
use common::{arriving, pattern};
use stack::skb::{Completion, Csum};
use stack::{
    ETH_P_ALL, Family, LinkAddress, Message, PacketKind, PacketSocket, PacketType, Piece, RawKind, RawSocket,
};
use uncopied::{DropReason, Error, Features, LinkKind, Reason, Stack, mem};

/// A protocol number that nobody has (RFC 3692).
const EXPERIMENT: u8 = 253;

fn raw(stack: &Stack, family: Family, proto: u8) -> std::sync::Arc<RawSocket> {
    let socket = stack.raw_socket(family, RawKind::Protocol(proto));
    socket.set_zerocopy(true);
    socket
}

fn completions(pop: impl Fn() -> Option<Completion>) -> Vec<Completion> {
    std::iter::from_fn(pop).collect()
}

fn payload(rx: &RawSocket) -> Option<Vec<u8>> {
    rx.recv_datagram(false).ok().map(|d| d.payload.to_vec())
}

#[test]
fn raw_packets_point_at_lent_memory_and_arrive_with_their_ipv4_header() {
    for family in FAMILIES {
        for len in [1, 1000, 1400, 5000] {
            let duo = Duo::new();
            let (tx, rx) = (raw(&duo.a, family, EXPERIMENT), raw(&duo.b, family, EXPERIMENT));
            let buffer = pattern(len);
            let mut next = buffer.as_ptr().addr();
            tx.send_lent(buffer.into(), Some(at(B, family, 0).ip())).unwrap();
            let packets = duo.sent();
            for frag in packets.iter().flat_map(|p| p.frags()) {
                assert!(frag.is_lent() && frag.as_iovec().0.addr() == next);
                next += frag.len();
            }
            packets.iter().for_each(|p| duo.at_b.push_rx(arriving(p)));
            drop(packets);
            assert_eq!(completions(|| tx.pop_completion())[0].copied, None);
            duo.pump();
            let got = rx.recv_datagram(false).unwrap();
            let header = if family == Family::V4 { 20 } else { 0 };
            assert_eq!(got.payload.to_vec()[header..], pattern(len));
            assert_eq!(got.info.from.ip(), at(A, family, 0).ip());
            if family == Family::V4 {
                assert_eq!(got.payload.to_vec()[2..4], (20 + len as u16).to_be_bytes());
            }
            assert!(duo.b.stats().drops.is_empty(), "somebody knew the protocol");
        }
    }
}

#[test]
fn with_a_header_included_what_the_program_left_open_is_filled_in_and_never_in_its_memory() {
    let duo = Duo::new();
    let (tx, rx) = (raw(&duo.a, Family::V4, 255), raw(&duo.b, Family::V4, EXPERIMENT));
    assert!(tx.raw_options().header_included, "IPPROTO_RAW");
    let mut packet = vec![0x45, 0x10, 0, 0, 0, 0, 0, 0, 33, EXPERIMENT, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    packet.extend(pattern(1000));
    let area = Area::new(&packet);
    let io = area.io();
    let pieces = [Piece::Borrowed { io: &io, lend: true }];
    let to = Some(at(B, Family::V4, 0));
    let sent = tx.sendmsg(&Message { to, pieces: &pieces, ..Message::default() }).unwrap();
    assert_eq!((sent.len, sent.ticket.map(|t| t.id)), (1020, Some(0)));
    let out = duo.sent().remove(0);
    assert_eq!((out.headlen(), out.frags().len()), (20, 1));
    assert_eq!(out.frags()[0].as_iovec().0.addr(), area.addr() + 20);
    // What the program changes now is its data, and no header.
    area.set(9, 6);
    duo.at_b.push_rx(arriving(&out));
    drop(out);
    duo.pump();
    let got = payload(&rx).unwrap();
    assert_eq!((got[8], &got[12..16], &got[20..]), (33, &[10, 0, 0, 1][..], &pattern(1000)[..]));
    assert_eq!(completions(|| tx.pop_completion()).len(), 1);
    assert_eq!(tx.send_to(&[0; 10], at(B, Family::V4, 0).ip()), Err(Error::Invalid), "shorter than a header");
    assert_eq!(tx.send_to(&[0x45; 1501], at(B, Family::V4, 0).ip()), Err(Error::MessageTooLong));
}

#[test]
fn a_checksum_where_the_program_wants_it_is_put_there_and_checked() {
    for features in [Features::all(), Features::empty()] {
        let duo = Duo::with(1500, features, |_| {});
        let (tx, rx) = (raw(&duo.a, Family::V6, EXPERIMENT), raw(&duo.b, Family::V6, EXPERIMENT));
        tx.configure_raw(|o| o.checksum_offset = Some(4));
        rx.configure_raw(|o| o.checksum_offset = Some(4));
        let to = at(B, Family::V6, 0).ip();
        for len in [6, 1000, 4000] {
            tx.send_lent(pattern(len).into(), Some(to)).unwrap();
            let packets = duo.sent();
            for p in &packets {
                let mut arrived = stack::skb::SkBuff::from_slice(&p.to_vec());
                if let Csum::Partial { .. } = p.csum {
                    arrived.csum = Csum::Unnecessary;
                }
                duo.at_b.push_rx(arrived);
            }
            drop(packets);
            duo.pump();
            let got = payload(&rx).unwrap();
            assert_eq!((got.len(), &got[..4], &got[6..]), (len, &pattern(len)[..4], &pattern(len)[6..]));
        }
        assert_eq!(tx.send_to(&[0; 5], to), Err(Error::Invalid), "the checksum must fit");
        tx.configure_raw(|o| o.checksum_offset = None);
        tx.send_to(&pattern(10), to).unwrap();
        let p = duo.sent().remove(0);
        duo.at_b.push_rx(stack::skb::SkBuff::from_slice(&p.to_vec()));
        duo.pump();
        assert_eq!(payload(&rx), None, "a wrong sum");
        assert_eq!(duo.b.stats().drops, [(DropReason::BadChecksum, 1)]);
    }
}

#[test]
fn ping_sockets_ask_with_their_identifier_and_hear_their_own_answers_only() {
    for family in FAMILIES {
        let duo = Duo::new();
        let pings: Vec<_> = (0..2).map(|_| duo.a.raw_socket(family, RawKind::Ping)).collect();
        let kind = if family == Family::V4 { 8 } else { 128 };
        for (n, ping) in pings.iter().enumerate() {
            let request = [&[kind, 0, 0, 0, 0xff, 0xff, 0, n as u8][..], &pattern(2000)].concat();
            ping.send_lent(request.into(), Some(at(B, family, 0).ip())).unwrap();
        }
        duo.pump();
        for (n, ping) in pings.iter().enumerate() {
            let got = payload(ping).unwrap();
            assert_eq!((got[0], got[7]), (if family == Family::V4 { 0 } else { 129 }, n as u8));
            assert_eq!(got[4..6], ping.ident().unwrap().to_be_bytes());
            assert_eq!(got[8..], pattern(2000));
            assert_eq!(payload(ping), None);
            assert_eq!(completions(|| ping.pop_completion()).len(), 1);
        }
        assert_ne!(pings[0].ident(), pings[1].ident());
        let other = vec![0; 8];
        let failed = pings[0].send_lent(other.into(), Some(at(B, family, 0).ip()));
        assert_eq!(failed.unwrap_err().0, Error::Invalid, "not a request");
        let request = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        let ticket = pings[0].send_lent(request.into(), Some(at(B, family, 0).ip())).unwrap();
        assert_eq!(ticket.id, 1, "a call that failed takes no number");
    }
}

#[test]
fn a_raw_socket_sees_icmp_beside_the_stack_and_a_filter_keeps_types_out() {
    let duo = Duo::new();
    let (tx, rx) = (duo.a.raw_socket(Family::V4, RawKind::Ping), raw(&duo.b, Family::V4, 1));
    tx.send_to(&[8, 0, 0, 0, 0, 0, 0, 1], at(B, Family::V4, 0).ip()).unwrap();
    duo.pump();
    assert_eq!(payload(&rx).map(|p| p[20]), Some(8), "the request");
    assert!(payload(&tx).is_some(), "and it was answered");
    rx.configure_raw(|o| o.icmp_filter[0] = 1 << 8);
    tx.send_to(&[8, 0, 0, 0, 0, 0, 0, 1], at(B, Family::V4, 0).ip()).unwrap();
    duo.pump();
    assert_eq!(payload(&rx), None);
    rx.close();
    assert!(payload(&tx).is_some());
}

#[test]
fn nobody_for_a_protocol_is_an_error_that_a_connected_sender_hears() {
    let duo = Duo::new();
    let tx = raw(&duo.a, Family::V4, EXPERIMENT);
    tx.connect(Some(at(B, Family::V4, 0).ip())).unwrap();
    let pieces = [Piece::Copy(b"knock")];
    tx.sendmsg(&Message { pieces: &pieces, ..Message::default() }).unwrap();
    duo.pump();
    assert_eq!(tx.take_error(), Some(Error::ProtocolUnreachable));
}

#[test]
fn raw_to_this_host_is_copied_for_the_loopback() {
    let duo = Duo::new();
    for family in FAMILIES {
        let (tx, rx) = (raw(&duo.a, family, EXPERIMENT), raw(&duo.a, family, EXPERIMENT));
        tx.send_lent(pattern(3000).into(), Some(at(A, family, 0).ip())).unwrap();
        assert_eq!(completions(|| tx.pop_completion())[0].copied, Some(Reason::Loopback));
        duo.pump();
        let header = if family == Family::V4 { 20 } else { 0 };
        assert_eq!(payload(&rx).unwrap()[header..], pattern(3000));
    }
}

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const EXPERIMENTAL: u16 = 0x88b5;

/// Two stacks on an Ethernet.
fn ethernet(features: Features) -> Duo {
    let one = |n: usize, features| {
        let config =
            mem::MemConfig { link: LinkKind::Ethernet(MACS[n]), features, ..mem::MemConfig::default() };
        let (device, port) = mem::pair(config);
        let addresses = [(ip([A, B][n][0]), 24), (ip([A, B][n][1]), 64)];
        let builder = Stack::builder().device(device, &addresses).configure(|c| c.memlock = u64::MAX);
        (builder, port)
    };
    let clock = std::sync::Arc::new(uncopied::ManualClock::new(uncopied::Instant::from_secs(1000)));
    let ((a, at_a), (b, at_b)) = (one(0, features), one(1, Features::all()));
    Duo {
        a: a.clock(clock.clone()).build().unwrap(),
        b: b.clock(clock.clone()).build().unwrap(),
        clock,
        at_a,
        at_b,
    }
}

fn frame(packet: &PacketSocket) -> Option<(Vec<u8>, stack::Frame)> {
    let d = packet.recv_datagram(false).ok()?;
    Some((d.payload.to_vec(), d.frame.unwrap()))
}

#[test]
fn frames_carry_lent_memory_behind_a_copied_link_header_and_small_ones_are_copied() {
    let to = LinkAddress { interface: 1, protocol: EXPERIMENTAL, mac: MACS[1] };
    for kind in [PacketKind::Raw, PacketKind::Dgram] {
        let header = [&MACS[1][..], &MACS[0], &EXPERIMENTAL.to_be_bytes()].concat();
        for (len, small) in [(1, true), (128, true), (129, false), (1500, false)] {
            let duo = ethernet(Features::all());
            let (tx, rx) = (duo.a.packet_socket(kind, 0), duo.b.packet_socket(kind, EXPERIMENTAL));
            let own = if kind == PacketKind::Raw { header.clone() } else { Vec::new() };
            tx.send_lent([own.clone(), pattern(len)].concat().into(), Some(to)).unwrap();
            let out = duo.sent().remove(0);
            assert_eq!((&out.to_vec()[..14], &out.to_vec()[14..]), (&header[..], &pattern(len)[..]));
            assert_eq!(out.has_lent(), !small, "{kind:?} {len}");
            assert!(small || out.headlen() == 14, "the link header is not in lent memory");
            duo.at_b.push_rx(arriving(&out));
            drop(out);
            let done = completions(|| tx.pop_completion());
            assert_eq!((done.len(), done[0].copied), (1, small.then_some(Reason::Small)));
            duo.pump();
            let (bytes, facts) = frame(&rx).unwrap();
            assert_eq!(bytes, [own, pattern(len)].concat());
            assert_eq!((facts.protocol, facts.packet_type), (EXPERIMENTAL, PacketType::Host));
            assert_eq!((facts.source, facts.interface), (Some(MACS[0]), 1));
        }
        let duo = ethernet(Features::all());
        let tx = duo.a.packet_socket(kind, 0);
        let long = vec![0; 1515];
        assert_eq!(tx.send_lent(long.into(), Some(to)).unwrap_err().0, Error::MessageTooLong);
        let nowhere = LinkAddress { interface: 7, ..to };
        assert_eq!(tx.send_to(&[0; 20], Some(nowhere)), Err(Error::NoDevice));
    }
}

#[test]
fn a_device_that_takes_linear_frames_only_costs_a_copy() {
    let duo = ethernet(Features::CSUM);
    let tx = duo.a.packet_socket(PacketKind::Dgram, 0);
    let to = LinkAddress { interface: 1, protocol: EXPERIMENTAL, mac: MACS[1] };
    tx.send_lent(pattern(1000).into(), Some(to)).unwrap();
    assert_eq!(completions(|| tx.pop_completion())[0].copied, Some(Reason::NoScatterGather));
}

#[test]
fn one_that_listens_is_a_tap_that_sees_what_is_sent_and_makes_it_a_copy() {
    let duo = ethernet(Features::all());
    let (tx, rx) = duo.connected(Family::V4);
    tx.send(b"so that the neighbour is known").unwrap();
    duo.pump();
    let watcher = duo.a.packet_socket(PacketKind::Raw, ETH_P_ALL);
    tx.send_lent(pattern(1000).into(), None).unwrap();
    duo.pump();
    assert_eq!(completions(|| tx.pop_completion())[0].copied, Some(Reason::Tap));
    let (bytes, facts) = frame(&watcher).unwrap();
    assert_eq!((facts.packet_type, facts.protocol, facts.checksum_open), (PacketType::Outgoing, 0x800, true));
    assert_eq!(bytes[14 + 20 + 8..], pattern(1000));
    // One that wants a protocol sees what comes in only; what is sent is copied all the same.
    watcher.bind(0x800, Some(1)).unwrap();
    rx.send_to(b"back", tx.local_addr().unwrap()).unwrap();
    tx.send(b"out").unwrap();
    duo.pump();
    assert_eq!(
        frame(&watcher).map(|(b, f)| (b[42..].to_vec(), f.packet_type)),
        Some((b"back".to_vec(), PacketType::Host))
    );
    assert_eq!(frame(&watcher), None);
    watcher.close();
    tx.send_lent(pattern(1000).into(), None).unwrap();
    duo.pump();
    assert_eq!(completions(|| tx.pop_completion())[0].copied, None, "nobody watches any more");
    assert_eq!(all(&rx).len(), 4);
}

#[test]
fn a_dropped_packet_socket_watches_no_more() {
    let duo = ethernet(Features::all());
    drop(duo.a.packet_socket(PacketKind::Raw, ETH_P_ALL));
    assert!(duo.a.interfaces()[0].taps().is_empty());
}
