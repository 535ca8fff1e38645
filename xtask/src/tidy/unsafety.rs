//! Unsafe code has an address.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Finding;
use crate::source::{self, File, ident, is_punct, line_of};

/// The files that may contain unsafe code, and what for.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/skb/src/foreign.rs", "memory that others may change or unmap"),
    ("crates/skb/src/pool.rs", "pages shared by spans"),
    ("crates/dev/src/sys.rs", "ioctls and I/O vectors"),
    ("crates/stack/src/raw.rs", "sends from borrowed memory"),
    ("crates/uncopied/src/raw.rs", "the same, for users"),
    ("crates/uncopied/tests/common/borrowed.rs", "tests of the same"),
    ("crates/posix/src/lock.rs", "a lock for both sides of a fork"),
    ("crates/posix/src/user.rs", "memory that programs name by pointer"),
    ("crates/posix/src/calls/mod.rs", "calls with pointers, as libc has them"),
    ("crates/posix/src/calls/files.rs", "the same"),
    ("crates/posix/src/calls/moves.rs", "the same"),
    ("crates/posix/src/calls/waits.rs", "the same"),
    ("crates/posix/src/sockaddr.rs", "the same, for addresses"),
    ("crates/posix/src/sys.rs", "system calls without a safe form"),
    ("crates/preload/src/lib.rs", "functions with libc's names"),
    ("crates/preload/src/files.rs", "the same"),
    ("crates/preload/src/memory.rs", "the same"),
    ("crates/preload/src/start.rs", "what the loader calls"),
    ("crates/preload/src/stdio.rs", "libc's streams over our functions"),
    ("crates/preload/src/streams.rs", "functions with libc's names"),
    ("crates/preload/src/waits.rs", "the same"),
    ("crates/posix/src/embed/completions.rs", "sends from borrowed memory"),
    ("crates/capi/src/lib.rs", "the C library's functions"),
    ("crates/capi/src/guard.rs", "errno"),
    ("crates/capi/src/callbacks.rs", "functions of the program's"),
    ("crates/capi/src/config.rs", "the C library's functions"),
    ("crates/capi/src/lending.rs", "the same"),
    ("crates/capi/src/owned.rs", "the same"),
    ("crates/capi/src/reason.rs", "the same"),
    ("crates/capi/src/sockets.rs", "the same"),
    ("crates/capi/src/stacks.rs", "the same"),
    ("crates/capi/src/waits.rs", "the same"),
    ("crates/cli/src/cputime.rs", "CPU time of threads"),
    ("crates/packetdrill/src/lib.rs", "the entry of a C interface"),
    ("crates/packetdrill/src/slots.rs", "libc's calls as packetdrill makes them"),
    ("crates/packetdrill/src/options.rs", "values of options by pointer and length"),
    ("crates/packetdrill/src/imports.rs", "pointing the main program's imports here"),
    ("crates/packetdrill/tests/driver/tool.rs", "a program that loads the plug-in as packetdrill does"),
    ("crates/packetdrill/tests/driver/calls.rs", "and calls through its record"),
];

/// Lints that only the files above may switch off.
const LINTS: [&str; 2] = ["unsafe_code", "unsafe_op_in_unsafe_fn"];

/// Lines above an unsafe block among which its comment must end.
const NEAR: usize = 3;

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let Some(tokens) = &file.tokens else { continue };
        let mut uses = Vec::new();
        scan(tokens, &mut uses);
        for Use { line, needs_reason } in uses {
            if !is_allowed(&file.path) {
                findings.push(format!(
                    "{}:{line}: unsafe code outside the files listed in xtask/src/tidy/unsafety.rs",
                    file.path
                ));
            } else if needs_reason && !has_reason(file, line) {
                findings
                    .push(format!("{}:{line}: no `// SAFETY:` comment in the {NEAR} lines above", file.path));
            }
        }
    }
    findings
}

fn is_allowed(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    // A counting allocator: the only way to implement one is unsafe.
    let counting_allocator = path.contains("/tests/") && name.starts_with("alloc");
    counting_allocator || ALLOWED.iter().any(|(allowed, _)| *allowed == path)
}

/// An `unsafe` keyword, or a lint switched off.
struct Use {
    line: usize,
    /// A block, an `impl`, an `extern` block or an attribute: somebody must say why it is sound. Functions,
    /// traits and function types say what they demand instead.
    needs_reason: bool,
}

