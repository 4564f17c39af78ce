//! Claims for which the broker must make the device ready.

use super::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread;

/// A hook whose share is under MPS, with its daemon in `pipe`.
fn hook(scene: &Scene, pipe: &Path, init: &Init) -> Command {
    let daemon = format!("--daemon={}", pipe.display());
    let arguments = [
        "--device=GPU-11111111",
        "--label=gpu 0",
        "--share=0",
        "--size=mps:7000:10",
        "--of=10",
        "--prepare",
        &daemon,
    ];
    scene.with("claim", &arguments, "/b", "c", init.pid())
}

/// Runs `hook` with a broker that answers its one request so. Gives what the hook said, the request, and what was held
/// when it came.
fn with_broker(scene: &Scene, hook: &mut Command, answer: Value) -> (Result<(), String>, Value, usize) {
    fs::create_dir_all(scene.state_dir()).unwrap();
    let socket = scene.state_dir().join("broker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (asked, held) = thread::scope(|threads| {
        let broker = threads.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let held = scene.held().len();
            stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
            (line, held)
        });
        let ended = said(hook.output().unwrap());
        // A hook that asks nothing would leave the broker waiting.
        drop(std::os::unix::net::UnixStream::connect(&socket));
        let (line, held) = broker.join().unwrap();
        ((ended, line), held)
    });
    fs::remove_file(&socket).unwrap();
    let (ended, line) = asked;
    (ended, serde_json::from_str(&line).unwrap_or(Value::Null), held)
}

#[test]
fn a_claim_is_used_after_the_broker_has_prepared_its_device() {
    let Some(scene) = Scene::new("a_claim_is_used_after_the_broker_has_prepared_its_device") else {
        return;
    };
    let pipe = scene.top.path().join("pipe");
    fs::create_dir(&pipe).unwrap();
    let _daemon = listening(&pipe.join("control"));
    let init = Init::new();
    let (ended, request, held) = with_broker(&scene, &mut hook(&scene, &pipe, &init), json!({"version": 1, "ok": {}}));
    ended.unwrap();
    let expected = json!({"version": 1, "command": "prepare", "device": "GPU-11111111"});
    assert_eq!(request, expected);
    assert_eq!(held, 1, "the broker finds the claim in the ledger");
    assert_eq!(scene.held(), [("0".to_owned(), "c".to_owned())]);
}

#[test]
fn a_claim_whose_device_is_not_ready_is_given_back() {
    let Some(scene) = Scene::new("a_claim_whose_device_is_not_ready_is_given_back") else {
        return;
    };
    let pipe = scene.top.path().join("pipe");
    let init = Init::new();
    // A daemon that serves is no reason to do without the broker.
    fs::create_dir(&pipe).unwrap();
    let daemon = listening(&pipe.join("control"));
    let line = said(hook(&scene, &pipe, &init).output().unwrap()).unwrap_err();
    let says = format!(
        "gpu 0: its MPS daemon is started by the broker, which does not run; start it: tranche broker --state-dir {} &\n",
        scene.state_dir().display()
    );
    assert!(line.ends_with(&says), "{line}");
    assert!(scene.books().is_empty(), "its container lives, and holds nothing");
    let refusal = json!({"version": 1, "error": {"kind": "failed", "object": "gpu 0", "what": "its MPS daemon hangs",
        "hint": "look at its log"}});
    let (ended, _, held) = with_broker(&scene, &mut hook(&scene, &pipe, &init), refusal);
    assert!(
        ended
            .unwrap_err()
            .ends_with("gpu 0: its MPS daemon hangs; look at its log\n")
    );
    assert_eq!((held, scene.books().len()), (1, 0));
    // The broker is not believed: clients must reach the daemon.
    drop(daemon);
    let (ended, _, held) = with_broker(&scene, &mut hook(&scene, &pipe, &init), json!({"version": 1, "ok": {}}));
    let line = ended.unwrap_err();
    assert!(line.contains("its MPS daemon is not running"), "{line}");
    assert_eq!((held, scene.books().len()), (1, 0));
}
