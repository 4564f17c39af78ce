//! `--inventory sim:NAME`: every verb that looks shows that machine, and every verb that changes something refuses it.

use crate::{program, said, tranche};
use clap::{Command, CommandFactory};
use tranche_cli::Arguments;

/// The verbs that change something of this machine.
const CHANGES: [&str; 23] = [
    "cdi refresh",
    "cdi watch",
    "claim create",
    "drain",
    "reserve",
    "undrain",
    "run",
    "broker",
    "mps start",
    "mps stop",
    "mps restart",
    "mig apply",
    "mig undo",
    "mig restore",
    "bench",
    "bench sweep",
    "bench restore",
    "bench guard",
    "turns try",
    "system create-device-nodes",
    "system prepare-removal",
    "system protect",
    "system unprotect",
];

/// A change of this machine whose test host has no part of it.
const LINKS: &str = "system create-dev-char-symlinks";

/// What a verb needs beside the inventory.
fn more(verb: &str) -> &'static [&'static str] {
    match verb {
        "claim create" => &["--name=x"],
        "advise" => &["--kind=service"],
        "bench guard" => &["GPU-573b7ec7-fbe3-a735-0919-cb0e40983ab1"],
        "bench" | "bench sweep" | "drain" | "undrain" | "mps start" | "mps stop" | "mps restart" | "turns try" => {
            &["0"]
        }
        "run" => &["--share=0", "--", "true"],
        "verify" => &["nothing"],
        "export" => &["--for=apptainer", "0"],
        "cdi validate" => &["cdi-specs/dgx-a100-mig.yaml"],
        "policy check" => &["--config=docs/examples/config.yaml"],
        "policy diff" => &["docs/examples/config.yaml"],
        "mig plan" => &["--layout=0:empty"],
        "mig apply" => &["--layout=0:empty", "--yes"],
        "top" => &["--once"],
        "reserve" => &["0", "--from=tomorrow 14:00", "--for=1h"],
        _ => &[],
    }
}

/// The verbs of `command` that take an inventory.
fn with_inventory(command: &Command, path: &str) -> Vec<String> {
    let takes = command.get_arguments().any(|arg| arg.get_id() == "inventory");
    let own = takes.then(|| path.to_owned());
    let below = command.get_subcommands();
    let below = below.flat_map(|verb| with_inventory(verb, format!("{path} {}", verb.get_name()).trim_start()));
    own.into_iter().chain(below).collect()
}

#[test]
fn each_verb_shows_a_built_in_machine_or_refuses_it() {
    let verbs = with_inventory(&Arguments::command(), "");
    assert!(verbs.len() > 30, "{verbs:?}");
    for verb in &verbs {
        let words: Vec<&str> = verb.split(' ').collect();
        let arguments = [&words[..], &["--inventory=sim:dgx-a100-mig"], more(verb)].concat();
        let ran = tranche(&arguments);
        let refusal = format!(
            "tranche: {verb}: changes this machine, and --inventory sim:dgx-a100-mig describes another; leave \
             --inventory and TRANCHE_INVENTORY out\n"
        );
        if CHANGES.contains(&verb.as_str()) || verb == LINKS {
            assert_eq!(
                (ran.code, ran.out.as_str(), ran.err.as_str()),
                (Some(2), "", refusal.as_str())
            );
        } else if verb == "verify" {
            // It needs a container, which this machine does not have.
            assert!(ran.err.contains("nothing"), "{ran:?}");
        } else {
            assert!(matches!(ran.code, Some(0 | 4)), "{verb}: {ran:?}");
            assert!(!ran.out.is_empty() || verb == "cdi validate", "{verb}: {ran:?}");
        }
    }
    for verb in CHANGES.iter().chain([&LINKS]) {
        assert!(verbs.iter().any(|known| known == verb), "{verb}");
    }
}

#[test]
fn the_environment_is_no_way_around_and_another_state_directory_is_for_trying() {
    let mut drain = program(&["drain", "0"]);
    drain.env("TRANCHE_INVENTORY", "sim:t4x2");
    let refused = said(drain);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("drain: changes this machine"), "{refused:?}");
    let top = tempfile::tempdir().unwrap();
    let state = format!("--state-dir={}", top.path().join("state").display());
    let drained = tranche(&["drain", "0", "--inventory=sim:t4x2", &state]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let refused = tranche(&[
        "mig",
        "apply",
        "--yes",
        "--layout=0:empty",
        "--inventory=sim:dgx-a100-mig",
        &state,
    ]);
    assert_eq!(refused.code, Some(2), "instances are on no other machine: {refused:?}");
    let dry = tranche(&["cdi", "refresh", "--dry-run", "--inventory=sim:t4x2"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
}

#[test]
fn a_built_in_machine_is_divided_as_its_inventory_says() {
    let inventory = "--inventory=sim:dgx-a100-mig";
    let status = tranche(&["mig", "status", inventory]);
    assert_eq!(status.code, Some(0), "{status:?}");
    // The names are those of `tranche list`, and all instances have a place.
    for line in [
        "1:0     3g.20gb",
        "2:4     1c.3g.20gb",
        "6:1     1g.5gb+me",
        "fits: nothing",
    ] {
        assert!(status.out.contains(line), "{line}: {}", status.out);
    }
    let export = tranche(&["mig", "export", inventory]).out;
    assert!(
        export.contains(":3x1c.3g.20gb@0,1c.3g.20gb@4,2c.3g.20gb@4\n"),
        "{export}"
    );
    let plan = tranche(&["mig", "plan", inventory, "--layout=3:7g.40gb"]);
    assert_eq!(
        (plan.code, plan.out.as_str()),
        (Some(4), "gpu 3: create 7g.40gb at 0\n"),
        "{plan:?}"
    );
    let wrong = tranche(&["mig", "plan", inventory, "--layout=0:3g.20gb@1"]);
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong
            .err
            .contains("gpu 0: no 3g.20gb can begin at 1; its places are 3g.20gb@0, 3g.20gb@4\n"),
        "{wrong:?}"
    );
    let without = tranche(&["mig", "status", "--inventory=sim:t4x2"]);
    assert_eq!(without.code, Some(3), "{without:?}");
}
