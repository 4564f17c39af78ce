//! Mounts in the root: the user's volumes, which are the host's, and file systems that are full or read-only.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::can_mount;
use crate::stage::Stage;
use crate::support::ld_so_cache::{self, Entry};
use crate::support::stub_elf::Machine;
use crate::trial::Attack;
use crate::verb::{VERBS, Verb};

/// The directories of the image that a verb touches.
fn directories(verb: Verb) -> Vec<&'static str> {
    let stage = Stage::new(verb);
    let all = verb.components().into_iter();
    all.filter(|path| stage.image(path).is_dir()).collect()
}

fn bind(stage: &mut Stage, source: &str, at: &str, option: &str) {
    let source = stage.host(source);
    let host = source.display();
    stage.before = format!("mount --bind '{host}' \"$root{at}\" && mount -o remount,bind,{option} \"$root{at}\"");
    let mount = json!({"destination": at, "type": "bind", "source": source, "options": ["rbind", option]});
    stage.configure(Some(mount), false);
}

/// A directory of the host that the user has bound into the container, with a file for everything that a hook writes:
/// the image is what a hook works on, never the host's own `/etc`.
#[test]
fn a_directory_of_the_host_is_bound() {
    if !can_mount("a_directory_of_the_host_is_bound") {
        return;
    }
    Attack::new(
        "mounts::a_directory_of_the_host_is_bound",
        "a volume of the host lies over a directory that the hook reads and writes",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for path in directories(verb) {
                for option in ["rw", "ro"] {
                    let mut stage = Stage::new(verb);
                    bind(&mut stage, path, path, option);
                    trial.attack(&format!("{} {path} is the host's, {option}", verb.name), &stage);
                }
            }
        }
    });
}

/// The same volume, to which the image leads us by a link: config.json has another path for it.
#[test]
fn a_link_of_the_image_leads_into_a_volume() {
    if !can_mount("a_link_of_the_image_leads_into_a_volume") {
        return;
    }
    Attack::new(
        "mounts::a_link_of_the_image_leads_into_a_volume",
        "a directory or file of the image is a link into a volume, where the host's files have the same names",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            let files = verb.touches.iter().copied();
            for path in directories(verb).into_iter().chain(files) {
                let mut stage = Stage::new(verb);
                fs::create_dir(stage.image("/data")).unwrap();
                bind(&mut stage, "/", "/data", "rw");
                stage.link_inside(path, &format!("/data{path}"));
                trial.attack(&format!("{} {path} leads into a volume", verb.name), &stage);
            }
        }
    });
}

/// One file of the host, bound over one that a hook writes.
#[test]
fn a_file_of_the_host_is_bound() {
    if !can_mount("a_file_of_the_host_is_bound") {
        return;
    }
    Attack::new(
        "mounts::a_file_of_the_host_is_bound",
        "a single file of the host is bound over one that the hook reads, writes or covers",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for path in verb.touches {
                let mut stage = Stage::new(verb);
                if !stage.image(path).is_file() {
                    continue;
                }
                bind(&mut stage, path, path, "rw");
                trial.attack(&format!("{} {path} is a file of the host", verb.name), &stage);
            }
        }
    });
}

/// What the user wants read-only stays as it is: to the byte, whatever the image has there.
#[test]
fn a_read_only_root() {
    if !can_mount("a_read_only_root") {
        return;
    }
    Attack::new(
        "mounts::a_read_only_root",
        "the user wants a read-only root, and a link leads what would be laid over a file to the host",
    )
    .run(|trial| {
        for verb in VERBS {
            let mut twin = Stage::new(verb);
            twin.configure(None, true);
            twin.keeps_image = true;
            trial.twin(&twin);
            for by_kernel in [false, true] {
                for path in [None].into_iter().chain(verb.components().into_iter().map(Some)) {
                    let mut stage = Stage::new(verb);
                    if let Some(path) = path {
                        stage.link(path, stage.host(path));
                    }
                    stage.configure(None, true);
                    if by_kernel {
                        stage.before = r#"mount --bind "$root" "$root" && mount -o remount,bind,ro "$root""#.to_owned();
                    }
                    stage.keeps_image = true;
                    trial.attack(
                        &format!("{} read-only, {path:?} is a link, {by_kernel}", verb.name),
                        &stage,
                    );
                }
            }
        }
    });
}

