use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::super::{AbiFlags, Sorted, compare, read};
use super::*;

fn write(entries: &[CacheEntry<'_>], endian: Endianness) -> Result<Vec<u8>> {
    super::write(&Sorted::new(entries), endian)
}

const SAMPLES: [&[u8]; 3] = [
    include_bytes!("../../../../tests/data/ldcache/new.cache"),
    include_bytes!("../../../../tests/data/ldcache/combined.cache"),
    include_bytes!("../../../../tests/data/ldcache/old.cache"),
];

#[test]
fn what_ldconfig_wrote_survives_in_its_order() {
    for sample in SAMPLES {
        let cache = read(sample).unwrap();
        for endian in [Endianness::Little, Endianness::Big] {
            let written = write(&cache.entries, endian).unwrap();
            let again = read(&written).unwrap();
            assert_eq!(again.entries, cache.entries);
            assert_eq!((again.endian, again.skipped.count), (endian, 0));
            assert!(written.ends_with(GENERATOR.as_bytes()));
        }
    }
}

#[test]
fn a_name_at_the_end_of_its_path_is_stored_once() {
    let entry = CacheEntry::new(
        OsStr::new("libfoo.so.1"),
        Path::new("/lib/libfoo.so.1"),
        AbiFlags::X86_64,
    );
    let written = write(&[entry], Endianness::Little).unwrap();
    assert_eq!(written.windows(11).filter(|w| *w == b"libfoo.so.1").count(), 1);
    // A path that is another file's (no link by the SONAME) needs both.
    let entry = CacheEntry {
        path: Path::new("/lib/libfoo.so.1.2"),
        ..entry
    };
    assert_eq!(
        read(&write(&[entry], Endianness::Little).unwrap()).unwrap().entries,
        [entry]
    );
}

#[test]
fn strings_that_no_loader_could_use_are_refused() {
    let long = format!("/{}", "x".repeat(MAX_STRING));
    for (soname, path) in [
        ("liba.so", ""),
        ("", "/liba.so"),
        ("a\0b", "/a"),
        ("liba.so", long.as_str()),
    ] {
        let entry = CacheEntry::new(OsStr::new(soname), Path::new(path), AbiFlags::X86_64);
        assert!(write(&[entry], Endianness::Little).is_err(), "{soname:?} {path:.20}");
    }
}

#[test]
fn no_library_is_a_cache_too() {
    let none: [CacheEntry<'_>; 0] = [];
    let written = write(&none, Endianness::Little).unwrap();
    assert_eq!(read(&written).unwrap().entries, []);
}

#[derive(Debug, Clone)]
struct Owned {
    soname: OsString,
    path: PathBuf,
    flags: u32,
    osversion: u32,
    hwcap: Result<u64, (OsString, u16)>,
}

impl Owned {
    fn entry(&self) -> CacheEntry<'_> {
        CacheEntry {
            soname: &self.soname,
            path: &self.path,
            flags: AbiFlags(self.flags),
            osversion: self.osversion,
            hwcap: match &self.hwcap {
                Ok(bits) => Hwcap::Bits(*bits),
                Err((name, isa_level)) => Hwcap::Named {
                    name,
                    isa_level: *isa_level,
                },
            },
        }
    }
}

fn owned() -> impl Strategy<Value = Owned> {
    let string = || prop::collection::vec(1_u8.., 1..30).prop_map(|b| OsStr::from_bytes(&b).to_os_string());
    let name = prop_oneof![
        string(),
        "lib[a-c]{1,3}\\.so(\\.[0-9]{1,3}){0,2}".prop_map(OsString::from)
    ];
    let hwcap = prop_oneof![
        4 => Just(Ok(0)),
        1 => any::<u64>().prop_filter("is a name's index", |b| b >> 42 != 1 << 20).prop_map(Ok),
        2 => ("x86-64-v[234]".prop_map(OsString::from), 0_u16..1024).prop_map(Err),
    ];
    (name, string(), any::<bool>(), any::<u32>(), 0_u32..9, hwcap).prop_map(
        |(soname, directory, native, flags, osversion, hwcap)| Owned {
            path: Path::new(&directory).join(&soname),
            soname,
            flags: if native { 0x0303 } else { flags },
            osversion,
            hwcap,
        },
    )
}

proptest! {
    #[test]
    fn any_entries_come_back_sorted(all in prop::collection::vec(owned(), 0..40), big: bool) {
        let endian = if big { Endianness::Big } else { Endianness::Little };
        let entries: Vec<_> = all.iter().map(Owned::entry).collect();
        let mut sorted = entries.clone();
        sorted.sort_by(compare);
        let written = write(&entries, endian).unwrap();
        let cache = read(&written).unwrap();
        prop_assert_eq!(&cache.entries, &sorted);
        prop_assert_eq!(cache.skipped.count, 0);
        // Writing what was read gives the same bytes.
        prop_assert_eq!(write(&cache.entries, endian).unwrap(), written);
    }

    #[test]
    fn a_damaged_cache_is_an_error_or_can_be_written_again(
        sample in 0_usize..3,
        damage in prop::collection::vec((0_usize..700, any::<u8>()), 1..16),
        length in 0_usize..700,
    ) {
        let mut bytes = SAMPLES[sample].to_vec();
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(length);
        if let Ok(cache) = read(&bytes) {
            let mut sorted = cache.entries.clone();
            sorted.sort_by(compare);
            let written = write(&cache.entries, cache.endian).unwrap();
            prop_assert_eq!(&read(&written).unwrap().entries, &sorted);
        }
    }
}
