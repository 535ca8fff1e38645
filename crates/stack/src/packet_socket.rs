//! PACKET sockets: frames as they are on an interface, in and out.
//!
//! One that receives is a tap: what is sent while it listens is copied, and says so ([`skb::Reason::Tap`]).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use inet::IfIndex;
use netdev::{Direction, LinkKind, Tap, TapId};
use parking_lot::Mutex;
use skb::{Csum, Lent, Reason, SkBuff};
use wire::ethernet::{self, EthernetHeader, Mac};

use crate::dgram::{Datagram, Dgram, Message, OVERHEAD, Piece, Received, Sent, common_calls, pack, total};
use crate::egress;
use crate::error::Error;
use crate::shared::Shared;
use crate::tcp_calls::Ticket;

/// `ETH_P_ALL`: every protocol, and outgoing frames too.
pub const ETH_P_ALL: u16 = 3;
/// Sends of so many bytes beyond the link header, or fewer, are copied (Z8): control flow depends on the first
/// bytes, and a fragment costs more than they do.
const SMALL: usize = 128;

/// Whose a frame is (`sll_pkttype`, with its numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketType {
    /// To this station.
    Host = 0,
    /// To all stations.
    Broadcast = 1,
    /// To a group.
    Multicast = 2,
    /// To another station.
    OtherHost = 3,
    /// From this station.
    Outgoing = 4,
}

/// What is known of a frame (`struct sockaddr_ll`, `struct tpacket_auxdata`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it was seen, numbered from 1.
    pub interface: u32,
    /// Ethertype.
    pub protocol: u16,
    /// Whose it is.
    pub packet_type: PacketType,
    /// The sender's link-layer address; `None` where frames have none.
    pub source: Option<Mac>,
    /// Bytes of its link header.
    pub link_len: u16,
    /// The transport checksum is not finished yet: the device was going to (`TP_STATUS_CSUMNOTREADY`).
    pub checksum_open: bool,
    /// The transport checksum was verified (`TP_STATUS_CSUM_VALID`).
    pub checksum_valid: bool,
}

/// Whether a PACKET socket sees link headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// `SOCK_RAW`: frames with their link headers.
    Raw,
    /// `SOCK_DGRAM`: without; on sending it is made from the address.
    Dgram,
}

/// Where a PACKET socket sends (`struct sockaddr_ll`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// Interface, numbered from 1.
    pub interface: u32,
    /// Ethertype; only `SOCK_DGRAM` needs it.
    pub protocol: u16,
    /// Station; only `SOCK_DGRAM` on a link with addresses needs it.
    pub mac: Mac,
}

#[derive(Default)]
struct State {
    protocol: u16,
    interface: Option<u32>,
    /// Where it watches.
    taps: Vec<(u32, TapId)>,
    closed: bool,
}

/// A PACKET socket.
pub struct PacketSocket {
    dgram: Arc<Dgram>,
    kind: PacketKind,
    state: Mutex<State>,
}

common_calls!(PacketSocket);

impl std::fmt::Debug for PacketSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "packet {:?}", self.kind)
    }
}

/// The watcher that an interface knows. It has a share of the queue and not of the socket, whose end takes the
/// watcher away and so must not happen in the middle of a look.
struct Watcher {
    dgram: Arc<Dgram>,
    kind: PacketKind,
    interface: u32,
    protocol: u16,
    link: LinkKind,
}

impl Tap for Watcher {
    fn see(&self, skb: &SkBuff, direction: Direction) {
        // Outgoing frames are for those who want everything.
        if direction == Direction::Sent && self.protocol != ETH_P_ALL {
            return;
        }
        let Some(frame) = self.frame(skb, direction) else { return };
        if self.protocol == ETH_P_ALL || self.protocol == frame.protocol {
            self.queue(skb, frame);
        }
    }
}

