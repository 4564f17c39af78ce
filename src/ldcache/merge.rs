//! What an image has, and the driver's libraries on top.

use super::{Entry, compare};

/// The entries of `existing` with those of `added` before them, in the loader's order, for [`write`](super::write()).
///
/// In the loader's order the two only meet where name, flags and processor are equal, and there the first wins: the
/// driver's `libcuda.so.1` before a stub or another driver's that the image has in one of its own directories. That
/// is what `ldconfig` makes when the driver's directories come first in its configuration. Nothing of the image is
/// taken away: an entry for a named processor still goes before the driver's, as it would with `ldconfig`.
///
/// What is there already (a container that starts a second time on the same root) is not added again, so doing this
/// twice gives the same bytes.
pub fn merge<'a>(existing: &[Entry<'a>], added: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let mut merged = Vec::with_capacity(existing.len() + added.len());
    merged.extend_from_slice(added);
    merged.extend_from_slice(existing);
    // A cache is in this order already, so this is little work, and what is twice there stands together afterwards.
    merged.sort_by(compare);
    // Of equal ones the first stays. There are rarely more than two of one name, and an image that has thousands pays
    // with its own time: only so many are looked back on.
    let mut kept: Vec<Entry<'a>> = Vec::with_capacity(merged.len());
    for entry in merged {
        let before = kept
            .iter()
            .rev()
            .take(LOOK_BACK)
            .take_while(|other| other.soname == entry.soname);
        if !before.into_iter().any(|other| is_same(other, &entry)) {
            kept.push(entry);
        }
    }
    kept
}

/// How many entries of one name are compared with one another.
const LOOK_BACK: usize = 64;

fn is_same(a: &Entry<'_>, b: &Entry<'_>) -> bool {
    a.flags == b.flags && a.hwcap == b.hwcap && a.path.as_os_str() == b.path.as_os_str()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::super::{Endian, Flags, read, write};
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
        let twice = write(&merge(&read(&once).unwrap().entries, &driver), Endian::Little).unwrap();
        assert_eq!(once, twice);
        assert_eq!(merge(&[], &[driver[0], driver[0]]), [driver[0]]);
    }
}
