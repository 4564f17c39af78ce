//! Writes an ld.so.cache in the format `glibc-ld.so.cache1.1`, as glibc's `dl-cache.h` lays it out, for test hosts.

use crate::stub_elf::Machine;
use std::cmp::Ordering;
use std::path::Path;

/// A library in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its SONAME, by which the loader looks.
    pub soname: String,
    /// Where a file of that name lies.
    pub path: String,
    /// The kind of library, as `dl-cache.h` numbers them.
    flags: u32,
}

impl Entry {
    /// The entry of the library file at `path`: the cache names the link of the SONAME beside it.
    pub fn new(path: &Path, soname: &str, machine: Machine) -> Self {
        let flags = match machine {
            Machine::X86_64 => 0x0303,
            Machine::I386 => 0x0003,
            Machine::Aarch64 => 0x0a03,
        };
        Self {
            soname: soname.to_owned(),
            path: path.with_file_name(soname).to_string_lossy().into_owned(),
            flags,
        }
    }
}

const HEADER: usize = 48;
const ENTRY: usize = 24;

/// The bytes of a cache with these libraries, in the order that the loader's binary search expects.
pub fn write(mut entries: Vec<Entry>) -> Vec<u8> {
    entries.sort_by(|a, b| compare(&b.soname, &a.soname).then(b.flags.cmp(&a.flags)));
    let mut strings = Vec::new();
    let mut table = Vec::new();
    let start = HEADER + ENTRY * entries.len();
    let mut text = |text: &str| {
        let at = (start + strings.len()) as u32;
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        at
    };
    for entry in &entries {
        let (key, value) = (text(&entry.soname), text(&entry.path));
        for number in [entry.flags, key, value, 0] {
            table.extend_from_slice(&number.to_le_bytes());
        }
        table.extend_from_slice(&0_u64.to_le_bytes());
    }
    let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(strings.len() as u32).to_le_bytes());
    // Little endian, then padding, no extensions, and what is unused.
    bytes.extend_from_slice(&[2, 0, 0, 0]);
    bytes.resize(HEADER, 0);
    bytes.extend(table);
    bytes.extend(strings);
    bytes
}

/// The loader's order of names: a run of digits counts as a number, and as more than any other character.
fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a, b) {
            ([x, ..], [y, ..]) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let ((m, rest_a), (n, rest_b)) = (number(a), number(b));
                if m != n {
                    return m.cmp(&n);
                }
                (a, b) = (rest_a, rest_b);
            }
            ([x, ..], _) if x.is_ascii_digit() => return Ordering::Greater,
            (_, [y, ..]) if y.is_ascii_digit() => return Ordering::Less,
            ([x, rest_a @ ..], [y, rest_b @ ..]) if x == y => (a, b) = (rest_a, rest_b),
            _ => return a.first().cmp(&b.first()),
        }
    }
}

fn number(text: &[u8]) -> (u64, &[u8]) {
    let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
    let value = text[..digits]
        .iter()
        .fold(0_u64, |n, c| n.wrapping_mul(10).wrapping_add(u64::from(c - b'0')));
    (value, &text[digits..])
}
