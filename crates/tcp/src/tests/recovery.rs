//! Loss recovery, as Linux's public scripts have it.

use super::drill::{Drill, ms};
use super::*;

fn sack() -> Drill {
    Drill::new(|_| {})
}

/// Ten segments are out for a round trip.
fn ten(mut d: Drill) -> Drill {
    d.write(10_000);
    assert_eq!(d.count(), 10);
    d.wait(ms(100));
    d
}

fn again(d: &mut Drill) -> Vec<u32> {
    d.sent().iter().map(|s| s.0 / 1000).collect()
}

#[test]
fn slow_start_grows_by_what_is_acknowledged() {
    let mut d = ten(sack());
    for n in 1..=10 {
        d.ack(n * 1000, &[]);
        assert_eq!(d.cwnd(), 10 + n);
    }
    let info = d.info();
    assert_eq!((info.delivered, info.unacked, info.data_segs_out), (11, 0, 10));
    assert_eq!((info.bytes_acked, info.bytes_sent, info.rtt), (10_000, 10_000, ms(100)));
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut d = sack();
    for n in 1..20 {
        d.write(1000);
        assert_eq!(d.count(), 1);
        d.wait(ms(100));
        d.ack(n * 1000, &[]);
    }
    assert_eq!(d.cwnd(), 10);
}

#[test]
fn the_third_packet_behind_a_hole_tells_of_its_loss() {
    let mut d = ten(sack());
    d.ack(0, &[(1000, 2000)]);
    assert_eq!((d.count(), d.info().ca_state), (0, CaState::Disorder));
    d.ack(0, &[(1000, 3000)]);
    assert_eq!(d.count(), 0);
    d.ack(0, &[(1000, 4000)]);
    assert_eq!(again(&mut d), [0]);
    let i = d.info();
    assert_eq!((i.ca_state, i.snd_cwnd, i.snd_ssthresh), (CaState::Recovery, 7, 7));
    assert_eq!((i.unacked, i.sacked, i.lost, i.retrans), (10, 3, 1, 1));
    // The rate is reduced in proportion: nothing is left to send.
    d.ack(10_000, &[]);
    assert_eq!((d.cwnd(), d.info().ca_state, d.info().total_retrans), (7, CaState::Open, 1));
}

#[test]
fn recovery_sends_at_the_reduced_rate() {
    let mut d = sack();
    d.write(30_000);
    assert_eq!(d.count(), 10);
    d.wait(ms(100));
    // Limited transmit: a new packet for each that arrived.
    d.ack(0, &[(1000, 2000)]);
    d.ack(0, &[(1000, 3000)]);
    assert_eq!(d.count(), 2);
    d.ack(0, &[(1000, 4000)]);
    assert_eq!(again(&mut d), [0]);
    let mut sent = 1;
    for n in 5..=10 {
        d.ack(0, &[(1000, n * 1000)]);
        let now = d.count();
        assert!(now <= 1);
        sent += now;
        assert!(d.t.in_flight_estimate() <= 10_000);
    }
    // Seven for the ten that were out (CUBIC), the two of limited transmit among them.
    assert!((4..=7).contains(&sent), "{sent}");
    d.wait(ms(100));
    d.ack(12_000, &[]);
    d.count();
    assert_eq!((d.cwnd(), d.info().ca_state), (7, CaState::Open));
}

#[test]
fn duplicates_without_sack_release_one_segment_each() {
    let mut d = Drill::new(|c| c.sack = false);
    d.write(30_000);
    assert_eq!(d.count(), 10);
    d.wait(ms(100));
    for _ in 0..2 {
        d.ack(0, &[]);
        assert_eq!(d.count(), 1, "limited transmit (RFC 3042)");
    }
    d.ack(0, &[]);
    assert_eq!(again(&mut d), [0]);
    assert_eq!(d.info().ca_state, CaState::Recovery);
    // A partial acknowledgment: the next hole (RFC 6582).
    d.ack(5000, &[]);
    assert!(again(&mut d).contains(&5));
    d.ack(12_000, &[]);
    assert_eq!(d.cwnd(), 7);
}

