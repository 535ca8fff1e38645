//! UDP: Z5 and Z6 (one call, one number, one completion), Z7 (packets point at the caller's memory, fragments of
//! a datagram too), Z17 (ranges stay exact out of order), Z19 (what makes a copy), and the rules of the protocol.

mod common;

use common::borrowed::Area;
use common::duo::*;
use common::{arriving, pattern};
use stack::skb::{Csum, ErrorOrigin, MAX_SKB_FRAGS, Queued};
use stack::{Control, Family, Message, PathMtuDiscovery, Piece, Ready, Reuse};
use uncopied::{DropReason, Error, Features, Lent, Reason};

/// Payload lengths around every limit: of a packet, of several, of IP.
const LENGTHS: [usize; 10] = [0, 1, 7, 8, 1452, 1453, 1472, 1473, 40_000, 65_507];

#[test]
fn datagrams_of_every_length_arrive_whole_lent_and_copied_over_both_families() {
    for features in [Features::all(), Features::SG, Features::CSUM, Features::empty()] {
        let duo = Duo::with(1500, features, |_| {});
        for family in FAMILIES {
            let (tx, rx) = duo.connected(family);
            for len in LENGTHS {
                tx.send(&pattern(len)).unwrap();
                duo.pump();
                assert_eq!(next(&rx), Some(pattern(len)), "{family:?} {len} copied {features:?}");
                if len > 0 {
                    tx.send_lent(pattern(len).into(), None).unwrap();
                    duo.pump();
                    assert_eq!(next(&rx), Some(pattern(len)), "{family:?} {len} lent {features:?}");
                    assert_eq!(completions(&tx).len(), 1);
                }
            }
            rx.close();
        }
        assert_eq!(duo.a.lent_bytes(), 0);
    }
}

#[test]
fn a_lent_datagram_is_not_copied_in_one_piece_or_in_fragments_on_a_device_that_can() {
    for family in FAMILIES {
        for len in [100, 1400, 5000, 60_000] {
            let duo = Duo::new();
            let (tx, _rx) = duo.connected(family);
            let buffer = pattern(len);
            let (mut next, end) = (buffer.as_ptr().addr(), buffer.as_ptr().addr() + len);
            tx.send_lent(buffer.into(), None).unwrap();
            let packets = duo.sent();
            assert_eq!(packets.len() > 1, len > 1400, "in fragments where it must");
            for frag in packets.iter().flat_map(|p| p.frags()) {
                assert!(frag.is_lent());
                assert_eq!(frag.as_iovec().0.addr(), next, "in order, nothing left out");
                next += frag.len();
            }
            assert_eq!(next, end);
            assert!(completions(&tx).is_empty(), "the packets are still there");
            drop(packets);
            let done = completions(&tx);
            assert_eq!((done.len(), done[0].copied), (1, None));
        }
    }
}

#[test]
fn a_device_that_cannot_costs_a_copy_that_says_why() {
    let cases = [
        (Features::SG, 100, Reason::NoChecksum),
        (Features::SG, 5000, Reason::NoChecksum),
        (Features::CSUM, 100, Reason::NoScatterGather),
        (Features::CSUM, 5000, Reason::NoScatterGather),
    ];
    for (features, len, why) in cases {
        let duo = Duo::with(1500, features, |_| {});
        let (tx, _rx) = duo.connected(Family::V4);
        tx.send_lent(pattern(len).into(), None).unwrap();
        let packets = duo.sent();
        let done = completions(&tx);
        assert_eq!(done.len(), 1, "complete before the copied packets have left");
        assert_eq!(done[0].copied, Some(why), "{features:?} {len}");
        drop(packets);
    }
}

