//! Every command reaches the low-level runtime as the engine gave it.

use std::fs;
use std::path::Path;
use std::process::Command;

use tranche_plan::host_file::HostFile;

use crate::place::{EXECUTED, Place, compile, link, plain, said};
use crate::support::programs::{install, script};

/// Commands as engines write them, and odd ones.
const COMMANDS: [&str; 12] = [
    "",
    "start ID",
    "--root /r --log /l --log-format json state ID",
    "--systemd-cgroup --rootless=true kill --all ID 9",
    "kill ID TERM",
    "delete --force ID",
    "exec --process /no/such ID",
    "exec -e A=1 --tty ID sh -c x",
    "checkpoint --image-path create ID",
    "new-command --with value create",
    "--future create-not ps ID -- -x",
    "create --bundle bundle --pid-file /p --preserve-fds 2 ID",
];

#[test]
fn a_command_arrives_as_it_was_given() {
    let place = Place::new();
    place.configure(&plain());
    for line in COMMANDS {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(place.passes(&words).arguments, words, "{line}");
    }
}

/// The same start with and without tranche, from an unusual parent and from a usual one.
#[test]
fn the_low_level_runtime_inherits_everything_from_the_engine() {
    let place = Place::new();
    place.configure(&plain());
    compile("launcher.c", &place.at("launcher"));
    let state = place.at("state").display().to_string();
    let tranche = [place.runtime().display().to_string(), "--state-dir".into(), state];
    let direct = [place.at("bin/runc").display().to_string()];
    let launcher = place.at("launcher").display().to_string();
    for line in COMMANDS {
        for prefix in [&[][..], std::slice::from_ref(&launcher)] {
            let [with, without] = [&tranche[..], &direct].map(|program| {
                let words: Vec<&str> = prefix.iter().chain(program).map(String::as_str).collect();
                let mut command = Command::new(words[0]);
                command
                    .args(&words[1..])
                    .args(line.split_whitespace())
                    .current_dir(place.at(""));
                assert_eq!(command.status().unwrap().code(), Some(EXECUTED), "{line}");
                place.start()
            });
            assert_eq!(with, without, "{line}");
            if !prefix.is_empty() {
                assert!(with.environment.contains("odd\\x00A=1\\x00A=2"), "{}", with.environment);
                // Standard input is closed. The test harness may have left others open.
                assert!(with.descriptors.starts_with("1 2 5 "), "{}", with.descriptors);
                assert!(with.descriptors.contains(" 42 "), "{}", with.descriptors);
            }
        }
    }
}

/// The low-level runtime answers what is no complete start, and no message of it is kept.
#[test]
fn help_and_commands_without_an_id_are_no_starts() {
    let place = Place::new();
    for line in [
        "create --help",
        "run -h",
        "restore --help",
        "exec --help",
        "delete --help",
        "create",
        "run --bundle bundle",
        "restore",
        "kill",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(place.passes(&words).arguments, words, "{line}");
    }
    assert!(
        !fs::read_dir(place.at("state"))
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().contains("message") })
    );
}

#[test]
fn a_configuration_that_requests_nothing_keeps_every_byte() {
    let place = Place::new();
    let text = "{ \"process\" : {\"env\":[\"odd\",\"A\\u0041=1\"]},\"n\":1.10,\"n\":2,\n\"big\":1e400} \n";
    fs::write(place.config(), text).unwrap();
    let before = fs::metadata(place.config()).unwrap();
    place.passes(&["create", "--bundle", "bundle", "ID"]);
    assert_eq!(fs::read_to_string(place.config()).unwrap(), text);
    let after = fs::metadata(place.config()).unwrap();
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
}

