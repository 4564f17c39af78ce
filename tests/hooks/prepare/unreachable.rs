//! A bundle that the hook may not reach, as in a user namespace below an engine of root's.

use super::*;

/// Runs the hook as a user who may not enter the bundle's directory, with `before` as shell words of root in a mount
/// namespace and `cwd` as the current directory.
fn without_bundle(scene: &Scene, before: &str, cwd: &str) -> Ended {
    fs::create_dir_all(scene.at("closed")).unwrap();
    fs::set_permissions(scene.at("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    let state = scene.state().replace("/bundle", "/closed/bundle");
    by_nobody(scene, &state, before, cwd, PREPARE)
}

const PREPARE: &str = "prepare --ldcache-dir /opt/driver --link a::/opt/driver/b";

/// Runs the hook with these words for `state` as a user without any privilege, with `before` as shell words of root in
/// a mount namespace and `cwd` as the current directory.
fn by_nobody(scene: &Scene, state: &str, before: &str, cwd: &str, words: &str) -> Ended {
    fs::write(scene.at("state.json"), state).unwrap();
    fs::set_permissions(scene.at(""), PermissionsExt::from_mode(0o755)).unwrap();
    // A checkout may be where that user may not go.
    crate::support::programs::install(env!("CARGO_BIN_EXE_tranche-oci"), scene.at("hook"));
    let script = format!(
        "set -e; cd {root}; {before} cd {cwd}; exec setpriv --reuid 65534 --regid 65534 --clear-groups {top}/hook hook \
         {words} < {top}/state.json",
        root = scene.image("/").display(),
        top = scene.at("").display(),
    );
    in_own_mounts(&script)
}

#[test]
fn nothing_is_done_where_the_root_is_not_certain() {
    if !rights::owns_machine("prepare::unreachable::nothing_is_done_where_the_root_is_not_certain") {
        return;
    }
    let mounted = "mount --bind . .; cd $PWD; mkdir -p proc;";
    for (before, cwd, why) in [
        ("", "/", "the current directory is the host's root"),
        (
            "",
            ".",
            "the current directory is not one on which a runtime mounted a root",
        ),
        (
            mounted,
            "./opt",
            "the current directory is not one on which a runtime mounted a root",
        ),
        (mounted, ".", "the current directory has no /proc of a container"),
        (
            "mount --bind . .; cd $PWD; mkdir -p proc; mount -t tmpfs tmpfs proc;",
            ".",
            "the current directory has no /proc of a container",
        ),
    ] {
        let scene = Scene::new();
        scene.image_directory("/opt/driver");
        scene.image_directory("/proc");
        let mut inside = scene.inside();
        let ended = without_bundle(&scene, before, cwd);
        let line = format!(
            "tranche-oci: hook prepare: {}: this user namespace may not open the bundle, so nothing is done: {why}\n",
            scene.at("closed/bundle").display()
        );
        assert_eq!((ended.code, ended.stderr), (0, line), "{before} {cwd}");
        let mut now = scene.inside();
        // A file system that was mounted in the namespace is not there any more.
        now.remove(&scene.image("/proc"));
        inside.remove(&scene.image("/proc"));
        same(&now, &inside);
    }
}

#[test]
fn with_the_list_of_mounts_the_root_is_known_and_read_only() {
    if !rights::owns_machine("prepare::unreachable::with_the_list_of_mounts_the_root_is_known_and_read_only") {
        return;
    }
    known_and_read_only(|scene, before| without_bundle(scene, before, "."));
}

/// A runtime with a strict umask writes a config.json that nobody but root may read, into a bundle that all may enter.
#[test]
fn a_configuration_that_may_not_be_read_is_as_if_the_bundle_were_closed() {
    if !rights::owns_machine(
        "prepare::unreachable::a_configuration_that_may_not_be_read_is_as_if_the_bundle_were_closed",
    ) {
        return;
    }
    known_and_read_only(|scene, before| {
        let file = scene.at("bundle/config.json");
        fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
        by_nobody(scene, &scene.state(), before, ".", PREPARE)
    });
}

/// Where `hook` is run without its configuration, its container starts, and nothing of the image has changed.
fn known_and_read_only(hook: impl Fn(&Scene, &str) -> Ended) {
    let scene = Scene::new();
    for directory in ["/opt/driver", "/proc", "/etc", "/lib"] {
        scene.image_directory(directory);
    }
    fs::write(scene.image("/lib/ld-musl-x86_64.so.1"), "").unwrap();
    let opened = Command::new("chmod")
        .args(["-R", "a+rwX"])
        .arg(scene.image("/"))
        .status();
    assert!(opened.unwrap().success());
    let inside = scene.inside();
    let ended = hook(&scene, "mount --bind . .; cd $PWD; mount -t proc proc proc;");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!((ended.code, lines.len()), (0, 3), "{}", ended.stderr);
    assert!(
        lines[0].ends_with("may not open the bundle; its root directory is treated as read-only"),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].ends_with("root: is read-only: 1 link not made"),
        "{}",
        lines[1]
    );
    assert!(lines[2].contains("set LD_LIBRARY_PATH=/opt/driver"), "{}", lines[2]);
    same(&scene.inside(), &inside);
}

#[test]
fn a_limit_in_a_configuration_that_may_not_be_read_is_said_to_be_unknown() {
    let test = "a_limit_in_a_configuration_that_may_not_be_read_is_said_to_be_unknown";
    if !rights::owns_machine(&format!("prepare::unreachable::{test}")) {
        return;
    }
    let scene = Scene::new();
    scene.image_directory("/proc");
    scene.configure(json!({"root": {"path": "rootfs"}, "process": {"env": ["NVIDIA_GPU_MEMORY_LIMIT=1"]}}));
    fs::set_permissions(scene.at("bundle/config.json"), PermissionsExt::from_mode(0o600)).unwrap();
    let before = "mount --bind . .; cd $PWD; mount -t proc proc proc;";
    let ended = by_nobody(&scene, &scene.state(), before, ".", "apply-cuda-memory-limits");
    assert!(
        ended.code == 0 && ended.stderr.contains("so a limit in it is unknown"),
        "{}",
        ended.stderr
    );
}