#[test]
fn completions_out_of_order_stay_exact() {
    let duo = Duo::new();
    let (tx, _rx) = duo.connected(Family::V4);
    for _ in 0..6 {
        tx.send_lent(pattern(100).into(), None).unwrap();
    }
    let mut packets: Vec<_> = duo.sent().into_iter().map(Some).collect();
    for n in [4, 0, 1, 2, 5, 3] {
        packets[n] = None;
    }
    let ranges: Vec<_> = completions(&tx).iter().map(|c| (c.first, c.last)).collect();
    assert_eq!(ranges, [(4, 4), (0, 2), (5, 5), (3, 3)]);
}

#[test]
fn pieces_of_all_kinds_make_one_datagram() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V6);
    let area = Area::new(&pattern(300));
    let io = area.io();
    let pieces = [
        Piece::Copy(b"copied"),
        Piece::Lent(Lent::from(pattern(200))),
        Piece::Borrowed { io: &io, lend: true },
        Piece::Lent(Lent::from(pattern(50))),
        Piece::Borrowed { io: &io, lend: false },
    ];
    let sent = tx.sendmsg(&Message { pieces: &pieces, ..Message::default() }).unwrap();
    drop(pieces);
    assert_eq!((sent.len, sent.ticket.map(|t| t.id)), (856, Some(0)), "one call, one number");
    let packets = duo.sent();
    let lent: Vec<_> = packets[0].frags().iter().map(|f| (f.is_lent(), f.len())).collect();
    assert_eq!(lent, [(false, 6), (true, 200), (true, 300), (true, 50), (false, 300)]);
    assert_eq!(duo.a.lent_bytes(), 550, "what is copied is not pinned");
    packets.iter().for_each(|p| duo.at_b.push_rx(arriving(p)));
    drop(packets);
    duo.pump();
    let expected = [&b"copied"[..], &pattern(200), &pattern(300), &pattern(50), &pattern(300)].concat();
    assert_eq!(next(&rx), Some(expected));
    assert_eq!((ids(&tx), duo.a.lent_bytes()), (vec![0], 0));
}

#[test]
fn without_the_option_borrowed_memory_is_copied_and_takes_no_number() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V4);
    tx.set_zerocopy(false);
    let area = Area::new(&pattern(300));
    let pieces = [Piece::Borrowed { io: &area.io(), lend: true }];
    let sent = tx.sendmsg(&Message { pieces: &pieces, ..Message::default() }).unwrap();
    area.set(0, 99);
    assert_eq!((sent.ticket, tx.outstanding()), (None, 0));
    duo.pump();
    assert_eq!(next(&rx), Some(pattern(300)));
}

#[test]
fn a_corked_datagram_completes_each_call_that_is_in_it_exactly_once() {
    for family in FAMILIES {
        let duo = Duo::new();
        let (tx, rx) = duo.connected(family);
        tx.set_cork(true);
        tx.send_lent(pattern(1000).into(), None).unwrap();
        tx.send(&pattern(10)).unwrap();
        tx.send_lent(pattern(900).into(), None).unwrap();
        duo.pump();
        assert_eq!((next(&rx), tx.outstanding()), (None, 2), "held back");
        tx.set_cork(false);
        let packets = duo.sent();
        assert!(packets.len() > 1 && packets.iter().any(|p| p.has_lent()), "fragments of lent memory");
        packets.iter().for_each(|p| duo.at_b.push_rx(arriving(p)));
        assert!(completions(&tx).is_empty());
        drop(packets);
        assert_eq!(ids(&tx), [0, 1]);
        duo.pump();
        assert_eq!(next(&rx), Some([pattern(1000), pattern(10), pattern(900)].concat()));
    }
}

#[test]
fn msg_more_puts_calls_together_until_one_comes_without_it() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V4);
    for (n, more) in [(1, true), (2, true), (3, false)] {
        let pieces = [Piece::Lent(Lent::from(vec![n; 50]))];
        let sent = tx.sendmsg(&Message { pieces: &pieces, more, ..Message::default() }).unwrap();
        assert_eq!(sent.ticket.map(|t| t.id), Some(u32::from(n) - 1));
    }
    duo.pump();
    assert_eq!(all(&rx), [[[1; 50], [2; 50], [3; 50]].concat()]);
    assert_eq!(ids(&tx), [0, 1, 2]);
}

