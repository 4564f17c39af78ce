//! Bytes to [`Cache`].

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::endian::Endianness;

use super::{
    AbiFlags, Cache, CacheEntry, EXTENSION_MAGIC, HWCAP_EXTENSION, Hwcap, ISA_LEVEL_MASK, MAX_HWCAP_NAME, MAX_STRING,
    NEW_ENTRY, NEW_HEADER, NEW_MAGIC, OLD_ENTRY, OLD_HEADER, OLD_MAGIC, Skipped, TAG_GLIBC_HWCAPS, u32_at, u64_at,
};
use crate::error::{Error, Result};

const OBJECT: &str = "ld.so.cache";
/// The byte orders to try for a file that does not say its own: first that of this machine and its containers.
const ORDERS: [Endianness; 3] = [NATIVE, Endianness::Little, Endianness::Big];
const NATIVE: Endianness = if cfg!(target_endian = "big") {
    Endianness::Big
} else {
    Endianness::Little
};

/// Reads a cache of any of the three shapes.
///
/// An entry that cannot be used (a string outside the file, without an end, or longer than a path may be) is left
/// out and counted in [`Cache::skipped`]; the loader ignores it too.
///
/// # Errors
/// Returns an error with the offset or the numbers for an unknown magic, a table that is longer than the file, an
/// invalid byte order, and strings that overlap so much that they take many times the file when they are written out.
/// No `ldconfig` writes such a file.
pub fn read(bytes: &[u8]) -> Result<Cache<'_>> {
    if bytes.starts_with(NEW_MAGIC) {
        return read_new(bytes, 0);
    }
    if !bytes.starts_with(OLD_MAGIC) {
        return Err(Error::failed(
            OBJECT,
            format_args!("not a loader's cache: unknown magic in {} bytes", bytes.len()),
        ));
    }
    let found = ORDERS.into_iter().find_map(|endian| {
        let count = u32_at(endian, bytes, 12)?;
        Some((endian, table_end(bytes, OLD_HEADER, OLD_ENTRY, count)?))
    });
    let (endian, table_end) = found.ok_or_else(|| truncated(bytes, 12, u32_at(NATIVE, bytes, 12)))?;
    // The new table begins at the next multiple of its alignment, which is 4 where ldconfig ran as a 32-bit program.
    for align in [8, 4] {
        let start = table_end.next_multiple_of(align);
        if bytes.get(start..).is_some_and(|rest| rest.starts_with(NEW_MAGIC)) {
            return read_new(bytes, start);
        }
    }
    read_old(bytes, endian, table_end)
}

/// Where a table of `count` entries after a header ends, if that is within the file.
fn table_end(bytes: &[u8], header: usize, entry: usize, count: u32) -> Option<usize> {
    let end = (count as usize).checked_mul(entry)?.checked_add(header)?;
    (end <= bytes.len()).then_some(end)
}

fn truncated(bytes: &[u8], at: usize, count: Option<u32>) -> Error {
    let size = bytes.len();
    match count {
        Some(count) => Error::failed(
            OBJECT,
            format_args!("the count at offset {at} says {count} libraries, more than fit in {size} bytes"),
        ),
        None => Error::failed(OBJECT, format_args!("the header ends at {size} bytes")),
    }
}

fn read_old(bytes: &[u8], endian: Endianness, table_end: usize) -> Result<Cache<'_>> {
    let mut strings = Strings::new(bytes, table_end, table_end);
    let mut skipped = Skipped::default();
    let mut entries = Vec::new();
    let table = bytes.get(OLD_HEADER..table_end).unwrap_or_default();
    for (index, raw) in table.chunks_exact(OLD_ENTRY).enumerate() {
        match common_fields(endian, raw, &mut strings) {
            Ok((flags, soname, path)) => entries.push(CacheEntry::new(soname, path, flags)),
            Err(what) => skipped.add(index, &what),
        }
        strings.check_budget()?;
    }
    Ok(Cache {
        endian,
        entries,
        skipped,
    })
}

