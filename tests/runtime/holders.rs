//! Commands about a container that holds a share: `exec`, and the end without notice.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::thread;

use serde_json::{Value, json};

use crate::place::{EXECUTED, Place, plain, said};
use crate::support::{init::Init, rights, scene};

const SHARE: [&str; 3] = [
    "CUDA_MPS_PIPE_DIRECTORY=/mps",
    "NVIDIA_GPU_MEMORY_LIMIT=7000",
    "CUDA_VISIBLE_DEVICES=GPU-11111111",
];

/// A place with a container ID in its bundle, which holds a share of this size; `None` if this user cannot hold one.
fn holding(test: &str, size: &str) -> Option<(Place, Init)> {
    if !rights::owns_machine(&format!("holders::{test}")) {
        return None;
    }
    let place = Place::new();
    let mut config = plain();
    config["process"]["env"] = json!([&["PATH=/bin"][..], &SHARE].concat());
    place.configure(&config);
    let init = Init::new();
    hold(&place, &place.at("bundle").display().to_string(), "0", size, &init);
    Some((place, init))
}

fn hold(place: &Place, bundle: &str, share: &str, size: &str, init: &Init) {
    let state = json!({"ociVersion": "1.0.2", "id": "ID", "status": "creating", "bundle": bundle, "pid": init.pid()});
    let mut hook = std::process::Command::new(env!("CARGO_BIN_EXE_tranche-oci"));
    let (share, size) = (format!("--share={share}"), format!("--size={size}"));
    hook.args([
        "hook",
        "claim",
        "--device=GPU-11111111",
        "--label=gpu 0",
        &share,
        &size,
        "--of=10",
        "--state-dir",
    ]);
    hook.arg(place.at("state"));
    scene::run(hook, state.to_string().as_bytes()).silent();
}

fn environment(place: &Place) -> Value {
    let process: Value = serde_json::from_slice(&fs::read(place.at("process.json")).unwrap()).unwrap();
    process["env"].clone()
}

fn process(place: &Place) {
    let process = json!({"args": ["sh"], "env": ["A=1", "CUDA_MPS_PIPE_DIRECTORY=/evil", "CUDA_VISIBLE_DEVICES=all"]});
    fs::write(place.at("process.json"), process.to_string()).unwrap();
}

const EXEC: [&str; 4] = ["exec", "--process", "process.json", "ID"];

#[test]
fn a_further_process_gets_the_environment_of_the_share() {
    let Some((place, _init)) = holding("a_further_process_gets_the_environment_of_the_share", "mps:7000:30") else {
        return;
    };
    process(&place);
    assert_eq!(place.passes(&EXEC).arguments, EXEC);
    assert_eq!(environment(&place), json!([&["A=1"][..], &SHARE].concat()));

    let line = "exec -e A=1 -e CUDA_MPS_PIPE_DIRECTORY=/evil ID sh -c -e";
    let expected = "exec --env CUDA_MPS_PIPE_DIRECTORY=/mps --env NVIDIA_GPU_MEMORY_LIMIT=7000 \
                    --env CUDA_VISIBLE_DEVICES=GPU-11111111 -e A=1 ID sh -c -e";
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(place.passes(&words).arguments.join(" "), expected);

    // A process that cannot get it must not run.
    for text in ["", "[]", "{\"env\":1}"] {
        fs::write(place.at("process.json"), text).unwrap();
        let line = place.refused(&EXEC);
        assert!(line.starts_with("tranche-runtime: exec: process of exec: "), "{line}");
    }
    fs::remove_file(place.at("process.json")).unwrap();
    place.refused(&EXEC);
}

