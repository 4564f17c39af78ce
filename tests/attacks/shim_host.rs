//! A `host.json` that is not what it should be, and a search for programs in places that others can write.

use std::fs;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use crate::shim::{EXECUTED, Shim, asking};
use crate::shim_ended::{not_started, refused, twin};
use crate::trial::Attack;

/// Nobody may wait for the other end of a FIFO: without a usable file, a command takes the default runtimes, and a
/// container that asks for something does not start.
#[test]
fn a_host_file_that_is_no_file() {
    Attack::new(
        "shim_host::a_host_file_that_is_no_file",
        "host.json is a FIFO, a directory, a device without an end or a link to one",
    )
    .run_one_way(|trial| {
        twin(trial);
        for kind in ["fifo", "directory", "zero", "loop"] {
            for command in [&["create", "--bundle", "bundle", "ID"][..], &["no-such-command"]] {
                let shim = Shim::new();
                let host = shim.at("state/host.json");
                fs::remove_file(&host).unwrap();
                match kind {
                    "fifo" => mkfifo(&host, Mode::S_IRWXU).unwrap(),
                    "directory" => fs::create_dir(&host).unwrap(),
                    "zero" => std::os::unix::fs::symlink("/dev/zero", &host).unwrap(),
                    _ => std::os::unix::fs::symlink("host.json", &host).unwrap(),
                }
                let before = fs::read(shim.config()).unwrap();
                let mut ended = shim.run(command);
                // The default runtimes, if they are installed, print what they want about an unknown command.
                if command.len() == 1 {
                    ended
                        .wrong
                        .retain(|wrong| !wrong.contains("a line of") && !wrong.contains("exit code"));
                    ended.wrong.extend((ended.code == -1).then(|| "it hangs".to_owned()));
                } else if fs::read(shim.config()).unwrap() != before {
                    ended.wrong.push("config.json was changed".to_owned());
                }
                trial.record(&format!("{kind} {}", command[0]), &ended);
            }
        }
    });
}

/// It names programs that root executes.
#[test]
fn a_host_file_of_another_user() {
    if !crate::owns_machine("shim_host::a_host_file_of_another_user") {
        return;
    }
    Attack::new(
        "shim_host::a_host_file_of_another_user",
        "host.json, or the directory with it, belongs to another user or may be written by others",
    )
    .run_one_way(|trial| {
        twin(trial);
        for how in ["0666", "0664", "owner", "directory 0777", "directory of another"] {
            let shim = Shim::new();
            match how {
                "0666" => shim.mode("state/host.json", 0o666),
                "0664" => shim.mode("state/host.json", 0o664),
                "owner" => std::os::unix::fs::chown(shim.at("state/host.json"), Some(1234), None).unwrap(),
                "directory 0777" => shim.mode("state", 0o777),
                _ => std::os::unix::fs::chown(shim.at("state"), Some(1234), None).unwrap(),
            }
            let mut ended = shim.create();
            if ended.code == EXECUTED {
                ended
                    .wrong
                    .push(format!("{how}: the runtime that it names was executed"));
            }
            trial.record(how, &ended);
        }
    });
}

/// Of another version, for another boot, cut off, or with fields that nobody knows.
#[test]
fn a_host_file_that_does_not_describe_this_host() {
    Attack::new(
        "shim_host::a_host_file_that_does_not_describe_this_host",
        "host.json is missing, cut off, of another version or out of date, and cannot be written again",
    )
    .run_one_way(|trial| {
        twin(trial);
        let boot = json!({"kind": "boot", "path": "/proc/sys/kernel/random/boot_id", "state": {"text": "another"}});
        for how in ["missing", "empty", "cut", "version", "program", "stale", "field"] {
            let shim = Shim::new();
            let mut host = shim.host();
            match how {
                "version" => host["version"] = json!(999),
                "program" => host["program"] = json!("0.0.0-other"),
                "stale" => host["sources"] = json!([boot]),
                "field" => host["unknown"] = json!({"a": 1}),
                _ => {}
            }
            let text = match how {
                "empty" => String::new(),
                "cut" => host.to_string()[..2000].to_owned(),
                _ => host.to_string(),
            };
            fs::write(shim.at("state/host.json"), text).unwrap();
            if how == "missing" {
                fs::remove_file(shim.at("state/host.json")).unwrap();
            }
            // There is no program beside the shim that could write it again.
            let before = fs::read(shim.config()).unwrap();
            let mut ended = shim.create();
            if ended.code == EXECUTED {
                ended.wrong.push("the container started".to_owned());
            }
            if fs::read(shim.config()).unwrap() != before {
                ended.wrong.push("config.json was changed".to_owned());
            }
            trial.record(how, &ended);
        }
    });
}

/// The engine's environment and current directory name programs and libraries.
#[test]
fn programs_of_the_environment() {
    Attack::new(
        "shim_host::programs_of_the_environment",
        "PATH, TMPDIR and the current directory lead to programs that are called runc, crun and tranche",
    )
    .run_one_way(|trial| {
        twin(trial);
        for stale in [false, true] {
            let mut shim = Shim::new();
            fs::create_dir(shim.at("trap")).unwrap();
            for name in [
                "runc",
                "crun",
                "tranche",
                "tranche-oci",
                "sh",
                "trap/runc",
                "trap/tranche",
                "trap/crun",
            ] {
                let text = format!(
                    "#!/bin/sh\necho \"$0\" >> {}\nexit 7\n",
                    shim.at("outside/run").display()
                );
                shim.program(name, &text);
            }
            let trap = format!(".:{}:/usr/bin:/bin", shim.at("trap").display());
            for name in [
                "PATH",
                "TMPDIR",
                "HOME",
                "XDG_RUNTIME_DIR",
                "TRANCHE_RUNTIME",
                "TRANCHE_STATE_DIR",
                "CDI_SPEC_DIRS",
            ] {
                shim.environment.push((name.into(), trap.clone().into()));
            }
            if stale {
                fs::write(shim.at("state/host.json"), "{").unwrap();
            }
            let mut ended = shim.create();
            if !stale {
                let wrong = not_started(&shim, &ended);
                ended.wrong.extend(wrong);
            } else if ended.code == EXECUTED {
                ended.wrong.push("the container started".to_owned());
            }
            trial.record(if stale { "with a refresh" } else { "a start" }, &ended);
        }
    });
}

/// It is refused, and stays as it is.
#[test]
fn a_configuration_that_is_deep_or_large() {
    Attack::new(
        "shim_host::a_configuration_that_is_deep_or_large",
        "config.json asks for a share and is nested without end, cut off, or has a key twice",
    )
    .run_one_way(|trial| {
        twin(trial);
        let whole = asking(&["NVIDIA_VISIBLE_DEVICES=0.any"]).to_string();
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let with = |value: &str| format!("{},\"x\":{value}}}", &whole[..whole.len() - 1]);
        for (name, text) in [
            ("deep", with(&deep)),
            ("cut", whole[..whole.len() - 1].to_owned()),
            ("twice", with("1,\"process\":{}")),
            ("zero bytes", format!("{whole}\0\0\0")),
        ] {
            let shim = Shim::new();
            fs::write(shim.config(), &text).unwrap();
            let mut ended = shim.create();
            if fs::read_to_string(shim.config()).unwrap() != text {
                ended.wrong.push("config.json was changed".to_owned());
            }
            ended.wrong.extend(refused(&ended));
            trial.record(name, &ended);
        }
    });
}
