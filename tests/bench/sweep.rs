//! The search for the best split.

use crate::bed::{Bed, Said, alone};
use crate::support::{skip, until};
use crate::verify_program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// `tranche bench sweep 0` with runs of so many seconds.
fn sweep(bed: &Bed, seconds: u32, arguments: &[&str]) -> Command {
    let load = Some(bed.at("tranche-load")).filter(|copy| copy.exists());
    let load = load.unwrap_or_else(verify_program::load);
    let (load, seconds) = (load.to_str().unwrap(), seconds.to_string());
    let all = ["bench", "sweep", "0", "--seconds", &seconds, "--load-program", load];
    let mut command = bed.command(&[&all, arguments].concat());
    command.current_dir("/");
    command
}

fn said(bed: &Bed, arguments: &[&str]) -> Said {
    sweep(bed, 1, arguments).output().unwrap().into()
}

/// A machine whose MPS daemons a user can reach, and the user.
fn for_a_user() -> (Bed, &'static str) {
    let bed = Bed::new();
    fs::set_permissions(bed.top.path(), Permissions::from_mode(0o755)).unwrap();
    // The GPU of the simulation is a file, and the directory of the build may be closed for others.
    fs::write(bed.at("gpu"), "").unwrap();
    fs::set_permissions(bed.at("gpu"), Permissions::from_mode(0o666)).unwrap();
    fs::copy(verify_program::load(), bed.at("tranche-load")).unwrap();
    (bed, "--user=nobody")
}

/// Whether this is root, who alone can run commands as another user.
fn is_root(test: &str) -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        skip::not_run(test, "not root");
    }
    is_root
}

/// A command that works as `nobody` in a share under MPS, and prints `line`. It leaves a process of the group, and one
/// of another session, that only `mark` tells from others. Alone, its percentage is 100.
fn command(line: &str, mark: &str) -> String {
    format!(
        "[ $(id -u) = 65534 ] || {{ echo I am $(id -u); exit 3; }}
         part=${{CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-100}}
         [ $part = 100 ] || [ -S $CUDA_MPS_PIPE_DIRECTORY/control ] || {{ echo no daemon; exit 4; }}
         sleep {mark} & setsid sleep {mark} &
         while :; do echo step {line} done; sleep 0.1; done"
    )
}

/// How many processes have this word in their command line.
fn running(mark: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()))
        .count()
}

