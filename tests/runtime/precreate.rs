//! podman's precreate hook: a configuration in, a configuration out.

use std::fs;

use serde_json::Value;

use crate::place::{Place, plain, request};
use crate::support::scene::{Ended, run};

fn precreate(place: &Place, input: &[u8]) -> Ended {
    let mut command = std::process::Command::new(place.runtime());
    command
        .args(["hook", "precreate", "--state-dir"])
        .arg(place.at("state"))
        .env_clear();
    run(command, input)
}

#[test]
fn a_configuration_is_edited_only_if_it_requests_something() {
    let place = Place::new();
    let text = format!(" {}\n\n", plain());
    let ended = precreate(&place, text.as_bytes());
    ended.silent();
    assert_eq!(ended.stdout, text);

    let ended = precreate(&place, request().to_string().as_bytes());
    ended.silent();
    let edited: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(edited["process"]["env"].as_array().unwrap().len() > 2, "{edited}");
    assert_eq!(edited["unknown"], request()["unknown"]);
}

#[test]
fn a_failure_prints_no_configuration() {
    let place = Place::new();
    fs::remove_file(place.at("state/host.json")).unwrap();
    let whole = request().to_string();
    for input in [&whole, &whole[..whole.len() - 1], &format!("{whole}}}")] {
        let ended = precreate(&place, input.as_bytes());
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""));
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(
            ended.stderr.starts_with("tranche-runtime: hook precreate: "),
            "{}",
            ended.stderr
        );
    }
    let mut command = std::process::Command::new(place.runtime());
    let ended = {
        command
            .args(["hook", "precreate", "--state-dir"])
            .arg(place.at("state"))
            .arg("--unknown");
        run(command, plain().to_string().as_bytes())
    };
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
}