fn read_new(bytes: &[u8], start: usize) -> Result<Cache<'_>> {
    let rest = bytes.get(start..).unwrap_or_default();
    let flag = rest.get(28).copied().unwrap_or_default();
    let fits = |endian| table_end(rest, NEW_HEADER, NEW_ENTRY, u32_at(endian, rest, 20)?);
    let endian = match flag & 3 {
        2 => Endianness::Little,
        3 => Endianness::Big,
        1 => {
            let at = start + 28;
            return Err(Error::failed(
                OBJECT,
                format_args!("marked as invalid: byte order {flag:#04x} at offset {at}"),
            ));
        }
        // glibc before 2.33 does not say; a loader then assumes its own.
        _ => ORDERS
            .into_iter()
            .find(|endian| fits(*endian).is_some())
            .unwrap_or(NATIVE),
    };
    let table_end = fits(endian).ok_or_else(|| truncated(bytes, start + 20, u32_at(endian, rest, 20)))?;
    let mut skipped = Skipped::default();
    let hwcaps = hwcaps(bytes, start, endian).unwrap_or_else(|what| {
        skipped.first = Some(what);
        &[]
    });
    let mut strings = Strings::new(bytes, start, start + table_end);
    let table = rest.get(NEW_HEADER..table_end).unwrap_or_default();
    let mut entries = Vec::with_capacity(table.len() / NEW_ENTRY);
    for (index, raw) in table.chunks_exact(NEW_ENTRY).enumerate() {
        match new_entry(endian, raw, &mut strings, hwcaps) {
            Ok(entry) => entries.push(entry),
            Err(what) => skipped.add(index, &what),
        }
        strings.check_budget()?;
    }
    Ok(Cache {
        endian,
        entries,
        skipped,
    })
}

/// The three words that both shapes begin an entry with.
fn common_fields<'a>(
    endian: Endianness,
    raw: &[u8],
    strings: &mut Strings<'a>,
) -> Result<(AbiFlags, &'a OsStr, &'a Path), String> {
    let word = |at| u32_at(endian, raw, at).unwrap_or_default();
    let path = strings.get(word(8));
    // Nearly every path ends in its SONAME, and `ldconfig` then writes one string for both.
    let shared = match &path {
        Ok(path) => strings.end_of(word(8), path, word(4)),
        Err(_) => None,
    };
    let soname = match shared {
        Some(name) => name,
        None => strings.get(word(4)).map_err(|e| format!("name at {e}"))?,
    };
    let path = path.map_err(|e| format!("path at {e}"))?;
    Ok((AbiFlags(word(0)), soname, Path::new(path)))
}

fn new_entry<'a>(
    endian: Endianness,
    raw: &[u8],
    strings: &mut Strings<'a>,
    hwcaps: &[u8],
) -> Result<CacheEntry<'a>, String> {
    let (flags, soname, path) = common_fields(endian, raw, strings)?;
    let osversion = u32_at(endian, raw, 12).unwrap_or_default();
    let bits = u64_at(endian, raw, 16).unwrap_or_default();
    let high = bits >> 32;
    let hwcap = if high & !ISA_LEVEL_MASK == HWCAP_EXTENSION >> 32 {
        let index = bits as u32;
        let offset = (index as usize)
            .checked_mul(4)
            .and_then(|at| u32_at(endian, hwcaps, at));
        let offset = offset.ok_or_else(|| format!("no processor name with index {index}"))?;
        let name = strings
            .at(offset, MAX_HWCAP_NAME)
            .map_err(|e| format!("processor name {index} at {e}"))?;
        Hwcap::Named {
            name,
            isa_level: (high & ISA_LEVEL_MASK) as u16,
        }
    } else {
        Hwcap::Bits(bits)
    };
    Ok(CacheEntry {
        soname,
        path,
        flags,
        osversion,
        hwcap,
    })
}

impl Skipped {
    fn add(&mut self, index: usize, what: &str) {
        self.count += 1;
        self.first.get_or_insert_with(|| format!("entry {index}: {what}"));
    }
}

