//! That the stage is one: on an image that means no harm each hook does its work there. Without that, an attack that
//! changes nothing would prove nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::unistd::Uid;
use rustix::fs::{XattrFlags, setxattr};

use crate::both_ways;
use crate::stage::Stage;
use crate::verb::{LIBDIR, VERBS, Verb};

#[test]
fn a_harmless_image_is_served() {
    both_ways("control::a_harmless_image_is_served", |tally, how| {
        for verb in VERBS {
            let mut stage = Stage::new(verb);
            if verb.name == "disable-device-node-modification" {
                // What it mounts is seen in its namespace alone.
                stage.environment.push(("A".into(), "b".into()));
            }
            let ended = stage.attack(&format!("{} {how}", verb.name), tally);
            let mounts = matches!(verb.name, "prepare" | "disable-device-node-modification");
            let quiet = Uid::effective().is_root() || !mounts;
            assert_eq!(
                (ended.code, quiet && !ended.stderr.is_empty()),
                (0, false),
                "{}: {}",
                verb.name,
                ended.stderr
            );
            did_its_work(&stage, verb);
        }
    });
}

fn did_its_work(stage: &Stage, verb: Verb) {
    let text = |path: &str| String::from_utf8_lossy(&fs::read(stage.image(path)).unwrap()).into_owned();
    let all = verb.name == "prepare";
    if all || verb.name == "create-symlinks" {
        let link = fs::read_link(stage.image(&format!("{LIBDIR}/libcuda.so"))).unwrap();
        assert_eq!(link, Path::new("libcuda.so.1"));
    }
    if all || verb.name == "update-ldcache" {
        assert!(text("/etc/ld.so.cache").contains("libcuda.so.1"), "{}", verb.name);
        assert!(text("/etc/ld.so.cache").contains("libof-the-image.so.1"));
        assert!(text("/etc/ld-musl-x86_64.path").contains(LIBDIR));
        assert!(text("/etc/ld.so.conf.d/00-tranche.conf").contains(LIBDIR));
    }
    if all {
        assert!(text("/etc/ld.so.cache").contains("/usr/local/cuda/compat/libcuda.so"));
        let link = fs::read_link(stage.image("/dev/dri/by-path/pci-0000:41:00.0-card")).unwrap();
        assert_eq!(link, Path::new("../card0"));
    }
    if verb.name == "enable-cuda-compat" {
        assert!(text("/etc/ld.so.conf.d/00-compat-tranche.conf").contains("/usr/local/cuda/compat"));
    }
    if all || verb.name == "update-application-profile" {
        let profile = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";
        assert!(text(profile).contains("EGLVisibleDGPUDevices"));
    }
    if verb.name == "chmod" {
        let mode = fs::metadata(stage.image("/dev/nvidia-caps"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o755);
    }
}

/// What an attack could achieve on the host is seen, each kind of it.
#[test]
fn every_change_of_the_host_is_seen() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 6] = [
        ("content", |file| fs::write(file, "another\n").unwrap()),
        ("mode", |file| {
            fs::set_permissions(file, fs::Permissions::from_mode(0o604)).unwrap()
        }),
        ("a new file", |file| fs::write(file.with_extension("new"), "").unwrap()),
        ("no file", |file| fs::remove_file(file).unwrap()),
        ("a link", |file| {
            fs::rename(file, file.with_extension("old")).unwrap();
            symlink(file.with_extension("old"), file).unwrap();
        }),
        ("an attribute", |file| {
            let name = if Uid::effective().is_root() {
                "trusted.seen"
            } else {
                "user.seen"
            };
            setxattr(file, name, b"1", XattrFlags::empty()).unwrap();
        }),
    ];
    for (what, change) in changes {
        let stage = Stage::new(Verb::named("chmod"));
        let before = stage.look();
        let mut wrong = Vec::new();
        stage.compare(&before, &mut wrong);
        assert_eq!(wrong, [""; 0]);
        change(&stage.scene.at("outside/shadow"));
        stage.compare(&before, &mut wrong);
        assert!(!wrong.is_empty(), "{what}");
    }
}
