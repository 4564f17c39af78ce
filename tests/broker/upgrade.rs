//! What the version before left in the middle of its work, as it wrote it: claims that are held, a start of root and a
//! user that wait, reservations of a pod, a GPU out of service. None of its files has a checksum but those of the
//! ledger and of what is out of service.

use crate::scene::{ANN, BOB, GPU_0, Scene};
use crate::support::state_files::{self, Content};
use crate::support::{top, until};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

const POLICY: &str = "\
version: v1
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0, 1], replicas: 2}]}
  users: {default: {maxHold: 1h}}
";

/// A scene with the files, without a broker.
fn scene(test: &str) -> Option<Scene> {
    let scene = Scene::without_broker(&format!("upgrade::{test}"))?;
    fs::write(scene.at("policy.yaml"), POLICY).unwrap();
    let from = top().join("tests/data/upgrade");
    for entry in walkdir::WalkDir::new(&from).into_iter().map(Result::unwrap) {
        let to = scene.at("state").join(entry.path().strip_prefix(&from).unwrap());
        if entry.file_type().is_dir() {
            fs::create_dir_all(&to).unwrap();
            let mode = if to.ends_with("ledger") || to.ends_with("queue") {
                0o700
            } else {
                0o755
            };
            fs::set_permissions(&to, Permissions::from_mode(mode)).unwrap();
        } else {
            fs::copy(entry.path(), &to).unwrap();
        }
    }
    Some(scene)
}

/// The process of before that waits: it has the lock of its ticket.
fn waits(scene: &Scene) -> Flock<File> {
    let queue = scene.at("state/ledger/queue");
    let ticket = fs::read_dir(queue).unwrap().next().unwrap().unwrap().path();
    Flock::lock(File::open(ticket).unwrap(), FlockArg::LockExclusiveNonblock).unwrap()
}

fn claim(scene: &Scene, uid: u32, name: &str, device: &str) -> Result<Value, String> {
    scene.ask(uid, "claim", json!({"name": name, "device": device, "shares": 1}))
}

fn is_of_another_pod(scene: &Scene) -> bool {
    let pod = json!({"namespace": "shop", "name": "web-1"});
    let taken = scene.ask(0, "reserve", json!({"pod": pod, "devices": [format!("{GPU_0}.0")]}));
    taken.is_err_and(|error| error.contains("web-0"))
}

#[test]
fn what_the_version_before_promised_is_kept() {
    let Some(mut scene) = scene("what_the_version_before_promised_is_kept") else {
        return;
    };
    let before = scene.names();
    assert_eq!(before.len(), 3, "{before:?}");
    let ticket = waits(&scene);
    scene.start();
    // Held, by a user, by root and by a pod.
    assert_eq!(scene.names(), before);
    assert_eq!(scene.seen(BOB), ["65533.b"]);
    assert!(is_of_another_pod(&scene));
    assert!(claim(&scene, ANN, "new", "1").unwrap_err().contains("out of service"));
    assert!(claim(&scene, ANN, "new", "0").is_err());
    // A start of root now comes after the one that waits.
    let mut command = scene.command_of_root(&[
        "claim",
        "create",
        "--name=later",
        "--device=0",
        "--shares=1",
        "--wait=5m",
    ]);
    let mut later = command.stdout(Stdio::null()).spawn().unwrap();
    until("it waits", || {
        fs::read_dir(scene.at("state/ledger/queue")).unwrap().count() == 2
    });
    scene.ask(BOB, "release", json!({"what": "b"})).unwrap();
    assert!(claim(&scene, ANN, "new", "0").is_err(), "somebody waits for it");
    let reserved = scene.names();
    assert!(!reserved.iter().any(|name| name.contains("later")), "{reserved:?}");
    drop(ticket);
    until("it is its turn", || {
        later.try_wait().unwrap().is_some_and(|status| status.success())
    });
    // Every file that a broker keeps for long has a checksum now.
    let state = scene.at("state");
    until("they have checksums", || {
        let is_sealed = |path: &std::path::PathBuf| state_files::is_sealed(&state.join(path));
        let of_broker = state_files::of(&state, &[Content::Json]).into_iter();
        of_broker.filter(|path| !of_refresh(path)).all(|path| is_sealed(&path))
    });
    let refreshed = scene.tranche_of_root(&[
        "cdi",
        "refresh",
        "--hook-path=/usr/bin/tranche-oci",
        &scene.option("output-dir", "cdi"),
    ]);
    assert!(refreshed.status.success(), "{refreshed:?}");
    for path in state_files::of(&state, &[Content::Json]) {
        assert!(state_files::is_sealed(&state.join(&path)), "{}", path.display());
    }
    // And what is promised is kept over a boot.
    scene.stop(Signal::SIGTERM);
    fs::remove_dir_all(state.join("ledger")).unwrap();
    scene.start();
    assert!(is_of_another_pod(&scene));
    assert!(claim(&scene, ANN, "new", "1").unwrap_err().contains("out of service"));
}

/// Those that a refresh writes.
fn of_refresh(path: &std::path::Path) -> bool {
    path.ends_with("host.json") || path.ends_with("refresh.json")
}

/// The update needs a boot.
#[test]
fn what_the_version_before_kept_is_there_after_a_boot() {
    let Some(mut scene) = scene("what_the_version_before_kept_is_there_after_a_boot") else {
        return;
    };
    for entry in fs::read_dir(scene.at("state")).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true if entry.file_name() == "kept" => {}
            true => fs::remove_dir_all(entry.path()).unwrap(),
            false => fs::remove_file(entry.path()).unwrap(),
        }
    }
    scene.start();
    assert!(is_of_another_pod(&scene));
    assert_eq!(scene.names().len(), 1);
    let out = claim(&scene, ANN, "new", "1").unwrap_err();
    assert!(out.contains("out of service"), "{out}");
}