/// A read-only root with a volume: what is laid over a file may not lie in it.
#[test]
fn a_read_only_root_with_a_volume() {
    if !can_mount("a_read_only_root_with_a_volume") {
        return;
    }
    Attack::new(
        "mounts::a_read_only_root_with_a_volume",
        "on a read-only root a link leads into a volume, so that the host's file is read and covered",
    )
    .run(|trial| {
        for verb in VERBS {
            let twin = Stage::new(verb);
            twin.configure(None, true);
            trial.twin(&twin);
            let files = verb.touches.iter().copied();
            for path in directories(verb).into_iter().chain(files) {
                let mut stage = Stage::new(verb);
                fs::create_dir(stage.image("/data")).unwrap();
                bind(&mut stage, "/", "/data", "ro");
                let mount = json!({"destination": "/data", "type": "bind", "options": ["rbind", "ro"]});
                stage.configure(Some(mount), true);
                stage.link_inside(path, &format!("/data{path}"));
                stage.keeps_image = true;
                trial.attack_and(&format!("{} {path} leads into a volume", verb.name), &stage, |ended| {
                    let below = ended.covers.iter().filter(|cover| cover.path.starts_with("/data/"));
                    below
                        .map(|cover| format!("{} of the volume is covered", cover.path))
                        .collect()
                });
            }
        }
    });
}

/// A file system that is full in the middle of a write: the old file stays, whole.
#[test]
fn a_full_root() {
    if !can_mount("a_full_root") {
        return;
    }
    Attack::new(
        "mounts::a_full_root",
        "the image's file system is full in the middle of a write, and the old file would be lost",
    )
    .naive_passes("what it writes fits where the old file lay, and what does not fit goes to a new file")
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for free in ["0", "1", "2"] {
                let mut stage = Stage::new(verb);
                // Nearly a page: what is added needs another one.
                let entries = (0..48).map(|n| {
                    let name = format!("libof-the-image-{n}.so.1");
                    Entry::new(&Path::new("/opt/lib").join(&name), &name, Machine::X86_64)
                });
                fs::write(stage.image("/etc/ld.so.cache"), ld_so_cache::write(entries.collect())).unwrap();
                // The image is copied onto a small file system; what is left there is compared in its namespace.
                stage.before = format!(
                    r#"mount -t tmpfs -o size=256k,nr_inodes=4096 tmpfs /mnt && cp -a "$root/." /mnt/ && mount --move /mnt "$root" || exit 99
                    cp "$root/etc/ld.so.cache" "$lists/cache"
                    yes | head -c "$(({free} * 4096))" > "$root/spare"
                    yes > "$root/filler" 2>/dev/null; rm "$root/spare""#
                );
                stage.after = r#"cd "$root"; find . -name '.tranche-*' | grep . && code=98
                    test -s etc/ld-musl-x86_64.path || code=97
                    # The old one, or a new one that is whole: one that is cut off ends with a page.
                    cmp -s "$lists/cache" etc/ld.so.cache ||
                        [ "$(($(stat -c %s etc/ld.so.cache) % 4096))" != 0 ] || code=96"#
                    .to_owned();
                trial.attack(&format!("{} with {free} pages free", verb.name), &stage);
            }
        }
    });
}

/// File systems that the runtime makes in the container.
#[test]
fn a_file_system_of_the_containers_own() {
    if !can_mount("a_file_system_of_the_containers_own") {
        return;
    }
    Attack::new(
        "mounts::a_file_system_of_the_containers_own",
        "an empty or read-only tmpfs of the container lies over a directory that the hook needs",
    )
    .naive_passes("such a file system is the container's, and it may do there what it wants")
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for path in directories(verb) {
                for read_only in [false, true] {
                    let mut stage = Stage::new(verb);
                    let option = if read_only { "ro" } else { "rw" };
                    stage.before = format!("mount -t tmpfs -o {option},size=64k tmpfs \"$root{path}\"");
                    trial.attack(&format!("{} {path} is a tmpfs, {option}", verb.name), &stage);
                }
            }
        }
    });
}
