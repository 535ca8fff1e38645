//! packetdrill's own imports, pointed here: it calls some functions without asking the plug-in.
//!
//! Contract. Only the main program's slots for the functions of [`REPLACED`] are changed, before it calls
//! through them again, each to a function of the same type. The plug-in is never unmapped (packetdrill loads
//! it so), and other libraries keep their own imports.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Once;

use libc::{Elf64_Phdr, c_int, dl_phdr_info, off_t, size_t, socklen_t, ssize_t};
use posix::calls;

use crate::{options, slots};

/// By name, what takes their place.
const REPLACED: [(&CStr, *const c_void); 3] = [
    (c"close", close as *const c_void),
    (c"getsockopt", getsockopt as *const c_void),
    (c"sendfile", sendfile as *const c_void),
];

/// The tool closes what a script left open, and more descriptors than ours.
unsafe extern "C" fn close(fd: c_int) -> c_int {
    // SAFETY: no memory is involved. Test: tests/code_blocks.rs.
    let kernels = || unsafe { libc::close(fd) } as isize;
    if !posix::is_ours(fd) {
        return kernels() as c_int;
    }
    slots::call(|| calls::close(fd), kernels) as c_int
}

unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promises are passed on. Test: tests/code_blocks.rs.
    let kernels = || unsafe { libc::getsockopt(fd, level, name, value, len) } as isize;
    if !posix::is_ours(fd) {
        return kernels() as c_int;
    }
    // SAFETY: as above.
    slots::call(|| unsafe { options::get(fd, level, name, value, len) }, kernels) as c_int
}

unsafe extern "C" fn sendfile(out: c_int, file: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: the caller's promises are passed on. Test: tests/code_blocks.rs.
    let kernels = || unsafe { libc::sendfile(out, file, offset, count) };
    if !posix::is_ours(out) {
        return kernels();
    }
    // SAFETY: as above.
    slots::call(|| unsafe { calls::sendfile(out, file, offset, count) }, kernels)
}

/// Points the main program's imports here, once.
pub(crate) fn patch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the callback has the type that is asked for, and gets no data. Test: tests/code_blocks.rs.
        unsafe { libc::dl_iterate_phdr(Some(main_program), std::ptr::null_mut()) };
    });
}

/// Called with the main program first; stops after it.
unsafe extern "C" fn main_program(info: *mut dl_phdr_info, _: size_t, _: *mut c_void) -> c_int {
    // SAFETY: the loader's record and its program headers, valid during the callback.
    // Test: tests/code_blocks.rs.
    unsafe {
        let headers = std::slice::from_raw_parts((*info).dlpi_phdr, (*info).dlpi_phnum.into());
        Program { base: (*info).dlpi_addr as usize, headers }.patch();
    }
    1
}

/// A program as the loader has laid it out.
struct Program<'a> {
    base: usize,
    headers: &'a [Elf64_Phdr],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Dyn {
    tag: i64,
    value: u64,
}

/// `Elf64_Rela`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rela {
    offset: u64,
    info: u64,
    addend: i64,
}

/// `Elf64_Sym`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    shndx: u16,
    value: u64,
    size: u64,
}

/// Tags of the dynamic section (System V ABI).
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

/// Relocations that are filled with a symbol's address: "jump slot" and "global data".
#[cfg(target_arch = "x86_64")]
const ADDRESS_RELOCATIONS: [u32; 2] = [7, 6];
#[cfg(target_arch = "aarch64")]
const ADDRESS_RELOCATIONS: [u32; 2] = [1026, 1025];

impl Program<'_> {
    /// # Safety
    /// The headers are those of a program that is loaded at `base`.
    unsafe fn patch(&self) {
        let Some(dynamic) = self.headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else { return };
        let start = (self.base + dynamic.p_vaddr as usize) as *const Dyn;
        let count = dynamic.p_memsz as usize / size_of::<Dyn>();
        // SAFETY: the section's place and size are from its header. Test: tests/code_blocks.rs.
        let entries = unsafe { std::slice::from_raw_parts(start, count) };
        let value =
            |tag| entries.iter().take_while(|d| d.tag != 0).find(|d| d.tag == tag).map(|d| d.value as usize);
        let (Some(symbols), Some(strings)) = (value(DT_SYMTAB), value(DT_STRTAB)) else { return };
        // The loader stores addresses of its own here, or leaves the file's as they are.
        let at = |v: usize| if v < self.base { self.base + v } else { v };
        for (table, size) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
            let (Some(table), Some(size)) = (value(table), value(size)) else { continue };
            // SAFETY: the table's place and size, as the section says. Test: tests/code_blocks.rs.
            let relocations =
                unsafe { std::slice::from_raw_parts(at(table) as *const Rela, size / size_of::<Rela>()) };
            for r in relocations.iter().filter(|r| ADDRESS_RELOCATIONS.contains(&(r.info as u32))) {
                // SAFETY: the symbol that the relocation names, and its name. Test: tests/code_blocks.rs.
                let name = unsafe {
                    let symbol = (at(symbols) as *const Sym).add((r.info >> 32) as usize).read();
                    CStr::from_ptr((at(strings) + symbol.name as usize) as *const c_char)
                };
                if let Some((_, replacement)) = REPLACED.iter().find(|(n, _)| *n == name) {
                    // SAFETY: the relocation's place holds a pointer. Test: tests/code_blocks.rs.
                    unsafe { store(self.base + r.offset as usize, *replacement) };
                }
            }
        }
    }
}

/// Stores a pointer in a page that the loader may have made read-only.
///
/// # Safety
/// `place` holds a function pointer of the same type as `value`.
unsafe fn store(place: usize, value: *const c_void) {
    // SAFETY: no memory is involved. Test: tests/code_blocks.rs.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = (place & !(page - 1)) as *mut c_void;
    // It stays writable: other slots of the page may be bound later.
    // SAFETY: the page of a pointer that is there; the place is aligned for it, by the ABI.
    // Test: tests/code_blocks.rs.
    unsafe {
        if libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) == 0 {
            (place as *mut *const c_void).write(value);
        }
    }
}
