//! Names that break lines, texts, terminals and formats.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::both_ways;
use crate::stage::Stage;
use crate::stub_elf::{self, Machine};
use crate::verb::{LIBDIR, Verb};

const NAMES: [&[u8]; 12] = [
    b"libcuda.so.590.1\ntranche-oci: hook: fake",
    b"libcuda.so.590.\x1b[31m1",
    b"libcuda.so.590.\xff\xfe",
    b"libcuda.so.590.1\r",
    b"libcuda.so.590.1 #",
    b"libcuda.so.590.1=libc6",
    b"lib$ORIGIN.so.1.2",
    b"lib\xc0\xaf.so.1",
    b"-n.so.1",
    b"lib`id`.so.1",
    b"libcuda.so.99999999999999999999.1",
    b"..so.1",
];

/// Files and directories of the image with such names, in the directories that are listed.
#[test]
fn of_files_in_directories_that_are_listed() {
    both_ways("names::of_files_in_directories_that_are_listed", |tally, how| {
        let longest = [b"lib".to_vec(), vec![b'x'; 246], b".so.1".to_vec()].concat();
        for name in NAMES.iter().map(|name| name.to_vec()).chain([longest]) {
            for verb in ["prepare", "update-ldcache", "enable-cuda-compat"] {
                for directory in [LIBDIR, "/usr/local/cuda/compat", "/etc/ld.so.conf.d"] {
                    let stage = Stage::new(Verb::named(verb));
                    let mut file = OsString::from_vec(name.clone());
                    if directory.ends_with(".d") {
                        file.push(".conf");
                        if file.len() > 255 {
                            continue;
                        }
                    }
                    let library = stub_elf::library("libx.so.1", Machine::X86_64).unwrap();
                    fs::write(stage.image(directory).join(&file), library).unwrap();
                    stage.attack(&format!("{verb} {directory}/{} {how}", file.display()), tally);
                }
            }
        }
    });
}

/// What a library calls itself goes into the cache, and nowhere else.
#[test]
fn of_libraries_in_themselves() {
    both_ways("names::of_libraries_in_themselves", |tally, how| {
        let long = "x".repeat(300);
        for soname in [
            "../../../../etc/shadow",
            "/etc/shadow",
            "",
            ".",
            "..",
            "a\nb",
            "lib\u{1b}[2J.so",
            "a b=c#d",
            &long,
        ] {
            for verb in ["prepare", "update-ldcache"] {
                let stage = Stage::new(Verb::named(verb));
                let library = stub_elf::library(soname, Machine::X86_64).unwrap();
                fs::write(stage.image(&format!("{LIBDIR}/libcuda.so.580.95.05")), library).unwrap();
                stage.attack(&format!("{verb} of the library {soname:?} {how}"), tally);
            }
        }
    });
}

/// Arguments are an engine's, not an image's; still no text in them may do more than it says.
#[test]
fn in_arguments() {
    both_ways("names::in_arguments", |tally, how| {
        let values: [&[u8]; 12] = [
            b"x::/a\nb",
            b"x\ny::/a/b",
            b"\xff::/\xfe",
            b"../../../../../outside/shadow::/etc/ld.so.cache",
            b"x::/../../outside/new",
            b"x::../outside/new",
            b"x::/etc/../../../outside/new",
            b"x::",
            b"::",
            b"",
            b"x::/proc/self/cwd/../../outside/new",
            b"x::/etc/./../..//../outside/new",
        ];
        for value in values {
            for (verb, option) in [
                ("prepare", "--link"),
                ("create-symlinks", "--link"),
                ("prepare", "--by-path"),
                ("prepare", "--ldcache-dir"),
                ("update-ldcache", "--folder"),
                ("enable-cuda-compat", "--cuda-compat-container-root"),
                ("enable-cuda-compat", "--host-driver-version"),
                ("chmod", "--path"),
            ] {
                for value in [value, value.strip_prefix(b"x::").unwrap_or(value)] {
                    let mut stage = Stage::new(Verb::named(verb));
                    stage.more = vec![option.into(), OsStr::from_bytes(value).into()];
                    stage.attack(&format!("{verb} {option} {} {how}", value.escape_ascii()), tally);
                }
            }
        }
    });
}
