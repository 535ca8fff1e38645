//! Why lent bytes were copied after all.

/// The cause of a copy, as reported in a completion, a counter, and `ee_pad` of the notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The device takes only linear packets.
    NoScatterGather = 1,
    /// The device does not checksum: copied and summed in one pass.
    NoChecksum = 2,
    /// The packet went back to a socket of this stack.
    Loopback = 3,
    /// A capture or packet socket saw the packet.
    Tap = 4,
    /// A filter that reads payload ran on it.
    Filter = 5,
    /// An encrypting transform took it.
    Transform = 6,
    /// The packet had to be linear for the device or for software segmentation.
    Linearize = 7,
    /// Data sent with a SYN.
    SynData = 8,
    /// Too small to be worth lending.
    Small = 9,
    /// The program unmapped the memory while it was lent.
    Unmapped = 10,
    /// The stack copied nothing; the device itself reads the memory once at its boundary (a write to a
    /// TAP or packet socket). Not a copy of ours: `ee_code` stays 0.
    Device = 11,
    /// The memory is another process's: the program is a guest of the process that runs the stack.
    Process = 12,
}

/// All reasons, in the order of their numbers.
pub const REASONS: [Reason; 12] = [
    Reason::NoScatterGather,
    Reason::NoChecksum,
    Reason::Loopback,
    Reason::Tap,
    Reason::Filter,
    Reason::Transform,
    Reason::Linearize,
    Reason::SynData,
    Reason::Small,
    Reason::Unmapped,
    Reason::Device,
    Reason::Process,
];

impl Reason {
    /// The reason with number `n`; `None` for 0, "not copied", and for numbers never given.
    pub fn from_number(n: u8) -> Option<Reason> {
        REASONS.get(usize::from(n).checked_sub(1)?).copied()
    }

    /// Whether the stack made a copy ([`Reason::Device`] is the exception).
    pub fn is_copy(self) -> bool {
        self != Reason::Device
    }

    /// A short name for tables and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::NoScatterGather => "no-scatter-gather",
            Reason::NoChecksum => "no-checksum-offload",
            Reason::Loopback => "loopback",
            Reason::Tap => "tap",
            Reason::Filter => "filter",
            Reason::Transform => "transform",
            Reason::Linearize => "linearize",
            Reason::SynData => "syn-data",
            Reason::Small => "small",
            Reason::Unmapped => "unmapped",
            Reason::Device => "device",
            Reason::Process => "process",
        }
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}