fn scan(tokens: &TokenStream, out: &mut Vec<Use>) {
    source::for_each_level(tokens, &mut |level| {
        for (n, token) in level.iter().enumerate() {
            if ident(token).is_some_and(|i| i == "unsafe") {
                out.push(Use { line: line_of(token), needs_reason: needs_reason(&level[n + 1..]) });
            }
            if is_punct(token, '#') && level[n + 1..].iter().take(2).any(switches_off) {
                out.push(Use { line: line_of(token), needs_reason: false });
            }
        }
    });
}

fn needs_reason(after: &[TokenTree]) -> bool {
    match after {
        [TokenTree::Group(_), ..] => true,
        [TokenTree::Ident(i), ..] if *i == "impl" => true,
        // `unsafe extern "C" { .. }`, but not `unsafe extern "C" fn`.
        [TokenTree::Ident(i), rest @ ..] if *i == "extern" => {
            rest.iter().take(2).any(|t| matches!(t, TokenTree::Group(_)))
        }
        _ => false,
    }
}

/// Whether this is an attribute's `[allow(unsafe_code)]`, also within `cfg_attr`.
fn switches_off(token: &TokenTree) -> bool {
    let TokenTree::Group(g) = token else { return false };
    if g.delimiter() != Delimiter::Bracket {
        return false;
    }
    let mut found = false;
    source::for_each_level(&g.stream(), &mut |level| {
        for pair in level.windows(2) {
            let (Some(word), TokenTree::Group(lints)) = (ident(&pair[0]), &pair[1]) else {
                continue;
            };
            let off = ["allow", "expect", "warn"].contains(&word.as_str());
            found |= off
                && lints.stream().into_iter().filter_map(|t| ident(&t)).any(|l| LINTS.contains(&l.as_str()));
        }
    });
    found
}

/// Whether the line, or a comment that ends just above it, says `SAFETY:`.
fn has_reason(file: &File, line: usize) -> bool {
    let says =
        |n: usize| file.line(n).split_once("//").is_some_and(|(_, comment)| comment.contains("SAFETY:"));
    let is_comment = |n: usize| file.line(n).trim_start().starts_with("//");
    if (line.saturating_sub(NEAR)..=line).any(says) {
        return true;
    }
    // A longer comment: follow it up from where it comes near.
    let Some(mut n) = (line.saturating_sub(NEAR)..line).rev().find(|n| is_comment(*n)) else {
        return false;
    };
    while is_comment(n) {
        if says(n) {
            return true;
        }
        n -= 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&[File::new(path, text).unwrap()]).len()
    }

    const LISTED: &str = "crates/skb/src/foreign.rs";

    #[test]
    fn unsafe_code_elsewhere_is_found_and_mentions_of_it_are_not() {
        assert_eq!(found("crates/tcp/src/tcb.rs", "fn f() { unsafe { g() } }"), 1);
        assert_eq!(found("crates/tcp/src/tcb.rs", "m! { unsafe fn f(); }"), 1);
        assert_eq!(
            found(
                "crates/tcp/src/tcb.rs",
                "#![forbid(unsafe_code)]\n/// unsafe\nconst S: &str = \"unsafe {\";"
            ),
            0
        );
    }

    #[test]
    fn switching_the_lint_off_elsewhere_is_found() {
        assert_eq!(found("crates/tcp/src/tcb.rs", "#![allow(unsafe_code)]"), 1);
        assert_eq!(
            found("crates/tcp/src/tcb.rs", "#[cfg_attr(test, expect(dead_code, unsafe_code))] fn f() {}"),
            1
        );
        assert_eq!(found("crates/x/tests/alloc_count.rs", "#![allow(unsafe_code)]"), 0);
        assert_eq!(found("crates/x/src/alloc.rs", "#![allow(unsafe_code)]"), 1);
    }

    #[test]
    fn a_block_needs_its_reason_near() {
        assert_eq!(found(LISTED, "// SAFETY: g.\nfn f() { unsafe { g() } }"), 0);
        assert_eq!(found(LISTED, "// SAFETY: g.\n\n\n\nfn f() { unsafe { g() } }"), 1);
        assert_eq!(found(LISTED, "// SAFETY: g,\n// h,\n// i,\n// j,\n// k.\nfn f() { unsafe { g() } }"), 0);
        assert_eq!(found(LISTED, "unsafe impl Send for X {}"), 1);
        assert_eq!(found(LISTED, "unsafe extern \"C\" { fn f(); }"), 1);
        assert_eq!(
            found(LISTED, "unsafe fn f() {}\ntype F = unsafe extern \"C\" fn();\nunsafe trait T {}"),
            0
        );
    }
}
