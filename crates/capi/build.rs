//! The shared library's name for the loader: programs linked with it look for this file.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Raised when a program that was linked before would no longer work.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libuncopied.so.0");
}
