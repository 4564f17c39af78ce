//! What it refuses, in one line each.

use crate::machine::{MS, Machine, now};
use std::fs;
use std::process::{Command, Stdio};

use crate::verify_program;

/// Runs it without any GPU. Returns the exit code and the line.
fn refused(arguments: &str) -> (Option<i32>, String) {
    let mut command = Command::new(verify_program::load());
    let command = command
        .args(arguments.split_whitespace())
        .env_clear()
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.stdout, b"", "{arguments}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, expected) in [
        ("", "a role is missing; --help lists them"),
        ("sing", "sing: not a role; --help lists roles and options"),
        (
            "serve",
            "--fma: this role needs it; calibrate finds the number; --help lists roles and options",
        ),
        (
            "serve --fma 0",
            "0: not a number that this option takes; --help lists roles and options",
        ),
        (
            "serve --fma -1",
            "-1: not a number that this option takes; --help lists roles and options",
        ),
        (
            "batch --fma 1e3",
            "1e3: not a number that this option takes; --help lists roles and options",
        ),
        (
            "hog-l2 --bytes",
            "--bytes: a number is missing; --help lists roles and options",
        ),
        (
            "hog-l2 --bytes 0",
            "0: not a number that this option takes; --help lists roles and options",
        ),
        (
            "hog-l2 --bytes 99999999999999999999",
            "99999999999999999999: not a number that this option takes; --help lists roles and options",
        ),
        (
            "fault --kind sigkill",
            "sigkill: not a kind of fault: trap or address; --help lists roles and options",
        ),
        (
            "probe --fma 3",
            "--fma: this role does not take it; --help lists roles and options",
        ),
        (
            "probe --no\u{1b}[31m",
            "--no\\u001b[31m: not an option; --help lists roles and options",
        ),
        (
            "calibrate --deadline 0",
            "0: not a number that this option takes; --help lists roles and options",
        ),
    ] {
        assert_eq!(refused(arguments), (Some(2), format!("tranche-load: {expected}\n")));
    }
    let long = refused(&"x".repeat(2000));
    assert_eq!((long.0, long.1.lines().count()), (Some(2), 1));
}

#[test]
fn a_machine_that_cannot_do_it_is_named() {
    let (code, line) = refused("probe");
    assert_eq!(code, Some(1));
    let expected = "tranche-load: CUDA's library cannot be loaded: libcuda.so.1: cannot open shared object file";
    assert!(line.starts_with(expected), "{line}");
    assert_eq!(line.lines().count(), 1);
    type Change = fn(&mut serde_json::Value);
    let cases: [(Change, &str, Option<i32>); 5] = [
        (
            |config| config["version"] = 10_000.into(),
            "the driver is too old for the kernels: it supports CUDA 10.0, and CUDA 10.1 is needed (driver 418 or later)",
            None,
        ),
        (
            |config| config["gpus"] = serde_json::json!([]),
            "there is no device: cuInit returned 100; give the container a GPU",
            Some(100),
        ),
        (
            |config| config["gpus"][0]["used_mib"] = 4090.into(),
            "the device has no memory left: 16777216 bytes are needed and 5242880 are free; stop another process, or \
             give a smaller --bytes",
            Some(2),
        ),
        (
            |config| config["module"] = 222.into(),
            "the driver is too old for the kernels, which need CUDA 10.1: cuModuleLoadDataEx returned 222",
            Some(222),
        ),
        (
            |config| config["gpus"][0]["exclusive"] = true.into(),
            "cuDevicePrimaryCtxRetain returned CUDA_ERROR_DEVICE_UNAVAILABLE (46)",
            Some(46),
        ),
    ];
    for (change, expected, code) in cases {
        let ended = Machine::with(change).start("serve --fma 5").finish();
        assert_eq!(ended.code, Some(1));
        assert_eq!(ended.error, format!("tranche-load: {expected}\n"));
        let codes: Vec<i64> = ended
            .events
            .iter()
            .map(|event| event["code"].as_i64().unwrap())
            .collect();
        assert_eq!(
            codes,
            code.map(i64::from).into_iter().collect::<Vec<_>>(),
            "{:?}",
            ended.events
        );
        assert!(ended.events.iter().all(|event| event["event"] == "error"));
    }
    let machine = Machine::new();
    let library = machine.top.path().join("libcuda.so.1");
    fs::remove_file(&library).unwrap();
    crate::support::fake_host::fake_library::CUDA
        .install(&library, &["cuLaunchKernel"])
        .unwrap();
    let ended = machine.start("probe").finish();
    assert_eq!(
        ended.error,
        "tranche-load: cuLaunchKernel is not in this libcuda.so.1; driver 418 or later has it\n"
    );
}

#[test]
fn wrong_lines_are_named_by_their_number() {
    let machine = Machine::new();
    let (begin, end) = (now(), now() + 200 * MS);
    let many: String = (0..=200_000).map(|at| format!("at {at}\n")).collect();
    let long = "x".repeat(500);
    for (role, lines, expected) in [
        (
            "serve",
            "at 5\nat 4\n",
            "line 2 of the input: the offset is before the one in the line above",
        ),
        (
            "serve",
            "at\n",
            "line 1 of the input: neither at OFFSET nor start BEGIN END",
        ),
        (
            "serve",
            "at x\n",
            "line 1 of the input: at takes an offset in nanoseconds",
        ),
        (
            "serve",
            "at 1\n\n",
            "line 2 of the input: neither at OFFSET nor start BEGIN END",
        ),
        (
            "serve",
            many.as_str(),
            "line 200001 of the input: too many at lines: at most 200000 are taken",
        ),
        ("batch", "at 1\n", "line 1 of the input: only serve takes at"),
        (
            "batch",
            "start 9 9\n",
            "line 1 of the input: start takes two times in nanoseconds, the earlier one first",
        ),
        (
            "batch",
            "start 9 -9\n",
            "line 1 of the input: start takes two times in nanoseconds, the earlier one first",
        ),
        (
            "batch",
            "start 9\n",
            "line 1 of the input: neither at OFFSET nor start BEGIN END",
        ),
        (
            "batch",
            long.as_str(),
            "line 1 of the input: longer than any line that is taken",
        ),
        (
            "batch",
            &format!("start {begin} {end}\nmore\n"),
            "line 2 of the input: no line is expected here",
        ),
    ] {
        let mut load = machine.start(&format!("{role} --fma 100"));
        load.ready();
        load.say(lines);
        let ended = load.finish();
        assert_eq!(
            (ended.code, ended.error),
            (Some(2), format!("tranche-load: {expected}\n")),
            "{lines:.40}"
        );
        assert!(ended.events.is_empty());
    }
    // As many as are taken, and the first of them are served.
    let mut load = machine.start("serve --fma 100 --bytes 0");
    load.ready();
    load.say(many.strip_suffix("at 200000\n").unwrap());
    load.say(&format!("start {} {}\n", now(), now() + 100 * MS));
    let ended = load.finish();
    assert_eq!(ended.complete().len(), 200_000);
    assert_eq!(ended.events[199_999]["event"], "late");
}
