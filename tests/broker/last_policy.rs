//! A policy that becomes invalid while users hold and ask.

use crate::limits::refresh;
use crate::scene::{ANN, BOB, Scene};
use nix::sys::signal::Signal;
use std::fs;
use std::process::Command;

#[test]
fn users_are_served_by_the_last_policy_while_the_present_one_is_wrong() {
    let test = "last_policy::users_are_served_by_the_last_policy_while_the_present_one_is_wrong";
    let Some(mut scene) = Scene::new(test) else {
        return;
    };
    let valid = fs::read_to_string(scene.at("policy.yaml")).unwrap();
    // Nothing was applied yet.
    fs::write(scene.at("policy.yaml"), "sharing: [").unwrap();
    let refused = scene.claim(ANN, "a").unwrap_err();
    assert!(refused.contains("policy.yaml:1:"), "{refused}");
    fs::write(scene.at("policy.yaml"), valid).unwrap();
    refresh(&scene);
    // A failure is repeated for five seconds.
    crate::support::until("the policy counts", || scene.claim(ANN, "a").is_ok());
    fs::write(scene.at("policy.yaml"), "sharing: [").unwrap();
    scene.claim(BOB, "b").unwrap();
    assert_eq!(scene.names().len(), 2);
    scene.stop(Signal::SIGTERM);
    scene.start();
    scene.claim(BOB, "c").unwrap();
    // status shows what is invalid.
    let refreshed = scene.tranche_of_root(&[
        "cdi",
        "refresh",
        "--hook-path=/usr/bin/tranche-oci",
        &scene.option("output-dir", "cdi"),
    ]);
    assert_eq!(refreshed.status.code(), Some(1), "{refreshed:?}");
    let mut status = Command::new(scene.at("tranche"));
    let status = status
        .args(["status", "--no-gpu", &scene.option("state-dir", "state")])
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        said.contains("policy.yaml:1:") && said.contains("stays in force"),
        "{status:?}"
    );
}
