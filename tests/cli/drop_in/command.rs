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
    // Whoever means the policy is told where its option belongs: a policy that is not read is a promise that is not kept.
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
    assert!(ctk(&["--version"]).out.starts_with("tranche-oci "));
    let said = ctk(&["config", "default"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{}", said.err);
}
