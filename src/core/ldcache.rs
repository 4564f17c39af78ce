//! glibc's `/etc/ld.so.cache`: read, extend and write it without starting `ldconfig`.
//!
//! This module turns bytes into bytes. The cache of an image may be hostile, so no length or offset in it is trusted:
//! memory is not allocated by a number in the file, and a string is a slice of the file. What is read thus takes memory
//! in proportion to the file.
//!
//! The format is glibc's `sysdeps/generic/dl-cache.h`, in three shapes: the new one (`glibc-ld.so.cache1.1`), the
//! old one (`ld.so-1.7.0`), and the old one followed by the new, which was `ldconfig`'s default before glibc 2.32.
//! All three are read. The new one is written, which every loader since glibc 2.2 reads.
//!
//! Alpine and other musl images have no cache; for them [`musl`] edits the loader's path file.

use object::endian::{Endian, Endianness};
use std::ffi::OsStr;
use std::path::Path;

mod compare;
pub mod directory;
mod flags;
pub mod musl;
mod read;
mod sorted;
mod write;

pub use compare::{compare, compare_names};
pub use flags::AbiFlags;
pub use read::read;
pub use sorted::Sorted;
pub use write::write;

/// The most bytes that a caller reads of an image's cache. 10,000 libraries take about 1.3 MB.
pub const MAX_BYTES: u64 = 16 << 20;

/// The content of a cache. Strings are slices of the bytes that were read, and need not be UTF-8. The default is a
/// cache without a library, in the byte order of this machine, for an image that has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cache<'a> {
    /// The byte order of its numbers.
    pub endian: Endianness,
    /// The libraries, in the file's order.
    pub entries: Vec<CacheEntry<'a>>,
    /// The entries that could not be used. A caller that replaces the file should report them.
    pub skipped: Skipped,
}

/// One library of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheEntry<'a> {
    /// The name that a program asks for (`libcuda.so.1`).
    pub soname: &'a OsStr,
    /// Where the loader finds it.
    pub path: &'a Path,
    /// ABI of the library.
    pub flags: AbiFlags,
    /// The lowest kernel version that it needs; 0 is any. Loaders ignore it since glibc 2.36.
    pub osversion: u32,
    /// The processor that it is built for.
    pub hwcap: Hwcap<'a>,
}

impl<'a> CacheEntry<'a> {
    /// A library for any processor of its architecture.
    pub fn new(soname: &'a OsStr, path: &'a Path, flags: AbiFlags) -> Self {
        CacheEntry {
            soname,
            path,
            flags,
            osversion: 0,
            hwcap: Hwcap::Bits(0),
        }
    }
}

/// Which processor a library needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hwcap<'a> {
    /// Capability bits as glibc used them before 2.37; 0 means any processor.
    Bits(u64),
    /// A `glibc-hwcaps` subdirectory (glibc 2.33 and later).
    Named {
        /// Name of the subdirectory, `x86-64-v3`.
        name: &'a OsStr,
        /// The instruction set level that the library needs, 0 to 1023; 0 on architectures without levels.
        isa_level: u16,
    },
}

fn u32_at(endian: Endianness, bytes: &[u8], at: usize) -> Option<u32> {
    Some(endian.read_u32(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(endian: Endianness, bytes: &[u8], at: usize) -> Option<u64> {
    Some(endian.read_u64(*bytes.get(at..)?.first_chunk()?))
}

/// The entries of a cache that could not be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Their number.
    pub count: usize,
    /// The first problem, with its offset: in an entry, or in the extension section.
    pub first: Option<String>,
}

/// `glibc-ld.so.cache1.1`: the magic and the version of the new shape.
const NEW_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// The magic of the old shape; one byte of padding follows it.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const NEW_HEADER: usize = 48;
const NEW_ENTRY: usize = 24;
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;
/// First word of the extension section.
const EXTENSION_MAGIC: u32 = 0xeaa4_2174;
const TAG_GENERATOR: u32 = 0;
const TAG_GLIBC_HWCAPS: u32 = 1;
/// With this bit, the low half of a capability word is an index into the names of the extension section, and the ten
/// bits above it are the instruction set level.
const HWCAP_EXTENSION: u64 = 1 << 62;
const ISA_LEVEL_MASK: u64 = (1 << 10) - 1;
/// The kernel takes paths of at most 4,095 bytes, so a loader cannot use a longer one.
const MAX_STRING: usize = 4095;
/// Longer than the name of any `glibc-hwcaps` directory. Many entries share such a name, so that the reader does not
/// count it among overlapping strings and limits its length instead.
const MAX_HWCAP_NAME: usize = 64;
