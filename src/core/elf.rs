//! What tranche reads of an ELF library: its ABI, its SONAME, a note, the places of functions.
//!
//! A driver library may have a hundred megabytes, and a file of an image may be hostile. So only the few pieces that
//! are needed are read, each with a limit, and every number in the file is checked before it is used. The structures
//! are those of the `object` crate. Its reader is not used, because it allocates any size that the file names.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use object::elf::{self, FileHeader32, FileHeader64};
use object::endian::Endianness;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use crate::error::{Error, Result};
use crate::ldcache::AbiFlags;

mod notes;
mod source;
mod symbols;

pub use notes::note;
use source::ElfSource;
pub use source::ReadAt;
pub use symbols::functions;

/// Limits on what is read of a file. Driver libraries have a dozen program headers, thirty dynamic entries and forty
/// sections; a file beyond these is not a library that a driver or a distribution ships.
const MAX_PROGRAM_HEADERS: u64 = 512;
const MAX_DYNAMIC_BYTES: u64 = 64 << 10;
const MAX_SECTIONS: u64 = 4096;
/// glibc's loader takes names of any length; a SONAME is also a file name, which has 255 bytes at most.
const MAX_SONAME: u64 = 255;

/// What is read of a shared library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedLibrary {
    /// Whether its pointers have 64 bits.
    pub is_64: bool,
    /// Its ABI in a loader's cache; `None` for an unknown architecture.
    pub flags: Option<AbiFlags>,
    /// The name that programs ask for; a library may have none, and is then found by its file's name.
    pub soname: Option<OsString>,
}

/// Reads what [`SharedLibrary`] says from an open file, or from a slice.
///
/// # Errors
/// Returns an error for a file that is not an ELF file or not a shared library, and for a structure that is outside the
/// file or larger than any real one. A library may lack a dynamic section or a SONAME.
pub fn read<S: ReadAt>(file: S) -> Result<SharedLibrary> {
    let mut source = ElfSource::new(file);
    match source.class()? {
        elf::ELFCLASS64 => read_class::<FileHeader64<Endianness>, S>(&mut source),
        _ => read_class::<FileHeader32<Endianness>, S>(&mut source),
    }
}

/// Whether a program is started by a loader, which it names (PT_INTERP). A static program has none.
///
/// # Errors
/// Returns an error for a file that is not an ELF file, and for a table that is outside the file or larger than any
/// real one.
pub fn needs_loader<S: ReadAt>(file: S) -> Result<bool> {
    fn of_class<H: FileHeader<Endian = Endianness>, S: ReadAt>(source: &mut ElfSource<S>) -> Result<bool> {
        let (header, endian) = source.header::<H>()?;
        let segments = segments(source, &header, endian)?;
        Ok(segments.iter().any(|segment| segment.p_type(endian) == elf::PT_INTERP))
    }
    let mut source = ElfSource::new(file);
    match source.class()? {
        elf::ELFCLASS64 => of_class::<FileHeader64<Endianness>, S>(&mut source),
        _ => of_class::<FileHeader32<Endianness>, S>(&mut source),
    }
}

fn segments<H: FileHeader<Endian = Endianness>, S: ReadAt>(
    source: &mut ElfSource<S>,
    header: &H,
    endian: Endianness,
) -> Result<Vec<H::ProgramHeader>> {
    let count = u64::from(header.e_phnum(endian));
    if count > MAX_PROGRAM_HEADERS {
        return Err(malformed(format_args!("{count} program headers")));
    }
    source.table::<H::ProgramHeader>(header.e_phoff(endian).into(), count, "program headers")
}

fn read_class<H: FileHeader<Endian = Endianness>, S: ReadAt>(source: &mut ElfSource<S>) -> Result<SharedLibrary> {
    let (header, endian) = source.header::<H>()?;
    if header.e_type(endian) != elf::ET_DYN {
        return Err(malformed("not a shared library"));
    }
    let is_64 = header.is_class_64();
    Ok(SharedLibrary {
        is_64,
        flags: AbiFlags::of(is_64, header.e_machine(endian), header.e_flags(endian)),
        soname: soname::<H, S>(source, &header, endian)?,
    })
}

fn soname<H: FileHeader<Endian = Endianness>, S: ReadAt>(
    source: &mut ElfSource<S>,
    header: &H,
    endian: Endianness,
) -> Result<Option<OsString>> {
    let segments = segments(source, header, endian)?;
    let Some(dynamic) = segments.iter().find(|s| s.p_type(endian) == elf::PT_DYNAMIC) else {
        return Ok(None);
    };
    let size: u64 = dynamic.p_filesz(endian).into();
    if size > MAX_DYNAMIC_BYTES {
        return Err(malformed(format_args!("a dynamic section of {size} bytes")));
    }
    let count = size / size_of::<H::Dyn>() as u64;
    let entries = source.table::<H::Dyn>(dynamic.p_offset(endian).into(), count, "dynamic section")?;
    let (mut name, mut strings) = (None, None);
    for entry in entries.iter().take_while(|e| e.d_tag(endian) != elf::DT_NULL) {
        match entry.d_tag(endian) {
            elf::DT_SONAME => name = Some(entry.d_val(endian).into()),
            elf::DT_STRTAB => strings = Some(entry.d_val(endian).into()),
            _ => {}
        }
    }
    let Some(name) = name else { return Ok(None) };
    let strings: u64 = strings.ok_or_else(|| malformed("a SONAME without a string table"))?;
    // The table is given by its address in memory. The segment that is loaded there gives its place in the file.
    let at = segments
        .iter()
        .filter(|s| s.p_type(endian) == elf::PT_LOAD)
        .find_map(|s| {
            let within = strings.checked_sub(s.p_vaddr(endian).into())?;
            (within < s.p_filesz(endian).into()).then_some(())?;
            within.checked_add(s.p_offset(endian).into())?.checked_add(name)
        });
    let at = at.ok_or_else(|| malformed(format_args!("no segment holds its strings at {strings:#x}")))?;
    let name = source.string(at, MAX_SONAME, "SONAME")?;
    // A SONAME is also the name of a link beside the library, so it cannot have a slash.
    if name.is_empty() || name.contains(&b'/') {
        return Err(malformed(format_args!(
            "SONAME {} is not a file name",
            OsStr::from_bytes(&name).display()
        )));
    }
    Ok(Some(OsString::from_vec(name)))
}

fn malformed(what: impl std::fmt::Display) -> Error {
    Error::failed("ELF file", what)
}

/// The bytes of `window` before its first zero.
fn until_zero(window: &[u8]) -> Option<&[u8]> {
    CStr::from_bytes_until_nul(window).ok().map(CStr::to_bytes)
}

#[cfg(test)]
mod tests;