#[test]
fn a_process_of_another_container_is_not_touched() {
    let Some((place, init)) = holding("a_process_of_another_container_is_not_touched", "mps:7000:30") else {
        return;
    };
    process(&place);
    let before = fs::read(place.at("process.json")).unwrap();
    place.passes(&["exec", "--process", "process.json", "OTHER"]);
    // The same id in another place: the low-level runtime knows which one is meant.
    let root = place.at("root").display().to_string();
    fs::create_dir_all(place.at("root/ID")).unwrap();
    fs::write(place.at("root/ID/status"), r#"{"bundle":"/elsewhere"}"#).unwrap();
    place.passes(&[&["--root", &root][..], &EXEC].concat());
    assert_eq!(fs::read(place.at("process.json")).unwrap(), before);

    // Two of them, of which one is meant, and one that nobody can tell.
    hold(&place, "/elsewhere", "1", "mps:1000:10", &init);
    place.passes(&EXEC);
    assert_eq!(fs::read(place.at("process.json")).unwrap(), before);
    let state = json!({"config": {"labels": [format!("bundle={}", place.at("bundle").display())]}});
    fs::remove_file(place.at("root/ID/status")).unwrap();
    fs::write(place.at("root/ID/state.json"), state.to_string()).unwrap();
    place.passes(&[&["--root", &root][..], &EXEC].concat());
    assert_eq!(environment(&place), json!([&["A=1"][..], &SHARE].concat()));
}

/// What the broker is asked before each of these commands, and whether the low-level runtime was executed after it.
fn asked(place: &Place, commands: &[&[&str]], answer: &'static str) -> Vec<String> {
    let socket = place.at("state/broker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let broker = thread::spawn(move || {
        let mut lines = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            if line == "end\n" {
                return lines;
            }
            lines.push(line);
            // The caller may have given up.
            let _ = stream.write_all(answer.as_bytes());
        }
        lines
    });
    for command in commands {
        let output = place.command(command).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(EXECUTED), "{command:?}: {}", said(&output));
        assert_eq!(place.start().arguments, *command);
        assert_eq!(said(&output).is_empty(), answer.ends_with('\n'), "{}", said(&output));
    }
    std::os::unix::net::UnixStream::connect(&socket)
        .unwrap()
        .write_all(b"end\n")
        .unwrap();
    let lines = broker.join().unwrap();
    fs::remove_file(&socket).unwrap();
    lines
}

#[test]
fn the_broker_is_asked_before_an_end_without_notice_only() {
    let Some((place, _init)) = holding("the_broker_is_asked_before_an_end_without_notice_only", "mps:7000:30") else {
        return;
    };
    let ends: [&[&str]; 4] = [
        &["kill", "ID", "KILL"],
        &["kill", "--all", "ID", "9"],
        &["--root", "/r", "kill", "ID", "SIGKILL"],
        &["delete", "--force", "ID"],
    ];
    let lines = asked(&place, &ends, "{\"version\":1,\"ok\":{}}\n");
    assert_eq!(lines.len(), 4);
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    let bundle = place.at("bundle");
    let expected = json!({"version": 1, "command": "end-clients", "container": {"id": "ID", "bundle": bundle}});
    assert_eq!(line, expected);

    let others: [&[&str]; 5] = [
        &["kill", "ID"],
        &["kill", "ID", "TERM"],
        &["kill", "ID", "15"],
        &["delete", "ID"],
        &["kill", "OTHER", "KILL"],
    ];
    assert_eq!(asked(&place, &others, "{}\n"), <[String; 0]>::default());

    // A broker that closes the connection without an answer: the command goes on, and says so.
    assert_eq!(asked(&place, &ends[..1], "").len(), 1);
    // A socket that nobody listens at.
    drop(UnixListener::bind(place.at("state/broker.sock")).unwrap());
    let output = place.run(&["kill", "ID", "KILL"]);
    assert_eq!(output.status.code(), Some(EXECUTED));
    assert!(
        said(&output).contains("the MPS clients were not ended"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_container_without_mps_is_not_drained() {
    let Some((place, _init)) = holding("a_container_without_mps_is_not_drained", "1/10") else {
        return;
    };
    assert_eq!(
        asked(&place, &[&["kill", "ID", "KILL"]], "{}\n"),
        <[String; 0]>::default()
    );
}

/// A ledger that cannot be read must not keep a container alive.
#[test]
fn a_damaged_ledger_does_not_prevent_the_end() {
    let Some((place, _init)) = holding("a_damaged_ledger_does_not_prevent_the_end", "mps:7000:30") else {
        return;
    };
    fs::remove_dir_all(place.at("state/ledger")).unwrap();
    fs::write(place.at("state/ledger"), "not a directory").unwrap();
    let _listener = UnixListener::bind(place.at("state/broker.sock")).unwrap();
    for command in [
        &["kill", "ID", "KILL"][..],
        &["delete", "--force", "ID"],
        &["state", "ID"],
    ] {
        assert_eq!(place.run(command).status.code(), Some(EXECUTED));
    }
}