#[test]
fn a_datagram_with_more_pieces_than_a_packet_has_places_is_sent_and_says_linearize() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V4);
    tx.set_cork(true);
    for n in 0..30u8 {
        tx.send_lent(vec![n; 20].into(), None).unwrap();
    }
    tx.set_cork(false);
    let packets = duo.sent();
    assert_eq!(packets[0].frags().len(), MAX_SKB_FRAGS);
    let done = completions(&tx);
    assert_eq!((done[0].first, done[0].last, done[0].copied), (16, 29, Some(Reason::Linearize)));
    packets.iter().for_each(|p| duo.at_b.push_rx(arriving(p)));
    drop(packets);
    duo.pump();
    assert_eq!(next(&rx), Some((0..30).flat_map(|n| [n; 20]).collect::<Vec<u8>>()));
    assert_eq!(completions(&tx)[0].ids().collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
}

#[test]
fn failed_and_empty_calls_take_no_number() {
    let duo = Duo::with(1500, Features::all(), |c| c.memlock = 1000);
    let (tx, rx) = duo.connected(Family::V4);
    assert_eq!(tx.send_lent(vec![0; 65_508].into(), None).unwrap_err().0, Error::MessageTooLong);
    let (e, back) = tx.send_lent(pattern(1001).into(), None).unwrap_err();
    assert_eq!((e, back.as_slice()), (Error::MemLock, &pattern(1001)[..]), "the buffer comes back");
    let alone = duo.a.udp_socket(Family::V4);
    assert_eq!(alone.send_lent(vec![1].into(), None).unwrap_err().0, Error::DestinationRequired);
    let empty = [Piece::Lent(Lent::from(Vec::new()))];
    let sent = tx.sendmsg(&Message { pieces: &empty, ..Message::default() }).unwrap();
    assert_eq!(sent.ticket, None);
    assert_eq!(tx.send_lent(vec![1; 10].into(), None).unwrap().id, 0);
    duo.pump();
    assert_eq!(all(&rx), [vec![], vec![1; 10]], "the empty datagram was sent");
}

#[test]
fn the_send_buffer_is_given_back_when_the_device_lets_go_and_not_before() {
    let duo = Duo::new();
    let (tx, _rx) = duo.connected(Family::V4);
    tx.set_sndbuf(10_000);
    let mut sent = 0;
    while tx.send(&[0; 1000]).is_ok() {
        sent += 1;
    }
    assert!((6..=10).contains(&sent), "{sent}");
    assert!(!tx.ready().contains(Ready::OUT));
    assert_eq!(tx.send(&[0; 1000]), Err(Error::WouldBlock));
    let packets = duo.sent();
    assert!(!tx.ready().contains(Ready::OUT));
    drop(packets);
    assert!(tx.ready().contains(Ready::OUT));
    assert_eq!(tx.queued().1, 0);
    // Fragments are charged until the last of them is gone.
    tx.send(&[0; 9000]).unwrap();
    let mut packets = duo.sent();
    let last = packets.pop();
    drop(packets);
    assert!(tx.queued().1 > 9000);
    drop(last);
    assert_eq!(tx.queued().1, 0);
}