impl Watcher {
    /// Queues a frame that was seen. `skb` is a private copy that other watchers see too.
    fn queue(&self, skb: &SkBuff, frame: Frame) {
        let mut payload = skb.clone();
        payload.set_charge(None);
        if self.kind == PacketKind::Dgram {
            payload.advance(usize::from(frame.link_len));
        }
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let info = Received {
            len: payload.len(),
            from: SocketAddr::new(nobody, 0),
            to: nobody,
            interface: frame.interface,
            hop_limit: 0,
            tos: 0,
            segment: skb.gso.map(|g| g.size),
        };
        self.dgram.receive(Datagram { payload, info, frame: Some(frame) }, false);
    }

    fn frame(&self, skb: &SkBuff, direction: Direction) -> Option<Frame> {
        let csum = skb.csum;
        let mut frame = Frame {
            interface: self.interface,
            protocol: 0,
            packet_type: if direction == Direction::Sent { PacketType::Outgoing } else { PacketType::Host },
            source: None,
            link_len: 0,
            checksum_open: matches!(csum, Csum::Partial { .. }),
            checksum_valid: csum == Csum::Unnecessary,
        };
        match self.link {
            LinkKind::Ethernet(ours) => {
                let mut bytes = [0; ethernet::HEADER_LEN];
                if !skb.copy_bits(0, &mut bytes) {
                    return None;
                }
                let header = EthernetHeader::parse(&bytes).ok()?;
                (frame.protocol, frame.source) = (header.ethertype, Some(header.src));
                frame.link_len = ethernet::HEADER_LEN as u16;
                if direction == Direction::Received {
                    frame.packet_type = match header.dst {
                        d if d == ours => PacketType::Host,
                        d if d == ethernet::BROADCAST => PacketType::Broadcast,
                        d if ethernet::is_group(d) => PacketType::Multicast,
                        _ => PacketType::OtherHost,
                    };
                }
            }
            LinkKind::Ip => {
                let mut first = [0];
                skb.copy_bits(0, &mut first);
                frame.protocol = match first[0] >> 4 {
                    4 => ethernet::ethertype::IPV4,
                    6 => ethernet::ethertype::IPV6,
                    _ => return None,
                };
            }
        }
        Some(frame)
    }
}

impl PacketSocket {
    pub(crate) fn new(shared: &Arc<Shared>, kind: PacketKind, protocol: u16) -> Arc<Self> {
        let socket =
            Arc::new(Self { dgram: Arc::new(Dgram::new(shared)), kind, state: Mutex::new(State::default()) });
        socket.watch(protocol, None);
        socket
    }

    /// Whether it sees link headers.
    pub fn kind(&self) -> PacketKind {
        self.kind
    }

    /// Listens to frames of `protocol` (an ethertype, or [`ETH_P_ALL`]; 0: to none) on one interface, numbered
    /// from 1, or on all. An interface that is not there is [`Error::NoDevice`].
    pub fn bind(&self, protocol: u16, interface: Option<u32>) -> Result<(), Error> {
        if interface.is_some_and(|i| self.dgram.shared.interface(IfIndex(i)).is_none()) {
            return Err(Error::NoDevice);
        }
        self.watch(protocol, interface);
        Ok(())
    }

    /// What it is bound to: protocol and interface.
    pub fn bound(&self) -> (u16, Option<u32>) {
        let state = self.state.lock();
        (state.protocol, state.interface)
    }

    fn watch(&self, protocol: u16, interface: Option<u32>) {
        let mut state = self.state.lock();
        self.unwatch(&mut state);
        (state.protocol, state.interface) = (protocol, interface);
        if protocol == 0 || state.closed {
            return;
        }
        for device in &self.dgram.shared.interfaces {
            if interface.is_none_or(|i| i == device.index()) {
                let watcher = Watcher {
                    dgram: self.dgram.clone(),
                    kind: self.kind,
                    interface: device.index(),
                    protocol,
                    link: device.info().link,
                };
                state.taps.push((device.index(), device.taps().add(Arc::new(watcher))));
            }
        }
    }

