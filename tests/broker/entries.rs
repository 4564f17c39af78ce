//! Containers of users' engines: what they may take, and whose process they may name.

use crate::scene::{ANN, BOB, GPU_0, GPU_1, Scene, Sleeper, container};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use tranche_core::ledger::Holder;

/// A request of a container `c` with `init`.
fn request(init: &Sleeper, fields: Value) -> Value {
    let mut request = json!({"device": GPU_0, "container": container("c"), "pid": init.pid()});
    request
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    request
}

#[test]
fn a_share_is_held_until_its_container_has_ended() {
    let Some(scene) = Scene::new("a_share_is_held_until_its_container_has_ended") else {
        return;
    };
    let init = Sleeper::new(ANN);
    scene
        .ask(ANN, "enter", request(&init, json!({"share": "3", "size": "1/10"})))
        .unwrap();
    let claims = scene.claims();
    let [claim] = &claims[..] else { panic!("{claims:?}") };
    let Holder::Rootless { user, name } = &claim.holder else {
        panic!("{claim:?}")
    };
    assert_eq!(
        (*user, name.id.as_str(), name.bundle.as_str()),
        (ANN, "c", "/home/user/bundle")
    );
    assert_eq!((claim.uid, claim.part.to_string().as_str()), (ANN, "share 3"));
    let other = Sleeper::new(BOB);
    let line = scene
        .ask(BOB, "enter", request(&other, json!({"share": "3"})))
        .unwrap_err();
    assert!(line.contains("gpu 0 share 3: is held since"), "{line}");
    // A late release of a container that runs gives nothing back.
    scene.ask(ANN, "leave", json!({"container": container("c")})).unwrap();
    assert_eq!(scene.claims().len(), 1);
    drop(init);
    scene.ask(BOB, "enter", request(&other, json!({"share": "3"}))).unwrap();
    assert_eq!(scene.claims()[0].uid, BOB, "a container that has ended holds nothing");
}

#[test]
fn what_a_share_is_says_the_plan_and_not_the_user() {
    let Some(scene) = Scene::new("what_a_share_is_says_the_plan_and_not_the_user") else {
        return;
    };
    let init = Sleeper::new(BOB);
    for (fields, says) in [
        (
            json!({"share": "3", "size": "10/10"}),
            "its size is 1/10, and not 10/10; the specification is not of the present",
        ),
        (json!({"share": "99"}), "gpu 0 share 99: not found"),
        (
            json!({"share": "0", "device": GPU_1}),
            "shares under MPS are for containers of engines that run as root",
        ),
        (
            json!({"share": "any", "device": GPU_1}),
            "shares under MPS are for containers of engines that run as root",
        ),
        (
            json!({"whole": true, "device": "GPU-99999999"}),
            "is not shared by the policy of this host",
        ),
        (json!({"claim": "nothing"}), "claim 65533.nothing: not found"),
    ] {
        let line = scene.ask(BOB, "enter", request(&init, fields)).unwrap_err();
        assert!(line.contains(says), "{line}");
    }
    let line = scene
        .ask(BOB, "claim", json!({"name": "a", "device": "1", "shares": 1}))
        .unwrap_err();
    assert!(line.contains("gpu 1: its shares are under MPS"), "{line}");
    assert!(scene.claims().is_empty());
}

#[test]
fn the_process_of_another_user_is_not_the_init_of_a_container() {
    let Some(scene) = Scene::new("the_process_of_another_user_is_not_the_init_of_a_container") else {
        return;
    };
    let theirs = Sleeper::new(ANN);
    for pid in [theirs.pid(), 1, std::process::id()] {
        let mut request = request(&theirs, json!({"share": "3"}));
        request["pid"] = json!(pid);
        let line = scene.ask(BOB, "enter", request).unwrap_err();
        assert!(
            line.contains(&format!("process {pid}: does not belong to user 65533")),
            "{line}"
        );
    }
    assert!(scene.claims().is_empty());
}

/// Without a process whose end the broker sees, a share would be held until a person releases it.
#[test]
fn a_container_without_a_process_that_is_seen_gets_nothing() {
    let Some(scene) = Scene::new("a_container_without_a_process_that_is_seen_gets_nothing") else {
        return;
    };
    let enter = |pid: Value| json!({"device": GPU_0, "share": "3", "container": container("c"), "pid": pid});
    for (pid, says) in [
        (Value::Null, "invalid type: null"),
        (json!(4_000_000), "process 4000000: has ended or does not exist"),
        (json!(-1), "has a wrong field"),
    ] {
        let line = scene.ask(BOB, "enter", enter(pid)).unwrap_err();
        assert!(line.contains(says), "{line}");
    }
    let mut without = enter(Value::Null);
    without.as_object_mut().unwrap().remove("pid");
    let line = scene.ask(BOB, "enter", without).unwrap_err();
    assert!(line.contains("missing field `pid`"), "{line}");
    assert!(scene.claims().is_empty());
}

