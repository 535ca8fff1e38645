//! UDP as far as it is the network layer's: its header.

use netdev::DropReason;
use skb::Csum;
use wire::udp::{HEADER_LEN, UdpHeader};

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
