//! CPU time of this thread and of the whole process.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

fn read(clock: ClockId) -> Duration {
    let t = clock_gettime(clock);
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec.unsigned_abs() as u32)
}

/// A measurement that has begun on this thread.
pub struct Meter {
    thread: Duration,
    process: Duration,
    wall: Instant,
}

/// What a stretch of work took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// CPU time of the measuring thread, user and system: the "process context" of the sender.
    pub thread: Duration,
    /// CPU time of all threads of this process.
    pub process: Duration,
    /// Time by the wall clock.
    pub wall: Duration,
}

impl Meter {
    /// Begins to measure this thread and the process.
    pub fn start() -> Self {
        Self {
            thread: read(ClockId::ThreadCPUTime),
            process: read(ClockId::ProcessCPUTime),
            wall: Instant::now(),
        }
    }

    /// CPU and wall time since the start.
    pub fn stop(&self) -> Spent {
        Spent {
            thread: read(ClockId::ThreadCPUTime).saturating_sub(self.thread),
            process: read(ClockId::ProcessCPUTime).saturating_sub(self.process),
            wall: self.wall.elapsed(),
        }
    }
}

/// Seconds per 10^9 bytes.
pub fn per_gb(time: Duration, bytes: u64) -> f64 {
    time.as_secs_f64() / (bytes as f64 / 1e9)
}

/// Gbit/s.
pub fn gbps(bytes: u64, wall: Duration) -> f64 {
    bytes as f64 * 8.0 / 1e9 / wall.as_secs_f64().max(1e-9)
}
