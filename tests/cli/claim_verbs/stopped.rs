//! A person may stop a terminal (Ctrl-S), or read what a verb says page by page. No container waits for that.

use super::*;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{pipe2, write};
use rustix::fs::{FlockOperation, flock};

/// Runs `verb` with a standard error that takes nothing, until the verb waits for it, and then says whether the ledger
/// is free.
fn is_free_while_it_waits(scene: &Scene, verb: &Call) -> bool {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
    while write(&writer, &[0; 4096]).is_ok() {}
    // The verb itself is to wait.
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let mut command = Command::new(&verb.words[0]);
    command.args(&verb.words[1..]).env_clear().stdout(Stdio::null());
    let mut process = command.stderr(writer).spawn().unwrap();
    drop(command);
    let waits = format!("/proc/{}/wchan", process.id());
    for tries in 0.. {
        if fs::read_to_string(&waits).unwrap().contains("pipe_write") {
            break;
        }
        assert!(tries < 3000, "it has said nothing");
        assert_eq!(process.try_wait().unwrap(), None, "it has said nothing and ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let lock = File::open(scene.at("state/ledger/lock")).unwrap();
    let free = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    drop(reader);
    process.kill().unwrap();
    process.wait().unwrap();
    free
}

#[test]
fn nothing_is_said_while_the_ledger_is_locked() {
    let Some(scene) = Scene::new("stopped::nothing_is_said_while_the_ledger_is_locked") else {
        return;
    };
    let create = |name: &str| scene.create(&["--name", name, "--device=0"]).run().ok();
    create("a");
    create("b");
    // What cannot be read is said early.
    let book = "GPU-00000000-0000-0000-0000-000000000000.claims";
    fs::write(scene.at("state/ledger").join(book), "no book").unwrap();
    for verb in [
        &["claim", "gc"][..],
        &["claim", "release", "a"],
        &["claim", "release", "nobody"],
    ] {
        assert!(is_free_while_it_waits(&scene, &scene.tranche(verb)), "{verb:?}");
    }
    fs::remove_file(scene.at("state/ledger").join(book)).unwrap();
    assert!(is_free_while_it_waits(
        &scene,
        &scene.create(&["--name", "c", "--device=0"])
    ));
}
