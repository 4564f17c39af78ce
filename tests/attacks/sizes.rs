//! More than anyone needs: files of a terabyte, directories of a hundred thousand names, trees without end.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::stage::Stage;
use crate::support::ld_so_cache;
use crate::support::stub_elf::{self, Machine};
use crate::trial::Attack;
use crate::verb::{LIBDIR, VERBS, Verb};

const TERABYTE: u64 = 1 << 40;
const NAMES: usize = 100_000;

/// Makes `path` a file of this size with holes for content, after these bytes.
fn sparse(stage: &Stage, path: &str, start: &[u8], size: u64) {
    let place = stage.clear(path);
    fs::write(&place, start).unwrap();
    fs::File::options()
        .write(true)
        .open(&place)
        .unwrap()
        .set_len(size)
        .unwrap();
}

/// What is in these is left out when the image is looked at.
fn shrink(file: &Path, size: u64) {
    if fs::metadata(file).is_ok_and(|meta| meta.len() == size) {
        let file = fs::File::options().write(true).open(file).unwrap();
        file.set_len(0).unwrap();
    }
}

#[test]
fn files_of_a_terabyte() {
    let cache = fs::read(Stage::new(VERBS[0]).image("/etc/ld.so.cache")).unwrap();
    let elf = stub_elf::library("libcuda.so.1", Machine::X86_64).unwrap();
    Attack::new(
        "sizes::files_of_a_terabyte",
        "a file that the hook reads has a terabyte of holes behind a good beginning",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
        }
        for verb in VERBS {
            for path in verb.touches {
                for (start, size) in [
                    (&b""[..], TERABYTE),
                    (&cache, TERABYTE),
                    (&elf, TERABYTE),
                    (&cache, 100 << 20),
                    (b"/", 100 << 20),
                ] {
                    let mut stage = Stage::new(verb);
                    if stage.image(path).is_dir() {
                        continue;
                    }
                    sparse(&stage, path, start, size);
                    let file = stage.image(path);
                    stage.tidy = Some(Box::new(move || shrink(&file, size)));
                    trial.attack(
                        &format!("{} {path} of {size} bytes after {}", verb.name, start.len()),
                        &stage,
                    );
                }
            }
        }
    });
}

#[test]
fn directories_of_a_hundred_thousand_names() {
    Attack::new(
        "sizes::directories_of_a_hundred_thousand_names",
        "a directory that the hook lists has a hundred thousand names that it wants to look into",
    )
    .naive_passes("it is slow, not wrong: what it takes longer is no more than a machine may take")
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
        }
        // Made once: it is moved from image to image.
        let shelf = crate::stage::temporary();
        let full = shelf.path().join("full");
        fs::create_dir(&full).unwrap();
        for n in 0..NAMES {
            // Names that every step wants to look into.
            symlink("x", full.join(format!("libcuda.so.{n}.1.conf"))).unwrap();
        }
        for name in [
            "prepare",
            "update-ldcache",
            "enable-cuda-compat",
            "update-application-profile",
            "create-symlinks",
        ] {
            let verb = Verb::named(name);
            for path in verb.components() {
                let mut stage = Stage::new(verb);
                if !stage.image(path).is_dir() || matches!(path, "/usr" | "/usr/lib" | "/usr/local" | "/dev" | "/proc")
                {
                    continue;
                }
                let place = stage.clear(path);
                fs::rename(&full, &place).unwrap();
                let back = full.clone();
                stage.tidy = Some(Box::new(move || fs::rename(&place, &back).unwrap()));
                trial.attack(&format!("{} {path} has {NAMES} names", verb.name), &stage);
            }
        }
    });
}

