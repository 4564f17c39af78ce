//! Something else than was expected at every path that a hook touches: a FIFO that would make it wait, a device that
//! would do something, a hard link to a file of the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Uid, chown, mkfifo};

use crate::both_ways;
use crate::stage::Stage;
use crate::verb::VERBS;

const KINDS: [&str; 12] = [
    "fifo",
    "socket",
    "character device",
    "block device",
    "empty file",
    "empty directory",
    "directory with files",
    "hard link to the host's",
    "hard link to a shadow file",
    "file without permissions",
    "file of another user, set-user-id",
    "immutable file",
];

/// Puts it there; no, if this machine cannot.
fn put(kind: &str, stage: &Stage, at: &str) -> bool {
    let place = stage.clear(at);
    let node = |kind, device| mknod(&place, kind, Mode::from_bits_truncate(0o666), device).is_ok();
    match kind {
        "fifo" => mkfifo(&place, Mode::S_IRWXU).unwrap(),
        // A socket's path is short; it is moved to its place.
        "socket" => {
            let short = stage.scene.at("socket");
            drop(UnixListener::bind(&short).unwrap());
            fs::rename(short, &place).unwrap();
        }
        // /dev/zero never ends; the block device is one that nothing drives.
        "character device" => return node(SFlag::S_IFCHR, makedev(1, 5)),
        "block device" => return node(SFlag::S_IFBLK, makedev(259, 4095)),
        "empty file" => fs::write(&place, "").unwrap(),
        "empty directory" => fs::create_dir(&place).unwrap(),
        "directory with files" => {
            fs::create_dir(&place).unwrap();
            for name in ["a.conf", "libcuda.so.1", "libcuda.so.600.1.1", "10-container.conf"] {
                fs::write(place.join(name), "x").unwrap();
            }
        }
        "hard link to the host's" => {
            let host = stage.host(at);
            return host.is_file() && fs::hard_link(host, &place).is_ok();
        }
        "hard link to a shadow file" => fs::hard_link(stage.scene.at("outside/shadow"), &place).unwrap(),
        "file without permissions" => {
            fs::write(&place, "x").unwrap();
            fs::set_permissions(&place, PermissionsExt::from_mode(0o000)).unwrap();
        }
        "file of another user, set-user-id" => {
            fs::write(&place, "x").unwrap();
            if chown(&place, Some(Uid::from_raw(12345)), None).is_err() {
                return false;
            }
            fs::set_permissions(&place, PermissionsExt::from_mode(0o4755)).unwrap();
        }
        _ => {
            fs::write(&place, "x").unwrap();
            return immutable(&place, true);
        }
    }
    true
}

fn immutable(place: &Path, on: bool) -> bool {
    let flag = if on { "+i" } else { "-i" };
    let output = Command::new("chattr").arg(flag).arg(place).output();
    output.is_ok_and(|output| output.status.success())
}

/// CVE-2024-0132's kind of host file under an image's name is a hard link here: an image that a user unpacked beside the
/// files of others can hold one. It is replaced, never written through.
#[test]
fn at_every_path() {
    both_ways("kinds::at_every_path", |tally, how| {
        for verb in VERBS {
            // `prepare` does what the others do: for them what lies at the end of a path is enough.
            let all = verb.components();
            for path in if verb.name == "prepare" { &all } else { verb.touches } {
                for kind in KINDS {
                    let stage = Stage::new(verb);
                    if !put(kind, &stage, path) {
                        continue;
                    }
                    stage.attack(&format!("{} {path} is: {kind}, {how}", verb.name), tally);
                    if kind == "immutable file" {
                        immutable(&stage.image(path), false);
                    }
                }
            }
        }
    });
}

/// A directory that nobody may write, not even its owner, and one that is immutable: a line, and nothing half done.
#[test]
fn directories_that_refuse() {
    both_ways("kinds::directories_that_refuse", |tally, how| {
        for verb in VERBS {
            for path in verb.components() {
                let stage = Stage::new(verb);
                let place = stage.image(path);
                if !place.is_dir() {
                    continue;
                }
                fs::set_permissions(&place, PermissionsExt::from_mode(0o000)).unwrap();
                if Uid::effective().is_root() {
                    stage.attack(&format!("{} {path} is closed, {how}", verb.name), tally);
                }
                fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
                let stage = Stage::new(verb);
                let place = stage.image(path);
                if immutable(&place, true) {
                    stage.attack(&format!("{} {path} is immutable, {how}", verb.name), tally);
                    immutable(&place, false);
                }
            }
        }
    });
}
