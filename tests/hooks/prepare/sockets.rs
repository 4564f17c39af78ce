//! Sockets of the driver's daemons, which come and go.

use super::*;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;

const AT: &str = "/run/nvidia-persistenced/socket";

/// A scene with a socket on its host.
fn listening() -> (Scene, UnixListener) {
    let scene = Scene::new();
    fs::create_dir(scene.at("daemon")).unwrap();
    let listener = UnixListener::bind(scene.at("daemon/socket")).unwrap();
    (scene, listener)
}

/// Runs `before` and the hook, and then says what the container has at the path of the socket: its kind and inode.
fn after_hook(scene: &Scene, before: &str) -> Ended {
    fs::write(scene.at("state.json"), scene.state()).unwrap();
    let script = format!(
        "cd {root}; {before}\n{hook} hook prepare --socket={AT}:{host} --state-dir {state_dir} < {state} || exit\n\
         stat -c '%F %i' .{AT} 2> /dev/null || true",
        root = scene.image("/").display(),
        hook = env!("CARGO_BIN_EXE_tranche-oci"),
        host = scene.at("daemon/socket").display(),
        state_dir = scene.state_dir().display(),
        state = scene.at("state.json").display(),
    );
    in_own_mounts(&script)
}

fn is_not_mounted(ended: &Ended, why: &str) {
    let line = format!("tranche-oci: hook prepare: {AT}: the socket is not mounted: {why}");
    assert!(ended.code == 0 && ended.stderr.starts_with(&line), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(!ended.stdout.starts_with("socket"), "{}", ended.stdout);
}

#[test]
fn a_socket_that_is_there_is_mounted_also_at_the_next_start() {
    if !rights::can_mount("prepare::sockets::a_socket_that_is_there_is_mounted_also_at_the_next_start") {
        return;
    }
    let (scene, _listener) = listening();
    let inode = fs::symlink_metadata(scene.at("daemon/socket")).unwrap().ino();
    for _ in 0..2 {
        assert_eq!(said(after_hook(&scene, "")), format!("socket {inode}\n"));
        let left = fs::symlink_metadata(scene.image(AT)).unwrap();
        assert!(left.is_file() && left.len() == 0, "the mount ends with its namespace");
    }
}

#[test]
fn a_daemon_that_has_stopped_costs_a_line() {
    let (scene, _listener) = listening();
    fs::remove_file(scene.at("daemon/socket")).unwrap();
    is_not_mounted(&after_hook(&scene, ""), "No such file or directory");
    // What its user may put in the place of the socket is not mounted.
    fs::write(scene.at("secret"), "secret").unwrap();
    symlink(scene.at("secret"), scene.at("daemon/socket")).unwrap();
    is_not_mounted(&after_hook(&scene, ""), "it is not a socket");
    fs::remove_file(scene.at("daemon/socket")).unwrap();
    fs::copy(scene.at("secret"), scene.at("daemon/socket")).unwrap();
    is_not_mounted(&after_hook(&scene, ""), "it is not a socket");
}

#[test]
fn on_a_read_only_root_a_socket_is_mounted_where_the_runtime_made_a_tmpfs() {
    if !rights::can_mount("prepare::sockets::on_a_read_only_root_a_socket_is_mounted_where_the_runtime_made_a_tmpfs") {
        return;
    }
    let (scene, _listener) = listening();
    scene.configure(json!({"root": {"path": "rootfs", "readonly": true}}));
    is_not_mounted(&after_hook(&scene, ""), "read-only filesystem or storage medium");
    assert!(!scene.image("/run").exists());
    fs::create_dir(scene.image("/run")).unwrap();
    let tmpfs = json!([{"destination": "/run", "type": "tmpfs", "source": "tmpfs"}]);
    scene.configure(json!({"root": {"path": "rootfs", "readonly": true}, "mounts": tmpfs}));
    let said = said(after_hook(&scene, "mount -t tmpfs tmpfs run;"));
    assert!(said.starts_with("socket "), "{said}");
    assert_eq!(fs::read_dir(scene.image("/run")).unwrap().count(), 0);
    // A mount point that exists needs no change of the image.
    fs::create_dir(scene.image("/run/nvidia-persistenced")).unwrap();
    fs::write(scene.image(AT), "").unwrap();
    scene.configure(json!({"root": {"path": "rootfs", "readonly": true}}));
    let ended = after_hook(&scene, "");
    assert!(
        ended.stdout.starts_with("socket ") && ended.stderr.is_empty(),
        "{}",
        ended.stderr
    );
}

/// Links of the image, and directories of the host that are mounted in the container.
#[test]
fn nothing_is_made_or_mounted_outside_the_container() {
    if !rights::can_mount("prepare::sockets::nothing_is_made_or_mounted_outside_the_container") {
        return;
    }
    let (scene, _listener) = listening();
    fs::create_dir(scene.at("volume")).unwrap();
    let outside = || fs::read_dir(scene.at("volume")).unwrap().count();
    scene.image_link(scene.at("volume"), "/run");
    let ended = after_hook(&scene, "");
    assert_eq!((ended.code, outside()), (0, 0), "{}", ended.stderr);
    fs::remove_file(scene.image("/run")).unwrap();
    // A volume.
    fs::create_dir(scene.image("/run")).unwrap();
    let volume = json!([{"destination": "/run", "type": "bind", "source": scene.at("volume"), "options": ["bind"]}]);
    scene.configure(json!({"root": {"path": "rootfs"}, "mounts": volume}));
    let before = format!("mount --bind {} run;", scene.at("volume").display());
    let ended = after_hook(&scene, &before);
    is_not_mounted(&ended, "it is not on the mount of the container's root");
    assert_eq!((outside(), fs::read_dir(scene.image("/run")).unwrap().count()), (0, 0));
    // A link at the end, and a directory.
    scene.configure(json!({"root": {"path": "rootfs"}}));
    fs::create_dir(scene.image("/run/nvidia-persistenced")).unwrap();
    scene.image_link("/etc/passwd", AT);
    is_not_mounted(&after_hook(&scene, ""), "the container has something else there");
    fs::remove_file(scene.image(AT)).unwrap();
    fs::create_dir(scene.image(AT)).unwrap();
    is_not_mounted(&after_hook(&scene, ""), "the container has something else there");
    // A root whose mounts appear on the host.
    fs::remove_dir(scene.image(AT)).unwrap();
    let shared = "mount --bind . .; mount --make-shared .; cd $PWD;";
    is_not_mounted(&after_hook(&scene, shared), "its mount is shared with the host");
}
