//! `cargo xtask tidy`: what this repository has decided and the compiler does not check.

mod graph;
mod length;
mod links;
mod unsafety;
mod words;

use std::path::Path;

use crate::source::{self, File};
use crate::{Error, USAGE};

/// What is wrong, and where: `path:line: message`.
pub(crate) type Finding = String;

type Check = fn(&Path, &[File]) -> Result<Vec<Finding>, Error>;

const CHECKS: [(&str, Check); 5] = [
    ("graph", |root, _| graph::check(root)),
    ("unsafe", |_, files| Ok(unsafety::check(files))),
    ("length", length::check),
    ("words", |root, files| Ok(words::check(root, files))),
    ("links", |root, files| Ok(links::check(root, files))),
];

/// Runs the named checks, or all; true if nothing was found.
pub(crate) fn run(args: &[&str]) -> Result<bool, Error> {
    let (flags, names): (Vec<&str>, Vec<&str>) = args.iter().partition(|a| a.starts_with('-'));
    let known = |n: &&str| CHECKS.iter().any(|(name, _)| name == n);
    if flags.iter().any(|f| *f != "--bless") || !names.iter().all(known) {
        return Err(USAGE.into());
    }
    let root = source::root();
    let files = source::files(&root)?;
    if !flags.is_empty() {
        length::bless(&root, &files)?;
    }
    let mut clean = true;
    for (name, check) in CHECKS {
        if !names.is_empty() && !names.contains(&name) {
            continue;
        }
        let findings = check(&root, &files)?;
        println!(
            "tidy {name}: {}",
            if findings.is_empty() { "ok".into() } else { format!("{} found", findings.len()) }
        );
        for finding in &findings {
            println!("  {finding}");
        }
        clean &= findings.is_empty();
    }
    Ok(clean)
}
