//! `claim release` by every name that a person knows.

use super::*;
use crate::support::until;

fn scene(test: &str) -> Option<Scene> {
    Scene::new(&format!("released::{test}"))
}

/// What is held, by CDI name.
fn held(scene: &Scene) -> Vec<String> {
    let status = scene.json(&["status"]);
    let mut held: Vec<String> = status["claims"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["cdi"].as_str().unwrap().to_owned())
        .collect();
    held.sort();
    held
}

#[test]
fn a_share_that_a_live_container_holds_needs_force() {
    let Some(scene) = scene("a_share_that_a_live_container_holds_needs_force") else {
        return;
    };
    scene.name_containers(&[("0123456789abcdef", "train")]);
    let init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    for name in ["nvidia.com/gpu=0.3", "0.3", "train", "0123456789abcdef", "01234"] {
        let line = scene.tranche(&["claim", "release", name]).run().failed(1);
        assert!(line.contains("nvidia.com/gpu=0.3: is held since"), "{name}: {line}");
        assert!(
            line.contains("container train (0123456789ab), which is running") && line.contains("--force"),
            "{line}"
        );
        assert_eq!(held(&scene), ["nvidia.com/gpu=0.3"]);
    }
    let said = scene.tranche(&["claim", "release", "--force", "0.3"]).run();
    assert!(
        said.err
            .contains("released nvidia.com/gpu=0.3, held by train (0123456789ab)"),
        "{}",
        said.err
    );
    said.ok();
    assert!(held(&scene).is_empty());
    let next = scene.start("nvidia.com/gpu=0.3", "next");
    drop((init, next));
}

#[test]
fn a_name_that_means_more_than_one_lists_them() {
    let Some(scene) = scene("a_name_that_means_more_than_one_lists_them") else {
        return;
    };
    let inits = [
        scene.start("nvidia.com/gpu=0.0", "aaaa1111"),
        scene.start("nvidia.com/gpu=0.1", "aaaa2222"),
        scene.start("nvidia.com/gpu=0.2", "bbbb3333"),
    ];
    let line = scene.tranche(&["claim", "release", "aaaa"]).run().failed(2);
    assert!(
        line.contains("aaaa: matches more than one") && line.contains("nvidia.com/gpu=0.0 by container aaaa1111"),
        "{line}"
    );
    assert!(
        line.contains("nvidia.com/gpu=0.1 by container aaaa2222") && !line.contains("bbbb"),
        "{line}"
    );
    let line = scene.tranche(&["claim", "release", "aaa"]).run().failed(2);
    assert!(
        line.contains("not found among claims") && line.contains("these are held: nvidia.com/gpu=0.0"),
        "{line}"
    );
    for unknown in ["0.9", "nvidia.com/gpu=7", "nobody", "0"] {
        scene.tranche(&["claim", "release", "--force", unknown]).run().failed(2);
    }
    assert_eq!(held(&scene).len(), 3);
    drop(inits);
    let line = scene.tranche(&["claim", "release", "0.0"]).run().failed(2);
    assert!(line.contains("nothing is held"), "{line}");
}

#[test]
fn each_candidate_can_be_typed_and_is_one_claim() {
    let Some(scene) = scene("each_candidate_can_be_typed_and_is_one_claim") else {
        return;
    };
    let ids = ["aaaa1111", "aaaa2222", "bbbb3333"];
    let inits = ids.map(|id| scene.start("nvidia.com/gpu=0.any", id));
    let line = scene.tranche(&["claim", "release", "0.any"]).run().failed(2);
    for (share, id) in ["nvidia.com/gpu=0.0", "nvidia.com/gpu=0.1", "nvidia.com/gpu=0.2"]
        .iter()
        .zip(ids)
    {
        assert!(line.contains(&format!("{share} by container {id} since")), "{line}");
        let before = held(&scene).len();
        scene.tranche(&["claim", "release", "--force", share]).run().ok();
        assert_eq!(held(&scene).len(), before - 1);
    }
    drop(inits);
}

