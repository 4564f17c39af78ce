//! The only place that reads an ELF file: pieces, each of a checked size.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use object::elf::{ELFCLASS32, ELFCLASS64, ELFMAG};
use object::endian::Endianness;
use object::pod::{self, Pod};
use object::read::elf::FileHeader;

use super::{malformed, until_zero};
use crate::error::{Context, Error, Result};

/// Something with bytes at offsets. Unlike `Read` and `Seek`, it needs one system call for a piece.
pub trait ReadAt {
    /// Reads some bytes from `offset` on into `buffer`, and returns how many: 0 at the end.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        rest.map_or(Ok(0), |mut rest| io::Read::read(&mut rest, buffer))
    }
}

/// A file to read pieces of, with its first page kept: it holds the header and nearly always the program headers.
pub(super) struct ElfSource<S> {
    file: S,
    start: Vec<u8>,
}

const START: u64 = 4096;

impl<S: ReadAt> ElfSource<S> {
    pub(super) fn new(file: S) -> Self {
        ElfSource {
            file,
            start: Vec::new(),
        }
    }

    /// Checks that this is an ELF file, and returns its class (`ELFCLASS64` or `ELFCLASS32`).
    pub(super) fn class(&mut self) -> Result<object::elf::FileClass> {
        self.start = read_up_to(&self.file, 0, START).about("ELF file", "cannot read")?;
        if !self.start.starts_with(&ELFMAG) {
            return Err(malformed("not an ELF file"));
        }
        match self.start.get(4).map(|c| object::elf::FileClass(*c)) {
            Some(class @ (ELFCLASS32 | ELFCLASS64)) => Ok(class),
            _ => Err(malformed("neither 32-bit nor 64-bit")),
        }
    }

    /// The file header, once [`ElfSource::class`] has read it.
    pub(super) fn header<H: FileHeader<Endian = Endianness>>(&self) -> Result<(H, Endianness)> {
        let header = H::parse(self.start.as_slice()).map_err(malformed)?;
        let endian = header.endian().map_err(malformed)?;
        Ok((*header, endian))
    }

    /// A table of `count` structures at `offset`; the caller has bounded `count`.
    pub(super) fn table<T: Pod>(&mut self, offset: u64, count: u64, what: &str) -> Result<Vec<T>> {
        let outside = || {
            malformed(format_args!(
                "{what} at offset {offset:#x}: {count} entries are not in the file"
            ))
        };
        let size = count.checked_mul(size_of::<T>() as u64).ok_or_else(outside)?;
        let bytes = self.bytes(offset, size)?;
        let (items, _) = pod::slice_from_bytes::<T>(&bytes, count as usize).map_err(|()| outside())?;
        Ok(items.to_vec())
    }

    /// The bytes before the first zero from `offset` on, which must come within `limit` bytes.
    pub(super) fn string(&mut self, offset: u64, limit: u64, what: &str) -> Result<Vec<u8>> {
        let window = self.bytes(offset, limit + 1)?;
        until_zero(&window).map(<[u8]>::to_vec).ok_or_else(|| {
            malformed(format_args!(
                "{what} at offset {offset:#x} has no end within {limit} bytes"
            ))
        })
    }

    /// Up to `size` bytes from `offset` on: fewer where the file ends. The caller has bounded `size`.
    pub(super) fn bytes(&mut self, offset: u64, size: u64) -> Result<Vec<u8>> {
        let kept = offset.checked_add(size).filter(|end| *end <= self.start.len() as u64);
        if let Some(end) = kept {
            return Ok(self
                .start
                .get(offset as usize..end as usize)
                .unwrap_or_default()
                .to_vec());
        }
        // A file position is signed, so a file has no bytes beyond. Some systems report an invalid argument there.
        if offset > i64::MAX as u64 {
            return Ok(Vec::new());
        }
        match read_up_to(&self.file, offset, size) {
            Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(Vec::new()),
            other => other.map_err(|e| Error::failed("ELF file", "cannot read").from_source(e)),
        }
    }
}

/// Reads `size` bytes from `offset` on, or fewer where the file ends. Unlike `read_to_end` it does not search for the
/// end with small reads. The caller has bounded `size`.
fn read_up_to(file: &impl ReadAt, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
