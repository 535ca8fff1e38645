//! Words that must not stay: unfinished code, one machine's paths, tests silently left out, clocks where
//! time is an argument, citations that cannot be followed.

use std::path::Path;

use proc_macro2::TokenTree;

use super::Finding;
use crate::conformance;
use crate::source::{self, File, ident, is_punct, line_of};

/// Macros of unfinished code.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// First parts of absolute paths that exist on somebody's machine only.
const PLACES: [&str; 5] = ["home", "root", "work", "Users", "mnt"];

/// Crates to which time is handed in: the simulator could not run what reads a clock.
const TIMELESS: [&str; 6] = ["wire", "skb", "netdev", "inet", "tcp", "sim"];

pub(super) fn check(root: &Path, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let here = root.canonicalize().unwrap_or_default().to_string_lossy().into_owned();
    for file in files {
        in_lines(file, &here, &mut findings);
        in_tokens(file, &mut findings);
        findings.extend(conformance::malformed(file));
    }
    findings
}

fn in_lines(file: &File, here: &str, findings: &mut Vec<Finding>) {
    // In two parts, or this line would be found.
    let mark = concat!("FIX", "ME");
    for (n, line) in file.text.lines().enumerate() {
        let at = format!("{}:{}", file.path, n + 1);
        if line.contains(mark) {
            findings.push(format!("{at}: {mark}: do it or file it"));
        }
        if let Some(path) = machine_path(line, here) {
            findings.push(format!("{at}: `{path}` exists on one machine only"));
        }
    }
}

/// A path of some machine in `line`: below this checkout, or below a [place](PLACES).
fn machine_path(line: &str, here: &str) -> Option<String> {
    let starts = line.match_indices('/').filter(|(at, _)| {
        let before = line[..*at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "/._-*$~}>)]".contains(c))
    });
    for (at, _) in starts {
        let path: String =
            line[at..].chars().take_while(|c| c.is_alphanumeric() || "/._-".contains(*c)).collect();
        let first = path.split('/').nth(1).unwrap_or_default();
        let below = path.len() > first.len() + 1;
        if below && PLACES.contains(&first) || here.len() > 1 && path.starts_with(here) {
            return Some(path);
        }
    }
    None
}

fn in_tokens(file: &File, findings: &mut Vec<Finding>) {
    let Some(tokens) = &file.tokens else { return };
    let timeless = TIMELESS.iter().any(|c| file.path.starts_with(&format!("crates/{c}/src/")));
    source::for_each_level(tokens, &mut |level| {
        for (n, token) in level.iter().enumerate() {
            let Some(next) = level.get(n + 1) else { continue };
            let at = format!("{}:{}", file.path, line_of(token));
            if let Some(name) = ident(token).filter(|i| MACROS.contains(&i.as_str()) && is_punct(next, '!')) {
                findings.push(format!("{at}: {name}!"));
            }
            if timeless && reads_clock(&level[n..]) {
                findings.push(format!("{at}: reads a clock; time is an argument here"));
            }
            if is_punct(token, '#') && is_bare_ignore(next) {
                findings.push(format!("{at}: an ignored test says why: #[ignore = \"reason\"]"));
            }
        }
    });
}

/// `Instant::now` or `SystemTime::now`.
fn reads_clock(tokens: &[TokenTree]) -> bool {
    let [clock, a, b, now, ..] = tokens else {
        return false;
    };
    ident(clock).is_some_and(|i| i == "Instant" || i == "SystemTime")
        && is_punct(a, ':')
        && is_punct(b, ':')
        && ident(now).is_some_and(|i| i == "now")
}

/// `[ignore]`, also within `cfg_attr`.
fn is_bare_ignore(token: &TokenTree) -> bool {
    let TokenTree::Group(g) = token else { return false };
    let attribute: Vec<TokenTree> = g.stream().into_iter().collect();
    let bare = |level: &[TokenTree]| {
        let at = level.iter().position(|t| ident(t).is_some_and(|i| i == "ignore"));
        at.is_some_and(|at| !level.get(at + 1).is_some_and(|t| is_punct(t, '=')))
    };
    match attribute.as_slice() {
        [name, TokenTree::Group(args)] if ident(name).is_some_and(|i| i == "cfg_attr") => {
            bare(&args.stream().into_iter().collect::<Vec<_>>())
        }
        [name, ..] if ident(name).is_some_and(|i| i == "ignore") => bare(&attribute),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        check(Path::new("/nowhere/at/all"), &[File::new("crates/x/src/y.rs", text).unwrap()]).len()
    }

    #[test]
    fn unfinished_code_is_found() {
        assert_eq!(found(concat!("fn f() { to", "do!() } // FIX", "ME")), 2);
        assert_eq!(found("fn todo() { f(\"todo!\") }"), 0);
    }

    #[test]
    fn an_ignored_test_needs_a_reason() {
        assert_eq!(found("#[test] #[ignore] fn f() {}"), 1);
        assert_eq!(found("#[cfg_attr(loom, ignore)] fn f() {}"), 1);
        assert_eq!(found("#[test] #[ignore = \"slow\"] fn f() {}"), 0);
    }

    #[test]
    fn a_clock_is_found_where_time_is_an_argument() {
        let found_in = |path| {
            let file = File::new(path, "fn f() { std::time::Instant::now(); now(); }").unwrap();
            check(Path::new("/nowhere/at/all"), &[file]).len()
        };
        assert_eq!(found_in("crates/tcp/src/tcb.rs"), 1);
        assert_eq!(found_in("crates/cli/src/send.rs"), 0);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let path = |place: &str| format!("const P: &str = \"/{place}/someone/x\";");
        assert_eq!(found(&path("home")), 1);
        assert_eq!(found(&path("proc")), 0);
        assert_eq!(found("// see https://example.org/home/page, ../work/x and $HOME/work/x"), 0);
        assert_eq!(
            machine_path("in /somewhere/checkout/x", "/somewhere/checkout"),
            Some("/somewhere/checkout/x".into())
        );
    }
}
