//! The library as `make install` installs it, and C programs compiled against it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Seconds; no test program takes longer, under valgrind neither.
const LIMIT: &str = "120";

fn runs(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Whether what compiling needs is there. Root, as in CI, could have installed it: then it must be.
fn has_tools() -> bool {
    let missing: Vec<_> = ["cc", "make", "pkg-config"].into_iter().filter(|tool| !runs(tool)).collect();
    if missing.is_empty() {
        return true;
    }
    let root = rustix::process::geteuid().is_root();
    assert!(!root, "missing: {missing:?}: apt-get install gcc libc6-dev make pkg-config");
    eprintln!("SKIPPED: missing: {missing:?}");
    false
}

/// Runs a command that must succeed; its standard output.
pub(crate) fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// The library, installed.
pub(crate) struct Installed {
    root: PathBuf,
}

/// Installs the library, once for all tests of a file; `None` if there is no compiler to use it with.
pub(crate) fn installed() -> Option<&'static Installed> {
    static INSTALLED: OnceLock<Option<Installed>> = OnceLock::new();
    INSTALLED.get_or_init(|| has_tools().then(Installed::make)).as_ref()
}

impl Installed {
    fn make() -> Self {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let root = scratch.join(env!("CARGO_CRATE_NAME"));
        let _ = std::fs::remove_dir_all(&root);
        let variable = |name: &str, value: &Path| format!("{name}={}", value.display());
        said(
            Command::new("make")
                .args(["-C", env!("CARGO_MANIFEST_DIR"), "install", "PREFIX=/usr", "PROFILE=test"])
                .arg(variable("DESTDIR", &root))
                .arg(variable("CARGO", Path::new(env!("CARGO"))))
                .arg(variable("CARGO_TARGET_DIR", scratch.parent().unwrap())),
        );
        Self { root }
    }

    /// The file below the place of installation.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.root.join("usr").join(file)
    }

    /// What pkg-config says programs need.
    fn flags(&self, which: &str) -> Vec<String> {
        let flags = said(
            Command::new("pkg-config")
                .env("PKG_CONFIG_PATH", self.path("lib/pkgconfig"))
                .env("PKG_CONFIG_SYSROOT_DIR", &self.root)
                .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
                .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
                .args([which, "uncopied"]),
        );
        flags.split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a C file of this crate, with the shared library or the static one.
    pub(crate) fn compile(&self, source: &str, statically: bool) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let name = source.file_stem().unwrap().to_str().unwrap();
        let program = self.root.join(if statically { format!("{name}-static") } else { name.to_owned() });
        let mut libraries = self.flags("--libs");
        if statically {
            libraries = self.flags("--static").into_iter().chain(self.flags("--libs-only-L")).collect();
            libraries.push(self.path("lib/libuncopied.a").display().to_string());
            libraries
                .extend(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"].map(Into::into));
        }
        said(
            Command::new("cc")
                .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-O1"])
                .args(self.flags("--cflags"))
                .arg(source)
                .arg("-o")
                .arg(&program)
                .args(libraries)
                .arg("-pthread"),
        );
        program
    }

    /// A command whose programs find the library, and which ends.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", LIMIT]).arg(program).env("LD_LIBRARY_PATH", self.path("lib"));
        command
    }

    /// Under valgrind, if there is one: no access to memory that is not the program's, and, unless it has
    /// children, which leave to their parent what they inherit, nothing that is lost.
    pub(crate) fn memcheck(&self, program: &Path, children: bool) {
        if !runs("valgrind") {
            eprintln!("SKIPPED: no valgrind");
            return;
        }
        let mut valgrind = self.command("valgrind");
        // Optimised safe code may look at both halves of a condition at once, which valgrind cannot tell from
        // reading what was never written.
        valgrind.args(["-q", "--error-exitcode=9", "--undef-value-errors=no"]);
        if !children {
            valgrind.args([
                "--leak-check=full",
                "--show-leak-kinds=definite",
                "--errors-for-leak-kinds=definite",
            ]);
        }
        said(valgrind.arg(program));
    }
}