#[test]
fn all_that_a_container_holds() {
    let Some(scene) = scene("all_that_a_container_holds") else {
        return;
    };
    let one = scene.start("nvidia.com/gpu=0.0", "aaaa1111");
    scene
        .hook("createRuntime", "nvidia.com/gpu=0.1", "aaaa1111", one.pid())
        .run()
        .ok();
    let other = scene.start("nvidia.com/gpu=0.2", "bbbb3333");
    let said = scene
        .tranche(&["claim", "release", "--force", "--json", "aaaa1111"])
        .run()
        .ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    let released = said["released"].as_array().unwrap();
    assert_eq!(released.len(), 2);
    assert_eq!(released[0]["container"]["id"], "aaaa1111");
    assert_eq!(held(&scene), ["nvidia.com/gpu=0.2"]);
    drop((one, other));
}

#[test]
fn a_claim_by_its_name_and_a_share_of_it() {
    let Some(scene) = scene("a_claim_by_its_name_and_a_share_of_it") else {
        return;
    };
    scene.create(&["--name=both", "--shares=2", "--of=0"]).run().ok();
    let line = scene.tranche(&["claim", "release", "0.0"]).run().failed(2);
    assert!(
        line.contains("is one of several shares of claim both; tranche claim release both"),
        "{line}"
    );
    let init = scene.start("nvidia.com/claim=both", "cccc4444");
    let line = scene.tranche(&["claim", "release", "both"]).run().failed(1);
    assert!(
        line.contains("nvidia.com/claim=both: is held since") && line.contains("container cccc4444"),
        "{line}"
    );
    drop(init);
    scene.tranche(&["claim", "release", "nvidia.com/claim=both"]).run().ok();
    assert!(held(&scene).is_empty() && !scene.spec("both").exists());
    scene.create(&["--name=single", "--shares=1", "--of=0"]).run().ok();
    scene.tranche(&["claim", "release", "0.0"]).run().ok();
    assert!(held(&scene).is_empty() && !scene.spec("single").exists());
}

#[test]
fn what_a_container_of_a_pid_namespace_that_is_gone_held() {
    let Some(scene) = scene("what_a_container_of_a_pid_namespace_that_is_gone_held") else {
        return;
    };
    let unshare = ["unshare", "--pid", "--fork", "--mount-proc"];
    // Process 2 of the new namespace is the container. It ends with the namespace.
    let inside = |words: &str, hook: &Call| {
        let script = format!("sleep 1000 & \"$@\" || exit 1; {words}");
        let shell = ["sh", "-c", &script, "sh"];
        hook.run_behind(&[&unshare[..], &shell[..]].concat())
    };
    let hook = scene.hook("createRuntime", "nvidia.com/gpu=0.1", "inner", 2);
    let said = inside("", &hook);
    if said.err.contains("unshare") {
        return skip::not_run(
            "claim_verbs::released::what_a_container_of_a_pid_namespace_that_is_gone_held",
            "may not unshare",
        );
    }
    said.ok();
    assert_eq!(
        held(&scene),
        ["nvidia.com/gpu=0.1"],
        "nothing outside can tell that it ended"
    );
    scene.tranche(&["claim", "release", "0.1"]).run().ok();
    assert!(held(&scene).is_empty());
    // While processes run in that namespace, its container may run.
    let release = scene.tranche(&["claim", "release", "0.2"]);
    let hook = scene.hook("createRuntime", "nvidia.com/gpu=0.2", "inner2", 2);
    let ready = scene.at("ready");
    let waiting = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            inside(
                &format!("touch {0}; while [ -e {0} ]; do sleep 0.05; done", ready.display()),
                &hook,
            )
        });
        until("the namespace has its process", || {
            ready.exists() || holder.is_finished()
        });
        let line = release.run();
        let _ = fs::remove_file(&ready);
        holder.join().unwrap().ok();
        line
    });
    let line = waiting.failed(1);
    assert!(
        line.contains("may be running: its pid namespace cannot be examined") && line.contains("--force"),
        "{line}"
    );
    release.run().ok();
}

#[test]
fn a_specification_that_is_another_claim_s_by_now_stays() {
    let Some(scene) = scene("a_specification_that_is_another_claim_s_by_now_stays") else {
        return;
    };
    scene.create(&["--name=one", "--shares=1", "--of=0"]).run().ok();
    fs::write(scene.spec("one"), "a person's\n").unwrap();
    let said = scene.tranche(&["claim", "release", "one"]).run();
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(
        said.err.contains("left alone, because it is not the specification"),
        "{}",
        said.err
    );
    assert_eq!(fs::read_to_string(scene.spec("one")).unwrap(), "a person's\n");
    assert!(held(&scene).is_empty());
}

