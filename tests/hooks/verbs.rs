//! The hooks with NVIDIA's names, one at a time, and what each does if something is in its way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use caps::{CapSet, Capability};
use serde_json::json;
use tranche_core::messages::{Message, Messages};

use crate::support::scene::{Ended, Scene, run};
use crate::support::{rights, skip};

/// Runs `tranche-oci hook` with these arguments and this state.
fn verb_with(scene: &Scene, arguments: &[&str], state: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranche-oci"));
    command
        .arg("hook")
        .args(arguments)
        .arg("--state-dir")
        .arg(scene.state_dir());
    command.env_clear().current_dir(scene.image("/"));
    run(command, state.as_bytes())
}

fn verb(scene: &Scene, arguments: &[&str]) -> Ended {
    verb_with(scene, arguments, &scene.state())
}

/// The messages that hooks kept.
fn kept(scene: &Scene) -> Vec<Message> {
    let messages = Messages::existing(scene.state_dir(), Some(scene.state_dir())).unwrap();
    messages
        .map(|messages| messages.all().unwrap().messages)
        .unwrap_or_default()
}

#[test]
fn a_hook_that_does_nothing_reads_neither_its_options_nor_the_state() {
    let scene = Scene::new();
    for name in ["noop", "create-soname-symlinks"] {
        verb_with(&scene, &[name, "--folder=/x", "--shine=1"], "no state").silent();
    }
    assert!(kept(&scene).is_empty());
}

#[test]
fn a_failure_before_the_state_is_read_is_kept_for_the_container() {
    let scene = Scene::new();
    assert_eq!(verb(&scene, &["prepare", "--link", "x"]).code, 2);
    let kept: Vec<_> = kept(&scene)
        .into_iter()
        .map(|message| (message.container, message.hook))
        .collect();
    assert_eq!(kept, [("c".to_owned(), "prepare".to_owned())]);
}

#[test]
fn a_container_with_a_limit_of_gpu_memory_does_not_start() {
    for (environment, says) in [
        (vec!["PATH=/bin"], None),
        (vec!["XNVIDIA_GPU_MEMORY_LIMIT=1"], None),
        (
            vec!["PATH=/bin", "NVIDIA_GPU_MEMORY_LIMIT=1GiB"],
            Some("NVIDIA_GPU_MEMORY_LIMIT=1GiB: "),
        ),
        (
            vec!["NVIDIA_GPU_MEMORY_REQUEST=1"],
            Some("NVIDIA_GPU_MEMORY_REQUEST=1: "),
        ),
    ] {
        let scene = Scene::new();
        scene.configure(json!({"root": {"path": "rootfs"}, "process": {"env": environment}}));
        // It takes options that are not known yet.
        let ended = verb(&scene, &["apply-cuda-memory-limits", "--shine=1"]);
        match says {
            None => ended.silent(),
            Some(says) => {
                assert_eq!(ended.code, 1);
                assert!(ended.stderr.contains(says), "{}", ended.stderr);
                assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
            }
        }
    }
}

#[test]
fn a_version_of_the_host_that_is_not_valid_is_reported() {
    let scene = Scene::new();
    let ended = verb(&scene, &["enable-cuda-compat", "--host-driver-version=new"]);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (
            0,
            "tranche-oci: hook enable-cuda-compat: --host-driver-version new: not a version, ignored\n"
        )
    );
    verb(&scene, &["enable-cuda-compat", "--host-driver-version=580.95.05"]).silent();
}