    fn unwatch(&self, state: &mut State) {
        for (index, id) in state.taps.drain(..) {
            if let Some(device) = self.dgram.shared.interface(IfIndex(index)) {
                device.taps().remove(id);
            }
        }
    }

    /// Copies `buf` and sends it.
    pub fn send_to(&self, buf: &[u8], to: Option<LinkAddress>) -> Result<usize, Error> {
        let pieces = [Piece::Copy(buf)];
        self.sendmsg(&Message { pieces: &pieces, ..Message::default() }, to).map(|sent| sent.len)
    }

    /// Lends a buffer by value and sends it. On error it comes back.
    pub fn send_lent(&self, lent: Lent, to: Option<LinkAddress>) -> Result<Ticket, (Error, Lent)> {
        let pieces = [Piece::Lent(lent)];
        let sent = self.sendmsg(&Message { pieces: &pieces, ..Message::default() }, to);
        let [piece] = pieces;
        match (sent, piece) {
            (Ok(Sent { ticket: Some(ticket), .. }), _) => Ok(ticket),
            (Err(e), Piece::Lent(lent)) => Err((e, lent)),
            (_, _) => Err((Error::Invalid, Lent::from(Vec::new()))),
        }
    }

    /// Sends one frame: with its link header, or as `SOCK_DGRAM` with one made from `to`. Without `to` it
    /// leaves by the interface the socket is bound to. Of the message only the pieces count.
    ///
    /// Lent memory never holds the link header: so many bytes are copied, and a small frame is copied whole
    /// and says [`Reason::Small`].
    pub fn sendmsg(&self, m: &Message<'_>, to: Option<LinkAddress>) -> Result<Sent, Error> {
        self.dgram.check_error()?;
        let (interface, closed) = {
            let state = self.state.lock();
            (state.interface, state.closed)
        };
        let index = to.map(|t| t.interface).or(interface).ok_or(Error::NoDevice)?;
        let shared = &self.dgram.shared;
        let device = shared.interface(IfIndex(index)).ok_or(Error::NoDevice)?;
        if closed {
            return Err(Error::Invalid);
        }
        // 1. Whether it can be sent.
        let len = total(m.pieces);
        let (link_len, header) = match (device.info().link, self.kind) {
            (LinkKind::Ethernet(_), PacketKind::Raw) => (ethernet::HEADER_LEN, None),
            (LinkKind::Ethernet(src), PacketKind::Dgram) => {
                let to = to.ok_or(Error::DestinationRequired)?;
                let header = EthernetHeader { dst: to.mac, src, ethertype: to.protocol };
                (ethernet::HEADER_LEN, Some(header))
            }
            (LinkKind::Ip, _) => (0, None),
        };
        let inside = if header.is_some() { 0 } else { link_len };
        if len < inside || (len == 0 && header.is_none()) {
            return Err(Error::Invalid);
        }
        if len - inside > device.info().mtu as usize {
            return Err(Error::MessageTooLong);
        }
        let charged = self.dgram.write.charge(len + OVERHEAD).ok_or(Error::WouldBlock)?;
        // 2. The bytes. Small frames are copied whole.
        let mut frags = Vec::new();
        let ticket = self.dgram.gather(m.pieces, &mut frags)?;
        let mut skb = pack(frags);
        if len <= inside + SMALL {
            skb.orphan(Reason::Small);
        }
        // 3. The link header is never in lent memory.
        match header {
            Some(header) => header.emit(skb.push(link_len).map_err(|_| Error::Invalid)?),
            None => {
                skb.may_pull(link_len).ok_or(Error::Invalid)?;
            }
        }
        skb.mac_len = link_len as u16;
        skb.set_charge(Some(charged.into_charge()));
        egress::to_device(shared, (IfIndex(index), skb));
        device.kick();
        Ok(Sent { len, ticket })
    }

    /// The program is done with the socket. What was sent still goes out.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.unwatch(&mut state);
        drop(state);
        self.dgram.close();
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        let mut state = std::mem::take(&mut *self.state.lock());
        self.unwatch(&mut state);
    }
}
