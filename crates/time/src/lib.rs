//! Time as the stack knows it: a number handed in, never read.
//!
//! Theory of operation. Nothing below `stack::run` looks at a clock. Whoever drives the stack (a net
//! thread, a simulation, a test script) owns a [`Clock`] and passes an [`Instant`] down; what must
//! happen later is returned as an `Instant` upwards and kept in a [`TimerWheel`], which costs O(1) to
//! set and nothing while idle. That is why a simulated hour takes milliseconds and why a failing run
//! can be repeated exactly.

mod clock;
mod instant;
mod wheel;

pub use clock::{Clock, ManualClock, SystemClock};
pub use core::time::Duration;
pub use instant::Instant;
pub use wheel::{TimerId, TimerWheel};
