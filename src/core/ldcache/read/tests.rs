use super::*;

// Written by ldconfig of Debian's glibc 2.36 (`ldconfig -c new|compat|old`) for two directories of small libraries.
const NEW: &[u8] = include_bytes!("../../../../tests/data/ldcache/new.cache");
const COMBINED: &[u8] = include_bytes!("../../../../tests/data/ldcache/combined.cache");
const OLD: &[u8] = include_bytes!("../../../../tests/data/ldcache/old.cache");

/// An entry for x86_64 as `ldconfig -p` prints it.
fn line(entry: &CacheEntry<'_>) -> String {
    assert_eq!(entry.flags, AbiFlags::X86_64);
    let hwcap = match entry.hwcap {
        Hwcap::Named { name, .. } => format!(", hwcap: \"{}\"", name.display()),
        Hwcap::Bits(bits) => {
            assert_eq!(bits, 0);
            String::new()
        }
    };
    let (name, path) = (entry.soname.display(), entry.path.display());
    format!("{name} (libc6,x86-64{hwcap}) => {path}")
}

fn lines(cache: &Cache<'_>) -> Vec<String> {
    cache.entries.iter().map(line).collect()
}

#[test]
fn the_new_shape_with_its_extensions() {
    let cache = read(NEW).unwrap();
    assert_eq!(
        (cache.endian, &cache.skipped),
        (Endianness::Little, &Skipped::default())
    );
    // What `ldconfig -p` printed for this file.
    assert_eq!(
        lines(&cache),
        [
            "libother.so.2 (libc6,x86-64) => /lib/b/libother.so.2",
            "libnoso.so (libc6,x86-64) => /lib/b/libnoso.so",
            "libfoo.so.1 (libc6,x86-64, hwcap: \"x86-64-v2\") => /lib/a/glibc-hwcaps/x86-64-v2/libfoo.so.1",
            "libfoo.so.1 (libc6,x86-64, hwcap: \"x86-64-v3\") => /lib/a/glibc-hwcaps/x86-64-v3/libfoo.so.1.2",
            "libfoo.so.1 (libc6,x86-64) => /lib/b/libfoo.so.1",
            "libfoo.so.1 (libc6,x86-64) => /lib/a/libfoo.so.1",
            "libbar.so (libc6,x86-64) => /lib/a/libbar.so",
        ]
    );
}

#[test]
fn the_combined_shape_is_read_by_its_new_half() {
    let cache = read(COMBINED).unwrap();
    assert_eq!(cache.entries.len(), 8);
    // Offsets of names count from the new half, offsets of sections from the file: both must be right for this.
    let name = OsStr::new("x86-64-v3");
    assert!(
        cache
            .entries
            .iter()
            .any(|e| e.hwcap == Hwcap::Named { name, isa_level: 0 }),
        "{:?}",
        cache.entries
    );
    assert_eq!(cache.skipped, Skipped::default());
}

#[test]
fn the_old_shape() {
    let cache = read(OLD).unwrap();
    assert_eq!(cache.entries.len(), 8);
    assert_eq!(
        line(&cache.entries[0]),
        "libother.so.2 (libc6,x86-64) => /lib/b/libother.so.2"
    );
    assert_eq!(cache.skipped, Skipped::default());
}

#[test]
fn every_truncation_is_an_error_or_a_count() {
    for whole in [NEW, COMBINED, OLD] {
        let complete = read(whole).unwrap().entries;
        for length in 0..whole.len() {
            if let Ok(cache) = read(&whole[..length]) {
                // What is left is part of the whole, and what is missing is reported.
                assert!(
                    cache.entries.iter().all(|e| complete.iter().any(|c| c.path == e.path)),
                    "{length}"
                );
                let missing = cache.entries.len() < complete.len();
                assert_eq!(missing, cache.skipped.count > 0, "{length}: {:?}", cache.skipped);
            }
        }
    }
}

#[test]
fn errors_name_numbers_and_offsets() {
    assert_eq!(
        read(b"").unwrap_err().to_string(),
        "ld.so.cache: not a loader's cache: unknown magic in 0 bytes"
    );
    let mut claims = NEW.to_vec();
    claims[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(
        read(&claims).unwrap_err().to_string(),
        "ld.so.cache: the count at offset 20 says 4294967295 libraries, more than fit in 531 bytes"
    );
    assert_eq!(
        read(NEW_MAGIC).unwrap_err().to_string(),
        "ld.so.cache: the header ends at 20 bytes"
    );
    let mut order = NEW.to_vec();
    order[28] = 1;
    assert_eq!(
        read(&order).unwrap_err().to_string(),
        "ld.so.cache: marked as invalid: byte order 0x01 at offset 28"
    );
}

#[test]
fn an_offset_outside_costs_its_entry() {
    for (field, word) in [(4, "name"), (8, "path")] {
        for offset in [0, 47, 100_000, u32::MAX] {
            let mut bytes = NEW.to_vec();
            let at = NEW_HEADER + NEW_ENTRY + field;
            bytes[at..at + 4].copy_from_slice(&offset.to_le_bytes());
            let cache = read(&bytes).unwrap();
            assert_eq!((cache.entries.len(), cache.skipped.count), (6, 1));
            let first = cache.skipped.first.unwrap();
            assert_eq!(
                first,
                format!("entry 1: {word} at offset {offset:#x} is outside the strings of 531 bytes")
            );
        }
    }
}

#[test]
fn without_its_extensions_an_entry_with_a_processor_name_is_left_out() {
    let mut bytes = NEW.to_vec();
    bytes[32..36].copy_from_slice(&5000_u32.to_le_bytes());
    let cache = read(&bytes).unwrap();
    assert_eq!((cache.entries.len(), cache.skipped.count), (5, 2));
    assert_eq!(cache.skipped.first.as_deref(), Some("no extensions at offset 0x1388"));
}

#[test]
fn a_cache_without_a_byte_order_is_read_in_the_one_that_fits() {
    let mut bytes = NEW.to_vec();
    bytes[28] = 0;
    assert_eq!(read(&bytes).unwrap().entries.len(), 7);
}

/// A file whose entries all point into one long run, each a byte further: half of it is given out anew each time.
#[test]
fn strings_that_overlap_are_refused() {
    let count = 3000_u32;
    let mut bytes = NEW_MAGIC.to_vec();
    bytes.extend(count.to_le_bytes());
    bytes.extend([0, 0, 0, 0, 2, 0, 0, 0]);
    bytes.resize(NEW_HEADER, 0);
    let strings = NEW_HEADER as u32 + count * NEW_ENTRY as u32;
    for i in 0..count {
        for word in [0x0303, strings + i, strings + i, 0, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes.extend(std::iter::repeat_n(b'a', MAX_STRING));
    bytes.push(0);
    let error = read(&bytes).unwrap_err().to_string();
    assert!(error.starts_with("ld.so.cache: its strings overlap"), "{error}");
}

#[test]
fn a_name_that_is_not_utf8_survives() {
    let mut bytes = OLD.to_vec();
    let at = bytes.windows(7).rposition(|w| w == b"libbar.").unwrap();
    bytes[at + 3] = 0xff;
    let cache = read(&bytes).unwrap();
    assert!(
        cache.entries.iter().any(|e| e.soname.as_bytes() == b"lib\xffar.so"),
        "{:?}",
        cache.entries
    );
}
