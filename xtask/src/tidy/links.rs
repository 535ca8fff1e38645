//! Local links and paths in the documents point at files.

use std::path::Path;

use super::Finding;
use crate::source::File;

/// Documents that must be there.
const REQUIRED: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "docs/rfc-exceptions.md",
];

/// A word in backquotes that starts so names a file of this repository.
const PATHS: [&str; 4] = ["crates/", "xtask/", "docs/", "fuzz/"];

pub(super) fn check(root: &Path, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for required in REQUIRED.iter().filter(|r| !root.join(r).is_file()) {
        findings.push(format!("{required}: missing"));
    }
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        let dir = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        for (line, link) in local_links(&file.text) {
            if !root.join(dir).join(&link).exists() {
                findings.push(format!("{}:{line}: link to {link}, which does not exist", file.path));
            }
        }
        for (line, path) in named_paths(&file.text) {
            if !root.join(&path).exists() {
                findings.push(format!("{}:{line}: names `{path}`, which does not exist", file.path));
            }
        }
    }
    findings
}

/// The lines outside code blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(n, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence).then_some((n + 1, line))
    })
}

/// Targets of `[text](target)` and `[label]: target`, without those on the net and within the document.
fn local_links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (n, line) in prose(text) {
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let reference =
            line.strip_prefix('[').and_then(|l| l.split_once("]: ")).map(|(_, target)| target.trim());
        for target in inline.chain(reference) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                links.push((n, path.to_owned()));
            }
        }
    }
    links
}

/// Paths of this repository in backquotes; not those with a pattern or a placeholder.
fn named_paths(text: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for (n, line) in prose(text) {
        for word in line.split('`').skip(1).step_by(2) {
            let plain = word.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
            if plain && PATHS.iter().any(|p| word.starts_with(p)) {
                paths.push((n, word.to_owned()));
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_links_are_found_and_others_left_out() {
        let text = "[a](b.md#c) [d](https://e.f) [g](#h)\n```\n[i](j)\n```\n[k]: l/m.md\n";
        assert_eq!(local_links(text), [(1, "b.md".to_owned()), (5, "l/m.md".to_owned())]);
    }

    #[test]
    fn named_paths_are_found() {
        let text = "see `crates/skb/src/lib.rs`, `crates/*/src` and `cargo x`";
        assert_eq!(named_paths(text), [(1, "crates/skb/src/lib.rs".to_owned())]);
    }
}
