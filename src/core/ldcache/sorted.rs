//! Entries in the order in which a cache has them.

use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;

use super::{CacheEntry, compare, compare_names};

/// Entries in the loader's order ([`compare()`]), for [`write`](super::write()).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sorted<'e, 'a>(Vec<&'e CacheEntry<'a>>);

impl<'e, 'a> Sorted<'e, 'a> {
    /// Sorts entries. Entries that the loader's order does not tell apart keep the order in which they came.
    pub fn new(entries: &'e [CacheEntry<'a>]) -> Self {
        let mut sorted: Vec<&CacheEntry<'a>> = entries.iter().collect();
        // What was read from a cache is sorted nearly always.
        if !sorted.is_sorted_by(|a, b| compare(a, b).is_le()) {
            sorted.sort_by(|a, b| compare(a, b));
        }
        Sorted(sorted)
    }

    /// These entries, with those of `later` behind them where both are equal in the loader's order: there the loader
    /// takes the first. That is how the driver's `libcuda.so.1` goes before a stub or another driver's in a
    /// directory of the image, and it is what `ldconfig` makes when the driver's directories come first in its
    /// configuration. Nothing of the image is lost: its entry for a named processor still goes before the driver's,
    /// as with `ldconfig`.
    ///
    /// An entry that is there already is not added again. A container that starts a second time on the same root thus
    /// gets the same bytes.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        let mut all = Vec::with_capacity(self.len() + later.len());
        let mut first = Vec::with_capacity(self.len());
        let mut rest = later.0.as_slice();
        for entry in self.0 {
            let (before, after) = rest.split_at(rest.partition_point(|other| compare(other, entry).is_lt()));
            all.extend_from_slice(before);
            first.push(all.len());
            all.push(entry);
            rest = after;
        }
        all.extend_from_slice(rest);
        remove_duplicates(&mut all, &first);
        Sorted(all)
    }
}

impl<'e, 'a> Deref for Sorted<'e, 'a> {
    type Target = [&'e CacheEntry<'a>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Keeps the first of equal entries, among those that have the name of one at the places `at`.
fn remove_duplicates(all: &mut Vec<&CacheEntry<'_>>, at: &[usize]) {
    let mut duplicates = Vec::new();
    let mut group_end = 0;
    for &at in at.iter() {
        let (Some(entry), true) = (all.get(at), at >= group_end) else {
            continue;
        };
        // As the loader compares: `libx.so.01` and `libx.so.1` are mixed with one another.
        let is_same =
            |other: &&&CacheEntry<'_>| compare_names(other.soname.as_bytes(), entry.soname.as_bytes()).is_eq();
        let (before, after) = all.split_at(at);
        let start = at - before.iter().rev().take_while(is_same).count();
        group_end = at + after.iter().take_while(is_same).count();
        // There are rarely more than two, but a hostile image may have thousands: each is not compared with each.
        let mut group: Vec<_> = all
            .iter()
            .enumerate()
            .take(group_end)
            .skip(start)
            .map(|(at, entry)| (identity(entry), at))
            .collect();
        group.sort_unstable();
        duplicates.extend(
            group
                .iter()
                .zip(group.iter().skip(1))
                .filter(|(a, b)| a.0 == b.0)
                .map(|(_, (_, at))| *at),
        );
    }
    duplicates.sort_unstable();
    let mut duplicates = duplicates.into_iter().peekable();
    if duplicates.peek().is_some() {
        let mut at = 0..;
        all.retain(|_| duplicates.next_if_eq(&at.next().unwrap_or_default()).is_none());
    }
}

/// What makes two entries one.
fn identity<'e>(entry: &'e CacheEntry<'_>) -> impl Ord + use<'e> {
    (entry.soname, entry.flags, entry.hwcap, entry.path.as_os_str())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::super::{AbiFlags, read, write};
    use super::*;
    use object::endian::Endianness;

    fn entry<'a>(soname: &'a str, path: &'a str) -> CacheEntry<'a> {
        CacheEntry::new(OsStr::new(soname), Path::new(path), AbiFlags::X86_64)
    }

    /// The driver's entries before the image's.
    fn merge<'e, 'a>(image: &'e [CacheEntry<'a>], driver: &'e [CacheEntry<'a>]) -> Sorted<'e, 'a> {
        Sorted::new(driver).then(Sorted::new(image))
    }

    #[test]
    fn the_driver_goes_before_the_stub_of_an_image_and_nothing_is_lost() {
        let stub = entry("libcuda.so.1", "/usr/local/cuda/stubs/libcuda.so.1");
        let libc = entry("libc.so.6", "/lib/libc.so.6");
        let driver = entry("libcuda.so.1", "/usr/lib64/libcuda.so.1");
        let i386 = CacheEntry {
            flags: AbiFlags::LIBC6,
            ..entry("libcuda.so.1", "/usr/lib/libcuda.so.1")
        };
        let bytes = write(&merge(&[stub, libc], &[driver, i386]), Endianness::Little).unwrap();
        assert_eq!(read(&bytes).unwrap().entries, [driver, stub, i386, libc]);
    }

    #[test]
    fn twice_is_once() {
        let image = [
            entry("libcuda.so.1", "/stubs/libcuda.so.1"),
            entry("libz.so.1", "/lib/libz.so.1"),
        ];
        let driver = [
            entry("libcuda.so.1", "/usr/lib64/libcuda.so.1"),
            entry("libnvml.so.1", "/usr/lib64/libnvml.so.1"),
        ];
        let once = write(&merge(&image, &driver), Endianness::Little).unwrap();
        let cache = read(&once).unwrap();
        let twice = write(&merge(&cache.entries, &driver), Endianness::Little).unwrap();
        assert_eq!(once, twice);
        assert_eq!(*merge(&[], &[driver[0], driver[0]]), [&driver[0]]);
    }

    #[test]
    fn names_that_the_loader_takes_for_one_are_once_each() {
        let two = [
            entry("libx.so.1", "/lib/libx.so.1"),
            entry("libx.so.01", "/lib/libx.so.01"),
        ];
        assert_eq!(*merge(&two, &two), two.each_ref());
        let paths: Vec<String> = (0..1000).map(|n| format!("/{n}/libx.so.1")).collect();
        let many: Vec<_> = paths.iter().map(|path| entry("libx.so.1", path)).collect();
        assert!(merge(&many, &many).iter().copied().eq(&many));
    }
}
