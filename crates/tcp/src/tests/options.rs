//! Socket options do what they say.

use super::*;

fn set(w: &mut World, end: usize, change: impl FnOnce(&mut Config)) {
    let now = w.now;
    w.ends[end].configure(now, change);
}

fn next(w: &mut World, end: usize) -> Option<SegmentIn> {
    w.ends[end].next_segment(w.now).map(parse)
}

fn sizes(w: &mut World, end: usize) -> Vec<usize> {
    std::iter::from_fn(|| next(w, end)).map(|s| s.payload.len()).collect()
}

#[test]
fn a_cork_holds_for_a_retransmission_timeout_at_most() {
    let mut w = World::connected();
    set(&mut w, 0, |c| c.cork = true);
    write(&mut w.ends[0], 2000);
    w.run_for(Duration::from_millis(100));
    assert_eq!(w.read(1).len(), 1448);
    w.run_for(Duration::from_millis(200));
    assert_eq!(w.read(1).len(), 552);
}

#[test]
fn nodelay_pushes_what_nagle_and_a_cork_hold() {
    for cork in [false, true] {
        let mut w = World::connected();
        set(&mut w, 0, |c| c.cork = cork);
        write(&mut w.ends[0], 10);
        assert_eq!(sizes(&mut w, 0), if cork { vec![] } else { vec![10] });
        write(&mut w.ends[0], 10);
        assert!(next(&mut w, 0).is_none());
        set(&mut w, 0, |c| c.nodelay = true);
        assert_eq!(sizes(&mut w, 0), [if cork { 20 } else { 10 }]);
    }
}

#[test]
fn more_holds_until_the_next_acknowledgment_or_call() {
    let mut w = World::connected();
    w.ends[0].append(Frag::copied_from(&[1; 100]));
    w.ends[0].push_more();
    assert!(next(&mut w, 0).is_none());
    write(&mut w.ends[0], 50);
    assert_eq!(sizes(&mut w, 0), [150]);
}

#[test]
fn records_do_not_share_packets_even_when_sent_again() {
    let mut w = World::connected();
    for n in [100, 3000, 200] {
        w.ends[0].append(Frag::copied_from(&vec![1; n]));
        w.ends[0].end_record();
        w.ends[0].push();
    }
    write(&mut w.ends[0], 50);
    assert_eq!(sizes(&mut w, 0), [100, 3000, 200], "the tail waits for Nagle");
    w.now += Duration::from_secs(3);
    let _ = w.ends[0].on_timeout(w.now, &mut w.released);
    assert_eq!(next(&mut w, 0).unwrap().payload.len(), 100);
}

#[test]
fn a_wish_for_small_segments_is_announced_and_kept() {
    let c = Config { user_mss: 600, ..config() };
    let mut w = World::new(c, config(), 1, (0, 0, 0));
    w.run_for(Duration::from_millis(50));
    assert_eq!((w.ends[0].mss(), w.ends[1].mss()), (588, 588));
    let c = Config { user_mss: 600, ..config() };
    let mut w = World::new(config(), c, 1, (0, 0, 0));
    w.run_for(Duration::from_millis(50));
    assert_eq!((w.ends[0].mss(), w.ends[1].mss()), (588, 588));
}

#[test]
fn a_deferred_connection_is_made_by_data() {
    let c = Config { defer_accept: 2, ..config() };
    let mut w = World::new(config(), c.clone(), 1, (0, 0, 0));
    w.run_for(Duration::from_millis(500));
    assert_eq!(w.states(), [State::Established, State::SynReceived]);
    write(&mut w.ends[0], 10);
    w.run_for(Duration::from_millis(50));
    assert_eq!((w.ends[1].state(), w.ends[1].readable()), (State::Established, 10));
    assert!(w.ends[1].info(w.now).rtt < Duration::from_millis(11), "the wait is no round trip");

    // Without data, by the answer to a SYN-ACK that was sent again.
    let mut w = World::new(config(), c, 1, (0, 0, 0));
    w.run_for(Duration::from_millis(2900));
    assert_eq!(w.ends[1].state(), State::SynReceived);
    w.run_for(Duration::from_millis(200));
    assert_eq!(w.ends[1].state(), State::Established);
}