/// Its engine ran the poststop hook late, when another claim had the name already.
#[test]
fn a_late_hook_leaves_the_specification_of_a_later_claim_of_the_same_name() {
    let Some(scene) = scene("a_late_hook_leaves_the_specification_of_a_later_claim_of_the_same_name") else {
        return;
    };
    scene.create(&["--name=job", "--device=0"]).run().ok();
    let late = scene.hook("poststop", "nvidia.com/claim=job", "first", 0);
    drop(scene.start("nvidia.com/claim=job", "first"));
    scene.tranche(&["claim", "release", "job"]).run().ok();
    assert!(!scene.spec("job").exists());
    scene.create(&["--name=job", "--device=1", "--share=small"]).run().ok();
    let before = fs::read(scene.spec("job")).unwrap();
    late.run().ok();
    assert_eq!(fs::read(scene.spec("job")).unwrap(), before);
    assert_eq!(scene.claims(), ["job"]);
    scene.collect(&[]).run().ok();
    // Nor is a file removed that is not a specification of this claim at all.
    scene.tranche(&["claim", "release", "job"]).run().ok();
    for text in ["", "kind: nvidia.com/claim\n", "# --claim=job\n"] {
        fs::write(scene.spec("job"), text).unwrap();
        late.run().ok();
        assert_eq!(fs::read_to_string(scene.spec("job")).unwrap(), text);
    }
    // The file of its own claim goes, even if another claim had the same name before.
    fs::remove_file(scene.spec("job")).unwrap();
    scene.create(&["--name=job", "--device=0", "--once"]).run().ok();
    let last = scene.start("nvidia.com/claim=job", "second");
    let release = scene.hook("poststop", "nvidia.com/claim=job", "second", 0);
    drop(last);
    release.run().ok();
    assert!(!scene.spec("job").exists() && scene.claims().is_empty());
}

/// However a person names its device, and by root and users alike.
#[test]
fn a_share_is_meant_by_every_name_of_its_device() {
    let Some(scene) = scene("a_share_is_meant_by_every_name_of_its_device") else {
        return;
    };
    let gpu = &tranche_plan::sim::open("t4x2").unwrap().gpus[0];
    for name in [
        "nvidia.com/gpu=0.3".to_owned(),
        "0.3".to_owned(),
        format!("{}.3", gpu.uuid),
        format!("{}.3", gpu.pci),
        format!("nvidia.com/gpu={}.3", gpu.uuid),
        format!("/dev/nvidia{}.3", gpu.minor),
    ] {
        let _meant = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
        let _init = scene.start("nvidia.com/gpu=0.2", "fedcba9876543210");
        scene.tranche(&["claim", "release", "--force", &name]).run().ok();
        assert_eq!(held(&scene), ["nvidia.com/gpu=0.2"], "{name}");
        scene.tranche(&["claim", "release", "--force", "0.2"]).run().ok();
    }
}

/// Specifications that others put there are not what anybody waits for: they are not opened, under a lock or before it.
#[test]
fn no_specification_of_others_is_read() {
    let Some(scene) = scene("no_specification_of_others_is_read") else {
        return;
    };
    if !killed::may_trace("no_specification_of_others_is_read") {
        return;
    }
    scene.create(&["--name=one", "--shares=1", "--of=0"]).run().ok();
    scene.create(&["--name=two", "--shares=1", "--of=0"]).run().ok();
    fs::write(
        scene.at("cdi/foreign.yaml"),
        "cdiVersion: 0.5.0\nkind: a.b/c\ndevices: []\n",
    )
    .unwrap();
    for verb in [
        &["claim", "list"][..],
        &["claim", "show", "two"],
        &["status", "--no-gpu"],
        &["claim", "release", "one"],
    ] {
        let trace = scene.at("trace");
        let strace = [
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=openat,open,openat2",
            "-o",
            trace.to_str().unwrap(),
        ];
        assert_eq!(scene.tranche(verb).run_behind(&strace).code, Some(0), "{verb:?}");
        let trace = fs::read_to_string(&trace).unwrap();
        assert!(trace.contains("host.json"), "{verb:?}: {trace}");
        let opened: Vec<&str> = trace.lines().filter(|line| line.contains("/cdi/")).collect();
        let may_be = |line: &&str| verb[1] == "release" && line.contains("nvidia.com-claim_one.yaml");
        assert!(opened.iter().all(may_be), "{verb:?}: {opened:?}");
    }
}
