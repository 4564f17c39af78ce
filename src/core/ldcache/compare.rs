//! The order of a cache. The loader finds a name by binary search, so a cache in any other order hides libraries.

use std::cmp::Ordering;
use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

use super::{CacheEntry, Hwcap};

/// Orders entries as `ldconfig` writes them: names descending by [`compare_names`]; for one name the flags descending
/// as signed numbers; then libraries for named processors, by that name, before those for any; then the more
/// specific capability bits first. Entries that are equal in all of these keep the order in which they were added (that
/// of the configured directories), and the loader takes the first.
///
/// glibc `elf/cache.c`; the loader's side is `search_cache` in `elf/dl-cache.c`.
pub fn compare(a: &CacheEntry<'_>, b: &CacheEntry<'_>) -> Ordering {
    compare_names(b.soname.as_bytes(), a.soname.as_bytes())
        .then_with(|| (b.flags.0 as i32).cmp(&(a.flags.0 as i32)))
        .then_with(|| match (a.hwcap, b.hwcap) {
            (Hwcap::Named { name: a, isa_level: x }, Hwcap::Named { name: b, isa_level: y }) => {
                a.as_bytes().cmp(b.as_bytes()).then(y.cmp(&x))
            }
            (Hwcap::Named { .. }, Hwcap::Bits(_)) => Ordering::Less,
            (Hwcap::Bits(_), Hwcap::Named { .. }) => Ordering::Greater,
            (Hwcap::Bits(a), Hwcap::Bits(b)) => b.count_ones().cmp(&a.count_ones()).then(b.cmp(&a)),
        })
        .then_with(|| b.osversion.cmp(&a.osversion))
}

/// Compares two SONAMEs as the loader does: two numbers by value, a digit after any other character, and everything
/// else by its byte, which is signed where C's `char` is signed (x86) and unsigned elsewhere (ARM).
///
/// A number overflows here as in glibc. The two values are then compared, where glibc subtracts them, because sorting
/// needs an order without circles. The results differ only for names with numbers more than 2^31 apart.
pub fn compare_names(a: &[u8], b: &[u8]) -> Ordering {
    // Neighbours in a cache have a common beginning, which matters only if it ends within a number.
    let alike = alike(a, b);
    if alike == a.len() && alike == b.len() {
        return Ordering::Equal;
    }
    let (head, _) = a.split_at(alike);
    let at = alike - head.iter().rev().take_while(|c| c.is_ascii_digit()).count();
    let (mut a, mut b) = (a.split_at(at).1, b.split_at(at).1);
    loop {
        match (a.split_first(), b.split_first()) {
            (Some((x, rest_a)), Some((y, rest_b))) => match (x.is_ascii_digit(), y.is_ascii_digit()) {
                (true, true) => {
                    let (x, y);
                    (x, a) = number(a);
                    (y, b) = number(b);
                    if x != y {
                        return x.cmp(&y);
                    }
                }
                (true, false) => return Ordering::Greater,
                (false, true) => return Ordering::Less,
                (false, false) if x != y => return (*x as c_char).cmp(&(*y as c_char)),
                (false, false) => (a, b) = (rest_a, rest_b),
            },
            // In glibc the end of a string is a zero byte, which is compared like any other.
            (Some((x, _)), None) if x.is_ascii_digit() => return Ordering::Greater,
            (None, Some((y, _))) if y.is_ascii_digit() => return Ordering::Less,
            (Some((x, _)), None) => return (*x as c_char).cmp(&0),
            (None, Some((y, _))) => return 0.cmp(&(*y as c_char)),
            (None, None) => return Ordering::Equal,
        }
    }
}

/// The length of the common beginning. Eight bytes are compared at once, because a cache has thousands of names.
fn alike(a: &[u8], b: &[u8]) -> usize {
    let mut alike = 0;
    for (x, y) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return alike + differ.trailing_zeros() as usize / 8;
        }
        alike += 8;
    }
    let rest = |string: &[u8]| -> usize { string.len().min(alike) };
    let (a, b) = (a.split_at(rest(a)).1, b.split_at(rest(b)).1);
    alike + a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The number that a string begins with, and what follows it.