#[test]
fn trees_that_go_deep() {
    Attack::new(
        "sizes::trees_that_go_deep",
        "a link leads three hundred directories down, and arguments are as long as no path may be",
    )
    .naive_passes("a path that is too long for the kernel is an error for it, too")
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
        }
        // Others touch no other paths. A look at so deep a tree takes longer than the attack.
        for verb in [
            Verb::named("create-symlinks"),
            Verb::named("update-ldcache"),
            Verb::named("chmod"),
        ] {
            for path in verb.components() {
                let stage = Stage::new(verb);
                let names = "/d".repeat(300);
                fs::create_dir_all(stage.image(&names)).unwrap();
                stage.link(path, &names);
                trial.attack(&format!("{} {path} is 300 directories deep", verb.name), &stage);
            }
        }
        let links = Verb::named("create-symlinks");
        for length in [255, 256, 4000, 4090, 4096, 100_000] {
            let mut stage = Stage::new(links);
            stage.more = vec!["--link".into(), OsString::from(format!("t::/{}", "n".repeat(length)))];
            trial.attack(&format!("a link's name of {length} bytes"), &stage);
            let mut stage = Stage::new(links);
            stage.more = vec!["--link".into(), OsString::from(format!("{}::/x", "t".repeat(length)))];
            trial.attack(&format!("a link's text of {length} bytes"), &stage);
            let mut stage = Stage::new(links);
            stage.more = vec![
                "--link".into(),
                OsString::from(format!("t::{}", "/d".repeat(length / 2))),
            ];
            trial.attack(&format!("a link's path of {length} bytes"), &stage);
        }
    });
}

/// Forty links, each with a text as long as one can be, so that each path is a hundred thousand steps. The kernel takes
/// them at once; a walk would go on for a minute, and the hook ends itself before.
#[test]
fn a_path_that_takes_long() {
    Attack::new(
        "sizes::a_path_that_takes_long",
        "forty links, each with a text as long as one can be, make a path of a hundred thousand steps",
    )
    .naive_passes("the kernel follows such a path at once")
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
        }
        for verb in ["prepare", "create-symlinks"] {
            let stage = Stage::new(Verb::named(verb));
            let steps = "/./".repeat(1300);
            for n in 0..38 {
                stage.link(&format!("/chain{n}"), format!("{steps}chain{}", n + 1));
            }
            fs::rename(stage.image("/usr"), stage.image("/chain38")).unwrap();
            stage.link("/usr", "chain0");
            trial.attack(verb, &stage);
        }
    });
}

/// Nothing in a cache or a library is believed: neither counts nor offsets.
#[test]
fn files_that_lie() {
    Attack::new(
        "sizes::files_that_lie",
        "counts and offsets in a cache or a library point beyond its end",
    )
    .naive_passes("it reads the cache with the parser that is attacked here, and opens no library")
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
        }
        let verb = Verb::named("update-ldcache");
        let cache = fs::read(Stage::new(verb).image("/etc/ld.so.cache")).unwrap();
        let elf = fs::read(Stage::new(verb).image(&format!("{LIBDIR}/libcuda.so.580.95.05"))).unwrap();
        let files = [
            ("/etc/ld.so.cache".to_owned(), cache),
            (format!("{LIBDIR}/libcuda.so.580.95.05"), elf),
        ];
        for (path, bytes) in &files {
            for at in (0..bytes.len().min(256)).step_by(4) {
                let stage = Stage::new(verb);
                let mut lies = bytes.clone();
                lies[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff);
                fs::write(stage.image(path), lies).unwrap();
                trial.attack(&format!("{path} has -1 at {at}"), &stage);
            }
            for end in (0..bytes.len().min(512)).step_by(16) {
                let stage = Stage::new(verb);
                fs::write(stage.image(path), &bytes[..end]).unwrap();
                trial.attack(&format!("{path} ends at {end}"), &stage);
            }
        }
    });
}

/// A part of the loader's configuration may include others, and these others again.
#[test]
fn a_configuration_that_includes_itself() {
    Attack::new(
        "sizes::a_configuration_that_includes_itself",
        "fifty files of ld.so.conf.d include each other, all of them, or ten patterns that each match all of them",
    )
    .naive_passes("it follows no include")
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"] {
            let verb = Verb::named(verb);
            trial.twin(&Stage::new(verb));
            let all = "include /etc/ld.so.conf.d/*.conf\n".to_owned();
            for (says, text) in [
                ("the next", None),
                ("all", Some(all.clone())),
                ("all, ten times", Some(all.repeat(10))),
                (
                    "a pattern that takes long",
                    Some(format!("include /etc/{}.conf\n", "*a".repeat(100))),
                ),
                ("a deep pattern", Some(format!("include {}/*.conf\n", "/*".repeat(100)))),
            ] {
                let stage = Stage::new(verb);
                for n in 0..50 {
                    let next = format!("include /etc/ld.so.conf.d/part{}.conf\n/opt/lib{n}\n", n + 1);
                    let text = text.as_deref().unwrap_or(&next);
                    fs::write(stage.image(&format!("/etc/ld.so.conf.d/part{n}.conf")), text).unwrap();
                }
                fs::write(stage.image(&format!("/etc/{}.conf", "a".repeat(200))), "/opt/lib\n").unwrap();
                trial.attack(&format!("{} includes {says}", verb.name), &stage);
            }
        }
    });
}

