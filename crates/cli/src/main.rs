//! `uncopied`: see it, move data with it, measure it.
//!
//! One file per command. Each takes its parsed options and returns an error that says what to do.

#![allow(unreachable_pub, reason = "a binary: nothing is public, and pub reads better than pub(crate)")]

mod bench;
mod cputime;
mod demo;
mod digest;
mod peer;
mod program;
mod recv;
mod report;
mod run;
mod send;
mod tap_options;

use clap::{Parser, Subcommand};

/// Records of lending calls are allocated by one thread and freed by another, which is what this allocator
/// is good at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A user-space TCP/IP stack whose sends are not copied.
#[derive(Parser)]
#[command(name = "uncopied", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send a real file over a TAP to a kernel socket, lent and copied, and compare. Needs no privileges
    /// where user namespaces are allowed.
    Demo(demo::Options),
    /// Measure lending against copying, in CPU seconds per GB.
    Bench(bench::Options),
    /// Send a file to a TCP peer through a TAP, its pages lent.
    Send(send::Options),
    /// Receive a file from a TCP peer through a TAP.
    Recv(recv::Options),
    /// Run an unmodified program with its TCP sockets on the stack.
    Run(run::Options),
}

type Error = Box<dyn std::error::Error>;

fn main() -> std::process::ExitCode {
    let command = Cli::parse().command;
    if let Err(e) = posix::log::to_stderr("warn") {
        eprintln!("uncopied: {e}");
        return std::process::ExitCode::FAILURE;
    }
    let result = match command {
        Command::Demo(options) => demo::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Send(options) => send::run(&options),
        Command::Recv(options) => recv::run(&options),
        Command::Run(options) => match run::run(&options) {
            Ok(status) => return status,
            Err(e) => Err(e),
        },
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("uncopied: {e}");
            std::process::ExitCode::FAILURE
        }
    }
}
