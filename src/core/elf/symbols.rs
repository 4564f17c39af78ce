//! Where the functions of a library lie in its file.

use object::elf::{ELFCLASS64, FileHeader32, FileHeader64, SHN_UNDEF, SHT_DYNSYM, STT_FUNC};
use object::endian::Endianness;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use std::collections::BTreeMap;

use super::source::{ElfSource, ReadAt};
use super::{MAX_SECTIONS, malformed, segments, until_zero};
use crate::error::Result;

/// CUDA's library has nine hundred symbols, with thirty thousand bytes of names.
const MAX_SYMBOLS: u64 = 64 << 10;
const MAX_NAME_BYTES: u64 = 4 << 20;

/// The offset in the file of each of the functions `names` that the library exports. Those that it lacks are not in the
/// result.
///
/// # Errors
/// As [`super::read`].
pub fn functions<S: ReadAt>(file: S, names: &[&str]) -> Result<BTreeMap<String, u64>> {
    let mut source = ElfSource::new(file);
    match source.class()? {
        ELFCLASS64 => of_class::<FileHeader64<Endianness>, S>(&mut source, names),
        _ => of_class::<FileHeader32<Endianness>, S>(&mut source, names),
    }
}

fn of_class<H: FileHeader<Endian = Endianness>, S: ReadAt>(
    source: &mut ElfSource<S>,
    names: &[&str],
) -> Result<BTreeMap<String, u64>> {
    let (header, endian) = source.header::<H>()?;
    let segments = segments(source, &header, endian)?;
    let count = u64::from(header.e_shnum(endian));
    if count > MAX_SECTIONS {
        return Err(malformed(format_args!("{count} sections")));
    }
    let sections = source.table::<H::SectionHeader>(header.e_shoff(endian).into(), count, "section headers")?;
    let Some(table) = sections.iter().find(|s| s.sh_type(endian) == SHT_DYNSYM) else {
        return Ok(BTreeMap::new());
    };
    let count = table.sh_size(endian).into() / size_of::<H::Sym>() as u64;
    let strings = sections.get(table.sh_link(endian) as usize);
    let strings = strings.ok_or_else(|| malformed("symbols without names"))?;
    let bytes: u64 = strings.sh_size(endian).into();
    if count > MAX_SYMBOLS || bytes > MAX_NAME_BYTES {
        return Err(malformed(format_args!("{count} symbols with {bytes} bytes of names")));
    }
    let symbols = source.table::<H::Sym>(table.sh_offset(endian).into(), count, "symbols")?;
    let strings = source.bytes(strings.sh_offset(endian).into(), bytes)?;
    let name_of = |symbol: &H::Sym| strings.get(symbol.st_name(endian) as usize..).and_then(until_zero);
    let mut found = BTreeMap::new();
    let is_function = |symbol: &&H::Sym| symbol.st_type() == STT_FUNC && symbol.st_shndx(endian) != SHN_UNDEF;
    for symbol in symbols.iter().filter(is_function) {
        let Some(name) = names.iter().find(|name| name_of(symbol) == Some(name.as_bytes())) else {
            continue;
        };
        let address: u64 = symbol.st_value(endian).into();
        // The symbol has its address in memory. The segment that is loaded there gives its place in the file.
        let offset = segments.iter().find_map(|segment| {
            let within = address.checked_sub(segment.p_vaddr(endian).into())?;
            let is_in = within < segment.p_filesz(endian).into();
            within.checked_add(segment.p_offset(endian).into()).filter(|_| is_in)
        });
        let outside = || malformed(format_args!("no segment holds {name} at {address:#x}"));
        found.insert((*name).to_owned(), offset.ok_or_else(outside)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// A function of the C library that this program has loaded, by the address of which the test knows its offset.
    #[test]
    fn a_function_is_where_the_loader_has_it() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("/libc.so.6")).unwrap();
        let path = line.split_whitespace().nth(5).unwrap();
        let found = functions(File::open(path).unwrap(), &["getpid", "qsort", "no_such_function"]).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["getpid", "qsort"]);
        let address = nix::libc::getpid as *const () as u64;
        let of_getpid = maps.lines().filter(|line| line.ends_with(path)).find_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let offset = number(words.nth(1)?);
            (number(start)..number(end))
                .contains(&address)
                .then(|| address - number(start) + offset)
        });
        assert_eq!(of_getpid, Some(found["getpid"]));
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_no_panic() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let lengths = (0..4096)
            .step_by(7)
            .chain((4096..whole.len()).step_by(whole.len() / 50));
        for length in lengths {
            let _ = functions(whole.get(..length).unwrap(), &["main"]);
        }
    }
}
