//! Mounts that are shared between the container and the host: what is mounted on them appears on the host and stays.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::stage::Stage;
use crate::trial::Attack;
use crate::verb::Verb;
use crate::{can_mount, owns_machine};

const FILES: [&str; 3] = [
    "/etc/ld-musl-x86_64.path",
    "/etc/ld.so.cache",
    "/proc/driver/nvidia/params",
];

/// A stage with `-v DIR:/data:rshared`, and the host's mounts as they are before that container.
fn shared(verb: Verb, read_only_root: bool, option: &str) -> Stage {
    let mut stage = Stage::new(verb);
    fs::create_dir(stage.image("/data")).unwrap();
    let source = stage.scene.at("outside/host");
    stage.host = format!(
        "mount --bind '{0}' '{0}' && mount --make-shared '{0}'",
        source.display()
    );
    stage.before = format!(
        "mount --bind '{}' \"$root/data\" && mount -o remount,bind,{option} \"$root/data\"",
        source.display()
    );
    let mount =
        json!({"destination": "/data", "type": "bind", "source": source, "options": ["rbind", "rshared", option]});
    stage.configure(Some(mount), read_only_root);
    stage
}

#[test]
fn a_link_into_a_shared_volume() {
    if !can_mount("a_link_into_a_shared_volume") {
        return;
    }
    Attack::new(
        "propagation::a_link_into_a_shared_volume",
        "a file that the hook covers is a link into a volume with shared propagation, so that the host is mounted on",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache", "disable-device-node-modification"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            for path in FILES.into_iter().filter(|path| verb.touches.contains(path)) {
                for (read_only_root, option) in [(true, "ro"), (true, "rw"), (false, "ro"), (false, "rw")] {
                    let stage = shared(verb, read_only_root, option);
                    stage.link_inside(path, &format!("/data{path}"));
                    let name = format!("{} {path}, read-only root: {read_only_root}, {option}", verb.name);
                    trial.attack(&name, &stage);
                }
            }
        }
    });
}

/// Without a read-only root: the directory is the link, and the volume is read-only.
#[test]
fn a_directory_that_leads_into_a_shared_volume() {
    if !can_mount("a_directory_that_leads_into_a_shared_volume") {
        return;
    }
    Attack::new(
        "propagation::a_directory_that_leads_into_a_shared_volume",
        "/etc is a link into a shared volume, so that the hook's cover lies on the host's files",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            for option in ["ro", "rw"] {
                for read_only_root in [false, true] {
                    let stage = shared(verb, read_only_root, option);
                    stage.link_inside("/etc", "/data/etc");
                    trial.attack(&format!("{} {option}, {read_only_root}", verb.name), &stage);
                }
            }
        }
    });
}

/// The root itself is a shared mount, as where the image lies on a shared mount and the engine makes nothing private.
#[test]
fn a_root_that_is_shared() {
    if !can_mount("a_root_that_is_shared") {
        return;
    }
    Attack::new(
        "propagation::a_root_that_is_shared",
        "the container's root is itself a shared mount, and what covers its files appears on the host",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache", "disable-device-node-modification"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            let mut stage = Stage::new(verb);
            let root = stage.image("/");
            stage.host = format!("mount --bind '{0}' '{0}' && mount --make-shared '{0}'", root.display());
            stage.configure(None, true);
            stage.keeps_image = true;
            trial.attack(verb.name, &stage);
        }
    });
}

/// The link flips while the hook works: it was read at one place and covered at another.
#[test]
fn a_link_that_flips() {
    if !can_mount("a_link_that_flips") {
        return;
    }
    Attack::new(
        "propagation::a_link_that_flips",
        "on a read-only root a cache is exchanged with a link into a volume between its reading and its covering",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            let stage = shared(verb, true, "rw");
            stage.link_inside("/etc/away", "/data/etc/ld.so.cache");
            crate::races::race(trial, &stage, "/etc/ld.so.cache", "/etc/away", verb.name);
        }
    });
}

/// A cgroup of the host's that is this test's own: what is done to it hurts nobody.
struct Cgroup(std::path::PathBuf);

impl Cgroup {
    fn new() -> Option<Cgroup> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let made = mounts.lines().find_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let at = left.split(' ').nth(4)?;
            let name = format!(
                "tranche-attack-{}-{:?}",
                std::process::id(),
                std::thread::current().id()
            );
            let group = std::path::Path::new(at).join(name.replace(['(', ')'], "-"));
            (right.starts_with("cgroup") && fs::create_dir(&group).is_ok()).then_some(group)
        });
        made.map(Cgroup)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(entry.path());
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// Mode and names of everything in a cgroup.
fn seen(group: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(group).unwrap().map(|entry| entry.unwrap());
    let mut seen: Vec<String> = entries
        .map(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode();
            format!("{} {mode:o}", entry.file_name().display())
        })
        .collect();
    seen.push(format!(". {:o}", fs::metadata(group).unwrap().permissions().mode()));
    seen.sort();
    seen
}