#[test]
fn segmented_sends_become_datagrams_that_point_at_lent_memory() {
    for family in FAMILIES {
        let duo = Duo::new();
        let (tx, rx) = duo.connected(family);
        tx.configure(|o| o.segment = 1000);
        tx.send_lent(pattern(4500).into(), None).unwrap();
        let packets = duo.sent();
        assert_eq!(packets.len(), 5);
        assert!(packets.iter().all(|p| p.frags().iter().all(|f| f.is_lent())));
        packets.iter().for_each(|p| duo.at_b.push_rx(arriving(p)));
        drop(packets);
        assert_eq!((completions(&tx)[0].copied, tx.queued().1), (None, 0));
        duo.pump();
        let got = all(&rx);
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [1000, 1000, 1000, 1000, 500]);
        assert_eq!(got.concat(), pattern(4500));
        assert_eq!(tx.send(&[0; 65 * 1000]).unwrap_err(), Error::Invalid, "too many segments");
        tx.configure(|o| o.segment = 1490);
        assert_eq!(tx.send(&[0; 3000]).unwrap_err(), Error::Invalid, "a segment must fit the path");
    }
}

#[test]
fn a_reader_that_understands_gets_several_datagrams_as_one() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V4);
    rx.configure(|o| o.gro = true);
    for len in [700, 700, 300, 700, 800] {
        tx.send(&pattern(len)).unwrap();
    }
    duo.pump();
    let got: Vec<_> =
        std::iter::from_fn(|| rx.recv_datagram(false).ok()).map(|d| (d.len(), d.info.segment)).collect();
    assert_eq!(
        got,
        [(1700, Some(700)), (700, None), (800, None)],
        "a short one ends it, a longer one begins anew"
    );
}

#[test]
fn to_this_host_it_goes_by_the_loopback_and_is_copied_for_that() {
    let duo = Duo::new();
    for (family, to) in
        [(Family::V4, "127.0.0.1"), (Family::V4, A[0]), (Family::V6, "::1"), (Family::V6, A[1])]
    {
        let (tx, rx) = (duo.a.udp_socket(family), duo.a.udp_socket(family));
        let to = std::net::SocketAddr::new(ip(to), 0);
        let to = rx.bind(to).unwrap();
        tx.send_lent(pattern(40_000).into(), Some(to)).unwrap();
        let done = completions(&tx);
        assert_eq!(done[0].copied, Some(Reason::Loopback), "{to}: before anybody reads it");
        assert_eq!(tx.queued().1, 0, "and what a reader keeps is not charged to the sender");
        duo.pump();
        assert_eq!(next(&rx), Some(pattern(40_000)), "{to}");
        assert_eq!(duo.at_a.tx_len(), 0);
    }
}

#[test]
fn control_messages_choose_and_tell_hop_limit_service_and_addresses() {
    for family in FAMILIES {
        let duo = Duo::new();
        let (tx, rx) = duo.connected(family);
        let control = Control {
            hop_limit: Some(7),
            tos: Some(0x28),
            source: Some(at(A, family, 0).ip()),
            ..Control::default()
        };
        let pieces = [Piece::Copy(b"x")];
        tx.sendmsg(&Message { control, pieces: &pieces, ..Message::default() }).unwrap();
        duo.pump();
        let got = rx.recv_datagram(false).unwrap().info;
        assert_eq!((got.hop_limit, got.tos, got.interface), (7, 0x28, 1));
        assert_eq!(
            (got.from, got.to),
            (at(A, family, tx.local_addr().unwrap().port()), at(B, family, 0).ip())
        );
        let control = Control { source: Some(ip("192.0.2.77")), ..Control::default() };
        if family == Family::V4 {
            let failed = tx.sendmsg(&Message { control, pieces: &pieces, ..Message::default() });
            assert_eq!(failed.unwrap_err(), Error::AddressNotAvailable);
        }
    }
}