/// The number of a process means something else in the namespace of a nested engine: the broker finds the process all
/// the same, and the claim ends with it.
#[test]
fn the_claim_of_a_nested_engine_lasts_as_long_as_its_container() {
    let test = "the_claim_of_a_nested_engine_lasts_as_long_as_its_container";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    // The engine is process 1 of its namespace; its container is another process there, whose number is 2 or more.
    let script = format!(
        "sleep 1000 & echo $! > {top}/number; claim() {{ echo '{{\"ociVersion\":\"1.0.2\",\"id\":\"nested\",\"status\":\"creating\",\"bundle\":\"/b\",\"pid\":'$1'}}' \
         | {oci} hook claim --device={GPU_0} '--label=gpu 0' --share=3 --size=1/10 --of=10 {state}; echo $?; }}; \
         claim 4000000; claim $(cat {top}/number); read end; kill $!; wait; echo ended; read end",
        top = scene.at("nested").display(),
        oci = scene.at("tranche-oci").display(),
        state = scene.option("state-dir", "state"),
    );
    std::fs::create_dir(scene.at("nested")).unwrap();
    std::os::unix::fs::chown(scene.at("nested"), Some(ANN), Some(ANN)).unwrap();
    let mut engine = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([
            "unshare",
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            &script,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(engine.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    };
    let unknown = line();
    if unknown.is_empty() {
        engine.wait().unwrap();
        return crate::support::skip::not_run(&format!("broker::entries::{test}"), "may not make namespaces");
    }
    assert_eq!((unknown.as_str(), line().as_str()), ("1", "0"));
    let claims = scene.claims();
    assert_eq!(claims.len(), 1);
    let process = claims[0].process.as_ref().unwrap();
    let own = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata("/proc/self/ns/pid").unwrap());
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap();
    assert_eq!((process.namespace, comm.as_str()), (own, "sleep\n"));
    let other = Sleeper::new(BOB);
    let refused = scene
        .ask(BOB, "enter", request(&other, json!({"share": "3"})))
        .unwrap_err();
    assert!(refused.contains("is held since"), "{refused}");
    assert_eq!(scene.seen(ANN), [""]);
    let mut stdin = engine.stdin.take().unwrap();
    stdin.write_all(b"\n").unwrap();
    assert_eq!(line(), "ended");
    scene.ask(BOB, "enter", request(&other, json!({"share": "3"}))).unwrap();
    drop(stdin);
    engine.wait().unwrap();
}

/// The hook of a user's engine, whose containers hold shares as root's do.
#[test]
fn the_hook_of_a_users_engine_enters_and_leaves() {
    let Some(mut scene) = Scene::new("the_hook_of_a_users_engine_enters_and_leaves") else {
        return;
    };
    let init = Sleeper::new(ANN);
    let state = json!({"ociVersion": "1.0.2", "id": "c", "status": "creating", "bundle": "/b", "pid": init.pid()});
    std::fs::write(scene.at("hook.state"), state.to_string()).unwrap();
    let hook = |scene: &Scene, verb: &str, more: &[&str]| {
        let output = Command::new("setpriv")
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "unshare",
                "--user",
                "--map-root-user",
            ])
            .arg(scene.at("tranche-oci"))
            .args(["hook", verb])
            .args(more)
            .arg(scene.option("state-dir", "state"))
            .stdin(std::fs::File::open(scene.at("hook.state")).unwrap())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let device = format!("--device={GPU_0}");
    let claim = |scene: &Scene| {
        hook(
            scene,
            "claim",
            &[
                &device,
                "--label=gpu 0",
                "--share=any",
                "--size=1/10",
                "--of=10",
                "--as=nvidia.com/gpu=0.any",
            ],
        )
    };
    let (code, said) = claim(&scene);
    if said.contains("unshare") {
        return crate::support::skip::not_run(
            "broker::entries::the_hook_of_a_users_engine",
            "may not make a user namespace",
        );
    }
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let claims = scene.claims();
    assert_eq!((claims.len(), claims[0].uid), (1, ANN));
    assert_eq!(claims[0].process.as_ref().unwrap().pid, init.pid());
    assert_eq!(claims[0].asked_as, None, "a user could say anything");
    drop(init);
    assert_eq!(hook(&scene, "release", &[]), (Some(0), String::new()));
    assert!(scene.claims().is_empty());
    scene.stop(nix::sys::signal::Signal::SIGTERM);
    let (code, said) = claim(&scene);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("containers of a user's own engine get shares from the broker, which does not run; start it"),
        "{said}"
    );
    assert_eq!(
        hook(&scene, "release", &[]),
        (Some(0), String::new()),
        "nothing is held"
    );
}
