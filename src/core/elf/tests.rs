use std::cell::Cell;

use super::*;

/// A library of the smallest kind: one segment, a dynamic section, a section with a note.
struct Sample {
    is_64: bool,
    big: bool,
    machine: u16,
    soname: &'static [u8],
}

const X86_64: Sample = Sample {
    is_64: true,
    big: false,
    machine: 62,
    soname: b"libcuda.so.1",
};
const LOAD_ADDRESS: u64 = 0x10000;

impl Sample {
    fn word(&self, out: &mut Vec<u8>, value: u64, size: usize) {
        let bytes = if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        };
        out.extend(if self.big { &bytes[8 - size..] } else { &bytes[..size] });
    }

    fn build(&self) -> Vec<u8> {
        let address = if self.is_64 { 8 } else { 4 };
        let (header, ph, sh) = if self.is_64 { (64, 56, 64) } else { (52, 32, 40) };
        let dynamic_at = header + 2 * ph;
        let strings_at = dynamic_at + 3 * 2 * address;
        let mut strings = vec![0];
        strings.extend(self.soname);
        strings.push(0);
        let note_at = (strings_at + strings.len()).next_multiple_of(4);
        let mut note = Vec::new();
        for word in [12, 4, 1] {
            self.word(&mut note, word, 4);
        }
        note.extend(b"some vendor\0json");
        let names_at = note_at + note.len();
        let names = b"\0.note.vendor\0.shstrtab\0";
        let sections_at = names_at + names.len();

        let mut out = b"\x7fELF".to_vec();
        out.extend([if self.is_64 { 2 } else { 1 }, if self.big { 2 } else { 1 }, 1]);
        out.resize(16, 0);
        for (value, size) in [
            (3, 2),
            (self.machine.into(), 2),
            (1, 4),
            (0, address),
            (header, address),
        ] {
            self.word(&mut out, value as u64, size);
        }
        for (value, size) in [
            (sections_at, address),
            (0, 4),
            (header, 2),
            (ph, 2),
            (2, 2),
            (sh, 2),
            (3, 2),
            (2, 2),
        ] {
            self.word(&mut out, value as u64, size);
        }
        let load = LOAD_ADDRESS as usize;
        self.program_header(&mut out, 1, 0, load, sections_at);
        self.program_header(&mut out, 2, dynamic_at, load + dynamic_at, strings_at - dynamic_at);
        for word in [5, load + strings_at, 14, 1, 0, 0] {
            self.word(&mut out, word as u64, address);
        }
        out.extend(&strings);
        out.resize(note_at, 0);
        out.extend(&note);
        out.extend(names);
        for (name, kind, at, size) in [
            (0, 0, 0, 0),
            (1, 7, note_at, note.len()),
            (14, 3, names_at, names.len()),
        ] {
            for (value, size) in [
                (name, 4),
                (kind, 4),
                (0, address),
                (0, address),
                (at, address),
                (size, address),
            ] {
                self.word(&mut out, value as u64, size);
            }
            for (value, size) in [(0, 4), (0, 4), (4, address), (0, address)] {
                self.word(&mut out, value, size);
            }
        }
        out
    }

    fn program_header(&self, out: &mut Vec<u8>, kind: u64, at: usize, address: usize, size: usize) {
        let size = size as u64;
        let (at, address) = (at as u64, address as u64);
        if self.is_64 {
            self.word(out, kind, 4);
            self.word(out, 4, 4);
            for value in [at, address, address, size, size, 8] {
                self.word(out, value, 8);
            }
        } else {
            for value in [kind, at, address, address, size, size, 4, 4] {
                self.word(out, value, 4);
            }
        }
    }
}

fn read_bytes(bytes: &[u8]) -> Result<SharedLibrary> {
    read(bytes)
}

#[test]
fn both_classes_and_both_byte_orders() {
    for is_64 in [true, false] {
        for big in [true, false] {
            let library = read_bytes(&Sample { is_64, big, ..X86_64 }.build()).unwrap();
            let expected = SharedLibrary {
                is_64,
                flags: Some(if is_64 { AbiFlags::X86_64 } else { AbiFlags::X32 }),
                soname: Some("libcuda.so.1".into()),
            };
            assert_eq!(library, expected);
            let bytes = Sample { is_64, big, ..X86_64 }.build();
            let note = note(bytes.as_slice(), ".note.vendor", "some vendor");
            assert_eq!(note.unwrap().as_deref(), Some(b"json".as_slice()));
        }
    }
    assert_eq!(read_bytes(&X86_64.build()).unwrap().flags, Some(AbiFlags::X86_64));
    assert_eq!(
        read_bytes(&Sample { machine: 183, ..X86_64 }.build()).unwrap().flags,
        Some(AbiFlags::AARCH64)
    );
    assert_eq!(
        read_bytes(
            &Sample {
                machine: 3,
                is_64: false,
                ..X86_64
            }
            .build()
        )
        .unwrap()
        .flags,
        Some(AbiFlags::LIBC6)
    );
}

