//! Mounts in the root: the user's volumes, which are the host's, and file systems that are full or read-only.

use nix::unistd::Uid;
use serde_json::json;

use crate::stage::Stage;
use crate::tally::Tally;
use crate::verb::{VERBS, Verb};
use crate::{both_ways, skip};

fn with_mounts(test: &str, attacks: impl Fn(&mut Tally, &str) + Sync) {
    if !Uid::effective().is_root() {
        return skip::not_run(&format!("attacks::{test}"), "not root: cannot mount");
    }
    both_ways(test, attacks);
}

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
}

/// A directory of the host that the user has bound into the container, with a file for everything that a hook writes: the
/// image is what a hook works on, never the host's own `/etc`.
#[test]
fn a_directory_of_the_host_is_bound() {
    with_mounts("mounts::a_directory_of_the_host_is_bound", |tally, how| {
        for verb in VERBS {
            for path in directories(verb) {
                for option in ["rw", "ro"] {
                    let mut stage = Stage::new(verb);
                    bind(&mut stage, path, path, option);
                    let mut config = stage.config();
                    let mount = json!({"destination": path, "type": "bind", "source": stage.host(path), "options": ["rbind", option]});
                    config["mounts"].as_array_mut().unwrap().push(mount);
                    stage.scene.configure(config);
                    stage.attack_volume(&format!("{} {path} is the host's, {option}, {how}", verb.name), tally);
                }
            }
        }
    });
}

/// The same volume, to which the image leads us by a link: config.json has another path for it.
#[test]
fn a_link_of_the_image_leads_into_a_volume() {
    with_mounts("mounts::a_link_of_the_image_leads_into_a_volume", |tally, how| {
        for verb in VERBS {
            for path in directories(verb) {
                let mut stage = Stage::new(verb);
                std::fs::create_dir(stage.image("/data")).unwrap();
                bind(&mut stage, path, "/data", "rw");
                stage.link(path, "/data");
                let mut config = stage.config();
                let mount =
                    json!({"destination": "/data", "type": "bind", "source": stage.host(path), "options": ["rbind"]});
                config["mounts"].as_array_mut().unwrap().push(mount);
                stage.scene.configure(config);
                stage.attack_volume(&format!("{} {path} leads into a volume, {how}", verb.name), tally);
            }
        }
    });
}

/// One file of the host, bound over one that a hook writes.
#[test]
fn a_file_of_the_host_is_bound() {
    with_mounts("mounts::a_file_of_the_host_is_bound", |tally, how| {
        for verb in VERBS {
            for path in verb.touches {
                let mut stage = Stage::new(verb);
                if !stage.image(path).is_file() {
                    continue;
                }
                bind(&mut stage, path, path, "rw");
                let mut config = stage.config();
                let mount =
                    json!({"destination": path, "type": "bind", "source": stage.host(path), "options": ["bind"]});
                config["mounts"].as_array_mut().unwrap().push(mount);
                stage.scene.configure(config);
                stage.attack_volume(&format!("{} {path} is a file of the host, {how}", verb.name), tally);
            }
        }
    });
}

/// What the user wants read-only stays as it is: to the byte, whatever the image has there.
#[test]
fn a_read_only_root() {
    with_mounts("mounts::a_read_only_root", |tally, how| {
        for verb in VERBS {
            for by_kernel in [false, true] {
                for path in [None].into_iter().chain(verb.components().into_iter().map(Some)) {
                    let mut stage = Stage::new(verb);
                    if let Some(path) = path {
                        stage.link(path, stage.host(path));
                    }
                    let mut config = stage.config();
                    config["root"]["readonly"] = json!(true);
                    stage.scene.configure(config);
                    if by_kernel {
                        stage.before = r#"mount --bind "$root" "$root" && mount -o remount,bind,ro "$root""#.to_owned();
                    }
                    stage.keeps_image = true;
                    stage.attack(
                        &format!("{} read-only, {path:?} is a link, {by_kernel}, {how}", verb.name),
                        tally,
                    );
                }
            }
        }
    });
}

/// A file system that is full in the middle of a write: the old file stays, whole.
#[test]
fn a_full_root() {
    with_mounts("mounts::a_full_root", |tally, how| {
        for verb in VERBS {
            for free in ["0", "1", "2"] {
                let mut stage = Stage::new(verb);
                // The image is copied onto a small file system; what is left there is compared in its namespace.
                stage.before = format!(
                    r#"mount -t tmpfs -o size=256k,nr_inodes=4096 tmpfs /mnt && cp -a "$root/." /mnt/ && mount --move /mnt "$root" || exit 99
                    head -c "$(({free} * 4096))" /dev/zero > "$root/spare"
                    cat /dev/zero > "$root/filler" 2>/dev/null; rm "$root/spare""#
                );
                stage.after = r#"cd "$root"; find . -name '.tranche-*' | grep . && code=98
                    for file in etc/ld.so.cache etc/ld-musl-x86_64.path; do test -s "$file" || code=97; done"#
                    .to_owned();
                stage.attack(&format!("{} with {free} pages free, {how}", verb.name), tally);
            }
        }
    });
}

/// File systems that the runtime makes in the container.
#[test]
fn a_file_system_of_the_containers_own() {
    with_mounts("mounts::a_file_system_of_the_containers_own", |tally, how| {
        for verb in VERBS {
            for path in directories(verb) {
                for read_only in [false, true] {
                    let mut stage = Stage::new(verb);
                    let option = if read_only { "ro" } else { "rw" };
                    stage.before = format!("mount -t tmpfs -o {option},size=64k tmpfs \"$root{path}\"");
                    stage.attack(&format!("{} {path} is a tmpfs, {option}, {how}", verb.name), tally);
                }
            }
        }
    });
}
