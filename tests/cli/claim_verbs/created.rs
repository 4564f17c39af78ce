//! What `claim create` grants and refuses.

use super::*;
use crate::support::until;

fn scene(test: &str) -> Option<Scene> {
    Scene::new(&format!("created::{test}"))
}

#[test]
fn the_result_is_the_name_or_json() {
    let Some(scene) = scene("the_result_is_the_name_or_json") else {
        return;
    };
    let said = scene.create(&["--name=one", "--shares=3", "--of=0"]).run();
    assert_eq!(said.out, "nvidia.com/claim=one\n");
    assert!(said.err.contains("gpu 0: shares 0, 1, 2"), "{}", said.err);
    let said = scene
        .create(&["--name=two", "--memory=1Gi", "--json", "--once"])
        .run()
        .ok();
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&json["cdi"], &json["device"]),
        (&json!("nvidia.com/claim=two"), &json!("nvidia.com/gpu=1"))
    );
    assert_eq!((&json["shares"], &json["once"]), (&json!(["small"]), &json!(true)));
    assert_eq!(json["spec_file"], json!(scene.spec("two")));
    assert_eq!(json, scene.json(&["claim", "show", "two"]));
}

#[test]
fn wishes_that_cannot_be_served() {
    let Some(scene) = scene("wishes_that_cannot_be_served") else {
        return;
    };
    let line = scene.create(&["--name=x", "--memory=0"]).run().failed(2);
    assert!(line.contains("memory"), "{line}");
    let line = scene.create(&["--name=x", "--memory=1Gi", "--of=0"]).run().failed(2);
    assert!(
        line.contains("shares under time-slicing have no size") && line.contains("--shares"),
        "{line}"
    );
    let line = scene.create(&["--name=x", "--compute=10%", "--of=0"]).run().failed(2);
    assert!(line.contains("shares under time-slicing have no size"), "{line}");
    let line = scene.create(&["--name=x", "--shares=1", "--of=9"]).run().failed(2);
    assert!(line.contains("device 9: not found; this host has"), "{line}");
    scene.create(&["--name=a/b", "--shares=1"]).run().failed(2);
    scene.create(&["--name=x", "--shares=1", "--of=0", "--keep"]).run();
    assert!(scene.claims().is_empty() && names_in(&scene.at("cdi")) == ["tranche.yaml"]);
}

#[test]
fn any_is_a_free_dedicated_device() {
    let Some(scene) = scene("any_is_a_free_dedicated_device") else {
        return;
    };
    scene.policy("version: v1\nsharing:\n  dedicated: {devices: [0, 1]}\n");
    let any = |name: &str, more: &[&str]| {
        let name = format!("--name={name}");
        let words = [&["--device=any", name.as_str()], more].concat();
        scene.create(&words).run()
    };
    let line = any("x", &["--select=product=H100"]).failed(2);
    assert!(
        line.contains("product=H100 matches no device of the policy; gpu 0 is a Tesla T4 with"),
        "{line}"
    );
    let line = any("x", &["--select=memory>40Gi"]).failed(2);
    assert!(
        line.contains("expected conditions like memory>=40Gi,product=A100"),
        "{line}"
    );
    let said = any("one", &["--select=product=t4,memory>=1Gi"]);
    assert_eq!(
        (said.out.as_str(), said.err.trim()),
        ("nvidia.com/claim=one\n", "gpu 0: the whole device")
    );
    assert!(any("two", &[]).err.contains("gpu 1: the whole device"));
    let line = any("three", &[]).failed(1);
    assert!(
        line.contains("no device can give it now; gpu 0 is held; gpu 1 is held"),
        "{line}"
    );
    assert!(line.contains("nvidia.com/claim=one by user 0"), "{line}");
    assert_eq!(scene.claims().len(), 2);
    // With a size it is any device that has shares of a size.
    scene.policy(POLICY);
    for name in ["one", "two"] {
        scene.tranche(&["claim", "release", name]).run().ok();
    }
    assert!(any("four", &["--memory=1Gi"]).err.contains("gpu 1: share small"));
}

