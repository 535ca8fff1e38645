//! Urgent data (RFC 9293, 3.8.5; RFC 6093), as programs know it from BSD: one byte, which is taken out of the
//! stream unless it is to stay in line, and a mark at which reading stops.

use wire::SeqNum;

use crate::tcb::Tcb;

/// What the peer said is urgent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Urgent {
    /// Where the urgent byte lies.
    pub(crate) seq: SeqNum,
    pub(crate) byte: UrgentByte,
}

/// The urgent byte itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrgentByte {
    /// It was announced and has not come yet.
    NotYet,
    /// It is here.
    Here(u8),
    /// It was read out of band.
    Read,
}

impl Tcb {
    /// The next byte a reader gets.
    pub(crate) fn copied_seq(&self) -> SeqNum {
        let fin = u32::from(self.rcv.fin.is_some_and(|f| f.before(self.rcv.nxt)));
        self.rcv.nxt - fin - self.input.readable() as u32
    }

    /// The peer announced that everything up to `seq` is urgent; whether that is news.
    pub(crate) fn announce_urgent(&mut self, seq: SeqNum) -> bool {
        if seq.before(self.rcv.nxt) || self.urg.is_some_and(|u| seq.before_eq(u.seq)) {
            return false;
        }
        if self.urg.is_some_and(|u| u.seq == self.copied_seq()) && !self.cfg.oob_inline {
            // Nobody asked for the last one, and it must not slip into the stream.
            self.input.take(1, &mut Vec::new());
        }
        self.urg = Some(Urgent { seq, byte: UrgentByte::NotYet });
        true
    }

    /// How a read at most `max` long meets the mark: bytes to skip first, bytes to read then.
    pub(crate) fn at_mark(&self, max: usize) -> (usize, usize) {
        let Some(urgent) = self.urg else { return (0, max) };
        match urgent.seq.since(self.copied_seq()) as usize {
            0 => (usize::from(!self.cfg.oob_inline && max > 0).min(self.input.readable()), max),
            ahead => (0, max.min(ahead)),
        }
    }

    /// The mark is forgotten once it has been read past.
    pub(crate) fn leave_mark(&mut self) {
        if self.urg.is_some_and(|u| u.seq.before(self.copied_seq())) {
            self.urg = None;
        }
    }

    /// The urgent byte (`MSG_OOB`): `None` if there is none to be had out of band. Unless `peek`, it is
    /// there only once.
    pub fn take_urgent(&mut self, peek: bool) -> Option<UrgentByte> {
        let urgent = self.urg.as_mut().filter(|_| !self.cfg.oob_inline)?;
        let byte = urgent.byte;
        if byte == UrgentByte::Read {
            return None;
        }
        if !peek && byte != UrgentByte::NotYet {
            urgent.byte = UrgentByte::Read;
        }
        Some(byte)
    }

    /// Whether the urgent byte is here and was not read out of band (`POLLPRI`).
    pub fn has_urgent(&self) -> bool {
        self.urg.is_some_and(|u| matches!(u.byte, UrgentByte::Here(_)))
    }

    /// Whether the reader stands at the mark (`SIOCATMARK`).
    pub fn is_at_mark(&self) -> bool {
        self.urg.is_some_and(|u| u.seq == self.copied_seq())
    }

    /// Everything queued so far is urgent (`MSG_OOB`): the peer is told where it ends, Nagle does not hold
    /// it back.
    pub fn push_urgent(&mut self) {
        self.push();
        // Whatever small sends were gathered for or deferred to.
        self.look_again();
        self.snd_up = Some(self.out.end());
    }

    /// The urgent pointer for a segment that begins at `seq`, if one is due. It says one past the urgent
    /// byte, as everybody does (RFC 6093, 2.2).
    pub(crate) fn urgent_pointer(&self, seq: SeqNum) -> Option<u16> {
        let up = self.snd_up?;
        if !up.after(seq) {
            return None;
        }
        Some(u16::try_from(up.since(seq)).unwrap_or(u16::MAX))
    }
}