#[test]
fn a_note_of_another_owner_or_section_is_none() {
    let bytes = X86_64.build();
    assert_eq!(note(bytes.as_slice(), ".note.vendor", "another vendor").unwrap(), None);
    assert_eq!(note(bytes.as_slice(), ".note.other", "some vendor").unwrap(), None);
}

#[test]
fn a_note_that_is_shorter_than_it_claims_is_what_there_is() {
    let mut bytes = X86_64.build();
    let note_at = bytes.windows(4).position(|w| w == b"some").unwrap() - 12;
    // Four bytes of content, of which it claims six; the section ends where it did.
    bytes[note_at + 4] = 6;
    let content = note(bytes.as_slice(), ".note.vendor", "some vendor").unwrap();
    assert_eq!(content.as_deref(), Some(b"json".as_slice()));
    // A name that is longer than the section is no note at all.
    bytes[note_at] = 200;
    assert_eq!(note(bytes.as_slice(), ".note.vendor", "some vendor").unwrap(), None);
}

#[test]
fn what_is_no_library_says_so() {
    let message = |bytes: &[u8]| read_bytes(bytes).unwrap_err().to_string();
    assert_eq!(message(b""), "ELF file: not an ELF file");
    assert_eq!(message(b"#!/bin/sh\n"), "ELF file: not an ELF file");
    assert_eq!(message(b"\x7fELF\x07"), "ELF file: neither 32-bit nor 64-bit");
    let mut executable = X86_64.build();
    executable[16] = 2;
    assert_eq!(message(&executable), "ELF file: not a shared library");
}

#[test]
fn a_soname_that_is_no_file_name_is_refused() {
    for soname in [b"../../etc/shadow".as_slice(), b""] {
        let error = read_bytes(&Sample { soname, ..X86_64 }.build())
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("is not a file name"), "{error}");
    }
}

#[test]
fn a_name_that_is_not_utf8_survives() {
    let library = read_bytes(
        &Sample {
            soname: b"lib\xff.so",
            ..X86_64
        }
        .build(),
    )
    .unwrap();
    assert_eq!(library.soname.unwrap().as_bytes(), b"lib\xff.so");
}

#[test]
fn claimed_sizes_are_not_allocated() {
    // The dynamic section says that it has 2^62 bytes, and the count of program headers is the largest that there is.
    let mut bytes = X86_64.build();
    let size_at = 64 + 56 + 32;
    bytes[size_at..size_at + 8].copy_from_slice(&(1_u64 << 62).to_le_bytes());
    let error = read_bytes(&bytes).unwrap_err().to_string();
    assert_eq!(error, "ELF file: a dynamic section of 4611686018427387904 bytes");
    let mut bytes = X86_64.build();
    bytes[56..58].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(
        read_bytes(&bytes).unwrap_err().to_string(),
        "ELF file: 65535 program headers"
    );
}

#[test]
fn only_a_few_pages_of_a_large_file_are_read() {
    struct Counting<'a>(&'a [u8], &'a Cell<usize>);
    impl ReadAt for Counting<'_> {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
            let n = self.0.read_at(buffer, offset)?;
            self.1.set(self.1.get() + n);
            Ok(n)
        }
    }
    let mut bytes = X86_64.build();
    bytes.resize(4 << 20, 0);
    let count = Cell::new(0);
    assert!(read(Counting(&bytes, &count)).unwrap().soname.is_some());
    assert!(count.get() <= 8192, "{} bytes were read", count.get());
}

proptest::proptest! {
    #[test]
    fn a_damaged_file_is_an_answer_or_an_error(
        is_64: bool, big: bool,
        damage in proptest::collection::vec((0_usize..600, proptest::num::u8::ANY), 1..12),
        length in 0_usize..700,
    ) {
        let mut bytes = Sample { is_64, big, ..X86_64 }.build();
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(length);
        // Neither may panic; a name that is given is one that can stand in a directory.
        if let Ok(SharedLibrary { soname: Some(name), .. }) = read_bytes(&bytes) {
            proptest::prop_assert!(!name.is_empty() && !name.as_bytes().contains(&b'/'));
        }
        if let Ok(Some(content)) = note(bytes.as_slice(), ".note.vendor", "some vendor") {
            proptest::prop_assert!(content.len() <= bytes.len());
        }
    }
}
