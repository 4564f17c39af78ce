//! What an image has, and the driver's libraries on top.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Entry, Flags, Hwcap, compare, compare_names};

/// The entries of `existing` with those of `added` before them, in the loader's order, for [`write`](super::write()).
///
/// In the loader's order the two only meet where name, flags and processor are equal, and there the first wins: the
/// driver's `libcuda.so.1` before a stub or another driver's that the image has in one of its own directories. That
/// is what `ldconfig` makes when the driver's directories come first in its configuration. Nothing of the image is
/// taken away: an entry for a named processor still goes before the driver's, as it would with `ldconfig`.
///
/// What is there already (a container that starts a second time on the same root) is not added again, so doing this
/// twice gives the same bytes.
pub fn merge<'e, 'a>(existing: &'e [Entry<'a>], added: &'e [Entry<'a>]) -> Vec<&'e Entry<'a>> {
    let mut added: Vec<&Entry<'a>> = added.iter().collect();
    added.sort_by(|a, b| compare(a, b));
    let mut merged = Vec::with_capacity(existing.len() + added.len());
    // A cache is in this order already, so few places in it need to be looked for.
    if existing.is_sorted_by(|a, b| compare(a, b).is_le()) {
        let mut rest = existing;
        for entry in added {
            let (before, after) = rest.split_at(rest.partition_point(|other| compare(other, entry).is_lt()));
            merged.extend(before);
            merged.push(entry);
            rest = after;
        }
        merged.extend(rest);
    } else {
        merged.extend(added);
        merged.extend(existing);
        merged.sort_by(|a, b| compare(a, b));
    }
    remove_duplicates(&mut merged);
    merged
}

/// A group that is compared in pairs. There are rarely more than two of one name; an image may have thousands.
const FEW: usize = 16;

/// Keeps the first of equal ones.
fn remove_duplicates(merged: &mut Vec<&Entry<'_>>) {
    let mut duplicates = Vec::new();
    let mut start = 0;
    // By the loader's comparing: `libx.so.01` and `libx.so.1` stand among one another.
    for group in merged.chunk_by(|a, b| compare_names(a.soname.as_bytes(), b.soname.as_bytes()).is_eq()) {
        if group.len() <= FEW {
            for (at, entry) in group.iter().enumerate().skip(1) {
                let before = group.iter().take(at);
                if before.into_iter().any(|other| identity(other) == identity(entry)) {
                    duplicates.push(start + at);
                }
            }
        } else {
            let mut seen = HashSet::new();
            let group = group.iter().enumerate();
            duplicates.extend(
                group
                    .filter(|(_, entry)| !seen.insert(identity(entry)))
                    .map(|(at, _)| start + at),
            );
        }
        start += group.len();
    }
    let mut duplicates = duplicates.into_iter().peekable();
    if duplicates.peek().is_some() {
        let mut at = 0;
        merged.retain(|_| {
            at += 1;
            duplicates.next_if_eq(&(at - 1)).is_none()
        });
    }
}

/// What makes two entries one.
fn identity<'a>(entry: &Entry<'a>) -> (&'a OsStr, Flags, Hwcap<'a>, &'a OsStr) {
    (entry.soname, entry.flags, entry.hwcap, entry.path.as_os_str())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Endian, read, write};
    use super::*;

    fn entry<'a>(soname: &'a str, path: &'a str) -> Entry<'a> {
        Entry::new(OsStr::new(soname), Path::new(path), Flags::X86_64)
    }

    #[test]
    fn the_driver_goes_before_the_stub_of_an_image_and_nothing_is_lost() {
        let stub = entry("libcuda.so.1", "/usr/local/cuda/stubs/libcuda.so.1");
        let libc = entry("libc.so.6", "/lib/libc.so.6");
        let driver = entry("libcuda.so.1", "/usr/lib64/libcuda.so.1");
        let i386 = Entry {
            flags: Flags::LIBC6,
            ..entry("libcuda.so.1", "/usr/lib/libcuda.so.1")
        };
        let bytes = write(&merge(&[stub, libc], &[driver, i386]), Endian::Little).unwrap();
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
        let once = write(&merge(&image, &driver), Endian::Little).unwrap();
        let cache = read(&once).unwrap();
        let twice = write(&merge(&cache.entries, &driver), Endian::Little).unwrap();
        assert_eq!(once, twice);
        assert_eq!(merge(&[], &[driver[0], driver[0]]), [&driver[0]]);
    }

    #[test]
    fn names_that_the_loader_takes_for_one_are_once_each() {
        let two = [
            entry("libx.so.1", "/lib/libx.so.1"),
            entry("libx.so.01", "/lib/libx.so.01"),
        ];
        assert_eq!(merge(&two, &two), two.each_ref());
        let paths: Vec<String> = (0..1000).map(|n| format!("/{n}/libx.so.1")).collect();
        let many: Vec<_> = paths.iter().map(|path| entry("libx.so.1", path)).collect();
        assert!(merge(&many, &many).into_iter().eq(&many));
    }
}