#[test]
fn a_lost_tail_is_probed_and_repaired_without_a_timeout() {
    let mut d = sack();
    d.write(4000);
    assert_eq!(d.count(), 4);
    let begin = d.now;
    d.wait(ms(250));
    assert_eq!(again(&mut d), [3], "the last segment again");
    assert_eq!((d.now - begin).as_millis(), 202, "two round trips");
    d.wait(ms(100));
    d.ack(1000, &[(3000, 4000)]);
    assert_eq!(again(&mut d), [1, 2]);
    d.wait(ms(100));
    d.ack(4000, &[]);
    assert_eq!((d.info().total_rto, d.info().ca_state), (0, CaState::Open));
}

#[test]
fn a_probe_prefers_new_data() {
    let mut d = sack();
    d.write(10_000);
    assert_eq!(d.count(), 10);
    d.write(5000);
    assert_eq!(d.count(), 0, "the window is full");
    d.wait(ms(250));
    assert_eq!(again(&mut d), [10]);
    assert_eq!(d.info().total_retrans, 0);
}

#[test]
fn a_probe_that_repaired_a_loss_reduces_the_window_and_one_that_did_not_does_not() {
    for lost in [true, false] {
        let mut d = sack();
        d.write(10_000);
        assert_eq!(d.count(), 10);
        d.wait(ms(250));
        assert_eq!(again(&mut d), [9]);
        d.wait(ms(50));
        if lost {
            d.ack(9000, &[]);
        } else {
            d.ack(10_000, &[]);
            d.ack(10_000, &[(9000, 10_000)]);
            assert_eq!(d.info().dsack_dups, 1);
        }
        d.wait(ms(50));
        d.ack(10_000, &[]);
        let before = d.cwnd();
        d.write(1000);
        assert_eq!(d.count(), 1);
        d.wait(ms(100));
        d.ack(11_000, &[]);
        assert_eq!(d.cwnd() < before, lost, "{before} {}", d.cwnd());
    }
}

#[test]
fn a_retransmission_that_is_lost_is_sent_again_without_a_timeout() {
    let mut d = sack();
    d.write(30_000);
    assert_eq!(d.count(), 10);
    d.wait(ms(100));
    d.ack(0, &[(1000, 10_000)]);
    let first = again(&mut d);
    assert_eq!(first[0], 0);
    assert!(first.len() > 1, "new data follows");
    d.wait(ms(100));
    // What was sent after it has arrived.
    d.ack(0, &[(1000, 11_000)]);
    d.ack(0, &[(1000, 12_000)]);
    d.wait(ms(30));
    assert!(again(&mut d).contains(&0));
    assert_eq!(d.info().total_rto, 0);
}

#[test]
fn too_few_packets_behind_a_hole_are_waited_for_a_quarter_of_a_round_trip() {
    let mut d = sack();
    d.write(3000);
    assert_eq!(d.count(), 3);
    d.wait(ms(100));
    d.ack(0, &[(1000, 3000)]);
    assert_eq!(d.count(), 0);
    let begin = d.now;
    d.wait(ms(100));
    assert_eq!(again(&mut d), [0]);
    assert_eq!((d.now - begin).as_millis(), 27);
}

#[test]
fn reordering_widens_the_patience() {
    let mut d = ten(sack());
    d.ack(0, &[(1000, 3000)]);
    d.ack(3000, &[]);
    assert_eq!((d.info().reord_seen, d.info().ca_state), (1, CaState::Open));
    // Three packets behind a hole are no proof any more.
    d.ack(3000, &[(4000, 7000)]);
    assert_eq!(d.count(), 0);
    d.ack(10_000, &[]);
    assert_eq!((d.info().total_retrans, d.cwnd()), (0, 15));
}

#[test]
fn a_spurious_recovery_is_undone_by_the_report_of_a_duplicate() {
    let mut d = ten(sack());
    d.ack(0, &[(1000, 4000)]);
    assert_eq!(again(&mut d), [0]);
    assert_eq!(d.cwnd(), 7);
    d.ack(4000, &[]);
    d.wait(ms(100));
    d.ack(10_000, &[(0, 1000)]);
    assert_eq!((d.info().ca_state, d.info().dsack_dups), (CaState::Open, 1));
    assert!(d.cwnd() >= 10, "{}", d.cwnd());
    assert_eq!(d.info().snd_ssthresh, u32::MAX);
}

