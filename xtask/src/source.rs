//! The repository's files, read once, and their Rust tokens.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

use crate::Error;

/// Directories whose content is made, not written.
const SKIPPED: [&str; 5] = ["target", ".git", "corpus", "artifacts", "coverage"];

/// One text file.
pub(crate) struct File {
    /// Relative to the repository, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The tokens, if this is Rust.
    pub(crate) tokens: Option<TokenStream>,
}

impl File {
    /// A file from memory; fails if it is Rust that does not lex.
    pub(crate) fn new(path: &str, text: &str) -> Result<Self, Error> {
        let tokens = if path.ends_with(".rs") {
            Some(TokenStream::from_str(text).map_err(|e| format!("{path}: not Rust: {e}"))?)
        } else {
            None
        };
        Ok(Self { path: path.into(), text: text.into(), tokens })
    }

    /// Whether every function in here is a test or helps one.
    pub(crate) fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// The 1-based line `n`; empty outside the file.
    pub(crate) fn line(&self, n: usize) -> &str {
        n.checked_sub(1).and_then(|n| self.text.lines().nth(n)).unwrap_or("")
    }
}

/// The top of the repository.
pub(crate) fn root() -> PathBuf {
    // Set by cargo, so that the checks work from any directory of the repository.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_else(|| "xtask".into());
    xtask.parent().map(Path::to_path_buf).unwrap_or_else(|| ".".into())
}

/// All text files below `root`, sorted by path.
pub(crate) fn files(root: &Path) -> Result<Vec<File>, Error> {
    let mut paths = Vec::new();
    walk(root, &mut paths)?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        let relative = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
        files.push(File::new(&relative, &text)?);
    }
    Ok(files)
}

fn walk(dir: &Path, out: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && !SKIPPED.contains(&entry.file_name().to_string_lossy().as_ref()) {
            walk(&entry.path(), out)?;
        } else if kind.is_file() {
            out.push(entry.path());
        }
    }
    Ok(())
}

/// Calls `visit` with every run of sibling tokens in `stream`, outer ones first.
pub(crate) fn for_each_level(stream: &TokenStream, visit: &mut impl FnMut(&[TokenTree])) {
    let level: Vec<TokenTree> = stream.clone().into_iter().collect();
    visit(&level);
    for token in &level {
        if let TokenTree::Group(g) = token {
            for_each_level(&g.stream(), visit);
        }
    }
}

/// The identifier a token is, if it is one.
pub(crate) fn ident(token: &TokenTree) -> Option<String> {
    match token {
        TokenTree::Ident(i) => Some(i.to_string()),
        _ => None,
    }
}

/// Whether a token is this punctuation character.
pub(crate) fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == c)
}

/// The 1-based line a token starts on.
pub(crate) fn line_of(token: &TokenTree) -> usize {
    token.span().start().line
}
