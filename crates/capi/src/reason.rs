//! Why lent bytes were copied, in C.

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use stack::skb::{REASONS, Reason};

use crate::guard::guard;

/// What a completion says about copying (`uc_completion.reason`): 0 is not copied by anybody.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum uc_reason {
    /// Nobody copied the bytes.
    UC_REASON_NONE = 0,
    /// The device takes only linear packets.
    UC_REASON_NO_SCATTER_GATHER = 1,
    /// The device does not checksum: copied and summed in one pass.
    UC_REASON_NO_CHECKSUM = 2,
    /// The packet went back to a socket of the same stack.
    UC_REASON_LOOPBACK = 3,
    /// A capture saw the packet.
    UC_REASON_TAP = 4,
    /// A filter that reads payload ran on it.
    UC_REASON_FILTER = 5,
    /// An encrypting transform took it.
    UC_REASON_TRANSFORM = 6,
    /// The packet had to be linear for the device or for software segmentation.
    UC_REASON_LINEARIZE = 7,
    /// Data sent with a SYN.
    UC_REASON_SYN_DATA = 8,
    /// Too small to be worth lending.
    UC_REASON_SMALL = 9,
    /// The memory was unmapped while it was lent.
    UC_REASON_UNMAPPED = 10,
    /// The stack copied nothing; the device itself read the memory once at its boundary (a write to a TAP).
    UC_REASON_DEVICE = 11,
    /// The stack is another process's.
    UC_REASON_PROCESS = 12,
}

/// How many numbers there are: the length of `uc_counters.calls_by_reason`.
pub const UC_REASONS: usize = 13;
const _: () = assert!(UC_REASONS == REASONS.len() + 1);

/// The name of a reason, for logs: `"device"`, `"loopback"`, …; `"not copied"` for 0, and `"unknown"` for
/// numbers that were never given. Never null, and never to be freed.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_strreason(reason: c_int) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    guard(c"unknown".as_ptr(), || {
        if reason == 0 {
            return Ok(c"not copied".as_ptr());
        }
        let names =
            NAMES.get_or_init(|| REASONS.iter().filter_map(|r| CString::new(r.as_str()).ok()).collect());
        let known = usize::try_from(reason).ok().and_then(|n| names.get(n.wrapping_sub(1)));
        Ok(known.map_or(c"unknown".as_ptr(), |name| name.as_ptr()))
    })
}

/// The number of what was noted on a call.
pub(crate) fn number(reason: Option<Reason>) -> u8 {
    reason.map_or(0, |r| r as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_stacks() {
        use uc_reason::*;
        let ours = [
            UC_REASON_NO_SCATTER_GATHER,
            UC_REASON_NO_CHECKSUM,
            UC_REASON_LOOPBACK,
            UC_REASON_TAP,
            UC_REASON_FILTER,
            UC_REASON_TRANSFORM,
            UC_REASON_LINEARIZE,
            UC_REASON_SYN_DATA,
            UC_REASON_SMALL,
            UC_REASON_UNMAPPED,
            UC_REASON_DEVICE,
            UC_REASON_PROCESS,
        ];
        for (c, reason) in ours.into_iter().zip(REASONS) {
            assert_eq!(c as u8, number(Some(reason)));
            // UC_REASON_NO_CHECKSUM against "no-checksum-offload".
            let name = format!("{c:?}").replace("UC_REASON_", "").to_lowercase().replace('_', "-");
            assert!(reason.as_str().starts_with(&name), "{c:?} is {reason}");
        }
    }
}
