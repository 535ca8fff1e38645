//! The last decision before a device: what it cannot do itself is done here, to this packet only.
//!
//! Whoever queued the packet holds fragments of its own, so what is copied here does not change what a
//! retransmission will refer to.

use skb::{Csum, GsoKind, Reason, SkBuff};
use smallvec::SmallVec;
use wire::checksum;

use crate::{DeviceInfo, Direction, DropReason, Features, Taps, gso};

/// Packets that conform to their device. One, nearly always.
pub type Conforming = SmallVec<[SkBuff; 1]>;

/// What had to be done in software.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Validated {
    /// Segments made in software; 0 if the packet was not segmented here.
    pub segments: usize,
    /// Checksums computed.
    pub summed: usize,
    /// Packets made linear.
    pub linearized: usize,
    /// Lent bytes copied for a tap or a checksum.
    pub orphaned: usize,
}

/// Makes `skb` conform to `device` (whose features are [harmonised](crate::fix_features)), and appends the
/// result to `out`. On error the packet is dropped and nothing was appended.
pub fn validate_xmit(
    mut skb: SkBuff,
    device: &DeviceInfo,
    taps: &Taps,
    out: &mut Conforming,
) -> Result<Validated, DropReason> {
    let mut done = Validated::default();
    // 1. Somebody watches: what they see must be what goes out, and they must not hold lent memory.
    done.orphaned += taps.show(&mut skb, Direction::Sent);
    // 2. A packet that stands for several, for a device that cannot cut it.
    if !needs_segmenting(&skb, device) {
        out.push(conform(skb, device.features, &mut done)?);
        return Ok(done);
    }
    // A device that takes scattered segments but cannot sum them costs one copy, made of the whole packet.
    if device.features.contains(Features::SG) && !device.features.contains(Features::CSUM) {
        done.orphaned += skb.orphan(Reason::NoChecksum);
    }
    let at = out.len();
    let mut failed = None;
    let cut = gso::segment(&mut skb, |segment| match conform(segment, device.features, &mut done) {
        Ok(segment) => out.push(segment),
        Err(reason) => failed = Some(reason),
    });
    done.segments = cut.map_err(|_| DropReason::BadGso)?;
    match failed {
        Some(reason) => {
            out.truncate(at);
            Err(reason)
        }
        None => Ok(done),
    }
}

/// Whether `skb` must be cut in software for `device`.
fn needs_segmenting(skb: &SkBuff, device: &DeviceInfo) -> bool {
    let Some(gso) = skb.gso else { return false };
    let able = match gso.kind {
        GsoKind::Tcp4 => device.features.contains(Features::TSO4),
        GsoKind::Tcp6 => device.features.contains(Features::TSO6),
        GsoKind::Udp => false,
    };
    let fits = skb.len() - usize::from(skb.mac_len).min(skb.len()) <= device.gso_max_size;
    // A device that cuts also sums; it needs to be told where.
    !(able && fits && matches!(skb.csum, Csum::Partial { .. }))
}

/// Steps 3 and 4: one packet, as it will be on the wire (or be cut by the device).
fn conform(mut skb: SkBuff, features: Features, done: &mut Validated) -> Result<SkBuff, DropReason> {
    // 3. Fragments, for a device that takes linear packets: one copy, which also makes the bytes private.
    if !features.contains(Features::SG) && !skb.frags().is_empty() {
        skb.linearize(Reason::NoScatterGather);
        done.linearized += 1;
    }
    // 4. A checksum left open, for a device that does not sum.
    if let Csum::Partial { start, offset } = skb.csum
        && !features.contains(Features::CSUM)
    {
        // The bytes summed must be the bytes sent, so lent ones are made private before.
        done.orphaned += skb.orphan(Reason::NoChecksum);
        finish_checksum(&mut skb, usize::from(start), usize::from(offset))?;
        done.summed += 1;
    }
    Ok(skb)
}

/// Sums a private packet from `start` to its end, onto the pseudo-header's sum that is in the field, and
/// stores the result.
fn finish_checksum(skb: &mut SkBuff, start: usize, offset: usize) -> Result<(), DropReason> {
    let field = start + offset;
    if skb.may_pull(field + 2).is_none() {
        return Err(DropReason::BadChecksumOffset);
    }
    let mut value = checksum::finish(sum_from(skb, start));
    // A UDP checksum of 0 means that there is none (RFC 768); TCP's is never 0 for want of a zero sum.
    if value == 0 && offset == 6 {
        value = 0xffff;
    }
    gso::set16(skb.head_mut(), field, value);
    skb.csum = Csum::None;
    Ok(())
}

/// Sum of `[start, end)` of a packet, without copying what is private.
pub(crate) fn sum_from(skb: &SkBuff, start: usize) -> u16 {
    let head = skb.head();
    if start >= head.len() {
        return skb.checksum(start, skb.len().saturating_sub(start));
    }
    let head = head.get(start..).unwrap_or(&[]);
    let (mut total, mut done) = (checksum::sum(head), head.len());
    for frag in skb.frags() {
        let Some(bytes) = frag.as_private_slice() else {
            return skb.checksum(start, skb.len() - start);
        };
        let sum = checksum::sum(bytes);
        total = if done % 2 == 0 { checksum::combine(total, sum) } else { checksum::combine_odd(total, sum) };
        done += bytes.len();
    }
    total
}

#[cfg(test)]
mod tests;