#[test]
fn a_spurious_timeout_is_found_by_new_data_and_undone() {
    let mut d = sack();
    d.write(10_000);
    assert_eq!(d.count(), 10);
    d.write(10_000);
    d.wait(ms(250));
    assert_eq!(again(&mut d), [10], "a probe");
    d.wait(ms(400));
    assert_eq!(again(&mut d), [0], "a timeout");
    let i = d.info();
    assert_eq!((i.ca_state, i.snd_cwnd, i.total_rto), (CaState::Loss, 1, 1));
    // The acknowledgments were only late.
    d.ack(1000, &[]);
    assert!(again(&mut d).iter().all(|n| *n > 10), "new data, to learn more");
    d.ack(2000, &[]);
    let i = d.info();
    assert_eq!((i.ca_state, i.lost, i.total_rto_recoveries), (CaState::Open, 0, 1));
    assert!(i.snd_cwnd >= 10 && i.snd_ssthresh == u32::MAX);
    assert!(again(&mut d).iter().all(|n| *n > 10), "nothing more is sent again");
}

#[test]
fn a_true_timeout_goes_back_to_what_was_lost() {
    let mut d = sack();
    d.write(10_000);
    assert_eq!(d.count(), 10);
    d.wait(ms(250));
    assert_eq!(again(&mut d), [9]);
    d.wait(ms(500));
    assert_eq!(again(&mut d), [0]);
    d.wait(ms(100));
    d.ack(1000, &[]);
    assert_eq!(again(&mut d), [1, 2]);
    d.wait(ms(100));
    d.ack(3000, &[]);
    assert_eq!(again(&mut d), [3, 4, 5, 6]);
    assert_eq!((d.info().ca_state, d.info().snd_ssthresh), (CaState::Loss, 7));
    d.ack(10_000, &[]);
    assert_eq!(d.info().ca_state, CaState::Open);
}

#[test]
fn a_spurious_timeout_is_undone_by_timestamps() {
    let mut d = Drill::new(|c| (c.mss, c.timestamps) = (1012, true));
    d.write(10_000);
    assert_eq!(d.count(), 10);
    d.echo = Some(d.stamp);
    d.wait(ms(250));
    assert_eq!(again(&mut d), [9]);
    d.wait(ms(500));
    assert_eq!(again(&mut d), [0]);
    assert_eq!(d.info().ca_state, CaState::Loss);
    // The echo is older than any retransmission.
    d.ack(10_000, &[]);
    assert_eq!((d.info().ca_state, d.info().snd_ssthresh), (CaState::Open, u32::MAX));
    assert!(d.cwnd() >= 10);
}

#[test]
fn silence_halves_the_window_for_every_timeout() {
    let mut d = ten(sack());
    d.ack(10_000, &[]);
    d.write(20_000);
    assert_eq!(d.count(), 20);
    d.wait(ms(100));
    d.ack(30_000, &[]);
    assert_eq!(d.cwnd(), 40);
    d.wait(d.info().rto * 3 / 2);
    d.write(40_000);
    assert_eq!((d.count(), d.cwnd(), d.info().snd_ssthresh), (20, 20, u32::MAX));
}

#[test]
fn selective_acknowledgments_taken_back_are_believed_to_be() {
    let mut d = ten(sack());
    d.ack(0, &[(1000, 10_000)]);
    assert_eq!(again(&mut d), [0]);
    d.ack(1000, &[]);
    d.wait(ms(300));
    assert_eq!(again(&mut d)[0], 1);
    assert_eq!(d.info().sacked, 0);
}

#[test]
fn time_is_spent_on_what_limits() {
    let mut d = sack();
    d.write(5000);
    assert_eq!(d.count(), 5);
    d.wait(ms(100));
    d.ack(5000, &[]);
    d.wait(ms(1000));
    let i = d.info();
    assert_eq!((i.busy_time, i.rwnd_limited, i.sndbuf_limited), (ms(100), ms(0), ms(0)));
    assert_eq!((i.delivery_rate, i.delivery_rate_app_limited), (50_000, true));
    let linux = i.to_linux();
    assert_eq!((linux[0], linux[80], linux[84]), (1, i.snd_cwnd as u8, 1000u32.to_ne_bytes()[0]));
    assert_eq!(linux[168..176], 100_000u64.to_ne_bytes());
}

