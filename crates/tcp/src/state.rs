//! The states of a connection, and every way from one to another (RFC 9293, 3.3.2).

/// A connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No connection.
    Closed,
    /// Waiting for connections.
    Listen,
    /// SYN sent.
    SynSent,
    /// SYN received and answered.
    SynReceived,
    /// Data flows.
    Established,
    /// We have closed; our FIN is not acknowledged.
    FinWait1,
    /// We have closed; the peer has not.
    FinWait2,
    /// The peer has closed; we have not.
    CloseWait,
    /// Both have closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer has closed first; our FIN is not acknowledged.
    LastAck,
    /// Both have closed; old segments die out.
    TimeWait,
}

/// What moves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A SYN without ACK came while ours was out (simultaneous open).
    RecvSyn,
    /// The peer's SYN-ACK for our SYN, or the ACK of our SYN-ACK.
    Handshake,
    /// We close: a FIN is queued.
    SendFin,
    /// The peer's FIN came, in order.
    RecvFin,
    /// Our FIN is acknowledged.
    FinAcked,
    /// Reset, abort, timeout, or the end of TIME-WAIT.
    End,
}

use Event as E;
use State as S;

/// The whole machine. `End` leads to CLOSED from everywhere and stands for itself.
const TRANSITIONS: [(State, Event, State); 14] = [
    (S::SynSent, E::RecvSyn, S::SynReceived),
    (S::SynSent, E::Handshake, S::Established),
    (S::SynReceived, E::Handshake, S::Established),
    (S::SynReceived, E::SendFin, S::FinWait1),
    (S::SynReceived, E::RecvFin, S::CloseWait),
    (S::Established, E::SendFin, S::FinWait1),
    (S::Established, E::RecvFin, S::CloseWait),
    (S::FinWait1, E::FinAcked, S::FinWait2),
    (S::FinWait1, E::RecvFin, S::Closing),
    (S::FinWait2, E::RecvFin, S::TimeWait),
    (S::CloseWait, E::SendFin, S::LastAck),
    (S::Closing, E::FinAcked, S::TimeWait),
    (S::LastAck, E::FinAcked, S::Closed),
    (S::TimeWait, E::End, S::Closed),
];

impl State {
    /// Where `event` leads; the same state if the machine has no such way.
    pub(crate) fn on(self, event: Event) -> State {
        if event == Event::End {
            return State::Closed;
        }
        TRANSITIONS.iter().find(|(from, e, _)| (*from, *e) == (self, event)).map_or(self, |(.., to)| *to)
    }

    /// Linux's number (`TCP_ESTABLISHED` and so on).
    pub fn number(self) -> u8 {
        match self {
            S::Established => 1,
            S::SynSent => 2,
            S::SynReceived => 3,
            S::FinWait1 => 4,
            S::FinWait2 => 5,
            S::TimeWait => 6,
            S::Closed => 7,
            S::CloseWait => 8,
            S::LastAck => 9,
            S::Listen => 10,
            S::Closing => 11,
        }
    }

    /// Past the handshake and not closed.
    pub fn is_synchronized(self) -> bool {
        !matches!(self, S::Closed | S::Listen | S::SynSent | S::SynReceived)
    }

    /// The program may still send.
    pub fn can_send(self) -> bool {
        matches!(self, S::Established | S::CloseWait)
    }

    /// The peer may still send.
    pub(crate) fn can_receive(self) -> bool {
        matches!(self, S::Established | S::FinWait1 | S::FinWait2)
    }

    /// The peer's FIN has come.
    pub(crate) fn has_peer_fin(self) -> bool {
        matches!(self, S::CloseWait | S::Closing | S::LastAck | S::TimeWait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 11] = [
        S::Closed,
        S::Listen,
        S::SynSent,
        S::SynReceived,
        S::Established,
        S::FinWait1,
        S::FinWait2,
        S::CloseWait,
        S::Closing,
        S::LastAck,
        S::TimeWait,
    ];

    /// The graph, drawn from the table: a change of the machine shows here.
    #[test]
    fn the_machine_is_that_of_the_rfc() {
        let events = [E::RecvSyn, E::Handshake, E::SendFin, E::RecvFin, E::FinAcked];
        let mut graph = String::new();
        for s in STATES {
            for e in events.into_iter().filter(|e| s.on(*e) != s) {
                graph += &format!("{s:?} {e:?} {:?}\n", s.on(e));
            }
        }
        let expect = "SynSent RecvSyn SynReceived\nSynSent Handshake Established\n\
            SynReceived Handshake Established\nSynReceived SendFin FinWait1\nSynReceived RecvFin CloseWait\n\
            Established SendFin FinWait1\nEstablished RecvFin CloseWait\nFinWait1 RecvFin Closing\n\
            FinWait1 FinAcked FinWait2\nFinWait2 RecvFin TimeWait\nCloseWait SendFin LastAck\n\
            Closing FinAcked TimeWait\nLastAck FinAcked Closed\n";
        assert_eq!(graph, expect);
        assert!(STATES.iter().all(|s| s.on(E::End) == S::Closed));
    }
}
