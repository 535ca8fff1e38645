//! The crate graph: dependencies point one way.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Finding;
use crate::Error;

/// Each crate, lowest first, and those of ours it may depend on.
///
/// `tcp` knows no IP and `inet` no TCP: `stack` alone joins them.
const EDGES: &[(&str, &[&str])] = &[
    ("time", &[]),
    ("wire", &[]),
    ("skb", &[]),
    ("netdev", &["skb", "wire", "time"]),
    ("dev", &["netdev", "skb", "wire", "time"]),
    ("inet", &["netdev", "skb", "wire", "time"]),
    ("tcp", &["skb", "wire", "time"]),
    ("stack", &["tcp", "inet", "netdev", "skb", "wire", "time"]),
    // `skb` and `time` for what the facade exports again: `Lent`, `Reason`, `Clock`.
    ("uncopied", &["stack", "dev", "skb", "time"]),
    ("sim", &["stack", "dev", "tcp", "inet", "netdev", "skb", "wire", "time"]),
    ("posix", &["stack", "dev"]),
    ("preload", &["posix"]),
    ("capi", &["posix", "stack"]),
    ("cli", &["uncopied", "sim", "posix"]),
    ("packetdrill", &["posix", "stack"]),
    ("xtask", &[]),
];

/// What the tests of a crate may use besides: a world to run in.
const TEST_EDGES: &[(&str, &[&str])] = &[
    ("stack", &["dev"]),
    ("uncopied", &["sim"]),
    ("cli", &["dev"]),
    ("packetdrill", &["wire"]),
    ("capi", &["dev"]),
];

/// Checks every manifest of the workspace against the tables.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(judge(&dependencies(&metadata)))
}

/// A dependency between two crates of ours.
#[derive(Debug, PartialEq, Eq)]
struct Edge {
    to: String,
    /// Only for tests, examples and benches.
    dev: bool,
}

/// The crate's name in the tables: `uncopied-skb` is `skb`.
fn short(package: &str) -> &str {
    package.strip_prefix("uncopied-").unwrap_or(package)
}

/// Every crate of the workspace with the crates of the workspace it depends on.
fn dependencies(metadata: &Value) -> BTreeMap<String, Vec<Edge>> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let ours: Vec<String> = packages.iter().map(|p| text(&p["name"])).collect();
    let edges = |package: &Value| {
        list(&package["dependencies"])
            .iter()
            .filter(|d| ours.contains(&text(&d["name"])))
            .map(|d| Edge { to: short(&text(&d["name"])).into(), dev: d["kind"] == "dev" })
            .collect()
    };
    packages.iter().map(|p| (short(&text(&p["name"])).to_owned(), edges(p))).collect()
}

fn judge(graph: &BTreeMap<String, Vec<Edge>>) -> Vec<Finding> {
    let row = |table: &'static [(&str, &[&str])], name: &str| {
        table.iter().find(|(n, _)| *n == name).map(|(_, to)| *to)
    };
    let mut findings = Vec::new();
    for (from, edges) in graph {
        let Some(allowed) = row(EDGES, from) else {
            findings.push(format!("crate {from} has no layer: add it to EDGES in xtask/src/tidy/graph.rs"));
            continue;
        };
        let in_tests = row(TEST_EDGES, from).unwrap_or_default();
        for Edge { to, dev } in edges {
            let to = to.as_str();
            if !(allowed.contains(&to) || *dev && in_tests.contains(&to)) {
                let of = if *dev { "the tests of " } else { "" };
                findings.push(format!("{of}{from} must not depend on {to}: dependencies point one way (EDGES in xtask/src/tidy/graph.rs)"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(from: &str, to: &str, dev: bool) -> BTreeMap<String, Vec<Edge>> {
        BTreeMap::from([(from.into(), vec![Edge { to: to.into(), dev }])])
    }

    #[test]
    fn an_edge_of_the_table_passes_and_its_reverse_does_not() {
        assert!(judge(&graph("tcp", "skb", false)).is_empty());
        assert_eq!(judge(&graph("skb", "tcp", false)).len(), 1);
        assert_eq!(judge(&graph("tcp", "inet", false)).len(), 1);
    }

    #[test]
    fn a_test_edge_is_for_tests_only() {
        assert!(judge(&graph("stack", "dev", true)).is_empty());
        assert_eq!(judge(&graph("stack", "dev", false)).len(), 1);
    }

    #[test]
    fn a_crate_that_is_not_in_the_table_is_found() {
        assert_eq!(judge(&graph("newcomer", "skb", false)).len(), 1);
    }

    #[test]
    fn the_table_points_down_only() {
        for (n, (from, edges)) in EDGES.iter().enumerate() {
            for to in *edges {
                let at = EDGES.iter().position(|(name, _)| name == to);
                assert!(at.is_some_and(|at| at < n), "{from} -> {to}");
            }
        }
    }

    #[test]
    fn metadata_is_read() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "uncopied-tcp", "dependencies": [
                { "name": "uncopied-skb", "kind": null }, { "name": "bytes", "kind": null } ] },
            { "name": "uncopied-skb", "dependencies": [ { "name": "uncopied-tcp", "kind": "dev" } ] },
        ] });
        let graph = dependencies(&metadata);
        assert_eq!(graph["tcp"], [Edge { to: "skb".into(), dev: false }]);
        assert_eq!(graph["skb"], [Edge { to: "tcp".into(), dev: true }]);
    }
}
