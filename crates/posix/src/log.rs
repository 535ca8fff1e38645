//! What the stack has to say, on standard error.

use std::str::FromStr;

use tracing_subscriber::filter::LevelFilter;

/// Says what is at least as important as the variable `UNCOPIED_LOG` asks for: `error`, `warn`, `info`, `debug` (a line for
/// each lending call that was copied, and why) or `trace` (each dropped packet); without it, as `default`.
///
/// # Errors
/// The variable is none of these.
pub fn to_stderr(default: &str) -> Result<(), String> {
    let asked = std::env::var("UNCOPIED_LOG").ok().filter(|v| !v.is_empty());
    let asked = asked.as_deref().unwrap_or(default);
    let level = LevelFilter::from_str(asked)
        .map_err(|_| format!("UNCOPIED_LOG: `{asked}` is none of off, error, warn, info, debug, trace"))?;
    let subscriber =
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).without_time();
    // A program that embeds us may have its own.
    let _ = subscriber.with_ansi(false).try_init();
    Ok(())
}
