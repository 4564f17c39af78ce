//! More than anyone needs: files of a terabyte, directories of a hundred thousand names, trees without end.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;

use crate::both_ways;
use crate::stage::Stage;
use crate::stub_elf::{self, Machine};
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

/// The image's files are looked at by their names in a listing of it: what is in these is left out.
fn shrink(stage: &Stage, path: &str) {
    fs::File::options()
        .write(true)
        .open(stage.image(path))
        .unwrap()
        .set_len(0)
        .unwrap();
}

#[test]
fn files_of_a_terabyte() {
    let cache = fs::read(Stage::new(VERBS[0]).image("/etc/ld.so.cache")).unwrap();
    let elf = stub_elf::library("libcuda.so.1", Machine::X86_64).unwrap();
    both_ways("sizes::files_of_a_terabyte", |tally, how| {
        for verb in VERBS {
            for path in verb.touches {
                for (start, size) in [
                    (&b""[..], TERABYTE),
                    (&cache, TERABYTE),
                    (&elf, TERABYTE),
                    (&cache, 100 << 20),
                    (b"/", 100 << 20),
                ] {
                    let stage = Stage::new(verb);
                    if stage.image(path).is_dir() {
                        continue;
                    }
                    sparse(&stage, path, start, size);
                    stage.attack_unread(
                        &format!("{} {path} of {size} bytes after {}, {how}", verb.name, start.len()),
                        || {
                            if fs::metadata(stage.image(path)).is_ok_and(|meta| meta.len() == size) {
                                shrink(&stage, path);
                            }
                        },
                        tally,
                    );
                }
            }
        }
    });
}

#[test]
fn directories_of_a_hundred_thousand_names() {
    both_ways("sizes::directories_of_a_hundred_thousand_names", |tally, how| {
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
                let stage = Stage::new(verb);
                if !stage.image(path).is_dir() || matches!(path, "/usr" | "/usr/lib" | "/usr/local" | "/dev" | "/proc")
                {
                    continue;
                }
                let place = stage.clear(path);
                fs::rename(&full, &place).unwrap();
                stage.attack_unread(
                    &format!("{} {path} has {NAMES} names, {how}", verb.name),
                    || fs::rename(&place, &full).unwrap(),
                    tally,
                );
            }
        }
    });
}

#[test]
fn trees_that_go_deep() {
    both_ways("sizes::trees_that_go_deep", |tally, how| {
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
                stage.attack(&format!("{} {path} is 300 directories deep, {how}", verb.name), tally);
            }
        }
        let links = Verb::named("create-symlinks");
        for length in [255, 256, 4000, 4090, 4096, 100_000] {
            let mut stage = Stage::new(links);
            stage.more = vec!["--link".into(), OsString::from(format!("t::/{}", "n".repeat(length)))];
            stage.attack(&format!("a link's name of {length} bytes, {how}"), tally);
            let mut stage = Stage::new(links);
            stage.more = vec!["--link".into(), OsString::from(format!("{}::/x", "t".repeat(length)))];
            stage.attack(&format!("a link's text of {length} bytes, {how}"), tally);
            let mut stage = Stage::new(links);
            stage.more = vec![
                "--link".into(),
                OsString::from(format!("t::{}", "/d".repeat(length / 2))),
            ];
            stage.attack(&format!("a link's path of {length} bytes, {how}"), tally);
        }
    });
}

/// Forty links, each with a text as long as one can be, so that each path is a hundred thousand steps. The kernel takes
/// them at once; a walk would go on for a minute, and the hook ends itself before.
#[test]
fn a_path_that_takes_long() {
    both_ways("sizes::a_path_that_takes_long", |tally, how| {
        for verb in ["prepare", "create-symlinks"] {
            let stage = Stage::new(Verb::named(verb));
            let steps = "/./".repeat(1300);
            for n in 0..38 {
                stage.link(&format!("/chain{n}"), format!("{steps}chain{}", n + 1));
            }
            fs::rename(stage.image("/usr"), stage.image("/chain38")).unwrap();
            stage.link("/usr", "chain0");
            stage.attack(&format!("{verb} {how}"), tally);
        }
    });
}

/// Nothing in a cache or a library is believed: neither counts nor offsets.
#[test]
fn files_that_lie() {
    both_ways("sizes::files_that_lie", |tally, how| {
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
                stage.attack(&format!("{path} has -1 at {at}, {how}"), tally);
            }
            for end in (0..bytes.len().min(512)).step_by(16) {
                let stage = Stage::new(verb);
                fs::write(stage.image(path), &bytes[..end]).unwrap();
                stage.attack(&format!("{path} ends at {end}, {how}"), tally);
            }
        }
    });
}