/// Tables of an ELF file whose sizes are legal and absurd. The file has holes in their place, so that none of them
/// costs the image anything.
#[test]
fn libraries_with_endless_tables() {
    /// Where the header of a 64-bit file has the offset and the number of its program headers, and a program header its
    /// type, offset and sizes (ELF-64 Object File Format, version 1.5, figures 2 and 6).
    const PHOFF: usize = 32;
    const PHNUM: usize = 56;
    const HEADER: usize = 56;
    Attack::new(
        "sizes::libraries_with_endless_tables",
        "a library of a terabyte of holes has 65,535 program headers, or dynamic entries, names and notes of gigabytes",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache", "enable-cuda-compat"] {
            let verb = Verb::named(verb);
            trial.twin(&Stage::new(verb));
            let elf = stub_elf::library("libcuda.so.1", Machine::X86_64).unwrap();
            let headers = usize::try_from(u64::from_le_bytes(elf[PHOFF..PHOFF + 8].try_into().unwrap())).unwrap();
            let number = usize::from(u16::from_le_bytes(elf[PHNUM..PHNUM + 2].try_into().unwrap()));
            let sized = |at: usize, size: u64| {
                let mut bytes = elf.clone();
                // p_filesz and p_memsz
                for field in [32, 40] {
                    let field = headers + at * HEADER + field;
                    bytes[field..field + 8].copy_from_slice(&size.to_le_bytes());
                }
                bytes
            };
            let mut many = elf.clone();
            many[PHNUM..PHNUM + 2].copy_from_slice(&0xffff_u16.to_le_bytes());
            let mut far = elf.clone();
            far[PHOFF..PHOFF + 8].copy_from_slice(&(TERABYTE / 2).to_le_bytes());
            let mut files = vec![("program headers".to_owned(), many), ("far headers".to_owned(), far)];
            for at in 0..number {
                for size in [1_u64 << 31, 1 << 36, u64::MAX] {
                    files.push((format!("segment {at} of {size} bytes"), sized(at, size)));
                }
            }
            for (says, bytes) in files {
                let mut stage = Stage::new(verb);
                let paths = [
                    format!("{LIBDIR}/libcuda.so.580.95.05"),
                    "/usr/local/cuda/compat/libcuda.so.590.44.01".into(),
                ];
                let places: Vec<_> = paths.iter().map(|path| stage.image(path)).collect();
                for path in &paths {
                    sparse(&stage, path, &bytes, TERABYTE);
                }
                stage.tidy = Some(Box::new(move || {
                    places.iter().for_each(|place| shrink(place, TERABYTE))
                }));
                trial.attack(&format!("{} of a library with {says}", verb.name), &stage);
            }
        }
    });
}

/// Sixty thousand entries of a cache, each with another spelling of the directory of the driver's libraries. A
/// program that looks up each of them, or compares each with each, takes too long.
#[test]
fn a_cache_with_many_spellings() {
    Attack::new(
        "sizes::a_cache_with_many_spellings",
        "a cache of sixty thousand entries spells one directory in sixty thousand ways",
    )
    .naive_passes("it compares no directories")
    .run(|trial| {
        let verb = Verb::named("update-ldcache");
        trial.twin(&Stage::new(verb));
        let stage = Stage::new(verb);
        let entries = (0..60_000_usize).map(|n| {
            // As many bits as there are places for one more slash.
            let mut path = String::new();
            for (at, name) in LIBDIR.split('/').skip(1).chain(["."; 14]).enumerate() {
                path += if n >> at & 1 == 1 { "//" } else { "/" };
                path += name;
            }
            let soname = format!("libx{n}.so.1");
            ld_so_cache::Entry::new(&Path::new(&path).join(&soname), &soname, Machine::X86_64)
        });
        fs::write(stage.image("/etc/ld.so.cache"), ld_so_cache::write(entries.collect())).unwrap();
        trial.attack("many spellings", &stage);
    });
}