#[test]
fn what_comes_twice_is_reported_once() {
    let mut w = World::connected();
    write(&mut w.ends[0], 3000);
    w.transmit();
    let copy = |s: &SegmentIn| SegmentIn {
        header: s.header.clone(),
        payload: s.payload.private_copy(),
        gso_size: 0,
        ce: false,
    };
    let copies: Vec<_> = w.wire.iter().map(|(_, _, s)| copy(s)).collect();
    w.run_for(ms(20));
    for (n, seg) in copies.into_iter().enumerate() {
        let (start, end) = (seg.header.seq, seg.header.seq + seg.payload.len() as u32);
        let _ = w.ends[1].segment_arrives(w.now, seg, &mut w.released);
        let ack = parse(w.ends[1].next_segment(w.now).unwrap());
        assert_eq!(ack.header.options.sack[..], [(start, end)], "{n}");
    }
    write(&mut w.ends[1], 10);
    assert!(parse(w.ends[1].next_segment(w.now).unwrap()).header.options.sack.is_empty());
}

#[test]
fn segments_with_data_carry_selective_acknowledgments_too() {
    let mut w = World::connected();
    write(&mut w.ends[0], 4000);
    w.transmit();
    w.wire.remove(0);
    write(&mut w.ends[1], 5000);
    w.now += ms(5);
    for (_, to, seg) in std::mem::take(&mut w.wire) {
        let _ = w.ends[to].segment_arrives(w.now, seg, &mut w.released);
    }
    let first = w.ends[1].next_segment(w.now).unwrap();
    let gso = first.gso.unwrap();
    assert_eq!(gso.size, 1448 - 12);
    let seg = parse(first);
    assert_eq!(seg.header.options.sack.len(), 1);
    w.run_for(ms(100));
    assert_eq!((w.read(1).len(), w.read(0).len()), (4000, 5000));
}

#[test]
fn a_mark_is_echoed_until_the_window_was_reduced_once() {
    let c = Config { ecn: Ecn::On, ..config() };
    let mut w = World::new(c, config(), 1, (0, 0, 0));
    w.run_for(ms(50));
    assert!(w.ends.iter().all(|e| e.info(w.now).options.contains(TcpiOptions::ECN)));
    write(&mut w.ends[0], 14_480);
    let first = w.ends[0].next_segment(w.now).unwrap();
    assert!(w.ends[0].is_ect());
    let mut parts = segment(parse(first), 1448);
    parts[3].ce = true;
    for seg in parts {
        w.send(0, seg);
    }
    w.log.clear();
    w.run_for(ms(10));
    assert!(w.log.iter().all(|l| l.1.flags.contains(TcpFlags::ECE)));
    let i = w.ends[0].info(w.now);
    assert_eq!((i.ca_state, i.snd_ssthresh, i.lost), (CaState::Cwr, 7, 0));
    w.log.clear();
    write(&mut w.ends[0], 30_000);
    w.run_for(ms(100));
    let data: Vec<_> = w.log.iter().filter(|l| l.0 == 0).map(|l| l.1.flags.contains(TcpFlags::CWR)).collect();
    assert!(data[0], "the first says that the window was reduced");
    assert!(data.iter().skip(7).all(|cwr| !cwr), "and no later one");
    assert!(!w.log.last().unwrap().1.flags.contains(TcpFlags::ECE));
    assert_eq!(w.ends[0].info(w.now).ca_state, CaState::Open);
    assert_eq!(w.read(1).len(), 44_480);
}

#[test]
fn marks_are_not_agreed_on_with_a_peer_that_does_not_ask_or_answer() {
    for (client, server) in [(Ecn::Passive, Ecn::On), (Ecn::On, Ecn::Off)] {
        let (c, s) = (Config { ecn: client, ..config() }, Config { ecn: server, ..config() });
        let mut w = World::new(c, s, 1, (0, 0, 0));
        w.run_for(ms(50));
        assert!(w.ends.iter().all(|e| !e.info(w.now).options.contains(TcpiOptions::ECN)));
    }
}

#[test]
fn one_acknowledgment_of_both_sides_of_a_hole_is_no_reordering() {
    let mut d = ten(sack());
    d.ack(2000, &[(3000, 10_000)]);
    assert_eq!((d.info().reord_seen, d.info().reordering), (0, 3));
    assert_eq!(again(&mut d), [2], "three packets behind the hole are enough");
}
