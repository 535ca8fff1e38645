//! `cargo xtask`: the checks that the compiler does not make, and the conformance report.
//!
//! Exit codes: 0 nothing found, 1 something found, 2 the check itself could not run.

mod conformance;
mod source;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy [graph|unsafe|length|words|links]... [--bless]
       cargo xtask conformance

tidy          checks the repository; without names, all of these:
  graph         which crate may depend on which
  unsafe        which files may contain unsafe code, and that each block says why it is sound
  length        files over 800 lines and functions over 70: xtask/ratchet.txt, which only shrinks
  words         unfinished code, machine paths, ignored tests without a reason, clocks, malformed citations
  links         local links and paths in the documents
  --bless       lowers and removes lines of xtask/ratchet.txt; never adds or raises one
conformance   prints which requirement of which RFC has which line and which test, as Markdown";

/// Why a command could not run; or, as a value, what it found.
type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["tidy", rest @ ..] => tidy::run(rest),
        ["conformance"] => conformance::run(),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}