#[test]
fn a_dual_stack_socket_hears_both_families_and_a_v6only_one_does_not() {
    let duo = Duo::new();
    let dual = duo.b.udp_socket(Family::V6);
    dual.bind("[::]:9".parse().unwrap()).unwrap();
    let tx = duo.a.udp_socket(Family::V6);
    for family in FAMILIES {
        tx.send_to(b"hi", at(B, family, 9)).unwrap();
        duo.pump();
        assert_eq!(dual.recv_datagram(false).unwrap().info.from.is_ipv4(), family == Family::V4);
    }
    dual.close();
    let only = duo.b.udp_socket(Family::V6);
    only.set_reuse(Reuse { v6only: true, ..Reuse::default() });
    only.bind("[::]:9".parse().unwrap()).unwrap();
    tx.send_to(b"hi", at(B, Family::V4, 9)).unwrap();
    duo.pump();
    assert_eq!(only.recv_datagram(false).unwrap_err(), Error::WouldBlock);
    assert_eq!(duo.a.udp_socket(Family::V4).send_to(b"", at(B, Family::V6, 9)), Err(Error::WrongFamily));
}

#[test]
fn a_connected_socket_hears_only_its_peer_and_forgets_it_again() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V4);
    let stranger = duo.a.udp_socket(Family::V4);
    let port = tx.local_addr().unwrap();
    assert_eq!(port.ip(), at(A, Family::V4, 0).ip(), "connecting finds the source");
    rx.connect(port).unwrap();
    stranger.send_to(b"no", at(B, Family::V4, 9)).unwrap();
    tx.send(b"yes").unwrap();
    duo.pump();
    assert_eq!(all(&rx), [b"yes"]);
    assert_eq!(duo.b.stats().drops, [(DropReason::NoSocket, 1)]);
    rx.disconnect();
    assert_eq!((rx.peer_addr(), rx.local_addr()), (None, Some(at(B, Family::V4, 9))));
    stranger.send_to(b"now", at(B, Family::V4, 9)).unwrap();
    duo.pump();
    assert_eq!(all(&rx), [b"now"]);
}

#[test]
fn a_shared_port_spreads_flows_and_keeps_each_where_it_is() {
    let duo = Duo::new();
    let sharing = Reuse { port: true, ..Reuse::default() };
    let bind = |n: u16| {
        let s = duo.b.udp_socket(Family::V4);
        s.set_reuse(sharing);
        s.bind(at(B, Family::V4, n)).unwrap();
        s
    };
    let readers: Vec<_> = (0..4).map(|_| bind(9)).collect();
    for _ in 0..40 {
        let tx = duo.a.udp_socket(Family::V4);
        for _ in 0..3 {
            tx.send_to(b"x", at(B, Family::V4, 9)).unwrap();
        }
    }
    duo.pump();
    let counts: Vec<_> = readers.iter().map(|r| all(r).len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 120);
    assert!(counts.iter().all(|n| *n > 0 && n % 3 == 0), "{counts:?}");
    let alone = duo.b.udp_socket(Family::V4);
    assert!(matches!(alone.bind(at(B, Family::V4, 9)), Err(Error::AddressInUse(_))));
}

#[test]
fn an_icmp_error_fails_the_next_call_of_a_connected_socket_and_can_be_read_in_full() {
    for family in FAMILIES {
        let duo = Duo::new();
        let tx = duo.a.udp_socket(family);
        tx.connect(at(B, family, 99)).unwrap();
        tx.send(b"anybody there?").unwrap();
        duo.pump();
        assert!(tx.ready().contains(Ready::ERR));
        assert_eq!(tx.send(b"x"), Err(Error::Refused));
        assert!(tx.send(b"x").is_ok(), "reported once");
        assert!(tx.pop_error_queue().is_none(), "nobody asked for details");
        // An unconnected socket hears of it only if it asks.
        let tx = duo.a.udp_socket(family);
        tx.send_to(b"hello", at(B, family, 99)).unwrap();
        duo.pump();
        assert_eq!(tx.take_error(), None);
        tx.configure(|o| o.receive_errors = true);
        tx.send_to(b"hello", at(B, family, 99)).unwrap();
        duo.pump();
        assert_eq!(tx.take_error(), Some(Error::Refused));
        let Some(Queued::Error(e)) = tx.pop_error_queue() else { panic!("an entry") };
        let (origin, kind) = match family {
            Family::V4 => (ErrorOrigin::Icmp, (3, 3)),
            Family::V6 => (ErrorOrigin::Icmp6, (1, 4)),
        };
        assert_eq!((e.errno, e.origin, (e.kind, e.code)), (111, origin, kind));
        assert_eq!((e.offender, e.destination), (Some(at(B, family, 0).ip()), at(B, family, 99)));
        assert_eq!(e.payload, b"hello");
    }
}

