//! examples/status.rs and examples/refresh.rs: callers outside the crate get what the command line prints and writes.

#[path = "../../examples/refresh.rs"]
#[expect(dead_code, reason = "its main is that of a program")]
mod refresh;
#[path = "../../examples/status.rs"]
#[expect(dead_code, reason = "its main is that of a program")]
mod status;

use crate::support::fake_host;
use crate::{program, said};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tranche_core::claims::Claims;
use tranche_inspect::observed::ObserveOptions;
use tranche_plan::reserve::{Reservation, Unoffered};
use tranche_plan::share::{self, Wish};
use tranche_plan::{policy, sim};

#[test]
fn a_caller_outside_the_crate_prints_what_status_prints() {
    let dir = tempfile::tempdir().unwrap();
    let mps =
        "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [1], replicas: 4}\n";
    let policy = policy::read::parse("policy.yaml", mps).unwrap().policy;
    let plan = share::plan(&policy, &sim::open("t4x2").unwrap()).unwrap();
    let claims = Claims::open(dir.path()).unwrap();
    let reservation = Reservation::of("train", Wish::shares(1));
    plan.reserve(&claims, &reservation, &Unoffered).unwrap();
    let options = ObserveOptions {
        state_dir: dir.path().to_owned(),
        ..ObserveOptions::default()
    };
    let by_example: Value = serde_json::from_str(&status::status(&options, false).unwrap()).unwrap();
    let state_dir = format!("--state-dir={}", dir.path().display());
    let by_verb = said(program(&["status", "--json", "--no-gpu", &state_dir]));
    assert_eq!(by_verb.code, Some(0), "{}", by_verb.err);
    assert_eq!(serde_json::from_str::<Value>(&by_verb.out).unwrap(), by_example);
    assert_eq!(by_example["claims"][0]["name"], "train");
}

#[test]
fn a_caller_outside_the_crate_writes_the_specifications_that_refresh_writes() {
    let dir = tempfile::tempdir().unwrap();
    let host = fake_host::build("t4x2-old-driver", &dir.path().join("host")).unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let line = refresh::refresh(&host.root, &one).unwrap();
    assert!(line.contains("host.json: written; "), "{line}");
    let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let by_verb = said(program(&[
        "cdi",
        "refresh",
        "--no-nvml",
        "--hook-path=/usr/bin/tranche-oci",
        &option("root", &host.root),
        &option("output-dir", &other.join("cdi")),
        &option("state-dir", &other.join("state")),
    ]));
    assert_eq!(by_verb.code, Some(0), "{}", by_verb.err);
    let spec = |directory: &Path| fs::read_to_string(directory.join("cdi/tranche.yaml")).unwrap();
    assert_eq!(spec(&one), spec(&other));
}
