//! Which programs a preload library can help, found out before they start.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, elf};

/// Why a program cannot be run on the stack.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Nowhere in `PATH`.
    #[error("{0}: command not found")]
    NotFound(String),
    /// Not a program.
    #[error("{0}: not an executable file")]
    NotExecutable(PathBuf),
    /// It cannot be read, so nothing can be said about it.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// The loader ignores preload libraries then.
    #[error(
        "{0} is set-user-ID, set-group-ID or has file capabilities: the loader ignores preload libraries for it. Run it as the user it becomes, from a copy without the bit"
    )]
    Privileged(PathBuf),
    /// There is no loader that could load us.
    #[error(
        "{0} is statically linked: its system calls cannot be intercepted. Use a dynamically linked build"
    )]
    Static(PathBuf),
    /// Go makes its system calls itself unless it is linked with libc for everything.
    #[error(
        "{0} is a Go program: it makes its system calls without libc, so its sockets cannot be intercepted"
    )]
    Go(PathBuf),
    /// Another libc.
    #[error("{0} is linked with `{1}`, not with glibc, which this library needs")]
    OtherLibc(PathBuf, String),
    /// Another architecture, or 32 bits.
    #[error("{0} is not a 64-bit program for this machine")]
    OtherMachine(PathBuf),
}

/// Finds a command as the shell does.
pub fn find(name: &OsStr) -> Result<PathBuf, Refusal> {
    let not_found = || Refusal::NotFound(name.to_string_lossy().into_owned());
    let candidate = Path::new(name);
    if candidate.components().count() > 1 || candidate.is_absolute() {
        return candidate.exists().then(|| candidate.to_path_buf()).ok_or_else(not_found);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| is_executable(p)).ok_or_else(not_found)
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Scripts whose interpreters are scripts end somewhere; the kernel follows four.
const SCRIPT_DEPTH: usize = 5;

/// Whether the library will be loaded into it, and see its calls.
pub fn check(path: &Path) -> Result<(), Refusal> {
    let mut path = path.to_path_buf();
    for _ in 0..SCRIPT_DEPTH {
        if !is_executable(&path) {
            return Err(Refusal::NotExecutable(path));
        }
        if is_privileged(&path) {
            return Err(Refusal::Privileged(path));
        }
        let data = std::fs::read(&path).map_err(|e| Refusal::Unreadable(path.clone(), e))?;
        match interpreter(&data) {
            Some(next) => path = next,
            None => return check_elf(&path, &data),
        }
    }
    Err(Refusal::NotExecutable(path))
}

/// The program that a script names behind `#!`; with `env`, the one that `env` would find.
fn interpreter(data: &[u8]) -> Option<PathBuf> {
    let line = data.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = PathBuf::from(words.next()?);
    if first.file_name() == Some(OsStr::new("env")) {
        let name = words.find(|w| !w.starts_with('-') && !w.contains('='))?;
        return find(OsStr::new(name)).ok();
    }
    Some(first)
}

fn is_privileged(path: &Path) -> bool {
    const SET_ID: u32 = 0o6000;
    let Ok(meta) = path.metadata() else { return false };
    let changes_user = meta.mode() & 0o4000 != 0 && meta.uid() != rustix::process::geteuid().as_raw();
    let changes_group = meta.mode() & 0o2000 != 0 && meta.gid() != rustix::process::getegid().as_raw();
    let set_id = meta.mode() & SET_ID != 0 && (changes_user || changes_group);
    let has_capabilities =
        rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64]).is_ok_and(|n| n > 0);
    set_id || (has_capabilities && !rustix::process::geteuid().is_root())
}

fn check_elf(path: &Path, data: &[u8]) -> Result<(), Refusal> {
    type Header = elf::FileHeader64<Endianness>;
    let other = || Refusal::OtherMachine(path.to_path_buf());
    if !data.starts_with(b"\x7fELF") {
        return Err(Refusal::NotExecutable(path.to_path_buf()));
    }
    let header = Header::parse(data).map_err(|_| other())?;
    let endian = header.endian().map_err(|_| other())?;
    let machine = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };
    if header.e_machine(endian) != machine {
        return Err(other());
    }
    let segments = header.program_headers(endian, data).map_err(|_| other())?;
    let loader = segments.iter().find_map(|s| s.interpreter(endian, data).ok().flatten());
    let is_go = header
        .sections(endian, data)
        .is_ok_and(|sections| sections.section_by_name(endian, b".go.buildinfo").is_some());
    if is_go {
        return Err(Refusal::Go(path.to_path_buf()));
    }
    let Some(loader) = loader else { return Err(Refusal::Static(path.to_path_buf())) };
    let loader = String::from_utf8_lossy(loader).into_owned();
    if !loader.contains("ld-linux") {
        return Err(Refusal::OtherLibc(path.to_path_buf(), loader));
    }
    let has_libraries = segments
        .iter()
        .filter_map(|s| s.dynamic(endian, data).ok().flatten())
        .flatten()
        .any(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED));
    if has_libraries { Ok(()) } else { Err(Refusal::Static(path.to_path_buf())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_programs_and_scripts_are_taken() {
        check(Path::new("/bin/sh")).unwrap();
        let dir = std::env::temp_dir().join(format!("uncopied-program-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let script = dir.join("script");
        std::fs::write(&script, "#!/usr/bin/env sh\nexit 0\n").unwrap();
        assert!(matches!(check(&script), Err(Refusal::NotExecutable(_))), "no x bit");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        check(&script).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_cannot_be_helped_is_refused_with_the_reason() {
        assert!(matches!(find(OsStr::new("no-such-command-anywhere")), Err(Refusal::NotFound(_))));
        assert!(matches!(find(OsStr::new("./no/such/file")), Err(Refusal::NotFound(_))));
        // The loader itself is a statically linked program.
        let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
        let loader = loader.iter().map(Path::new).find(|p| p.exists()).unwrap();
        assert!(matches!(check(loader), Err(Refusal::Static(_))));
        assert!(matches!(check_elf(Path::new("x"), b"\x7fELF"), Err(Refusal::OtherMachine(_))));
        assert!(matches!(check_elf(Path::new("x"), b"text"), Err(Refusal::NotExecutable(_))));
    }
}
