//! UDP as far as it is the network layer's: its header.

use netdev::DropReason;
use skb::{Csum, SkBuff};
use wire::checksum;
use wire::udp::{CHECKSUM_OFFSET, HEADER_LEN, UdpHeader};

use crate::Delivered;
use crate::verdict::sum_is_right;

/// Reads a datagram's header, checks its length and checksum, and cuts off what follows the datagram. The header
/// stays at the front of `d.skb`, so that [`Inet::send_unreachable`](crate::Inet::send_unreachable) can quote it;
/// the data begins at [`wire::udp::HEADER_LEN`].
pub fn udp_header(d: &mut Delivered) -> Result<UdpHeader, DropReason> {
    let header = d.skb.may_pull(HEADER_LEN).and_then(|h| UdpHeader::parse(h).ok());
    let header = header.ok_or(DropReason::Malformed)?;
    let len = usize::from(header.len);
    // A datagram may be shorter than its packet, never longer.
    if len > d.skb.len() {
        return Err(DropReason::Malformed);
    }
    if d.skb.csum == Csum::None {
        match (header.checksum, d.src.is_ipv4()) {
            (0, true) => {}
            //= rfc8200#section-8.1
            //# IPv6 receivers must discard UDP packets containing a zero checksum
            (0, false) => return Err(DropReason::BadChecksum),
            _ if sum_is_right(d, len) => {}
            _ => return Err(DropReason::BadChecksum),
        }
    }
    d.skb.trim(len);
    Ok(header)
}

/// Finishes a checksum that was left to the device, because the packet is about to be torn into fragments and no
/// device sums over several. Bytes are summed where they lie. If their lender changes them before they leave,
/// the receiver drops the datagram: only the lender's own data suffers.
pub fn finish_udp_checksum(skb: &mut SkBuff) {
    let Csum::Partial { start, offset } = skb.csum else { return };
    let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
    let sum = checksum::finish(skb.checksum(start, skb.len().saturating_sub(start)));
    // 0 means "none" (RFC 768).
    let sum = if sum == 0 && usize::from(offset) == CHECKSUM_OFFSET { 0xffff } else { sum };
    if skb.may_pull(field + 2).is_some()
        && let Some(at) = skb.head_mut().get_mut(field..field + 2)
    {
        at.copy_from_slice(&sum.to_be_bytes());
    }
    skb.csum = Csum::None;
}