#[test]
fn the_calling_side_can_wait_for_data_too() {
    let c = Config { defer_accept: 2, ..config() };
    let mut w = World::new(c, config(), 1, (0, 0, 0));
    w.run_for(Duration::from_millis(50));
    assert_eq!(w.states(), [State::Established, State::SynReceived]);
    w.run_for(Duration::from_millis(200));
    assert_eq!(w.states(), [State::Established; 2]);
}

#[test]
fn the_window_is_clamped() {
    let c = Config { window_clamp: 5000, ..config() };
    let mut w = World::new(config(), c, 1, (0, 0, 0));
    w.run_for(Duration::from_millis(50));
    write(&mut w.ends[0], 100_000);
    let mut got = 0;
    for _ in 0..100 {
        w.run_for(Duration::from_millis(50));
        let n = w.read(1).len();
        assert!(w.ends[1].info(w.now).rcv_wnd <= 5000 || got == 0);
        got += n;
    }
    assert_eq!(got, 100_000);
}

#[test]
fn a_low_water_mark_of_unsent_bytes_limits_what_is_taken() {
    let mut w = World::connected();
    set(&mut w, 0, |c| c.notsent_lowat = 3000);
    let largest = w.ends[0].largest() as usize;
    assert_eq!(w.ends[0].send_room(), largest);
    write(&mut w.ends[0], 20_000);
    while next(&mut w, 0).is_some() {}
    assert_eq!((w.ends[0].unsent(), w.ends[0].send_room()), (20_000 - 14_480, 0));
    assert!(!w.ends[0].is_writable());
    w.ends[0].look_again();
    w.ends[0].cc.set(20_272, u32::MAX);
    while next(&mut w, 0).is_some() {}
    assert_eq!((w.ends[0].unsent(), w.ends[0].is_writable()), (0, true));
}

#[test]
fn a_low_water_mark_of_received_bytes_delays_readiness() {
    let mut w = World::connected();
    set(&mut w, 1, |c| c.rcvlowat = 1000);
    write(&mut w.ends[0], 999);
    w.run_for(Duration::from_millis(50));
    assert!(!w.ends[1].is_readable());
    write(&mut w.ends[0], 1);
    w.run_for(Duration::from_millis(50));
    assert!(w.ends[1].is_readable());
    // More than fits: readable when nothing more can come.
    let (small, most) = (20_000, 1 << 20);
    set(&mut w, 1, |c| (c.rcvbuf, c.rcvbuf_max, c.rcvlowat) = (small, small, most));
    write(&mut w.ends[0], 300_000);
    w.run_for(Duration::from_secs(5));
    assert!(w.ends[1].is_readable());
}

#[test]
fn lingering_for_no_time_resets() {
    let mut w = World::connected();
    set(&mut w, 0, |c| c.linger = Some(Duration::ZERO));
    write(&mut w.ends[0], 5000);
    let now = w.now;
    w.ends[0].close(now, &mut w.released);
    w.run_for(Duration::from_millis(50));
    assert_eq!(w.ends[1].take_error(), Some(TcpError::Reset));
}

#[test]
fn no_time_in_fin_wait_2_is_a_reset() {
    let mut w = World::connected();
    set(&mut w, 0, |c| c.fin_timeout = Duration::ZERO);
    let now = w.now;
    w.ends[0].close(now, &mut w.released);
    w.run_for(Duration::from_millis(50));
    assert_eq!(w.states(), [State::Closed; 2]);
    assert_eq!(w.ends[1].take_error(), Some(TcpError::Reset));
}

