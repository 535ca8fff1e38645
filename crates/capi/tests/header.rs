//! The header is what the source says.

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    // The sources by name rather than by crate: no cargo is run, and so no network is asked.
    let mut builder = cbindgen::Builder::new().with_config(config);
    let mut sources: Vec<_> =
        std::fs::read_dir(root.join("src")).unwrap().map(|entry| entry.unwrap().path()).collect();
    sources.sort();
    for source in sources.iter().filter(|s| !s.ends_with("lib.rs")) {
        builder = builder.with_src(source);
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let header = root.join("include/uncopied.h");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&header, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&header).unwrap_or_default();
    assert!(
        kept == made,
        "include/uncopied.h is out of date: BLESS=1 cargo test -p uncopied-capi --test header"
    );
}