#[test]
fn a_refusal_says_who_holds_what_since_when_and_what_is_free() {
    let Some(scene) = scene("a_refusal_says_who_holds_what_since_when_and_what_is_free") else {
        return;
    };
    scene.name_containers(&[("0123456789abcdef", "train")]);
    let _init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    scene.create(&["--name=one", "--shares=2", "--of=0"]).run().ok();
    let line = scene.create(&["--name=two", "--shares=2", "--of=0"]).run().failed(1);
    assert!(
        line.contains("2 shares") && line.contains("gpu 0 has 1 of 4 shares free"),
        "{line}"
    );
    assert!(
        line.contains("nvidia.com/gpu=0.3 by container train (0123456789ab) since 20"),
        "{line}"
    );
    assert!(
        line.contains("nvidia.com/claim=one by user 0 (no container yet) since 20"),
        "{line}"
    );
    let line = scene.create(&["--name=one", "--shares=1"]).run().failed(2);
    assert!(
        line.contains("claim one: exists already; tranche claim release one"),
        "{line}"
    );
    assert_eq!(scene.claims(), ["one"]);
}

#[test]
fn a_time_to_wait_is_written_as_for_run_and_a_name_is_not_that_of_devices() {
    let Some(scene) = Scene::new("a_time_to_wait_is_written_as_for_run") else {
        return;
    };
    for wait in ["5s", "1m30s", "0", "7"] {
        let wait = format!("--wait={wait}");
        scene.create(&["--name=one", "--shares=1", "--of=0", &wait]).run().ok();
        scene.tranche(&["claim", "release", "one"]).run().ok();
    }
    for wait in ["999999999999", "169h", "-1", "soon"] {
        let wait = format!("--wait={wait}");
        let line = scene
            .create(&["--name=one", "--shares=1", "--of=0", &wait])
            .run()
            .failed(2);
        assert!(
            line.contains("not a time to wait like 30s") || line.contains("unexpected argument"),
            "{line}"
        );
    }
    for name in ["all", "any", "none", "void", "0"] {
        let line = scene.create(&["--name", name, "--shares=1", "--of=0"]).run().failed(2);
        assert!(
            line.contains(&format!("claim {name}: is a word or a number that means devices")),
            "{line}"
        );
    }
    assert_eq!(scene.claims(), [""; 0]);
}

#[test]
fn a_file_in_its_place_is_not_replaced() {
    let Some(scene) = scene("a_file_in_its_place_is_not_replaced") else {
        return;
    };
    fs::write(scene.spec("one"), "a person's\n").unwrap();
    let line = scene.create(&["--name=one", "--shares=1"]).run().failed(1);
    assert!(
        line.contains("exists already, and does not belong to a claim in this ledger"),
        "{line}"
    );
    assert_eq!(fs::read_to_string(scene.spec("one")).unwrap(), "a person's\n");
    assert!(scene.claims().is_empty());
}

#[test]
fn an_absent_gpu_costs_only_itself() {
    let Some(scene) = scene("an_absent_gpu_costs_only_itself") else {
        return;
    };
    scene.policy(&POLICY.replace("devices: [0]", "devices: [0, 7]"));
    let said = scene.create(&["--name=one", "--shares=1", "--of=0"]).run();
    assert!(said.err.contains('7'), "{}", said.err);
    assert_eq!(said.ok(), "nvidia.com/claim=one\n");
}

#[test]
fn options_about_the_host_come_last_in_the_help() {
    let words = [env!("CARGO_BIN_EXE_tranche"), "claim", "create", "--help"]
        .map(str::to_owned)
        .to_vec();
    let help = Call { words, input: None }.run().ok();
    let headings: Vec<&str> = help
        .lines()
        .filter(|l| !l.starts_with(' ') && l.ends_with(':'))
        .collect();
    assert_eq!(headings.first(), Some(&"Options:"), "{help}");
    let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text} in {help}"));
    for own in [
        "--name",
        "--memory",
        "--shares",
        "--ttl",
        "--once",
        "--json",
        "--spec-dir",
        "--state-dir",
        "--config",
        "--help",
    ] {
        for of_host in [
            "--root",
            "--proc-root",
            "--inventory",
            "--library-search-path",
            "--no-nvml",
        ] {
            assert!(
                at(&format!("{own} ")) < at(&format!("{of_host} ")) || at(own) < at(of_host),
                "{own} before {of_host}: {help}"
            );
        }
    }
    assert!(!help.contains("--keep"));
}