#[test]
fn quick_acknowledgments_can_be_switched() {
    let mut w = World::connected();
    w.ends[1].set_quickack(false);
    assert!(!w.ends[1].quickack());
    write(&mut w.ends[0], 10);
    w.run_for(Duration::from_millis(20));
    assert_eq!(w.ends[0].queued(), 10, "held back");
    w.ends[1].set_quickack(true);
    w.run_for(Duration::from_millis(10));
    assert_eq!(w.ends[0].queued(), 0);
}

#[test]
fn the_algorithm_changes_and_the_window_stays() {
    let mut w = World::connected();
    w.ends[0].cc.set(50_000, 40_000);
    set(&mut w, 0, |c| c.congestion = CongestionKind::NewReno);
    assert_eq!((w.ends[0].cc.cwnd(), w.ends[0].cc.ssthresh()), (50_000, 40_000));
    assert!(format!("{:?}", w.ends[0].cc).contains("NewReno"));
    assert!(CongestionKind::ALL.into_iter().all(|k| CongestionKind::from_name(k.name()) == Some(k)));
}

#[test]
fn keepalive_can_be_switched_on_later() {
    let mut w = World::connected();
    set(&mut w, 0, |c| c.keepalive.idle = Duration::from_secs(5));
    assert_eq!(w.ends[0].next_timeout(), None);
    set(&mut w, 0, |c| c.keepalive.on = true);
    assert_eq!(w.ends[0].next_timeout(), Some(w.now + Duration::from_secs(5)));
}

#[test]
fn a_smaller_receive_buffer_holds_from_now_on() {
    let mut w = World::connected();
    set(&mut w, 1, |c| (c.rcvbuf, c.rcvbuf_max) = (8000, 8000));
    write(&mut w.ends[0], 400_000);
    w.run_for(Duration::from_secs(3));
    // What was promised before is kept to; nothing beyond.
    assert!(w.ends[1].readable() <= 70_000, "{}", w.ends[1].readable());
}

fn urgent(w: &mut World, n: usize) {
    w.ends[0].append(Frag::copied_from(&(0..n).map(byte).collect::<Vec<_>>()));
    w.ends[0].push_urgent();
}

#[test]
fn reading_stops_at_urgent_data_and_goes_on_behind_it() {
    for inline in [false, true] {
        let mut w = World::connected();
        set(&mut w, 1, |c| c.oob_inline = inline);
        write(&mut w.ends[0], 10);
        urgent(&mut w, 6);
        write(&mut w.ends[0], 4);
        w.run_for(Duration::from_millis(200));
        assert!(w.seen[1].contains(Outcome::URGENT));
        assert!(w.log.iter().any(|(_, h, _)| h.flags.contains(TcpFlags::URG)));
        assert!(w.ends[1].has_urgent() && !w.ends[1].is_at_mark());
        assert_eq!(w.ends[1].inq(), if inline { 20 } else { 15 });
        let mut peeked = [0; 30];
        assert_eq!(w.ends[1].peek(0, &mut peeked), 15);
        assert_eq!(w.read(1).len(), 15);
        assert!(w.ends[1].is_at_mark());
        assert_eq!(w.ends[1].take_urgent(true), (!inline).then_some(UrgentByte::Here(byte(5))));
        assert_eq!(w.ends[1].take_urgent(false), (!inline).then_some(UrgentByte::Here(byte(5))));
        assert_eq!(w.ends[1].take_urgent(false), None);
        let rest: Vec<_> = (0..4).map(byte).collect();
        let mut behind = vec![byte(5)];
        behind.extend(&rest);
        assert_eq!(w.read(1), if inline { behind } else { rest });
        assert!(!w.ends[1].is_at_mark() && !w.ends[1].has_urgent());
    }
}

#[test]
fn an_urgent_byte_alone_is_not_readable_in_line() {
    let mut w = World::connected();
    urgent(&mut w, 1);
    w.run_for(Duration::from_millis(50));
    assert!(!w.ends[1].is_readable() && w.ends[1].has_urgent() && w.ends[1].is_at_mark());
    assert_eq!(w.ends[1].take_urgent(false), Some(UrgentByte::Here(byte(0))));
    assert!(w.read(1).is_empty());
    write(&mut w.ends[0], 3);
    w.run_for(Duration::from_millis(50));
    assert_eq!(w.read(1).len(), 3);
}

