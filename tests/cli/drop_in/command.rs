//! The options of the program, and the name that scripts call it by.

use super::*;

#[test]
fn options_of_the_program_may_come_before_the_command_and_after_it() {
    let plain = generate("t4x2", &[]);
    for first in ["--quiet", "-q", "--debug", "-d"] {
        let command = ["cdi", "generate", "--format=json", "--inventory=sim:t4x2"];
        for arguments in [[&[first], &command[..]].concat(), [&command[..], &[first]].concat()] {
            let said = tranche(&[], &arguments);
            assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
            assert_eq!(said.out, plain.out, "{arguments:?}");
        }
    }
    // Quiet leaves out what is not an error, and wins over debug, as in NVIDIA's tool.
    let noisy = ["cdi", "generate", "--inventory=sim:t4x2", "--feature-flag=unheard-of"];
    assert!(tranche(&[], &noisy).err.contains("unheard-of"));
    for quiet in [&["--quiet"][..], &["-d", "-q"]] {
        assert_eq!(tranche(&[], &[quiet, &noisy].concat()).err, "", "{quiet:?}");
    }
    assert_eq!(tranche(&[("NVIDIA_CTK_QUIET", "true")], &noisy).err, "");
    // An error is said all the same.
    let wrong = tranche(
        &[],
        &["-q", "cdi", "generate", "--inventory=sim:t4x2", "--device-id=99"],
    );
    assert_eq!((wrong.code, wrong.err.lines().count()), (Some(2), 1), "{}", wrong.err);
}

#[test]
fn debug_tells_more() {
    let Some((_directory, host)) = host("debug_tells_more", "t4x2-old-driver") else {
        return;
    };
    let root = format!("--root={}", host.root.display());
    let command = ["cdi", "generate", &root];
    let plain = tranche(&[], &command).err;
    assert!(!plain.contains("libnvidia-nscq.so"), "{plain}");
    for debug in ["--debug", "-d"] {
        let more = tranche(&[], &[&[debug], &command[..]].concat()).err;
        assert!(more.contains("libnvidia-nscq.so"), "{more}");
    }
    assert!(
        tranche(&[("NVIDIA_CTK_DEBUG", "true")], &command)
            .err
            .contains("libnvidia-nscq.so")
    );
}

