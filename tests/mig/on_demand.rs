//! Instances that are made when somebody asks for one, and destroyed after their last use.

use crate::bed::{Bed, Said};
use crate::support::until;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const POLICY: &str = "version: v1\nmig: {onDemand: {devices: [0]}}\n";

/// A machine on whose first GPU, which is empty, instances are made on demand.
fn bed() -> Bed {
    let bed = Bed::new("dgx-a100-mig");
    bed.apply("0:empty");
    bed.policy(POLICY);
    bed
}

#[test]
fn a_claim_makes_an_instance_and_its_release_destroys_it() {
    let bed = bed();
    let others = bed.layouts()[1..].to_vec();
    let made = bed.tranche(&["claim", "create", "--name", "train", "--mig", "2g.10gb"]);
    assert_eq!(
        (made.code, made.out.as_str()),
        (Some(0), "nvidia.com/claim=train\n"),
        "{made:?}"
    );
    let layout = bed.layout(0);
    assert!(layout.starts_with("2g.10gb@"), "{layout}");
    // The name that engines know is in a specification, with the nodes of the instance.
    let specification = fs::read_to_string(bed.at("cdi/nvidia.com-claim_train.yaml")).unwrap();
    assert!(specification.contains("nvidia-cap"), "{specification}");
    // Another one gets an instance of its own, on the same GPU.
    let other = bed.tranche(&["claim", "create", "--name", "other", "--mig", "2g.10gb"]);
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_eq!(bed.layout(0).matches("2g.10gb@").count(), 2, "{}", bed.layout(0));
    assert_eq!(bed.tranche(&["claim", "release", "train"]).code, Some(0));
    until("the instance is destroyed", || {
        bed.layout(0).matches("2g.10gb@").count() == 1
    });
    assert_eq!(bed.tranche(&["claim", "release", "other"]).code, Some(0));
    until("the other one too", || bed.layout(0) == "empty");
    assert_eq!(bed.layouts()[1..], others[..]);
    // The specifications follow.
    until("no specification has it", || {
        let host: Value = serde_json::from_slice(&fs::read(bed.at("state/host.json")).unwrap()).unwrap();
        host["inventory"]["gpus"][0]["mig_devices"]
            .as_array()
            .is_none_or(Vec::is_empty)
    });
}

/// Root has examined the host, and takes its turn when the instance that it would get is destroyed.
#[test]
fn root_does_not_get_what_was_destroyed_since_root_has_looked() {
    let mut bed = bed();
    for verb in [
        &["claim", "create", "--name", "late", "--device", "any"][..],
        &["run", "--share", "any", "--", "true"],
    ] {
        let made = bed.tranche(&["claim", "create", "--name", "train", "--mig", "2g.10gb"]);
        assert_eq!(made.code, Some(0), "{made:?}");
        bed.end(Signal::SIGKILL);
        assert_eq!(bed.tranche(&["claim", "release", "train"]).code, Some(0));
        let lock = fs::File::open(bed.at("state/ledger/lock")).unwrap();
        let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|e| e.1).unwrap();
        let root = bed
            .command(verb)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let has_looked = || {
            let opened = fs::read_dir(format!("/proc/{}/fd", root.id()))
                .into_iter()
                .flatten()
                .flatten();
            opened
                .filter_map(|fd| fs::read_link(fd.path()).ok())
                .any(|file| file == bed.at("state/ledger/lock"))
        };
        until("root waits for the ledger", has_looked);
        bed.destroy_by_hand();
        assert_eq!(bed.tranche(&["cdi", "refresh"]).code, Some(0));
        drop(lock);
        let said: Said = root.wait_with_output().unwrap().into();
        assert!(
            said.code != Some(0) && said.err.contains("gpu 0:0 was destroyed meanwhile"),
            "{verb:?}: {said:?}"
        );
        bed.start();
    }
}

#[test]
fn a_program_runs_in_an_instance_that_is_made_for_it() {
    let bed = bed();
    let said = bed.tranche(&[
        "run",
        "--share",
        "mig-1g.5gb.any",
        "--",
        "/bin/sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
    ]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("MIG-"), "{said:?}");
    until("the instance is destroyed", || bed.layout(0) == "empty");
}

