//! What commands print: bars and tables.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use uncopied::Stats;

/// A bar over `bytes`, with rate and time left.
pub fn bytes_bar(bytes: u64, label: &str) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let style = ProgressStyle::with_template(
        "{prefix:>10} [{bar:32}] {decimal_bytes:>10}/{decimal_total_bytes} {decimal_bytes_per_sec:>12} {eta:>4}",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_prefix(label.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// One line about what happened to lent calls.
pub fn copies(before: &Stats, after: &Stats) -> String {
    let calls = after.completions - before.completions;
    let of = |stats: &Stats, reason| {
        stats.calls_by_reason.iter().find(|(r, _)| *r == reason).map_or(0, |(_, n)| *n)
    };
    let mut parts = vec![format!("{} not copied", after.calls_not_copied - before.calls_not_copied)];
    for (reason, n) in &after.calls_by_reason {
        let n = n - of(before, *reason);
        if n == 0 {
            continue;
        }
        let what = if reason.is_copy() { "copied" } else { "read once by the kernel, not copied by us" };
        parts.push(format!("{n} {what} ({reason})"));
    }
    format!("{calls} calls completed: {}", parts.join(", "))
}

/// One line about dropped packets; nothing if there were none.
pub fn drops(stats: &Stats) -> Option<String> {
    if stats.drops.is_empty() {
        return None;
    }
    let parts: Vec<_> = stats.drops.iter().map(|(r, n)| format!("{n} {}", r.as_str())).collect();
    Some(format!("dropped packets: {}", parts.join(", ")))
}