#[test]
fn a_later_urgent_byte_replaces_an_earlier_one() {
    let mut w = World::connected();
    urgent(&mut w, 3);
    w.run_for(Duration::from_millis(50));
    assert_eq!(w.read(1).len(), 2);
    urgent(&mut w, 3);
    w.run_for(Duration::from_millis(50));
    // The first was never asked for, and does not slip into the stream.
    assert_eq!(w.read(1).len(), 2);
    assert_eq!(w.ends[1].take_urgent(false), Some(UrgentByte::Here(byte(2))));
}

#[test]
fn an_announcement_comes_before_the_byte() {
    let mut w = World::connected();
    write(&mut w.ends[0], 50_000);
    urgent(&mut w, 1);
    let first = next(&mut w, 0).unwrap();
    assert_eq!((first.header.urgent, first.payload.len()), (50_001, 1448));
    let _ = w.ends[1].segment_arrives(w.now, first, &mut w.released);
    assert_eq!(w.ends[1].take_urgent(false), Some(UrgentByte::NotYet));
    w.run_for(Duration::from_millis(200));
    assert_eq!(w.read(1).len(), 50_000);
    assert_eq!(w.ends[1].take_urgent(false), Some(UrgentByte::Here(byte(0))));
}

#[test]
fn a_lingering_close_is_over_when_the_fin_is_acknowledged() {
    let mut w = World::connected();
    write(&mut w.ends[0], 100);
    let now = w.now;
    w.ends[0].close(now, &mut w.released);
    assert!(!w.ends[0].is_drained());
    assert_eq!(w.ends[0].outq_not_sent(), 101);
    w.run_for(Duration::from_millis(50));
    assert!(w.ends[0].is_drained());
}

#[test]
fn a_user_timeout_ends_a_connection_on_time() {
    let mut w = World::connected();
    set(&mut w, 0, |c| c.user_timeout = Some(Duration::from_secs(3)));
    write(&mut w.ends[0], 100);
    w.faults.0 = 100;
    w.run_for(Duration::from_millis(2990));
    assert_eq!(w.ends[0].state(), State::Established);
    w.run_for(Duration::from_millis(20));
    assert_eq!(w.ends[0].take_error(), Some(TcpError::TimedOut));
}

#[test]
fn a_user_timeout_replaces_the_number_of_keepalive_probes() {
    let mut w = World::connected();
    set(&mut w, 0, |c| {
        c.keepalive =
            Keepalive { on: true, idle: Duration::from_secs(1), interval: Duration::from_secs(1), probes: 1 };
        c.user_timeout = Some(Duration::from_secs(5));
    });
    w.faults.0 = 100;
    w.run_for(Duration::from_millis(4500));
    assert_eq!(w.ends[0].state(), State::Established);
    w.run_for(Duration::from_secs(2));
    assert_eq!(w.ends[0].take_error(), Some(TcpError::TimedOut));
}

#[test]
fn urgent_data_does_not_wait_for_what_small_sends_are_gathered_for() {
    let mut w = World::connected();
    let now = w.now;
    let tcb = &mut w.ends[0];
    (0..50).for_each(|_| tcb.rto.sample(Duration::from_micros(100)));
    tcb.cc.set(10_000_000, u32::MAX);
    (tcb.snd.wnd, tcb.snd.max_wnd) = (10_000_000, 10_000_000);
    write(tcb, 200_000);
    while tcb.next_segment(now).is_some() {}
    for _ in 0..2 {
        write(tcb, 4000);
        while tcb.next_segment(now).is_some() {}
    }
    assert!(tcb.unsent() > 0 && !tcb.wants_to_send(), "gathering");
    urgent(&mut w, 1);
    let tcb = &mut w.ends[0];
    assert!(tcb.wants_to_send());
    while tcb.next_segment(now).is_some() {}
    assert_eq!(tcb.unsent(), 0);
}
