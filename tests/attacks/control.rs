//! That the stage is one: what each hook does on an image that means no harm, and that every change of the host is
//! seen.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};

use crate::run::Ended;
use crate::stage::Stage;
use crate::verb::{LIBDIR, Verb};

const PROFILE: &str = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";

/// What the hook of this stage left undone of its work. On a read-only root, where nothing of the image may change, its
/// work is what it laid over files.
pub(crate) fn missing(stage: &Stage, ended: &Ended) -> Vec<String> {
    let mut missing = Vec::new();
    let verb = stage.verb.name;
    let all = verb == "prepare";
    let covered = |path: &str| ended.covers.iter().find(|cover| cover.path == path);
    let config = fs::read_to_string(stage.scene.at("bundle/config.json")).unwrap_or_default();
    let read_only = config.contains("\"readonly\":true");
    let mut want = |path: &str, text: &str| {
        let bytes = match covered(path) {
            Some(cover) => cover.bytes.clone(),
            None => fs::read(stage.image(path)).unwrap_or_default(),
        };
        if !String::from_utf8_lossy(&bytes).contains(text) {
            missing.push(format!("no {text} in {path}"));
        }
    };
    if all || verb == "update-ldcache" {
        want("/etc/ld.so.cache", "libcuda.so");
        want("/etc/ld.so.cache", "libof-the-image.so.1");
        want("/etc/ld-musl-x86_64.path", LIBDIR);
    }
    if (all || verb == "update-ldcache") && !read_only {
        want("/etc/ld.so.conf.d/00-tranche.conf", LIBDIR);
    }
    if all {
        want("/etc/ld.so.cache", "/usr/local/cuda/compat/libcuda.so");
    }
    if verb == "enable-cuda-compat" && !read_only {
        want("/etc/ld.so.conf.d/00-compat-tranche.conf", "/usr/local/cuda/compat");
    }
    if (all || verb == "update-application-profile") && !read_only {
        want(PROFILE, "EGLVisibleDGPUDevices");
    }
    // Nothing of `disable-device-node-modification`: it covers a file of the driver's in /proc, and here is no driver.
    if (all || verb == "create-symlinks") && !read_only {
        let link = fs::read_link(stage.image(&format!("{LIBDIR}/libcuda.so")));
        if !link.is_ok_and(|target| target == Path::new("libcuda.so.1")) {
            missing.push("no link libcuda.so".to_owned());
        }
    }
    if all && !read_only {
        let link = fs::read_link(stage.image("/dev/dri/by-path/pci-0000:41:00.0-card"));
        if !link.is_ok_and(|target| target == Path::new("../card0")) {
            missing.push("no link by the address of card0".to_owned());
        }
    }
    if verb == "chmod" {
        let mode = fs::metadata(stage.image("/dev/nvidia-caps")).map(|meta| meta.permissions().mode() & 0o7777);
        if !read_only && !mode.is_ok_and(|mode| mode == 0o755) {
            missing.push("/dev/nvidia-caps has another mode".to_owned());
        }
    }
    missing
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
            let name = if crate::support::rights::is_root_of_machine() {
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