/// sysfs and cgroups show the host's objects wherever they are mounted, also where config.json says that the runtime
/// mounts them for the container.
#[test]
fn links_into_cgroups() {
    if !can_mount("links_into_cgroups") {
        return;
    }
    if Cgroup::new().is_none() {
        return crate::support::skip::not_run("attacks::links_into_cgroups", "cannot make a cgroup");
    }
    Attack::new(
        "propagation::links_into_cgroups",
        "a path is a link into the cgroup file system of the container, which shows the host's: mkdir, chmod, links",
    )
    .run(|trial| {
        for verb in ["prepare", "create-symlinks", "update-application-profile", "chmod"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            for path in ["/etc/nvidia", "/dev/nvidia-caps", "/usr/lib", "/etc/ld.so.conf.d"] {
                if !verb.components().contains(&path) {
                    continue;
                }
                let group = Cgroup::new().unwrap();
                let mut stage = Stage::new(verb);
                stage.fence.push(group.0.clone());
                let place = stage.image("/sys/fs/cgroup");
                fs::create_dir_all(&place).unwrap();
                stage.before = format!("mount --rbind '{}' \"$root/sys/fs/cgroup\"", group.0.display());
                let mount =
                    json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["rw"]});
                stage.configure(Some(mount), false);
                stage.link_inside(path, "/sys/fs/cgroup");
                let before = seen(&group.0);
                trial.attack_and(&format!("{} {path}", verb.name), &stage, |_| {
                    let now = seen(&group.0);
                    (now != before)
                        .then(|| format!("the cgroup changed: {now:?}"))
                        .into_iter()
                        .collect()
                });
            }
        }
    });
}

/// Files of sysfs and proc change their mode for everybody. A tmpfs says what the hook would do; the type that
/// config.json gives it, and the type that it has, are tried both: the file system's own is what counts.
#[test]
fn links_into_sysfs() {
    if !owns_machine("propagation::links_into_sysfs") {
        return;
    }
    let file = std::path::Path::new("/sys/kernel/uevent_seqnum");
    let Ok(original) = fs::metadata(file).map(|meta| meta.permissions()) else {
        return crate::support::skip::not_run("attacks::links_into_sysfs", "no /sys/kernel");
    };
    Attack::new(
        "propagation::links_into_sysfs",
        "a path is a link to a file of sysfs, whose mode is then changed for the whole machine",
    )
    .run_one_way(|trial| {
        let verb = Verb::named("chmod");
        trial.twin(&Stage::new(verb));
        let mut stage = Stage::new(verb);
        stage.verb.arguments = &["--mode", "755", "--path", "/dev/nvidia-caps"];
        stage.fence.push(file.to_owned());
        fs::create_dir_all(stage.image("/sys")).unwrap();
        stage.before = r#"mount -t sysfs sysfs "$root/sys""#.to_owned();
        let mount = json!({"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid"]});
        stage.configure(Some(mount), false);
        stage.link_inside("/dev/nvidia-caps", "/sys/kernel/uevent_seqnum");
        trial.attack_and("chmod", &stage, |_| {
            let now = fs::metadata(file).unwrap().permissions();
            let changed = now != original;
            if changed {
                fs::set_permissions(file, original.clone()).unwrap();
            }
            changed
                .then(|| format!("{} has mode {:o}", file.display(), now.mode()))
                .into_iter()
                .collect()
        });
    });
}

/// A volume that is moved to the name of a directory that the hook is about to make.
#[test]
fn a_volume_that_is_moved_to_a_new_name() {
    if !can_mount("a_volume_that_is_moved_to_a_new_name") {
        return;
    }
    Attack::new(
        "propagation::a_volume_that_is_moved_to_a_new_name",
        "the mount point of a volume is renamed to a directory that the hook is about to make, and the hook writes in it",
    )
    .run(|trial| {
        let verb = Verb::named("create-symlinks");
        trial.twin(&Stage::new(verb));
        let mut stage = Stage::new(verb);
        stage.verb.arguments = &["--link", "x::/d/y"];
        fs::create_dir_all(stage.image("/data")).unwrap();
        let host = stage.scene.at("outside/volume");
        fs::create_dir(&host).unwrap();
        stage.before = format!(
            "until mount --bind '{}' \"$root/data\" 2> /dev/null; do :; done",
            host.display()
        );
        stage.mounts_move = true;
        let mount = json!({"destination": "/data", "type": "bind", "source": host, "options": ["rbind"]});
        stage.configure(Some(mount), false);
        let (data, d) = (stage.image("/data"), stage.image("/d"));
        crate::races::race_on(trial, &stage, "moved", || {
            // From another mount namespace a mount point is a directory like any other.
            let _ = fs::rename(&data, &d);
            let _ = fs::remove_dir_all(d.join("y"));
            let _ = fs::rename(&d, &data);
            let _ = fs::remove_file(data.join("y"));
        });
    });
}
