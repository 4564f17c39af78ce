//! The broker as a process: one for each state directory, started by systemd or by hand, ended by a signal.

use crate::scene::{ANN, Scene, as_user};
use crate::support::until;
use nix::sys::signal::Signal;
use serde_json::json;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::thread;

#[test]
fn a_second_broker_is_refused_and_a_killed_one_is_replaced() {
    let Some(mut scene) = Scene::new("a_second_broker_is_refused_and_a_killed_one_is_replaced") else {
        return;
    };
    let second = scene.command().output().unwrap();
    let line = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(
        line.contains("broker.sock: another broker serves it") && line.lines().count() == 1,
        "{line}"
    );
    scene.claim(ANN, "train").unwrap();
    assert_eq!(scene.stop(Signal::SIGKILL), None);
    assert!(scene.at("state/broker.sock").exists(), "it could not remove its socket");
    scene.start();
    assert_eq!(scene.seen(ANN), ["65534.train"]);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        assert_eq!(scene.stop(signal), Some(0));
        assert!(!scene.at("state/broker.sock").exists());
        scene.start();
    }
}

/// Each of them has a lock in the state directory: a broker for as long as it runs.
#[test]
fn a_refresh_runs_while_a_broker_does() {
    let Some(scene) = Scene::new("a_refresh_runs_while_a_broker_does") else {
        return;
    };
    let mut refresh = Command::new(scene.at("tranche"));
    refresh.args(["cdi", "refresh", "--inventory=sim:t4x2", "--lock-timeout=0.1"]);
    for (option, path) in [("state-dir", "state"), ("output-dir", "cdi"), ("config", "policy.yaml")] {
        refresh.arg(scene.option(option, path));
    }
    let output = refresh
        .arg(scene.option("hook-path", "tranche-oci"))
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(scene.at("cdi/tranche.yaml").exists() && scene.at("state/host.json").exists());
}

/// A user who connects at any moment of a start waits for the broker or reaches it.
#[test]
fn a_user_who_comes_while_it_starts_is_not_refused() {
    let Some(mut scene) = Scene::without_broker("a_user_who_comes_while_it_starts_is_not_refused") else {
        return;
    };
    for start in 0..30 {
        let socket = scene.at("state/broker.sock");
        thread::scope(|threads| {
            let user = threads.spawn(|| {
                let reached = |_| match UnixStream::connect(&socket) {
                    Ok(_) => true,
                    Err(error) => {
                        assert_ne!(error.kind(), ErrorKind::PermissionDenied, "start {start}");
                        false
                    }
                };
                // Again and again without a pause, because the wrong moment is short.
                as_user(ANN, || until("the broker is reached", || (0..10_000).any(reached)));
            });
            scene.start();
            user.join().unwrap();
        });
        scene.stop(Signal::SIGTERM);
    }
}

#[test]
fn a_request_that_has_begun_is_answered_before_the_broker_ends() {
    use std::io::Write;
    let Some(mut scene) = Scene::new("a_request_that_has_begun_is_answered_before_the_broker_ends") else {
        return;
    };
    let mut begun = scene.connect(ANN);
    begun.write_all(b"{\"version\":1,").unwrap();
    // The broker accepts connections in their order: this one was accepted when the next one is answered.
    scene.ask(ANN, "list", json!({})).unwrap();
    let ending = thread::scope(|threads| {
        let ending = threads.spawn(|| scene.stop(Signal::SIGTERM));
        begun.write_all(b"\"command\":\"list\"}\n").unwrap();
        let answered = crate::scene::answer(&mut begun);
        assert_eq!(answered, Ok(json!({"claims": [], "waiting": []})));
        ending.join().unwrap()
    });
    assert_eq!(ending, Some(0));
}

/// As systemd does it: the socket is descriptor 3, and the environment says so to this process alone.
#[test]
fn a_socket_of_the_service_manager_is_served_and_outlives_the_broker() {
    let Some(mut scene) = Scene::without_broker("a_socket_of_the_service_manager_is_served_and_outlives_the_broker")
    else {
        return;
    };
    std::fs::create_dir(scene.at("state")).unwrap();
    let path = scene.at("state/broker.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::os::unix::fs::PermissionsExt::set_mode(&mut std::fs::metadata(&path).unwrap().permissions(), 0o666);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let notified = UnixDatagram::bind(scene.at("notify")).unwrap();
    let activated = |scene: &Scene, idle: &str| {
        let broker = scene.command();
        // The shell gives the broker its own number, and the socket under the number 3.
        let script = format!(
            "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$ NOTIFY_SOCKET={}; exec \"$@\" --idle={idle}",
            scene.at("notify").display()
        );
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, "sh"])
            .arg(broker.get_program())
            .args(broker.get_args());
        let socket = std::os::fd::OwnedFd::from(listener.try_clone().unwrap());
        assert!(socket.as_raw_fd() > 2);
        command.stdin(Stdio::from(socket)).spawn().unwrap()
    };
    let said = || {
        let mut bytes = [0; 64];
        let read = notified.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..read].to_vec()).unwrap()
    };
    let broker = activated(&scene, "0");
    scene.watch(broker);
    assert_eq!(said(), "READY=1");
    scene.claim(ANN, "train").unwrap();
    assert_eq!(scene.stop(Signal::SIGTERM), Some(0));
    assert_eq!(said(), "STOPPING=1");
    // Who connects now waits for the next broker, which ends when it has nothing to do.
    UnixStream::connect(&path).unwrap();
    let mut broker = activated(&scene, "1s");
    assert_eq!(said(), "READY=1");
    assert_eq!(scene.seen(ANN), ["65534.train"]);
    assert!(broker.wait().unwrap().success());
    assert_eq!(said(), "STOPPING=1");
    assert!(path.exists());
}