#[test]
fn what_must_not_be_fragmented_and_does_not_fit_is_an_error_with_the_mtu() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V4);
    tx.configure(|o| (o.path_mtu_discovery, o.receive_errors) = (PathMtuDiscovery::Do, true));
    assert_eq!(tx.send_lent(vec![0; 1473].into(), None).unwrap_err().0, Error::MessageTooLong);
    let Some(Queued::Error(e)) = tx.pop_error_queue() else { panic!("an entry") };
    assert_eq!((e.errno, e.origin, e.info), (90, ErrorOrigin::Local, 1500));
    assert_eq!(tx.send_lent(vec![0; 1472].into(), None).unwrap().id, 0, "no number was lost");
    duo.pump();
    assert_eq!(next(&rx).map(|d| d.len()), Some(1472));
}

#[test]
fn a_smaller_path_is_learned_and_datagrams_are_fragmented_for_it() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V4);
    tx.send(&pattern(1400)).unwrap();
    let first = duo.sent().remove(0);
    // A router says: 1000 bytes at most.
    let quote = first.to_vec();
    let mut icmp = vec![3, 4, 0, 0, 0, 0, 1000u16.to_be_bytes()[0], 1000u16.to_be_bytes()[1]];
    icmp.extend(&quote[..60]);
    duo.at_a.push_rx(common::ipv4(1, [10, 0, 0, 9], [10, 0, 0, 1], &icmp));
    duo.pump();
    tx.take_error();
    tx.send(&pattern(1400)).unwrap();
    let packets = duo.sent();
    assert_eq!(packets.len(), 2);
    assert!(packets.iter().all(|p| p.len() <= 1000));
    packets.iter().for_each(|p| duo.at_b.push_rx(arriving(p)));
    duo.pump();
    assert_eq!(next(&rx), Some(pattern(1400)));
}

#[test]
fn a_full_receive_buffer_drops_and_counts() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V4);
    rx.set_rcvbuf(20_000);
    for _ in 0..100 {
        tx.send(&[0; 1000]).unwrap();
        duo.pump();
    }
    let got = all(&rx).len() as u64;
    assert!((5..50).contains(&got), "{got}");
    assert_eq!(rx.rx_dropped(), 100 - got);
    assert_eq!(duo.b.stats().drops, [(DropReason::ReceiveBufferFull, 100 - got)]);
}

#[test]
fn checksums_may_be_absent_over_ipv4_only_and_wrong_ones_are_dropped() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V4);
    tx.configure(|o| o.no_checksum = true);
    tx.send(b"unsummed").unwrap();
    let packet = duo.sent().remove(0);
    assert_eq!((packet.csum, &packet.to_vec()[26..28]), (Csum::None, &[0, 0][..]));
    duo.at_b.push_rx(arriving(&packet));
    let mut wrong = packet.to_vec();
    wrong[26] = 1;
    duo.at_b.push_rx(stack::skb::SkBuff::from_slice(&wrong));
    duo.pump();
    assert_eq!(all(&rx), [b"unsummed"]);
    assert_eq!(duo.b.stats().drops, [(DropReason::BadChecksum, 1)]);
}