/// What a container costs that asks for nothing does not grow with the plan: everything after the first line may be of
/// any size, even of one that nobody reads.
#[test]
fn a_command_that_needs_the_settings_alone_reads_the_first_line_of_the_host_file() {
    let place = Place::new();
    place.configure(&plain());
    let path = place.at("state/host.json");
    let host: HostFile = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fs::write(&path, host.text().unwrap()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(65 << 20).unwrap();
    for command in [
        &["create", "--bundle", "bundle", "ID"][..],
        &["state", "ID"],
        &["delete", "ID"],
    ] {
        place.passes(command);
    }
}

#[test]
fn a_host_file_of_the_first_form_serves_a_container_that_asks_for_nothing() {
    let place = Place::new();
    place.configure(&plain());
    place.host_file_of_the_first_form();
    for command in [&["create", "--bundle", "bundle", "ID"][..], &["state", "ID"]] {
        place.passes(command);
    }
}

/// Nothing that a command needs may depend on host.json, except what a request needs.
#[test]
fn without_a_valid_host_file_the_defaults_are_used() {
    let place = Place::new();
    place.configure(&plain());
    // The default runtimes are not the one of this test, and may not be installed.
    for text in [None, Some("{"), Some("{}"), Some("{\"version\":999,\"runtime\":7}")] {
        match text {
            Some(text) => fs::write(place.at("state/host.json"), text).unwrap(),
            None => fs::remove_file(place.at("state/host.json")).unwrap(),
        }
        let output = place.run(&["--version"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => assert!(
                text.starts_with("runc version") || text.starts_with("crun version"),
                "{text}"
            ),
            false => assert!(said(&output).contains("not found: runc, crun"), "{}", said(&output)),
        }
    }
}

/// A container that requests nothing does not depend on tranche's files.
#[test]
fn a_damaged_host_file_is_reported_and_the_container_starts() {
    let place = Place::new();
    place.configure(&plain());
    let mut host = place.host(&[&place.at("bin/runc")]);
    host["runtime"]["unknown"] = 1.into();
    fs::write(place.at("state/host.json"), host.to_string()).unwrap();
    let output = place.run(&["create", "--bundle", "bundle", "ID"]);
    assert_eq!(output.status.code(), Some(EXECUTED), "{}", said(&output));
    let text = said(&output);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("host.json: cannot be used") && text.contains("run tranche cdi refresh"),
        "{text}"
    );
}

/// docker takes the last line with the word "version", go-runc the first line.
#[test]
fn a_version_on_standard_output_is_that_of_the_low_level_runtime() {
    let place = Place::new();
    script(place.at("bin/wrapper"), "echo runc version 1.2.3; echo commit: x");
    place.low_level_runtimes(&[&place.at("bin/wrapper")]);
    let output = place.run(&["--version"]);
    assert_eq!(output.stdout, b"runc version 1.2.3\ncommit: x\n");
    assert!(said(&output).starts_with("tranche-runtime 0."), "{}", said(&output));
}

#[test]
fn a_missing_runtime_is_one_line_with_what_was_searched() {
    let place = Place::new();
    place.low_level_runtimes(&[&place.at("bin/none")]);
    let none = place.at("bin/none").display().to_string();
    let line = place.refused(&["state", "ID"]);
    assert!(
        line.starts_with("tranche-runtime: state: low-level runtime: not found: "),
        "{line}"
    );
    assert!(line.contains(&none), "{line}");
}

#[test]
fn tranche_never_executes_itself() {
    let place = Place::new();
    fs::remove_file(place.at("bin/runc")).unwrap();
    link("tranche-runtime", &place.at("bin/runc"));
    let line = place.refused(&["state", "ID"]);
    assert!(line.contains("is tranche itself"), "{line}");

    // A copy is another file.
    fs::remove_file(place.at("bin/runc")).unwrap();
    install(place.runtime(), place.at("bin/runc"));
    let line = place.refused(&["state", "ID"]);
    assert!(line.contains("is tranche itself"), "{line}");
}

/// By `exec` and in a process of its own, because a wrapper may do either.
#[test]
fn a_wrapper_that_leads_back_to_tranche_ends() {
    for how in ["exec ", ""] {
        let place = Place::new();
        let state = place.at("state");
        let wrapper = place.at("bin/wrapper");
        script(
            &wrapper,
            &format!(
                "{how}{} --state-dir {} \"$@\"",
                place.runtime().display(),
                state.display()
            ),
        );
        place.low_level_runtimes(&[&wrapper]);
        let line = place.refused(&["state", "ID"]);
        assert!(line.contains("executes tranche again"), "{line}");
    }
}

#[test]
fn a_wrapper_of_the_real_runtime_works() {
    let place = Place::new();
    let wrapper = place.at("bin/wrapper");
    script(
        &wrapper,
        &format!("exec {} --added \"$@\"", place.at("bin/runc").display()),
    );
    place.low_level_runtimes(&[&wrapper]);
    assert_eq!(place.passes(&["state", "ID"]).arguments, ["--added", "state", "ID"]);
}

#[test]
fn tranche_oci_passes_the_arguments_of_a_runtime_on() {
    let place = Place::new();
    install(
        Path::new(env!("CARGO_BIN_EXE_tranche-oci")),
        place.at("bin/tranche-oci"),
    );
    let mut command = Command::new(place.at("bin/tranche-oci"));
    command
        .args(["runtime", "--state-dir"])
        .arg(place.at("state"))
        .args(["--root", "/r", "state", "ID"]);
    assert_eq!(command.status().unwrap().code(), Some(EXECUTED));
    assert_eq!(place.start().arguments, ["--root", "/r", "state", "ID"]);
}