#[test]
fn a_mode_is_set_in_the_image_and_not_in_a_read_only_one() {
    let scene = Scene::new();
    scene.image_directory("/dev/nvidia-caps");
    let mode = || {
        fs::metadata(scene.image("/dev/nvidia-caps"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    fs::set_permissions(scene.image("/dev/nvidia-caps"), PermissionsExt::from_mode(0o700)).unwrap();
    let arguments = ["chmod", "--mode=755", "--path=/dev/nvidia-caps"];
    scene.configure(json!({"root": {"path": "rootfs", "readonly": true}}));
    let ended = verb(&scene, &arguments);
    assert!(
        ended.code == 0 && ended.stderr.contains("/dev/nvidia-caps: mode stays as it is: "),
        "{}",
        ended.stderr
    );
    assert_eq!(mode(), 0o700);
    scene.configure(json!({"root": {"path": "rootfs"}}));
    verb(&scene, &arguments).silent();
    assert_eq!(mode(), 0o755);
}

#[test]
fn a_profile_that_is_too_large_to_be_one_is_replaced() {
    let scene = Scene::new();
    scene.configure(json!({"root": {"path": "rootfs"}, "linux": {"devices": [{"path": "/dev/nvidia1"}]}}));
    let path = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";
    scene.image_directory(Path::new(path).parent().unwrap().to_str().unwrap());
    fs::write(scene.image(path), "x".repeat(5000)).unwrap();
    verb(&scene, &["update-application-profile"]).silent();
    let text = fs::read_to_string(scene.image(path)).unwrap();
    assert!(text.contains("\"EGLVisibleDGPUDevices\",0x2]"), "{text}");
}

#[test]
fn links_by_path_need_a_directory_of_nodes() {
    let by_path = "--by-path=pci-0000:41:00.0-card::/dev/dri/card1";
    let scene = Scene::new();
    scene.configure(json!({"root": {"path": "rootfs"}, "linux": {"devices": [{"path": "/dev/dri/card1"}]}}));
    let inside = scene.inside();
    scene.prepare(&[by_path]).silent();
    assert_eq!(scene.inside(), inside, "there are no nodes to which they could lead");
    scene.image_directory("/dev");
    fs::write(scene.image("/dev/dri"), "").unwrap();
    let ended = scene.prepare(&[by_path]);
    assert!(
        ended.code == 0 && ended.stderr.contains("/dev/dri/by-path: cannot make the links: "),
        "{}",
        ended.stderr
    );
}

/// A musl image, of which the hook writes one small file.
fn musl() -> Scene {
    let scene = Scene::new();
    for directory in ["/etc", "/lib", "/opt/driver"] {
        scene.image_directory(directory);
    }
    fs::write(scene.image("/lib/ld-musl-x86_64.so.1"), "").unwrap();
    scene
}

/// The hook after these words of a shell, as crun starts it with the limits that the container's user chose.
fn limited(scene: &Scene, limits: &str) -> Ended {
    let mut command = Command::new("sh");
    let script = format!("{limits}; exec \"$@\"");
    command.args([
        "-c",
        &script,
        "sh",
        env!("CARGO_BIN_EXE_tranche-oci"),
        "hook",
        "prepare",
    ]);
    command
        .arg("--ldcache-dir=/opt/driver")
        .arg("--state-dir")
        .arg(scene.state_dir());
    command.current_dir(scene.image("/"));
    run(command, scene.state().as_bytes())
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_limits_of_the_container_do_not_apply_to_the_hook() {
    let test = "verbs::the_limits_of_the_container_do_not_apply_to_the_hook";
    if !rights::owns_machine(test) {
        return;
    }
    if !caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_RESOURCE).unwrap() {
        return skip::not_run(test, "no CAP_SYS_RESOURCE");
    }
    for limits in [
        "ulimit -f 0",
        "ulimit -n 7",
        "ulimit -s 100",
        "ulimit -v 20000; ulimit -d 0",
    ] {
        let scene = musl();
        limited(&scene, limits).silent();
        let text = fs::read_to_string(scene.image("/etc/ld-musl-x86_64.path")).unwrap();
        assert!(text.ends_with("/opt/driver\n"), "{limits}: {text}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_limit_that_may_not_be_lifted_is_named_or_does_no_harm() {
    if !rights::owns_machine("verbs::a_limit_that_may_not_be_lifted_is_named_or_does_no_harm") {
        return;
    }
    // Capabilities are a thread's.
    let without_privilege = std::thread::spawn(|| {
        caps::drop(None, CapSet::Bounding, Capability::CAP_SYS_RESOURCE).unwrap();
        for (limits, says) in [
            (
                "ulimit -n 7",
                "limit of 7 open files is too small for it; allow 64 or more",
            ),
            (
                "ulimit -s 100",
                "limit of 102400 bytes of stack is too small for it; allow 262144 or more",
            ),
            ("ulimit -f 0", "File too large"),
        ] {
            let scene = musl();
            let inside = scene.inside();
            let ended = limited(&scene, limits);
            assert!(
                ended.code == 1 && ended.stderr.contains(says),
                "{limits}: {} {}",
                ended.code,
                ended.stderr
            );
            assert_eq!(scene.inside(), inside, "{limits}");
        }
        // A lower limit of its own, which it may raise as far as everybody may.
        let scene = musl();
        limited(&scene, "ulimit -S -f 0; ulimit -S -n 7").silent();
        assert!(scene.image("/etc/ld-musl-x86_64.path").exists());
    });
    without_privilege.join().unwrap();
}