#[test]
fn a_broadcast_needs_permission_and_reaches_everybody() {
    let duo = Duo::new();
    let tx = duo.a.udp_socket(Family::V4);
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let s = duo.b.udp_socket(Family::V4);
            s.set_reuse(Reuse { addr: true, ..Reuse::default() });
            s.bind("0.0.0.0:9".parse().unwrap()).unwrap();
            s
        })
        .collect();
    for to in ["255.255.255.255:9", "10.0.0.255:9"] {
        tx.configure(|o| o.broadcast = false);
        assert_eq!(tx.send_to(b"all", to.parse().unwrap()), Err(Error::AccessDenied));
        tx.configure(|o| o.broadcast = true);
        tx.send_to(b"all", to.parse().unwrap()).unwrap();
        duo.pump();
        assert!(readers.iter().all(|r| all(r) == [b"all"]), "{to}");
    }
}

#[test]
fn a_group_is_heard_while_it_is_joined_and_joining_is_reported() {
    for (family, group) in [(Family::V4, "239.1.2.3"), (Family::V6, "ff05::77")] {
        let duo = Duo::new();
        let (tx, rx) = (duo.a.udp_socket(family), duo.b.udp_socket(family));
        let group = ip(group);
        let to = std::net::SocketAddr::new(group, 9);
        rx.bind(to).unwrap();
        tx.send_lent(pattern(50).into(), Some(to)).unwrap();
        duo.pump();
        assert!(all(&rx).is_empty(), "not joined");
        rx.join_group(group, None).unwrap();
        assert!(matches!(rx.join_group(group, None), Err(Error::AddressInUse(_))));
        assert_eq!(duo.at_b.tx_len(), 1, "a report");
        let report = duo.at_b.pop_tx().unwrap().to_vec();
        match family {
            Family::V4 => {
                assert_eq!(
                    (report[0], report[8], report[9], &report[16..20]),
                    (0x46, 1, 2, &[224, 0, 0, 22][..])
                );
                assert_eq!((report[24], &report[32..40]), (0x22, &[4, 0, 0, 0, 239, 1, 2, 3][..]));
            }
            Family::V6 => assert_eq!((report[6], report[7], report[48]), (0, 1, 143)),
        }
        tx.send_lent(pattern(50).into(), Some(to)).unwrap();
        duo.pump();
        let got = rx.recv_datagram(false).unwrap();
        assert_eq!((got.payload.to_vec(), got.info.to, got.info.hop_limit), (pattern(50), group, 1));
        rx.leave_group(group, None).unwrap();
        tx.send_lent(pattern(50).into(), Some(to)).unwrap();
        duo.pump();
        assert!(all(&rx).is_empty());
        assert!(completions(&tx).iter().all(|c| c.copied.is_none()), "nobody here listens");
    }
}

#[test]
fn what_is_sent_to_a_group_is_heard_here_too_unless_switched_off() {
    let duo = Duo::new();
    let (tx, rx) = (duo.a.udp_socket(Family::V4), duo.a.udp_socket(Family::V4));
    let to = "239.1.2.3:9".parse().unwrap();
    rx.bind(to).unwrap();
    rx.join_group(to.ip(), Some(1)).unwrap();
    tx.send_lent(pattern(500).into(), Some(to)).unwrap();
    duo.pump();
    assert_eq!(all(&rx), [pattern(500)]);
    assert_eq!(completions(&tx)[0].copied, Some(Reason::Loopback));
    tx.configure(|o| o.multicast_loop = false);
    tx.send_lent(pattern(500).into(), Some(to)).unwrap();
    duo.pump();
    assert!(all(&rx).is_empty());
    assert_eq!(completions(&tx)[0].copied, None);
}

#[test]
fn closing_gives_everything_back() {
    let duo = Duo::new();
    let (tx, rx) = duo.connected(Family::V4);
    tx.set_cork(true);
    tx.send_lent(pattern(500).into(), None).unwrap();
    tx.close();
    assert_eq!(duo.a.lent_bytes(), 0, "what was held back is dropped");
    assert_eq!(tx.send(b"x"), Err(Error::Invalid));
    rx.close();
    let again = duo.b.udp_socket(Family::V4);
    assert!(again.bind(at(B, Family::V4, 9)).is_ok(), "the port is free");
}
