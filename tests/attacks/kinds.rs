//! Something else than was expected at every path that a hook touches: a FIFO that would make it wait, a device that
//! would do something, a hard link to a file of the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Uid, chown, mkfifo};

use crate::stage::Stage;
use crate::trial::Attack;
use crate::verb::VERBS;
use crate::{can_mount, owns_machine};

/// What lies where a file is expected, and the idea of putting it there.
const KINDS: [(&str, &str); 7] = [
    (
        "fifo",
        "a FIFO lies where a file is expected, and a program that opens it waits for ever",
    ),
    (
        "character device",
        "a device that never ends (/dev/zero) lies where a file is expected",
    ),
    (
        "block device",
        "a device that nothing drives lies where a file is expected",
    ),
    (
        "hard link to the host's",
        "a file is a hard link to the host's like of it, so that writing changes the host's",
    ),
    (
        "hard link to a shadow file",
        "a file is a hard link to a secret file of the host",
    ),
    (
        "file of another user, set-user-id",
        "a set-user-id file of another user is written, and its bits would stay",
    ),
    ("socket", "a socket lies where a file is expected"),
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
        "hard link to the host's" => {
            let host = stage.host(at);
            return host.is_file() && fs::hard_link(host, &place).is_ok();
        }
        "hard link to a shadow file" => fs::hard_link(stage.scene.at("outside/shadow"), &place).unwrap(),
        "file of another user, set-user-id" => {
            fs::write(&place, "x").unwrap();
            if chown(&place, Some(Uid::from_raw(12345)), None).is_err() {
                return false;
            }
            fs::set_permissions(&place, PermissionsExt::from_mode(0o4755)).unwrap();
        }
        _ => panic!("{kind}"),
    }
    true
}

fn immutable(place: &Path, on: bool) -> bool {
    let flag = if on { "+i" } else { "-i" };
    let output = Command::new("chattr").arg(flag).arg(place).output();
    output.is_ok_and(|output| output.status.success())
}

/// CVE-2024-0132's kind of host file under an image's name is a hard link here: an image that a user unpacked beside
/// the files of others can hold one. It is replaced, never written through.
#[test]
fn at_every_path() {
    for (kind, idea) in KINDS {
        // Only root of the machine makes device nodes and files of other users.
        if (kind.ends_with("device") || kind.starts_with("file of another user"))
            && !owns_machine(&format!("kinds::at_every_path {kind}"))
        {
            continue;
        }
        let name = format!("kinds::{kind}").leak();
        let mut attack = Attack::new(name, idea);
        if matches!(kind, "socket" | "block device") {
            attack = attack.naive_passes("the kernel does not open it, which is an error for it, too");
        }
        if kind.ends_with("set-user-id") {
            attack = attack.fault("modes");
        }
        attack.run(|trial| {
            for verb in VERBS {
                trial.twin(&Stage::new(verb));
                // `prepare` does what the others do: for them what lies at the end of a path is enough.
                let all = verb.components();
                for path in if verb.name == "prepare" { &all } else { verb.touches } {
                    let mut stage = Stage::new(verb);
                    if !put(kind, &stage, path) {
                        continue;
                    }
                    if kind.ends_with("device") {
                        // A file system in memory may forbid devices.
                        stage.before =
                            r#"mount --bind "$root" "$root" && mount -o remount,bind,dev "$root""#.to_owned();
                    }
                    trial.attack_and(&format!("{} {path}", verb.name), &stage, |_| bits(&stage, path));
                }
            }
        });
    }
}

/// A file that was written and has a setuid or setgid bit, so that it runs with the rights of its owner.
fn bits(stage: &Stage, path: &str) -> Vec<String> {
    let special = fs::symlink_metadata(stage.image(path)).is_ok_and(|meta| {
        meta.is_file() && meta.permissions().mode() & 0o7000 != 0 && fs::read(stage.image(path)).unwrap() != b"x"
    });
    special
        .then(|| format!("{path} was written and is set-user-id"))
        .into_iter()
        .collect()
}

/// A directory that nobody may write, not even its owner, and one that is immutable: a line, and nothing half done.
#[test]
fn directories_that_refuse() {
    // Nothing is tried by an ordinary user: a directory that is closed to him is closed to his hook as well.
    if !can_mount("kinds::directories_that_refuse") {
        return;
    }
    Attack::new(
        "kinds::directories_that_refuse",
        "a directory that must be written is closed to its owner or immutable, so that something stays half done",
    )
    .naive_passes("the kernel refuses it, and it has written nothing")
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for path in verb.components() {
                let stage = Stage::new(verb);
                let place = stage.image(path);
                if !place.is_dir() {
                    continue;
                }
                fs::set_permissions(&place, PermissionsExt::from_mode(0o000)).unwrap();
                trial.attack(&format!("{} {path} is closed", verb.name), &stage);
                fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
                let stage = Stage::new(verb);
                let place = stage.image(path);
                if immutable(&place, true) {
                    trial.attack(&format!("{} {path} is immutable", verb.name), &stage);
                    immutable(&place, false);
                }
            }
        }
    });
}