/// The strings of a file, and how many bytes of them were returned.
struct Strings<'a> {
    bytes: &'a [u8],
    /// Where offsets begin to count.
    base: usize,
    /// End of the table: no string begins before it.
    first: usize,
    given: usize,
}

impl<'a> Strings<'a> {
    fn new(bytes: &'a [u8], base: usize, first: usize) -> Self {
        Strings {
            bytes,
            base,
            first,
            given: 0,
        }
    }

    /// The string at `offset` if it is the end of `whole`, which is at `at`. Its bytes are counted.
    fn end_of(&mut self, at: u32, whole: &'a OsStr, offset: u32) -> Option<&'a OsStr> {
        let within = usize::try_from(offset.checked_sub(at)?).ok()?;
        let end = whole.as_bytes().get(within..).filter(|end| !end.is_empty())?;
        self.given += end.len();
        Some(OsStr::from_bytes(end))
    }

    /// A SONAME or a path. Its bytes are counted.
    fn get(&mut self, offset: u32) -> Result<&'a OsStr, String> {
        let string = self.at(offset, MAX_STRING)?;
        self.given += string.len();
        Ok(string)
    }

    fn at(&self, offset: u32, limit: usize) -> Result<&'a OsStr, String> {
        let size = self.bytes.len();
        let at = self
            .base
            .checked_add(offset as usize)
            .filter(|at| (self.first..size).contains(at));
        let at = at.ok_or_else(|| format!("offset {offset:#x} is outside the strings of {size} bytes"))?;
        let end = size.min(at + limit + 1);
        let window = self.bytes.get(at..end).unwrap_or_default();
        let string = CStr::from_bytes_until_nul(window).map(CStr::to_bytes);
        let string = string.map_err(|_| format!("offset {offset:#x} has no end within {} bytes", end - at))?;
        if string.is_empty() {
            return Err(format!("offset {offset:#x} is empty"));
        }
        Ok(OsStr::from_bytes(string))
    }

    /// Refuses overlapping strings that together are many times as long as the file. In a cache of ldconfig only a name
    /// and the end of its path overlap, which is twice at most.
    fn check_budget(&self) -> Result<()> {
        let limit = self.bytes.len().saturating_mul(4).saturating_add(MAX_STRING);
        if self.given <= limit {
            return Ok(());
        }
        Err(Error::failed(
            OBJECT,
            format_args!("its strings overlap: more than {limit} bytes of them"),
        ))
    }
}

/// The names of processors in the extension section (glibc 2.33 and later): their offsets, four bytes each. Offsets of
/// sections count from the start of the file, also in the combined shape.
fn hwcaps(bytes: &[u8], start: usize, endian: Endianness) -> Result<&[u8], String> {
    let at = u32_at(endian, bytes, start + 32).unwrap_or_default() as usize;
    if at == 0 {
        return Ok(&[]);
    }
    if u32_at(endian, bytes, at) != Some(EXTENSION_MAGIC) {
        return Err(format!("no extensions at offset {at:#x}"));
    }
    let sections = || {
        let count = u32_at(endian, bytes, at + 4)? as usize;
        bytes.get(at + 8..)?.get(..count.checked_mul(16)?)
    };
    let sections = sections().ok_or_else(|| format!("the extensions at offset {at:#x} are outside the file"))?;
    let mut found: &[u8] = &[];
    for section in sections.chunks_exact(16) {
        let word = |at| u32_at(endian, section, at).unwrap_or_default();
        let (tag, offset, size) = (word(0), word(8) as usize, word(12) as usize);
        let data = bytes.get(offset..).and_then(|rest| rest.get(..size));
        let data = data.ok_or_else(|| format!("section {tag} at offset {offset:#x} is outside the file"))?;
        // The other sections are ignored: the name of the program that wrote the file, and those of later glibc
        // versions.
        if tag == TAG_GLIBC_HWCAPS {
            found = data;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
