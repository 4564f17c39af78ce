//! A start that waits for a device, and ends with its engine.

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tranche_core::claims::Claims;
use tranche_plan::reserve::{Reservation, Unoffered};
use tranche_plan::share::{Plan, Wish};

use crate::place::{Place, plain};
use crate::support::{rights, until::until};

/// A place whose container waits for GPU 0, which another claim holds; `None` if this user cannot hold one.
fn held(test: &str) -> Option<(Place, Plan)> {
    if !rights::owns_machine(&format!("waiting::{test}")) {
        return None;
    }
    let place = Place::new();
    let plan = place.dedicate_gpu_0();
    let claims = Claims::open(&place.at("state")).unwrap();
    let reservation = Reservation::of("other", Wish::default());
    plan.reserve(&claims, &reservation, &Unoffered).unwrap();
    let mut config = plain();
    config["annotations"] = json!({"cdi.k8s.io/x": "nvidia.com/gpu=0", "tranche.dev/wait": "1h"});
    place.configure(&config);
    Some((place, plan))
}

fn queued(place: &Place) -> usize {
    fs::read_dir(place.at("state/ledger/queue")).map_or(0, Iterator::count)
}

/// A shell that runs `script`, in which `"$@"` is the runtime with `create`.
fn engine(place: &Place, script: &str) -> Child {
    let create = place.command(&["create", "--bundle", "bundle", "ID"]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script, "sh"])
        .arg(create.get_program())
        .args(create.get_args());
    shell.current_dir(place.at("")).env("_OCI_SYNCPIPE", "9");
    shell
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Frees the device, and sees that no container takes it: the runtime would execute the low-level one.
fn nobody_starts(place: &Place, plan: &Plan) {
    let claims = Claims::open(&place.at("state")).unwrap();
    claims.withdraw(&["other"]).unwrap();
    // A start that still waited would get it before this one.
    let reservation = Reservation::of("mine", Wish::default());
    plan.reserve(&claims, &reservation, &Unoffered).unwrap();
    assert!(!place.at("bin/arguments").exists(), "a container was created");
}

#[test]
fn a_start_stops_waiting_when_the_process_that_called_it_is_killed() {
    let Some((place, plan)) = held("a_start_stops_waiting_when_the_process_that_called_it_is_killed") else {
        return;
    };
    let mut shim = engine(&place, "\"$@\"; exit");
    until("the start waits", || queued(&place) == 1);
    shim.kill().unwrap();
    shim.wait().unwrap();
    until("the start stops waiting", || queued(&place) == 0);
    nobody_starts(&place, &plan);
}

/// conmon outlives the engine, and has only the pipe by which it reports to it.
#[test]
fn a_start_stops_waiting_when_the_engine_behind_conmon_has_gone() {
    let Some((place, plan)) = held("a_start_stops_waiting_when_the_engine_behind_conmon_has_gone") else {
        return;
    };
    let mut conmon = engine(&place, "exec 9>&1; \"$@\"; cat >&2");
    until("the start waits", || queued(&place) == 1);
    drop(conmon.stdout.take());
    until("the start stops waiting", || queued(&place) == 0);
    assert!(conmon.try_wait().unwrap().is_none(), "conmon lives");
    conmon.kill().unwrap();
    conmon.wait().unwrap();
    nobody_starts(&place, &plan);
}

#[test]
fn a_start_goes_on_waiting_while_its_engine_lives() {
    let Some((place, _)) = held("a_start_goes_on_waiting_while_its_engine_lives") else {
        return;
    };
    let mut conmon = engine(&place, "exec 9>&1; \"$@\"; exit");
    until("the start waits", || queued(&place) == 1);
    Claims::open(&place.at("state")).unwrap().withdraw(&["other"]).unwrap();
    until("the container is created", || place.at("bin/arguments").exists());
    conmon.wait().unwrap();
}