#[test]
fn own_roles_find_the_split_that_the_simulation_has() {
    alone(|| {
        let bed = Bed::new();
        let said = said(&bed, &["--bound=26", "--json"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let found: Value = serde_json::from_str(&said.out).unwrap();
        // Half of the GPU cannot serve half of what all of it can; these requests take about 23 ms
        // at 80 %, and 29 ms at 70 %.
        let best = found["best"].as_str().unwrap();
        assert!(["70/30", "80/20", "90/10"].contains(&best), "{found:#}");
        let half = &found["splits"][0];
        assert!(half["split"] == "50/50" && half["is_within"] == false, "{found:#}");
        // What remains is the second's.
        let rate = |split: &Value| split["rate"]["median"].as_f64().unwrap();
        let last = found["splits"].as_array().unwrap().last().unwrap();
        assert!(rate(half) > 1.5 * rate(last), "{found:#}");
        assert!(said.err.contains("50/50: at most 12 runs left, 1:00"), "{said:?}");
        bed.assert_as_it_was();
    });
}

#[test]
fn commands_of_a_user_find_theirs_and_are_gone_afterwards() {
    alone(|| {
        if !is_root("sweep::commands_of_a_user_find_theirs_and_are_gone_afterwards") {
            return;
        }
        let (bed, user) = for_a_user();
        let mark = "86398.7531";
        let first = command("latency_ms=$((1000 / part + 3))", mark);
        let second = command("rate=$part", mark);
        let said = said(&bed, &[user, "--first", &first, "--second", &second, "--json"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let found: Value = serde_json::from_str(&said.out).unwrap();
        // Without a bound, it is twice the latency alone.
        assert_eq!((&found["alone_ms"], &found["bound_ms"]), (&13.0.into(), &26.0.into()));
        assert_eq!(found["best"], "50/50", "{found:#}");
        let splits = found["splits"].as_array().unwrap();
        for split in splits {
            let (first, second) = split["split"].as_str().unwrap().split_once('/').unwrap();
            let number = |text: &str| text.parse::<f64>().unwrap();
            assert_eq!(
                split["latency_ms"]["median"],
                (1000.0 / number(first)).floor() + 3.0,
                "{split}"
            );
            assert_eq!(split["rate"]["median"], number(second), "{split}");
        }
        assert_eq!(running(mark), 0);
        bed.assert_as_it_was();
    });
}

#[test]
fn a_search_that_is_killed_leaves_no_command() {
    if !is_root("sweep::a_search_that_is_killed_leaves_no_command") {
        return;
    }
    let (bed, user) = for_a_user();
    for (signal, mark) in [(Signal::SIGINT, "86398.7532"), (Signal::SIGKILL, "86398.7533")] {
        let first = command("latency_ms=1", mark);
        let mut command = sweep(&bed, 60, &["--bound=15", user, "--first", &first]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the command runs", || running(mark) > 1);
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let said: Said = child.wait_with_output().unwrap().into();
        assert!(
            signal == Signal::SIGKILL || said.err.contains("was ended; nothing was written"),
            "{said:?}"
        );
        until("the command is gone", || running(mark) == 0);
        until("the guard puts back", || !bed.at("state/bench").exists());
        bed.assert_as_it_was();
    }
}

#[test]
fn what_goes_wrong_costs_one_line() {
    if !is_root("sweep::what_goes_wrong_costs_one_line") {
        return;
    }
    let (bed, user) = for_a_user();
    let works = "while :; do echo latency_ms=50 rate=1; sleep 0.1; done";
    for (first, second, more, expected) in [
        (
            "sleep 60",
            works,
            "--start-within=1",
            "the first command: printed no latency_ms for 1 s",
        ),
        (
            "echo out of memory >&2; exit 3",
            works,
            "--step=5",
            "has ended (exit status: 3); its last line: out of memory",
        ),
        (
            works,
            "sleep 60",
            "--start-within=1",
            "the second command: printed no rate for 1 s",
        ),
        (
            works,
            "echo rate=1; sleep 0.5",
            "--step=5",
            "the second command: has ended (exit status: 0)",
        ),
        (works, works, "--latency-pattern=ms", "has 0 groups"),
        (works, works, "--user=no-such-user", "user no-such-user: not found"),
        (works, works, "--user=4000000", "user 4000000: has no account"),
        (works, works, "--step=7", "step 7: expected 5 or 10"),
        (works, works, "--bound=0", "bound 0: expected milliseconds above 0"),
        ("batch", works, "--step=5", "first batch: has no latency"),
        (
            works,
            "greedy",
            "--step=5",
            "second greedy: does no work that has a rate",
        ),
        (works, "serve", "--step=5", "second serve: does no work that has a rate"),
    ] {
        let mut arguments = vec!["--first", first, "--second", second, more];
        for (option, default) in [("--bound", "--bound=15"), ("--user", user)] {
            if !more.starts_with(option) {
                arguments.push(default);
            }
        }
        let said = said(&bed, &arguments);
        let errors: Vec<&str> = said.err.lines().filter(|line| !is_progress(line)).collect();
        assert!(
            said.code != Some(0) && errors.len() == 1 && errors[0].contains(expected) && said.out.is_empty(),
            "{arguments:?}: {said:?}"
        );
        bed.assert_as_it_was();
    }
    let said = said(&bed, &["--bound=15", "--first", works]);
    let expected = "command: runs as a user, who is not named; say --user NAME";
    assert!(said.err.contains(expected), "{said:?}");
}

/// Whether a line says what is measured.
fn is_progress(line: &str) -> bool {
    line.contains("left, ")
        || ["calibration", "the first alone"]
            .iter()
            .any(|what| line.ends_with(what))
}

#[test]
fn a_bound_that_no_split_keeps_is_said() {
    if !is_root("sweep::a_bound_that_no_split_keeps_is_said") {
        return;
    }
    let (bed, user) = for_a_user();
    let first = command("latency_ms=50", "86398.7534");
    let said = said(&bed, &["--bound=15", user, "--first", &first, "--second=hog-sm"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let expected = "no split keeps the first within 15 ms: at 90/10 it takes 50.00 ms\n";
    assert!(said.out.ends_with(expected), "{}", said.out);
    bed.assert_as_it_was();
}

#[test]
fn a_device_without_mps_is_refused_in_one_line() {
    let bed = Bed::new();
    bed.host
        .nvml(|config| config["gpus"][0]["architecture"] = "pascal".into())
        .unwrap();
    let said = said(&bed, &[]);
    assert!(
        said.code != Some(0) && said.err.lines().count() == 1 && said.err.contains("MPS has no limits before Volta"),
        "{said:?}"
    );
    assert!(!bed.at("state/bench/state").exists());
}
