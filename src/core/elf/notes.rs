//! Notes: information that a vendor put into a library.

use object::elf::{ELFCLASS64, FileHeader32, FileHeader64, SHT_NOTE};
use object::endian::{Endian, Endianness};
use object::read::elf::{FileHeader, SectionHeader};

use super::source::{ElfSource, ReadAt};
use super::{MAX_SECTIONS, malformed, until_zero};
use crate::error::Result;

const MAX_NOTE_BYTES: u64 = 64 << 10;
/// Two lengths and a type.
const HEADER: usize = 12;
/// Longer than the name of any section that is searched for.
const MAX_SECTION_NAME: u64 = 63;

/// The content of the note of `owner` in the section `section`: of CUDA's forward compatibility, for example, whose
/// libraries carry `.note.cuda.fwd_compatibility` owned by `NVIDIA Corporation` with JSON in it. `None` if the file
/// has no such section, or no note of that owner in it.
///
/// # Errors
/// As [`super::read`].
pub fn note<S: ReadAt>(file: S, section: &str, owner: &str) -> Result<Option<Vec<u8>>> {
    let mut source = ElfSource::new(file);
    match source.class()? {
        ELFCLASS64 => note_class::<FileHeader64<Endianness>, S>(&mut source, section, owner),
        _ => note_class::<FileHeader32<Endianness>, S>(&mut source, section, owner),
    }
}

fn note_class<H: FileHeader<Endian = Endianness>, S: ReadAt>(
    source: &mut ElfSource<S>,
    section: &str,
    owner: &str,
) -> Result<Option<Vec<u8>>> {
    let (header, endian) = source.header::<H>()?;
    let count = u64::from(header.e_shnum(endian));
    if count > MAX_SECTIONS {
        return Err(malformed(format_args!("{count} sections")));
    }
    let sections = source.table::<H::SectionHeader>(header.e_shoff(endian).into(), count, "section headers")?;
    let Some(names) = sections.get(usize::from(header.e_shstrndx(endian).0)) else {
        return Ok(None);
    };
    let names: u64 = names.sh_offset(endian).into();
    // Only sections of notes have their name read: a library has two or three of them among forty others.
    for candidate in sections.iter().filter(|s| s.sh_type(endian) == SHT_NOTE) {
        let Some(at) = names.checked_add(candidate.sh_name(endian).into()) else {
            continue;
        };
        let name = source.bytes(at, MAX_SECTION_NAME + 1)?;
        if until_zero(&name) != Some(section.as_bytes()) {
            continue;
        }
        let size: u64 = candidate.sh_size(endian).into();
        if size > MAX_NOTE_BYTES {
            return Err(malformed(format_args!("a section {section} of {size} bytes")));
        }
        let data = source.bytes(candidate.sh_offset(endian).into(), size)?;
        // By the specification, notes in 64-bit files consist of words of eight bytes, but no compiler follows it. The
        // section's alignment shows which files pad to eight.
        let align = if candidate.sh_addralign(endian).into() == 8 {
            8
        } else {
            4
        };
        if let Some(content) = find(&data, owner.as_bytes(), align, |word| endian.read_u32(word)) {
            return Ok(Some(content.to_vec()));
        }
    }
    Ok(None)
}

/// The content of the first note of `owner` in a section. A note that is longer than its section ends with the section:
/// the libraries of some CUDA releases for Orin have such a note, which is two bytes short.
fn find<'a>(section: &'a [u8], owner: &[u8], align: usize, word: impl Fn([u8; 4]) -> u32) -> Option<&'a [u8]> {
    let mut rest = section;
    loop {
        let (lengths, after) = rest.split_first_chunk::<HEADER>()?;
        let length = |at: usize| {
            let bytes = lengths.get(at..at + 4)?.try_into().ok()?;
            Some(word(bytes) as usize)
        };
        let (name_length, content_length) = (length(0)?, length(4)?);
        let name = after.get(..name_length)?;
        let content_at = (HEADER + name_length).checked_next_multiple_of(align)? - HEADER;
        let content = after.get(content_at..)?;
        let content_end = content_length.min(content.len());
        if name.strip_suffix(&[0]).unwrap_or(name) == owner {
            return content.get(..content_end);
        }
        rest = content.get(content_length.checked_next_multiple_of(align)?..)?;
    }
}
