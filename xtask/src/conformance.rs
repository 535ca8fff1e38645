//! Which requirement of which RFC has which line, and which test.
//!
//! A citation stands above the line that decides:
//!
//! ```text
//! //= rfc9293#section-3.10.7.4      document and section
//! //# A normative sentence.         one or more lines
//! ```
//!
//! In a test file, or with a line `//: test` in the citation, it names the function below it as a test of
//! that sentence; without a sentence, of every cited sentence of that section.

use std::collections::BTreeMap;

use crate::Error;
use crate::source::{self, File};

/// One citation.
#[derive(Debug, PartialEq, Eq)]
struct Citation {
    /// 1-based line of its first line.
    line: usize,
    rfc: u32,
    section: String,
    sentence: String,
    /// The function it names, if it is a test's.
    test: Option<String>,
}

/// Prints the report; true if every citation is well formed.
pub(crate) fn run() -> Result<bool, Error> {
    let files = source::files(&source::root())?;
    let mut broken = Vec::new();
    let mut all = Vec::new();
    for file in files.iter().filter(|f| f.tokens.is_some()) {
        broken.extend(malformed(file));
        all.extend(citations(file).into_iter().flatten().map(|c| (file.path.as_str(), c)));
    }
    print!("{}", report(&all));
    for finding in &broken {
        eprintln!("{finding}");
    }
    Ok(broken.is_empty())
}

/// The file's citations that do not follow the form above.
pub(crate) fn malformed(file: &File) -> Vec<String> {
    if file.tokens.is_none() {
        return Vec::new();
    }
    citations(file).into_iter().filter_map(Result::err).collect()
}

fn citations(file: &File) -> Vec<Result<Citation, String>> {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let starts = lines.iter().enumerate().filter_map(|(n, line)| Some((n, line.strip_prefix("//= ")?)));
    starts.map(|(n, target)| citation(file, &lines, n, target)).collect()
}

fn citation(file: &File, lines: &[&str], n: usize, target: &str) -> Result<Citation, String> {
    let wrong = |what: &str| format!("{}:{}: citation {what}: {target}", file.path, n + 1);
    let (rfc, section) = target.trim().split_once('#').ok_or_else(|| wrong("without a section"))?;
    let rfc = rfc.strip_prefix("rfc").and_then(|n| n.parse().ok()).ok_or_else(|| wrong("of no RFC"))?;
    let place = section.strip_prefix("section-").or(section.strip_prefix("appendix-"));
    if !place.is_some_and(|p| !p.is_empty() && p.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')) {
        return Err(wrong("of no section"));
    }
    let body = lines[n + 1..].iter().take_while(|l| l.starts_with("//# ") || l.starts_with("//: "));
    let sentence: Vec<&str> = body.clone().filter_map(|l| l.strip_prefix("//# ")).collect();
    let is_test = file.is_test() || body.clone().any(|l| *l == "//: test");
    let below = &lines[n + 1 + body.count()..];
    let test = if is_test {
        Some(below.iter().find_map(|l| function(l)).ok_or_else(|| wrong("above no test"))?)
    } else {
        None
    };
    if sentence.is_empty() && test.is_none() {
        return Err(wrong("without a sentence"));
    }
    Ok(Citation { line: n + 1, rfc, section: section.into(), sentence: sentence.join(" "), test })
}

/// The name in a line that begins a function.
fn function(line: &str) -> Option<String> {
    let (before, after) = line.split_once("fn ")?;
    let begins = before.is_empty() || before.ends_with(' ') && !before.contains("//");
    begins.then(|| after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

/// A section's key that sorts 3.10 after 3.9.
fn order(section: &str) -> Vec<(u32, String)> {
    section.split(['.', '-']).map(|p| (p.parse().unwrap_or(0), p.to_owned())).collect()
}

/// A sentence as it reads within a Markdown table.
fn escape(sentence: &str) -> String {
    sentence.replace('|', "\\|").replace('<', "&lt;")
}

fn report(all: &[(&str, Citation)]) -> String {
    let mut rows = BTreeMap::new();
    for (path, c) in all.iter().filter(|(_, c)| c.test.is_none()) {
        let row = rows.entry((c.rfc, order(&c.section), &c.section, &c.sentence)).or_insert_with(Vec::new);
        row.push(format!("{path}:{}", c.line));
    }
    let mut text = String::from("| RFC | Section | Requirement | Line | Test |\n|---|---|---|---|---|\n");
    let mut tested = 0;
    for ((rfc, _, section, sentence), lines) in &rows {
        let names = |c: &&(&str, Citation)| {
            c.1.rfc == *rfc
                && c.1.section == **section
                && (c.1.sentence.is_empty() || c.1.sentence == **sentence)
        };
        let tests: Vec<String> = all
            .iter()
            .filter(names)
            .filter_map(|(path, c)| Some(format!("{} ({path}:{})", c.test.as_ref()?, c.line)))
            .collect();
        tested += usize::from(!tests.is_empty());
        let place = section.replace("section-", "").replace("appendix-", "appendix ");
        let (lines, tests, sentence) = (lines.join("<br>"), tests.join("<br>"), escape(sentence));
        text += &format!("| {rfc} | {place} | {sentence} | {lines} | {tests} |\n");
    }
    text + &format!(
        "\n{} requirements cited, {tested} of them named by a test. Those not met: docs/rfc-exceptions.md.\n",
        rows.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Indented, so that they are no citations of this file.
    const CODE: &str = "fn f() {\n  //= rfc9293#section-3.10\n  //# One\n  //# sentence.\n  g();\n}\n";
    const TEST: &str = "  //= rfc9293#section-3.10\n  //: test\n  #[test]\n  fn it_holds() {}\n";

    fn file(path: &str, text: &str) -> File {
        File::new(path, text).unwrap()
    }

    #[test]
    fn a_citation_is_its_section_and_its_sentence() {
        let found = citations(&file("crates/x/src/y.rs", CODE)).remove(0).unwrap();
        assert_eq!((found.line, found.rfc, found.section.as_str()), (2, 9293, "section-3.10"));
        assert_eq!((found.sentence.as_str(), found.test), ("One sentence.", None));
    }

    #[test]
    fn a_test_is_named_with_what_it_tests() {
        let found = citations(&file("crates/x/src/y.rs", TEST)).remove(0).unwrap();
        assert_eq!(found.test.as_deref(), Some("it_holds"));
        let code = citations(&file("crates/x/src/z.rs", CODE)).remove(0).unwrap();
        let text = report(&[("y.rs", found), ("z.rs", code)]);
        assert!(text.contains("| 9293 | 3.10 | One sentence. | z.rs:2 | it_holds (y.rs:1) |"), "{text}");
    }

    #[test]
    fn what_cannot_be_followed_is_found() {
        for target in ["9293#section-3", "rfc9293", "rfc9293#3.10", "rfc9293#section-"] {
            assert_eq!(malformed(&file("a.rs", &format!("//= {target}\n//# x\n"))).len(), 1, "{target}");
        }
        assert_eq!(malformed(&file("a.rs", "//= rfc1#section-1\n")).len(), 1, "no sentence");
        assert!(malformed(&file("a.rs", CODE)).is_empty());
    }
}