#[test]
fn a_container_gets_an_instance_that_is_made_for_it() {
    let bed = bed();
    let low_level = bed.at("low-level");
    fs::write(&low_level, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&low_level, fs::Permissions::from_mode(0o755)).unwrap();
    bed.policy(&format!(
        "{POLICY}runtime: {{acceptEnvironment: always, runtimes: [{}]}}\n",
        low_level.display()
    ));
    assert_eq!(bed.tranche(&["cdi", "refresh"]).code, Some(0));
    let bundle = bed.at("bundle");
    fs::create_dir_all(bundle.join("rootfs")).unwrap();
    let config = bundle.join("config.json");
    let asked = serde_json::json!({
        "ociVersion": "1.0.2",
        "process": {"cwd": "/", "user": {"uid": 0, "gid": 0}, "args": ["true"],
            "env": ["NVIDIA_VISIBLE_DEVICES=mig-1g.5gb.any"]},
        "root": {"path": "rootfs"}, "linux": {},
    });
    fs::write(&config, asked.to_string()).unwrap();
    let runtime = env!("CARGO_BIN_EXE_tranche-runtime");
    let state = bed.at("state");
    let mut create = Command::new(runtime);
    create
        .arg("--state-dir")
        .arg(&state)
        .args(["create", "--bundle"])
        .arg(&bundle)
        .arg("c1");
    let output = create.env_clear().output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let edited = fs::read_to_string(&config).unwrap();
    assert!(
        edited.contains("nvidia-cap") && edited.contains("createRuntime"),
        "{edited}"
    );
    assert!(bed.layout(0).starts_with("1g.5gb@"), "{}", bed.layout(0));
    // The process that created it has ended, and no container has started.
    until("the instance is destroyed", || bed.layout(0) == "empty");
}

