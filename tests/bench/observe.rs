//! `tranche advise --observe`: advice for what runs.

use crate::bed::{Bed, Said};
use crate::kept::elsewhere;
use serde_json::{Value, json};
use std::process::{Child, Command};

/// A program that does nothing, until it is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn observe(bed: &Bed, arguments: &[&str]) -> Said {
    bed.tranche(&[&["advise", "--observe=1s"], arguments].concat())
}

#[test]
fn what_runs_becomes_wishes_and_a_policy() {
    let bed = Bed::new();
    let services = [Sleeper::new(), Sleeper::new()];
    let compute = |pid: u32, memory: u64| json!({"pid": pid, "kind": "compute", "memory_mib": memory, "sm": 30});
    let display = json!({"pid": std::process::id(), "kind": "graphics", "memory_mib": 300});
    let processes = json!([
        compute(services[0].0.id(), 7000),
        compute(services[1].0.id(), 6500),
        display
    ]);
    bed.host
        .nvml(|config| {
            let gpu = &mut config["gpus"][0];
            gpu["utilization"] = json!({"gpu": 60, "memory": 20});
            gpu["processes"] = processes;
        })
        .unwrap();
    let said = observe(&bed, &["--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let advice: Value = serde_json::from_str(&said.out).unwrap();
    let [seen] = &advice["observed"].as_array().unwrap()[..] else {
        panic!("{advice:#}")
    };
    assert_eq!(
        *seen,
        json!({"wish": "service1", "program": "sleep", "kind": "service", "count": 2, "memory_mib": 7000,
               "busy_percent": 30, "idle_percent": 0})
    );
    assert_eq!(advice["choices"][0]["way"], "MPS", "{advice:#}");
    // The text has the wish as a file has it, and the policy is one.
    let policy = bed.at("advised.yaml");
    let said = observe(&bed, &["--write", policy.to_str().unwrap()]);
    let wish = "{name: service1, kind: service, count: 2, memory: 7936Mi}";
    let text = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(wish), "{said:?}");
    assert!(
        said.out.lines().take(8).all(|line| line.chars().count() <= 80),
        "{said:?}"
    );
    assert!(std::fs::read_to_string(&policy).unwrap().contains("mps:"));
    let check = bed.tranche(&["policy", "check", "--config", policy.to_str().unwrap()]);
    assert_eq!(check.code, Some(0), "{check:?}");
}

#[test]
fn where_nothing_can_be_seen_that_is_one_line() {
    let bed = Bed::new();
    let said = observe(&bed, &[]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains("no process has used one in this time"), "{said:?}");
    let described = elsewhere(&bed, &["advise", "--observe=1s"]);
    let said = "nothing runs on a machine that is described";
    assert!(
        described.code == Some(2) && described.err.contains(said),
        "{described:?}"
    );
    for (arguments, expected) in [
        (&["--observe=1s", "--kind=service"][..], "cannot be used with"),
        (&["--observe=1s", "wishes.yaml"], "cannot be used with"),
        (&["--observe=soon"], "not a time to wait"),
    ] {
        let said = bed.tranche(&[&["advise"], arguments].concat());
        assert_eq!(said.code, Some(2), "{arguments:?}: {said:?}");
        assert!(said.err.contains(expected), "{arguments:?}: {said:?}");
    }
}
