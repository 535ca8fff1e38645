use super::*;
use crate::{ErrorQueue, Lent, MemLock, Span};

fn queue() -> Arc<ErrorQueue> {
    ErrorQueue::new(1 << 20, Arc::new(MemLock::new(u64::MAX)), Box::new(()))
}

fn lend(q: &Arc<ErrorQueue>, bytes: Vec<u8>) -> Frag {
    let lent = Lent::from(bytes).into_bytes();
    let span = Span::of(&lent);
    q.begin(span.len() as u64, &mut Some(lent)).unwrap().frag(span)
}

fn counting(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 % 251) as u8).collect()
}

fn mixed() -> (SkBuff, Vec<u8>) {
    let bytes = counting(3000);
    let mut skb = SkBuff::from_slice(&bytes[..50]);
    skb.add_frag(Frag::copied_from(&bytes[50..1050])).unwrap();
    skb.add_frag(Frag::copied_from(&bytes[1050..1051])).unwrap();
    skb.add_frag(Frag::copied_from(&bytes[1051..])).unwrap();
    (skb, bytes)
}

#[test]
fn every_slice_has_the_bytes_of_its_range() {
    let (skb, bytes) = mixed();
    for off in [0, 1, 49, 50, 51, 1049, 1050, 1051, 2999, 3000, 4000] {
        for len in [0, 1, 2, 60, 1002, 3000, 9000] {
            let from = off.min(3000);
            let to = (off + len).min(3000);
            assert_eq!(skb.slice(off, len).to_vec(), bytes[from..to.max(from)], "{off} {len}");
        }
    }
}

#[test]
fn advance_and_trim_cut_both_ends() {
    for cut in [0, 1, 50, 51, 1050, 1051, 3000] {
        let (mut skb, bytes) = mixed();
        assert!(skb.advance(cut));
        assert_eq!(skb.to_vec(), bytes[cut..]);
        let (mut skb, bytes) = mixed();
        skb.trim(cut);
        assert_eq!(skb.to_vec(), bytes[..cut]);
        assert_eq!(skb.len(), cut);
    }
    let (mut skb, _) = mixed();
    assert!(!skb.advance(3001));
    skb.trim(5000);
    assert_eq!(skb.len(), 3000);
}

#[test]
fn pulling_moves_headers_into_the_head_and_no_further() {
    let bytes = counting(500);
    let mut skb = SkBuff::from_frag(Frag::copied_from(&bytes));
    assert_eq!(skb.may_pull(14).unwrap(), &bytes[..14]);
    skb.advance(14);
    assert_eq!(skb.may_pull(100).unwrap(), &bytes[14..114]);
    skb.advance(100);
    assert_eq!(skb.may_pull(200).unwrap(), &bytes[114..314]);
    assert!(skb.may_pull(387).is_none(), "longer than the packet");
    assert!(skb.may_pull(300).is_none(), "longer than a head");
    assert_eq!(skb.to_vec(), bytes[114..]);
}

#[test]
fn pushing_keeps_the_checksum_position_and_pulling_too() {
    let mut skb = SkBuff::from_slice(&[1; 30]);
    skb.csum = Csum::Partial { start: 0, offset: 16 };
    skb.push(20).unwrap();
    skb.push(14).unwrap();
    assert_eq!(skb.csum, Csum::Partial { start: 34, offset: 16 });
    skb.advance(14);
    assert_eq!(skb.csum, Csum::Partial { start: 20, offset: 16 });
    assert!(skb.push(HEAD_SIZE).is_err());
}

#[test]
fn a_full_packet_gives_the_fragment_back() {
    let mut skb = SkBuff::new();
    for _ in 0..MAX_SKB_FRAGS {
        skb.add_frag(Frag::copied_from(b"ab")).unwrap();
    }
    assert_eq!(skb.add_frag(Frag::copied_from(b"cd")).unwrap_err().len(), 2);
    assert!(skb.append(SkBuff::from_slice(b"x")).is_err());
    assert_eq!(skb.len(), 2 * MAX_SKB_FRAGS);
}

