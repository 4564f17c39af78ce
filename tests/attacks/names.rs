//! Names that break lines, texts, terminals and formats.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::stage::Stage;
use crate::support::stub_elf::{self, Machine};
use crate::trial::Attack;
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
    Attack::new(
        "names::of_files_in_directories_that_are_listed",
        "files of the image have names with line breaks, escape sequences, invalid text, or of the greatest length",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache", "enable-cuda-compat"] {
            trial.twin(&Stage::new(Verb::named(verb)));
        }
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
                    trial.attack_and(&format!("{verb} {directory}/{}", file.display()), &stage, |_| {
                        lines_of(&stage)
                    });
                }
            }
        }
    });
}

/// What a library calls itself goes into the cache, and nowhere else.
#[test]
fn of_libraries_in_themselves() {
    Attack::new(
        "names::of_libraries_in_themselves",
        "a library calls itself by a path, an empty name, or a name with line breaks and escape sequences",
    )
    .naive_passes("it takes names from the directory and opens no library")
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"] {
            trial.twin(&Stage::new(Verb::named(verb)));
        }
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
                trial.attack(&format!("{verb} of the library {soname:?}"), &stage);
            }
        }
    });
}

/// Arguments are an engine's, not an image's; still no text in them may do more than it says.
#[test]
fn in_arguments() {
    Attack::new(
        "names::in_arguments",
        "paths in the hook's arguments climb out of the root, break lines, or are no text",
    )
    .run(|trial| {
        for verb in [
            "prepare",
            "create-symlinks",
            "update-ldcache",
            "enable-cuda-compat",
            "chmod",
        ] {
            trial.twin(&Stage::new(Verb::named(verb)));
        }
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
                    trial.attack(&format!("{verb} {option} {}", value.escape_ascii()), &stage);
                }
            }
        }
    });
}

/// `O_NOFOLLOW` follows the last link of a path that ends with a slash (Go's CVE-2026-39822).
#[test]
fn with_a_slash_at_the_end() {
    Attack::new(
        "names::with_a_slash_at_the_end",
        "CVE-2026-39822: a path in the hook's arguments ends with a slash, and its last component is a link to the host",
    )
    .run(|trial| {
        let link = format!("{LIBDIR}/libcuda.so");
        for (verb, option, before, path) in [
            ("prepare", "--link", "x::", link.as_str()),
            ("create-symlinks", "--link", "x::", &link),
            ("prepare", "--ldcache-dir", "", LIBDIR),
            ("update-ldcache", "--folder", "", LIBDIR),
            ("chmod", "--path", "", "/dev/nvidia-caps"),
            ("chmod", "--path", "", "/etc/ld.so.conf"),
        ] {
            trial.twin(&Stage::new(Verb::named(verb)));
            for end in ["/", "//", "/.", "/./", "/../nvidia-caps/"] {
                for target in [".", "new"] {
                    let mut stage = Stage::new(Verb::named(verb));
                    stage.link(path, stage.host(path).join(target).components().collect::<std::path::PathBuf>());
                    stage.more = vec![option.into(), format!("{before}{path}{end}").into()];
                    trial.attack(&format!("{verb} {option} {path}{end} to {target}"), &stage);
                }
            }
        }
    });
}

/// Lines of the loader's configuration that no directory of the driver gave.
fn lines_of(stage: &Stage) -> Vec<String> {
    let text = fs::read(stage.image("/etc/ld.so.conf.d/00-tranche.conf")).unwrap_or_default();
    let odd = String::from_utf8_lossy(&text);
    odd.lines()
        .filter(|line| ![LIBDIR, "/usr/local/cuda/compat"].contains(line))
        .map(|line| format!("a line {line:?} in 00-tranche.conf"))
        .collect()
}
