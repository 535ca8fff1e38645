//! The library as C programs see it: installed, compiled against with every warning an error, run, and run
//! under valgrind.

mod common;

use std::path::Path;
use std::process::Command;

use common::{installed, said};

/// Compiles and runs a program of `tests/c`, then runs it under valgrind.
fn passes(name: &str) {
    let Some(library) = installed() else { return };
    let program = library.compile(&format!("tests/c/{name}.c"), false);
    assert_eq!(said(&mut library.command(&program)), "ok\n");
    library.memcheck(&program, name == "forked");
}

fn example(name: &str, says: &str) {
    let Some(library) = installed() else { return };
    let program = library.compile(&format!("examples/{name}.c"), false);
    assert_eq!(said(&mut library.command(&program)), says);
    library.memcheck(&program, false);
}

#[test]
fn lent_buffers_are_not_copied_and_come_back_by_the_ring() {
    example("link_pair", "16777216 bytes in 256 calls, 256 of them not copied\n");
}

#[test]
fn lent_buffers_come_back_by_callback() {
    example("callbacks", "2000000 bytes, 20 buffers freed by callbacks, 0 copied\n");
}

#[test]
fn misuse_has_defined_errors() {
    passes("misuse");
}

#[test]
fn received_buffers_outlive_their_stack() {
    passes("owned");
}

#[test]
fn a_stack_that_is_freed_gives_everything_back() {
    passes("teardown");
}

#[test]
fn descriptors_of_stack_and_kernel_are_waited_for_together() {
    passes("readiness");
}

#[test]
fn a_child_leaves_the_stacks_to_its_parent() {
    passes("forked");
}

#[test]
fn the_calls_are_those_of_posix() {
    passes("calls");
}

#[test]
fn the_static_library_is_whole() {
    let Some(library) = installed() else { return };
    let program = library.compile("examples/link_pair.c", true);
    // Nothing of ours is needed at run time.
    let said = Command::new(&program).env_remove("LD_LIBRARY_PATH").output().unwrap();
    assert!(said.status.success(), "{said:?}");
}

#[test]
fn programs_are_linked_with_the_soname() {
    let Some(library) = installed() else { return };
    let link = |name: &str| std::fs::read_link(library.path("lib").join(name)).unwrap();
    assert_eq!(link("libuncopied.so"), Path::new("libuncopied.so.0"));
    assert_eq!(link("libuncopied.so.0"), Path::new(concat!("libuncopied.so.", env!("CARGO_PKG_VERSION"))));
    let program = library.compile("examples/callbacks.c", false);
    let bytes = std::fs::read(program).unwrap();
    let needed = b"libuncopied.so.0\0";
    assert!(bytes.windows(needed.len()).any(|w| w == needed));
}

#[test]
fn only_our_names_are_exported() {
    let Some(library) = installed() else { return };
    let Ok(nm) = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(library.path("lib/libuncopied.so"))
        .output()
    else {
        return eprintln!("SKIPPED: no nm");
    };
    let names = String::from_utf8(nm.stdout).unwrap();
    let header = std::fs::read_to_string(library.path("include/uncopied.h")).unwrap();
    let mut found = 0;
    for name in names.lines().filter_map(|line| line.split(' ').next()) {
        assert!(name.starts_with("uc_"), "{name}");
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
        found += 1;
    }
    assert!(found > 50, "{found} functions");
}