fn number(string: &[u8]) -> (i32, &[u8]) {
    let length = string.iter().take_while(|c| c.is_ascii_digit()).count();
    let (digits, rest) = string.split_at(length);
    let value = digits.iter().fold(0_i32, |value, c| {
        value.wrapping_mul(10).wrapping_add(i32::from(c - b'0'))
    });
    (value, rest)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::AbiFlags;
    use super::*;

    #[test]
    fn numbers_by_value_and_digits_after_letters() {
        for (smaller, larger) in [
            ("libfoo.so.9", "libfoo.so.10"),
            ("libfoo.so", "libfoo.so.1"),
            ("libfoo.so", "libfoo1.so"),
            ("liba.so", "libb.so"),
            ("libz.so", "lib1.so"),
            ("lib", "lib1"),
            ("", "a"),
        ] {
            assert_eq!(
                compare_names(smaller.as_bytes(), larger.as_bytes()),
                Ordering::Less,
                "{smaller} {larger}"
            );
            assert_eq!(
                compare_names(larger.as_bytes(), smaller.as_bytes()),
                Ordering::Greater,
                "{smaller} {larger}"
            );
        }
        assert_eq!(compare_names(b"libfoo.so.01", b"libfoo.so.1"), Ordering::Equal);
    }

    #[test]
    fn ties_go_by_flags_then_processor_then_the_order_of_adding() {
        let (name, path) = (OsStr::new("libfoo.so.1"), Path::new("/lib/libfoo.so.1"));
        let plain = CacheEntry::new(name, path, AbiFlags::X86_64);
        let v3 = CacheEntry {
            hwcap: Hwcap::Named {
                name: OsStr::new("x86-64-v3"),
                isa_level: 0,
            },
            ..plain
        };
        let v2 = CacheEntry {
            hwcap: Hwcap::Named {
                name: OsStr::new("x86-64-v2"),
                isa_level: 0,
            },
            ..plain
        };
        let bits = CacheEntry {
            hwcap: Hwcap::Bits(1 << 63),
            ..plain
        };
        let i386 = CacheEntry {
            flags: AbiFlags::LIBC6,
            ..plain
        };
        let second = CacheEntry {
            path: Path::new("/usr/lib/libfoo.so.1"),
            ..plain
        };
        let mut entries = [i386, plain, second, v3, bits, v2];
        entries.sort_by(compare);
        assert_eq!(entries, [v2, v3, bits, plain, second, i386]);
    }

    /// glibc's way, byte by byte from the start.
    fn plainly(a: &[u8], b: &[u8]) -> Ordering {
        let is_digit = |s: &[u8]| s.first().is_some_and(u8::is_ascii_digit);
        let (mut a, mut b) = (a, b);
        while let ([x, rest_a @ ..], [y, rest_b @ ..]) = (a, b) {
            match (is_digit(a), is_digit(b)) {
                (true, true) => {
                    let ((x, rest_a), (y, rest_b)) = (number(a), number(b));
                    if x != y {
                        return x.cmp(&y);
                    }
                    (a, b) = (rest_a, rest_b);
                }
                (true, false) => return Ordering::Greater,
                (false, true) => return Ordering::Less,
                (false, false) if x != y => return (*x as c_char).cmp(&(*y as c_char)),
                (false, false) => (a, b) = (rest_a, rest_b),
            }
        }
        // What goes on is after what ends.
        a.len().min(1).cmp(&b.len().min(1))
    }

    proptest! {
        #[test]
        fn what_is_alike_decides_nothing(a in "[ab.0-9]{0,14}", b in "[ab.0-9]{0,14}", head in "[a.0-9]{0,6}") {
            for (a, b) in [(a.clone(), b.clone()), (format!("{head}{a}"), format!("{head}{b}"))] {
                prop_assert_eq!(compare_names(a.as_bytes(), b.as_bytes()), plainly(a.as_bytes(), b.as_bytes()));
            }
        }

        #[test]
        fn there_is_an_order_without_circles(names in prop::collection::vec("[ab.0-9\u{e9}]{0,12}", 3)) {
            let [a, b, c] = [0, 1, 2].map(|i| names[i].as_bytes());
            prop_assert_eq!(compare_names(a, b), compare_names(b, a).reverse());
            if compare_names(a, b).is_le() && compare_names(b, c).is_le() {
                prop_assert!(compare_names(a, c).is_le());
            }
        }
    }
}
