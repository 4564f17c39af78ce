//! [`CacheEntry`]s to bytes.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

use object::endian::{Endian, Endianness};

use super::{
    CacheEntry, EXTENSION_MAGIC, HWCAP_EXTENSION, Hwcap, ISA_LEVEL_MASK, MAX_HWCAP_NAME, MAX_STRING, NEW_ENTRY,
    NEW_HEADER, NEW_MAGIC, Sorted, TAG_GENERATOR, TAG_GLIBC_HWCAPS,
};
use crate::error::{Error, Result};

/// `ldconfig -p` shows this as the origin of the file.
const GENERATOR: &str = concat!("tranche ", env!("CARGO_PKG_VERSION"));

/// Writes a cache of the new shape.
///
/// # Errors
/// Returns an error with the name of the library if a string is empty, too long or has a zero byte in it, and if there
/// is more than a cache can address (4 GiB).
pub fn write(entries: &Sorted<'_, '_>, endian: Endianness) -> Result<Vec<u8>> {
    let count = entries.len();
    // Numbered in the order of the names, so that equal libraries give equal bytes.
    let mut hwcaps: BTreeMap<&[u8], u32> = BTreeMap::new();
    let mut length = NEW_HEADER + NEW_ENTRY * count;
    for entry in entries.iter() {
        length += entry.soname.len() + entry.path.as_os_str().len() + 2;
        check(entry, entry.soname.as_bytes(), MAX_STRING)?;
        check(entry, entry.path.as_os_str().as_bytes(), MAX_STRING)?;
        if let Hwcap::Named { name, isa_level } = entry.hwcap {
            check(entry, name.as_bytes(), MAX_HWCAP_NAME)?;
            check_zero(entry, name.as_bytes())?;
            if u64::from(isa_level) > ISA_LEVEL_MASK {
                return Err(Error::failed(
                    entry.soname.display(),
                    format_args!("instruction set level {isa_level}"),
                ));
            }
            hwcaps.insert(name.as_bytes(), 0);
        }
    }
    for (index, number) in hwcaps.values_mut().enumerate() {
        *number = number_of(index)?;
    }

    let mut out = Output {
        bytes: Vec::with_capacity(length + 256),
        endian,
    };
    out.bytes.extend(NEW_MAGIC);
    out.word(number_of(count)?);
    out.bytes.resize(NEW_HEADER, 0);
    out.bytes[28] = if endian.is_little_endian() { 2 } else { 3 };

    let strings_at = NEW_HEADER + NEW_ENTRY * count;
    // The table is filled in while its strings are appended behind it.
    out.bytes.resize(strings_at, 0);
    let mut ends = 0;
    for (index, entry) in entries.iter().enumerate() {
        let path = entry.path.as_os_str().as_bytes();
        let path_at = out.string(path);
        ends += 1;
        // Nearly every path ends in its SONAME, and then one string serves for both.
        let name_at = if path.ends_with(entry.soname.as_bytes()) {
            path_at + path.len() - entry.soname.len()
        } else {
            ends += 1;
            out.string(entry.soname.as_bytes())
        };
        let hwcap = match entry.hwcap {
            Hwcap::Bits(bits) => bits,
            Hwcap::Named { name, isa_level } => {
                let index = hwcaps.get(name.as_bytes()).copied().unwrap_or_default();
                HWCAP_EXTENSION | (u64::from(isa_level) << 32) | u64::from(index)
            }
        };
        let words = [entry.flags.0, number_of(name_at)?, number_of(path_at)?, entry.osversion];
        out.entry(index, words, hwcap);
    }
    // Every zero must be the end of a string. To count them all is quicker than to search each string.
    let strings = out.bytes.get(strings_at..).unwrap_or_default();
    if zeros(strings) != ends {
        entries.iter().try_for_each(|entry| {
            check_zero(entry, entry.soname.as_bytes())?;
            check_zero(entry, entry.path.as_os_str().as_bytes())
        })?;
    }
    let mut names = Vec::with_capacity(hwcaps.len());
    for name in hwcaps.keys() {
        names.push(number_of(out.string(name))?);
    }
    out.set_word(24, number_of(out.bytes.len() - strings_at)?);
    out.extensions(&names)?;
    Ok(out.bytes)
}

/// How many bytes are zero. They are counted in pieces whose sum fits in a byte: the compiler then counts many at once.
fn zeros(bytes: &[u8]) -> usize {
    let count = |piece: &[u8]| piece.iter().map(|byte| u8::from(*byte == 0)).sum::<u8>();
    bytes.chunks(255).map(|piece| usize::from(count(piece))).sum()
}

/// Checks the length of a string of a library.
fn check(entry: &CacheEntry<'_>, string: &[u8], limit: usize) -> Result<()> {
    match string.len() {
        0 => Err(cannot_hold(entry, "an empty string")),
        length if length > limit => Err(cannot_hold(entry, "a string that is too long")),
        _ => Ok(()),
    }
}

fn check_zero(entry: &CacheEntry<'_>, string: &[u8]) -> Result<()> {
    match string.contains(&0) {
        true => Err(cannot_hold(entry, "a string with a zero byte")),
        false => Ok(()),
    }
}

fn cannot_hold(entry: &CacheEntry<'_>, what: &str) -> Error {
    Error::failed(
        entry.soname.display(),
        format_args!("{what} cannot be written to a loader's cache"),
    )
}

/// A number of the cache, which has 32 bits.
fn number_of(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::failed("ld.so.cache", "more libraries than a cache can hold (4 GiB)"))
}

struct Output {
    bytes: Vec<u8>,
    endian: Endianness,
}

impl Output {
    fn word(&mut self, value: u32) {
        self.bytes.extend(self.endian.write_u32(value));
    }

    /// Appends a string with its end, and returns its offset.
    fn string(&mut self, string: &[u8]) -> usize {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(string);
        self.bytes.push(0);
        at
    }

    /// Fills in one entry of the table: four words and a double word.
    fn entry(&mut self, index: usize, words: [u32; 4], hwcap: u64) {
        let table = self.bytes.get_mut(NEW_HEADER..).unwrap_or_default();
        let Some(raw) = table.as_chunks_mut::<NEW_ENTRY>().0.get_mut(index) else {
            return;
        };
        let (first, last) = raw.split_at_mut(16);
        for (place, word) in first.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = self.endian.write_u32(word);
        }
        last.copy_from_slice(&self.endian.write_u64(hwcap));
    }

    fn set_word(&mut self, at: usize, value: u32) {
        let end = self.bytes.len();
        self.word(value);
        self.bytes.copy_within(end.., at);
        self.bytes.truncate(end);
    }

    /// Appends the sections at the end: the program that wrote the file, and the names of processors. Loaders before
    /// glibc 2.33 do not know them, and ignore entries that name a processor.
    fn extensions(&mut self, names: &[u32]) -> Result<()> {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let at = self.bytes.len();
        self.set_word(32, number_of(at)?);
        let sections = if names.is_empty() { 1 } else { 2 };
        let names_at = number_of(at + 8 + sections * 16)?;
        let names_size = number_of(names.len() * 4)?;
        self.word(EXTENSION_MAGIC);
        self.word(number_of(sections)?);
        for word in [TAG_GENERATOR, 0, names_at + names_size, number_of(GENERATOR.len())?] {
            self.word(word);
        }
        if !names.is_empty() {
            for word in [TAG_GLIBC_HWCAPS, 0, names_at, names_size] {
                self.word(word);
            }
        }
        for name in names {
            self.word(*name);
        }
        self.bytes.extend(GENERATOR.bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