#[test]
fn a_configuration_of_nvidia_s_tool_is_accepted_with_a_warning_and_a_policy_is_not_lost() {
    for option in ["--config", "-c"] {
        let file = "/etc/nvidia-container-runtime/config.toml";
        let said = tranche(&[], &[option, file, "cdi", "generate", "--inventory=sim:t4x2"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(
            said.err.contains(file) && said.err.contains("--driver-root"),
            "{}",
            said.err
        );
    }
    // If the file is a policy of tranche, the message names the command that reads it. A policy that is silently
    // ignored would be a promise that is not kept.
    let said = tranche(
        &[],
        &["--config", "policy.yaml", "cdi", "generate", "--inventory=sim:t4x2"],
    );
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
    assert!(said.err.contains("after the command"), "{}", said.err);
}

/// The name with which scripts call NVIDIA's tool, as a link to `tranche-oci`.
#[test]
fn nvidia_ctk_is_a_link_and_takes_commands_for_both_programs() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("nvidia-ctk");
    symlink(env!("CARGO_BIN_EXE_tranche-oci"), &link).unwrap();
    let ctk = |arguments: &[&str]| {
        let output = Command::new(&link)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Said {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    };
    let wanted = generate("t4x2", &[]);
    let command = ["cdi", "generate", "--format=json", "--inventory=sim:t4x2"];
    for said in [
        ctk(&command),
        ctk(&[&["--quiet"], &command[..]].concat()),
        ctk(&[&command[..], &["--quiet"]].concat()),
        ctk(&[
            &["-d", "--config", "/etc/nvidia-container-runtime/config.toml"],
            &command[..],
        ]
        .concat()),
    ] {
        assert_eq!(
            (said.code, said.out.as_str()),
            (Some(0), wanted.out.as_str()),
            "{}",
            said.err
        );
    }
    assert_eq!(
        ctk(&["cdi", "generate", "--inventory=sim:t4x2", "--device-id=99"]).code,
        Some(2)
    );
    // Hooks, with the same options before them: the value of one is not the command.
    for options in [&["--quiet"][..], &["--config", "cdi"], &["-c", "/x"]] {
        let said = ctk(&[options, &["hook", "noop"]].concat());
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{options:?}");
    }
    // The form that scripts parse, and the program that answers.
    let version = "NVIDIA Container Toolkit CLI version 1.20.0\ncommit: tranche-oci 0.";
    assert!(ctk(&["--version"]).out.starts_with(version));
    // What tranche does not have names what takes its place.
    let said = ctk(&["config", "default"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{}", said.err);
    assert!(said.err.contains("/etc/tranche/config.yaml"), "{}", said.err);
    // What NVIDIA's program answers with its help or with nothing ends with 0.
    for words in [
        &[][..],
        &["help"],
        &["help", "cdi"],
        &["info"],
        &["hook", "--help"],
        &["cdi"],
        &["cdi", "transform"],
        &["runtime"],
        &["system"],
        &["completion", "bash"],
    ] {
        let said = ctk(words);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{words:?}");
        assert!(!said.out.is_empty(), "{words:?}");
    }
    let said = ctk(&["hook"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(0), 1), "{}", said.err);
}

#[test]
fn of_an_option_that_is_given_twice_the_last_one_counts_as_in_nvidia_s_tool() {
    let twice = generate(
        "t4x2",
        &[
            "--vendor=first.com",
            "--vendor=vendor.com",
            "--format=yaml",
            "--format=json",
        ],
    );
    assert_eq!(twice.spec()["kind"], "vendor.com/gpu");
    let list = tranche(&[], &["cdi", "list", "--json", "--json", "--spec-dir=/nowhere"]);
    assert_eq!(list.code, Some(0), "{}", list.err);
    let configure = [
        "runtime",
        "configure",
        "--runtime=crio",
        "--runtime=docker",
        "--dry-run",
        "--dry-run",
    ];
    let missing = ["--config=/first", "--config=/nowhere/daemon.json"];
    let said = tranche(&[], &[&configure[..], &missing].concat());
    assert!(!said.err.contains("multiple times"), "{}", said.err);
    // Elsewhere, it is a mistake.
    let said = tranche(&[], &["list", "--inventory=sim:t4x2", "--inventory=sim:t4x2"]);
    assert_eq!(said.code, Some(2), "{}", said.out);
}

#[test]
fn modules_are_not_loaded_in_a_dry_run_so_modprobe_need_not_be_there() {
    let said = tranche(
        &[],
        &["system", "create-device-nodes", "--load-kernel-modules", "--dry-run"],
    );
    assert!(said.err.contains("/modprobe nvidia-uvm"), "{}", said.err);
    assert!(!said.err.contains("modprobe: not found"), "{}", said.err);
}

#[test]
fn each_file_with_the_same_devices_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let all = generate("t4x2", &[]).spec();
    for (file, device) in [("a.json", 0), ("b.json", 1)] {
        let mut one = all.clone();
        one["devices"] = serde_json::json!([all["devices"][device]]);
        fs::write(directory.path().join(file), one.to_string()).unwrap();
    }
    let output = format!("--output={}", directory.path().join("nvidia.yaml").display());
    // As a directory that engines read: elsewhere, files do not affect each other.
    let read = [("TRANCHE_SPEC_DIR", directory.path().to_str().unwrap())];
    let said = tranche(&read, &["cdi", "generate", "--inventory=sim:t4x2", &output]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    for file in ["a.json", "b.json"] {
        assert!(said.err.lines().any(|line| line.contains(file)), "{file}: {}", said.err);
    }
}
