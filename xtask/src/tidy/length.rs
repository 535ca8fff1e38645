//! The length ratchet: long files and functions are listed, and the list only shrinks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::Finding;
use crate::Error;
use crate::source::{File, ident, is_punct, line_of};

/// Lines a file may have.
const FILE: usize = 800;
/// Lines a function may have, from `fn` to its closing brace.
const FUNCTION: usize = 70;

const RATCHET: &str = "xtask/ratchet.txt";

/// What is longer than its limit: `path` or `path Type::function`, and its lines.
type Lengths = BTreeMap<String, usize>;

pub(super) fn check(root: &Path, files: &[File]) -> Result<Vec<Finding>, Error> {
    Ok(compare(&measure(files), &read(root)?))
}

/// Lowers and removes what has become shorter.
pub(super) fn bless(root: &Path, files: &[File]) -> Result<(), Error> {
    let path = root.join(RATCHET);
    let old = std::fs::read_to_string(&path).map_err(|e| format!("{RATCHET}: {e}"))?;
    std::fs::write(path, shrink(&measure(files), &old)?)?;
    Ok(())
}

fn compare(now: &Lengths, listed: &Lengths) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (what, lines) in now {
        let limit = if what.contains(' ') { FUNCTION } else { FILE };
        match listed.get(what) {
            None => findings.push(format!("{what}: {lines} lines, the limit is {limit}: shorten it")),
            Some(was) if lines > was => {
                findings.push(format!("{what}: {lines} lines, {RATCHET} says {was}: it may not grow"))
            }
            Some(_) => {}
        }
    }
    for (what, was) in listed {
        let lines = now.get(what).copied().unwrap_or(0);
        if lines < *was {
            findings.push(format!("{what}: shorter than the {was} lines in {RATCHET}: run `cargo xtask tidy --bless` to keep it so"));
        }
    }
    findings
}

/// The list without what is no longer too long, the rest lowered; comments stay.
fn shrink(now: &Lengths, old: &str) -> Result<String, Error> {
    let mut new = String::new();
    for line in old.lines() {
        match entry(line)? {
            None => writeln!(new, "{line}")?,
            Some((what, was)) => {
                if let Some(lines) = now.get(&what) {
                    writeln!(new, "{} {what}", was.min(*lines))?;
                }
            }
        }
    }
    Ok(new)
}

fn read(root: &Path) -> Result<Lengths, Error> {
    let text = std::fs::read_to_string(root.join(RATCHET)).map_err(|e| format!("{RATCHET}: {e}"))?;
    let mut listed = Lengths::new();
    for line in text.lines() {
        listed.extend(entry(line)?);
    }
    Ok(listed)
}

/// `83 crates/x/src/y.rs Type::function`, or a comment or an empty line.
fn entry(line: &str) -> Result<Option<(String, usize)>, Error> {
    if line.trim().is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (lines, what) = line.split_once(' ').ok_or_else(|| format!("{RATCHET}: no number: {line}"))?;
    let lines = lines.parse().map_err(|e| format!("{RATCHET}: {lines}: {e}"))?;
    Ok(Some((what.trim().into(), lines)))
}

/// Everything over its limit. Two functions of one name in one file count as the longer one.
fn measure(files: &[File]) -> Lengths {
    let mut lengths = Lengths::new();
    for file in files {
        let Some(tokens) = &file.tokens else { continue };
        let lines = file.text.lines().count();
        if lines > FILE {
            lengths.insert(file.path.clone(), lines);
        }
        functions(tokens, "", &mut |name, lines| {
            if lines > FUNCTION {
                let longest = lengths.entry(format!("{} {name}", file.path)).or_default();
                *longest = lines.max(*longest);
            }
        });
    }
    lengths
}

/// Calls `found` with every function that has a body, also within macros, and its lines.
fn functions(tokens: &TokenStream, within: &str, found: &mut impl FnMut(&str, usize)) {
    let level: Vec<TokenTree> = tokens.clone().into_iter().collect();
    // The item whose body the next brace opens.
    let mut item: Option<(usize, String, bool)> = None;
    for (n, token) in level.iter().enumerate() {
        match token {
            TokenTree::Ident(i) if *i == "fn" || *i == "trait" || *i == "mod" => {
                // Without a name it is a function type.
                if let Some(name) = level.get(n + 1).and_then(ident) {
                    item = Some((line_of(token), join(within, &name), *i == "fn"));
                }
            }
            TokenTree::Ident(i) if *i == "impl" && item.is_none() => {
                item = Some((line_of(token), join(within, &implementor(&level[n + 1..])), false));
            }
            TokenTree::Punct(p) if p.as_char() == ';' => item = None,
            TokenTree::Group(g) if g.delimiter() == Delimiter::Brace => {
                let (start, name, function) = item.take().unwrap_or((0, within.into(), false));
                if function {
                    found(&name, g.span_close().end().line + 1 - start);
                }
                functions(&g.stream(), &name, found);
            }
            TokenTree::Group(g) => functions(&g.stream(), within, found),
            _ => {}
        }
    }
}

fn join(within: &str, name: &str) -> String {
    if within.is_empty() { name.into() } else { format!("{within}::{name}") }
}

/// The type's name in what follows `impl`, without path and generics.
fn implementor(after: &[TokenTree]) -> String {
    let (mut name, mut depth) = (String::new(), 0i32);
    for token in after {
        match token {
            TokenTree::Group(g) if g.delimiter() == Delimiter::Brace => break,
            _ if is_punct(token, '<') => depth += 1,
            _ if is_punct(token, '>') => depth -= 1,
            TokenTree::Ident(i) if depth == 0 && *i == "where" => break,
            TokenTree::Ident(i) if depth == 0 && *i != "for" && *i != "dyn" => name = i.to_string(),
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(text: &str) -> Vec<(String, usize)> {
        let mut all = Vec::new();
        functions(&text.parse().unwrap(), "", &mut |name, lines| all.push((name.into(), lines)));
        all
    }

    #[test]
    fn functions_are_measured_with_their_place() {
        let text = "fn a() {\n}\nmod m { impl<T: Into<u8>> p::Tr<T> for q::Ty<T> where T: X {\nfn b(f: fn(u8)) -> [u8; 2]\n{ fn c() {} }\n fn d(); } }";
        let expected = [("a", 2), ("m::Ty::b", 2), ("m::Ty::b::c", 1)];
        assert_eq!(lengths(text), expected.map(|(n, l)| (n.to_owned(), l)));
    }

    #[test]
    fn functions_within_macros_are_measured() {
        assert_eq!(lengths("proptest! { #[test]\nfn a(x in 0..9) {\n\n} }"), [("a".to_owned(), 3)]);
    }

    #[test]
    fn an_impl_trait_argument_does_not_hide_the_function() {
        assert_eq!(lengths("fn a(f: impl Fn()) -> impl Fn() { f }"), [("a".to_owned(), 1)]);
    }

    #[test]
    fn the_list_only_shrinks() {
        let now = Lengths::from([("a.rs f".into(), 80), ("b.rs g".into(), 90), ("c.rs h".into(), 75)]);
        let old = "# why\n85 a.rs f\n80 b.rs g\n99 d.rs gone\n";
        assert_eq!(shrink(&now, old).unwrap(), "# why\n80 a.rs f\n80 b.rs g\n");
        let listed = Lengths::from([("a.rs f".into(), 85), ("b.rs g".into(), 80)]);
        // Shorter, longer, and not listed.
        assert_eq!(compare(&now, &listed).len(), 3);
        assert!(compare(&listed, &listed).is_empty());
    }
}