#[test]
fn fragments_that_continue_each_other_join() {
    let q = queue();
    let f = lend(&q, counting(100));
    let mut skb = SkBuff::new();
    skb.add_frag(f.slice(0, 40)).unwrap();
    skb.add_frag(f.slice(40, 60)).unwrap();
    skb.add_frag(f.slice(0, 10)).unwrap();
    assert_eq!(skb.frags().len(), 2);
    assert_eq!(skb.len(), 110);
}

#[test]
fn orphaning_one_packet_marks_its_calls_and_leaves_other_packets_lent() {
    let q = queue();
    let (a, b) = (lend(&q, counting(100)), lend(&q, counting(200)));
    let mut skb = SkBuff::new();
    skb.add_frag(a.clone()).unwrap();
    skb.add_frag(Frag::copied_from(b"--")).unwrap();
    let rtx = skb.clone();
    let before = skb.to_vec();
    assert_eq!(skb.orphan(Reason::Tap), 100);
    assert_eq!(skb.to_vec(), before);
    assert!(!skb.has_lent() && rtx.has_lent());
    assert_eq!(a.ubuf().unwrap().reason(), Some(Reason::Tap));
    assert_eq!(b.ubuf().unwrap().reason(), None, "its bytes were not in the packet");
    drop((a, rtx));
    assert_eq!(q.pop().unwrap().copied, Some(Reason::Tap), "the copy in flight does not hold the call");
    drop(b);
    assert_eq!(q.pop().unwrap().copied, None);
}

#[test]
fn orphaning_a_full_packet_of_large_fragments_keeps_every_byte() {
    let q = queue();
    let mut skb = SkBuff::new();
    for i in 0..MAX_SKB_FRAGS {
        skb.add_frag(lend(&q, counting(9000 + i))).unwrap();
    }
    let before = skb.to_vec();
    skb.orphan(Reason::Linearize);
    assert_eq!(skb.to_vec(), before);
    assert_eq!(skb.len(), before.len());
    assert_eq!(q.outstanding(), 0);
}

#[test]
fn linearizing_leaves_one_private_fragment() {
    let q = queue();
    let mut skb = SkBuff::from_slice(b"head");
    skb.add_frag(lend(&q, counting(100))).unwrap();
    skb.add_frag(lend(&q, counting(10))).unwrap();
    let before = skb.to_vec();
    skb.linearize(Reason::NoScatterGather);
    assert_eq!((skb.to_vec(), skb.frags().len(), skb.has_lent()), (before, 1, false));
    assert_eq!(q.pop().unwrap().copied, Some(Reason::NoScatterGather));
}

#[test]
fn checksums_agree_with_the_definition_at_every_offset() {
    let (skb, bytes) = mixed();
    for (off, len) in [(0, 3000), (1, 2999), (49, 3), (50, 2049), (7, 0), (2999, 1)] {
        let naive = bytes[off..off + len].chunks(2).fold(0u32, |t, c| {
            let t = t + (u32::from(c[0]) << 8) + u32::from(*c.get(1).unwrap_or(&0));
            (t & 0xffff) + (t >> 16)
        });
        assert_eq!(u32::from(skb.checksum(off, len)), naive, "{off} {len}");
    }
}

#[test]
fn a_dropped_packet_is_used_again_without_its_past() {
    let mut a = SkBuff::from_slice(&[1; 50]);
    a.gso = Some(Gso { kind: GsoKind::Tcp4, size: 1, segs: 2 });
    drop(a);
    let b = SkBuff::new();
    assert!(b.is_empty() && b.gso.is_none() && b.frags().is_empty());
}

#[test]
fn a_charge_is_given_back_with_the_last_packet_cut_out_of_it() {
    let charge: Charge = Arc::new(());
    let (mut skb, _) = mixed();
    skb.set_charge(Some(charge.clone()));
    let (a, b) = (skb.slice(0, 10), skb.clone());
    drop(skb);
    drop(a);
    assert_eq!(Arc::strong_count(&charge), 2);
    drop(b);
    assert_eq!(Arc::strong_count(&charge), 1);
    assert_eq!(Arc::strong_count(&charge), 1, "a head that is used again has none");
}