#[test]
fn the_time_to_live_counts_while_no_container_uses_it() {
    let Some(scene) = scene("the_time_to_live_counts_while_no_container_uses_it") else {
        return;
    };
    scene
        .create(&["--name=one", "--shares=1", "--of=0", "--ttl=1000"])
        .run()
        .ok();
    assert!(scene.json(&["claim", "show", "one"])["seconds_left"].as_u64().is_some());
    let init = scene.start("nvidia.com/claim=one", "c");
    let used = scene.json(&["claim", "show", "one"]);
    assert_eq!((&used["seconds_left"], &used["ttl"]), (&Value::Null, &json!(1000)));
    drop(init);
    scene.hook("poststop", "nvidia.com/claim=one", "c", 0).run().ok();
    let left = scene.json(&["claim", "show", "one"])["seconds_left"].as_u64().unwrap();
    assert!((900..=1000).contains(&left), "{left}");
    assert!(scene.spec("one").exists(), "its next container can ask for it");
    drop(scene.start("nvidia.com/claim=one", "c2"));
    assert_eq!(
        scene.claims(),
        ["one"],
        "and a container that crashed gives back nothing but its use"
    );
}

#[test]
fn once_is_given_back_with_its_container() {
    let Some(scene) = scene("once_is_given_back_with_its_container") else {
        return;
    };
    for stopped in [true, false] {
        scene
            .create(&["--name=one", "--shares=4", "--of=0", "--once"])
            .run()
            .ok();
        let stop = scene.hook("poststop", "nvidia.com/claim=one", "c", 0);
        drop(scene.start("nvidia.com/claim=one", "c"));
        if stopped {
            stop.run().ok();
            assert!(!scene.spec("one").exists());
        }
        assert!(scene.claims().is_empty());
        scene.collect(&[]).run().ok();
        assert!(!scene.spec("one").exists());
    }
}

#[test]
fn the_time_to_live_begins_with_gc_where_an_engine_crashed_with_its_container() {
    let Some(scene) = scene("the_time_to_live_begins_with_gc_where_an_engine_crashed_with_its_container") else {
        return;
    };
    scene
        .create(&["--name=short", "--shares=1", "--of=0", "--ttl=5"])
        .run()
        .ok();
    let book = || {
        let name = names_in(&scene.at("state/ledger"))
            .into_iter()
            .find(|n| n.starts_with("GPU-"))
            .unwrap();
        fs::read_to_string(scene.at("state/ledger").join(name)).unwrap()
    };
    drop(scene.start("nvidia.com/claim=short", "c"));
    assert!(book().contains("held"), "nobody wrote that its container is gone");
    scene.collect(&[]).run().ok();
    assert!(!book().contains("held"), "{}", book());
    until("the claim is over", || scene.claims().is_empty());
    scene.collect(&[]).run().ok();
    assert_eq!(names_in(&scene.at("cdi")), ["tranche.yaml"]);
}

/// An instance that was made before the name is refused would be nobody's. No broker runs that could make one.
#[test]
fn a_name_that_is_taken_is_refused_before_an_instance_is_made() {
    let Some(scene) = scene("a_name_that_is_taken_is_refused_before_an_instance_is_made") else {
        return;
    };
    scene.create(&["--name=a", "--shares=1", "--of=0"]).run().ok();
    let line = scene.create(&["--name=a", "--mig=1g.10gb"]).run().failed(2);
    assert!(line.contains("claim a: exists already"), "{line}");
    let line = scene.create(&["--name=b", "--mig=1g.10gb"]).run().failed(1);
    assert!(line.contains("broker"), "{line}");
}