#[test]
fn what_was_made_is_destroyed_by_a_later_broker_and_not_made_again_at_boot() {
    let mut bed = bed();
    let made = bed.tranche(&["claim", "create", "--name", "train", "--mig", "3g.20gb"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    bed.end(Signal::SIGKILL);
    assert_eq!(bed.tranche(&["claim", "release", "train"]).code, Some(0));
    assert!(bed.layout(0).starts_with("3g.20gb@"));
    bed.start();
    until("the instance is destroyed", || bed.layout(0) == "empty");
    assert_eq!(bed.tranche(&["mig", "restore"]).code, Some(0));
    assert_eq!(bed.layout(0), "empty");
}

#[test]
fn what_cannot_be_made_is_refused_in_one_line() {
    let bed = bed();
    let before = bed.layouts();
    let refused = |profile: &str, expected: &str| {
        let said = bed.tranche(&["claim", "create", "--name", "x", "--mig", profile]);
        assert!(!matches!(said.code, Some(0)), "{said:?}");
        let lines: Vec<&str> = said.err.lines().filter(|line| line.starts_with("tranche: ")).collect();
        assert_eq!(lines.len(), 1, "{said:?}");
        assert!(lines[0].contains(expected), "{said:?}");
    };
    refused("9g.90gb", "no GPU has this profile");
    refused("1c.2g.10gb", "is a part of an instance");
    bed.policy("version: v1\n");
    refused("1g.5gb", "the policy lets no instance be made on demand");
    bed.policy("version: v1\nmig: {layout: [\"0:empty\"], onDemand: {devices: [0]}}\n");
    refused("1g.5gb", "is in MIG mode");
    assert_eq!(bed.layouts(), before);
    bed.policy(POLICY);
    let whole = bed.tranche(&["claim", "create", "--name", "whole", "--mig", "7g.40gb"]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    refused("1g.5gb", "no GPU has room for one more");
    assert_eq!(bed.layout(0), "7g.40gb@0");
}

/// The driver refuses in the middle, and what is put back has another UUID.
#[test]
fn an_instance_that_could_not_be_destroyed_is_destroyed_later() {
    let mut bed = bed();
    let made = bed.tranche(&["claim", "create", "--name", "train", "--mig", "2g.10gb"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let recorded = |bed: &Bed| -> Value {
        serde_json::from_slice(&fs::read(bed.at("state/mig-on-demand.json")).unwrap()).unwrap()
    };
    let first = recorded(&bed)["made"][0]["uuid"].clone();
    let refuse = |bed: &mut Bed, errors: Value| bed.host.nvml(|config| config["faults"]["errors"] = errors).unwrap();
    refuse(&mut bed, serde_json::json!({"nvmlGpuInstanceDestroy": "TIMEOUT"}));
    assert_eq!(bed.tranche(&["claim", "release", "train"]).code, Some(0));
    until("it was put back", || recorded(&bed)["made"][0]["uuid"] != first);
    // It is tried again and again, and no instance exists while it is put back.
    until("it is there", || bed.layout(0).starts_with("2g.10gb@"));
    refuse(&mut bed, serde_json::json!({}));
    until("the instance is destroyed", || bed.layout(0) == "empty");
}

/// What a user asks the broker for.
fn of_user(bed: &Bed, request: &Value) -> Result<Value, String> {
    fs::set_permissions(bed.at(""), fs::Permissions::from_mode(0o755)).unwrap();
    std::thread::scope(|threads| {
        let asking = threads.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            bed.ask(request)
        });
        asking.join().unwrap()
    })
}

/// Made for somebody means reserved for that one before anybody else can see it.
#[test]
fn what_was_made_for_somebody_is_nobody_else_s() {
    let bed = bed();
    let any = serde_json::json!({"command": "claim", "name": "mine", "device": "any"});
    let made = bed
        .ask(&serde_json::json!({"command": "mig-make", "profile": "2g.10gb"}))
        .unwrap();
    let device = made["device"].as_str().unwrap();
    assert!(bed.offers("0:0"), "everybody sees it");
    let refused = of_user(&bed, &any).unwrap_err();
    assert!(refused.contains("another user since"), "{refused}");
    let root = bed.tranche(&["claim", "create", "--name", "other", "--device", "any"]);
    assert_ne!(root.code, Some(0), "{root:?}");
    // Another one who asks for an instance gets one of its own.
    let other = bed
        .ask(&serde_json::json!({"command": "mig-make", "profile": "2g.10gb"}))
        .unwrap();
    assert_ne!(made, other);
    let mine = bed.tranche(&["claim", "create", "--name", "mine", "--device", device]);
    assert_eq!(mine.code, Some(0), "{mine:?}");
    // Nobody claims the other one, which is destroyed after half a minute.
    until("one is destroyed", || bed.layout(0).matches("2g.10gb@").count() == 1);
    assert_eq!(bed.tranche(&["claim", "release", "mine"]).code, Some(0));
    until("the other one too", || bed.layout(0) == "empty");
}

/// Root's `any` asks the driver, and sees an instance before the broker has reserved it: then another one is made.
#[test]
fn who_has_an_instance_made_gets_one_although_another_takes_the_first() {
    let bed = bed();
    let mut taken = 0;
    for _ in 0..40 {
        std::thread::scope(|threads| {
            let made = threads.spawn(|| bed.tranche(&["claim", "create", "--name", "train", "--mig", "1g.5gb"]));
            until("the driver has made it", || {
                bed.driver_has("1g.5gb") || made.is_finished()
            });
            bed.signal_broker(Signal::SIGSTOP);
            let any = bed.tranche(&["claim", "create", "--name", "other", "--device", "any"]);
            bed.signal_broker(Signal::SIGCONT);
            let made = made.join().unwrap();
            assert_eq!(made.code, Some(0), "{made:?}");
            taken += u32::from(any.code == Some(0));
        });
        if taken > 0 {
            return;
        }
        assert_eq!(bed.tranche(&["claim", "release", "train"]).code, Some(0));
        until("the instance is destroyed", || bed.layout(0) == "empty");
    }
    panic!("nobody ever took the first one");
}

/// The broker's own knowledge is older than the change until the specifications are written anew. A request that has
/// read it before, and comes to the ledger after, still gets what is gone, which is rare.
#[test]
fn nobody_gets_an_instance_that_was_just_destroyed() {
    let bed = bed();
    let any = serde_json::json!({"command": "claim", "name": "late", "device": "any"});
    let mut got = 0;
    for _ in 0..5 {
        let made = bed.tranche(&["claim", "create", "--name", "train", "--mig", "2g.10gb"]);
        assert_eq!(made.code, Some(0), "{made:?}");
        assert_eq!(bed.tranche(&["claim", "release", "train"]).code, Some(0));
        until("the driver has destroyed it", || !bed.driver_has("2g.10gb"));
        until("nobody can ask for it any more", || match of_user(&bed, &any) {
            Ok(_) => {
                got += 1;
                of_user(&bed, &serde_json::json!({"command": "release", "what": "late"})).unwrap();
                true
            }
            Err(refused) => !bed.offers("0:0") && !refused.contains("gpu 0:0"),
        });
        until("the specifications are written", || !bed.offers("0:0"));
    }
    assert!(got < 3, "{got} of 5 got it");
}
