use super::*;

fn parse(line: &str) -> RuntimeArguments {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    RuntimeArguments::parse(&words)
}

fn bundle(line: &str) -> (Option<String>, Option<String>) {
    match parse(line).action {
        Action::Create(Start { bundle, id, .. }) => (bundle.map(|path| path.display().to_string()), Some(id)),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_bundle_is_found_in_every_form() {
    let expected = || (Some("/b".to_owned()), Some("ID".to_owned()));
    for line in [
        // As podman, docker, containerd and CRI-O write it.
        "create --bundle /b --pid-file /p ID",
        "--log-format=json --log /l create --bundle /b --pid-file /p --console-socket /s ID",
        "--root /var/run/docker/runtime-runc/moby --log /b/log.json --log-format json create --bundle /b --pid-file /p ID",
        "--root /r --log /l --log-format json --systemd-cgroup create --bundle /b --pid-file /p --no-new-keyring ID",
        "--root=/r --systemd-cgroup --cgroup-manager systemd --log-level debug run --detach --bundle /b ID",
        "--rootless true --criu /criu --debug create -b /b ID",
        // As both runtimes read it.
        "create --bundle=/b ID",
        "create -b=/b ID",
        "create -bundle /b ID",
        "-root /r -debug create -bundle=/b ID",
        "--debug=true --root=create create --bundle /b ID",
        "run -db /b ID",
        "run -d -b/b ID",
        "create --bund /b ID",
        "create --bundle /x --bundle /b ID",
        "create --bundle /b -- ID",
        // With options that no version of today has.
        "--future create --bundle /b ID",
        "--future value create --bundle /b ID",
        "--future=value create --bundle /b ID",
        "-x value create --bundle /b ID",
        "create --future value --bundle /b ID",
        "create --future --bundle /b ID",
        "create --bundle /b --future ID",
        "run -dx --bundle /b ID",
        // Behind the id, where runc reads options too.
        "create ID --bundle /b",
        "create --pid-file /p ID -b /b",
        "run ID -d --bundle=/b",
        "create ID --future --bundle /b",
        "create --future ID --bundle /b",
        // Values that look like something else.
        "--root create create --pid-file --bundle --bundle /b ID",
        "--log run create --console-socket exec --bundle /b ID",
    ] {
        assert_eq!(bundle(line), expected(), "{line}");
    }
    assert_eq!(bundle("create ID"), (None, Some("ID".to_owned())));
    assert_eq!(bundle("run -- ID --bundle /b"), (None, Some("ID".to_owned())));
}

#[test]
fn a_name_that_is_not_valid_utf8_is_kept() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(b"/b\xff".to_vec());
    for words in [
        vec![OsString::from("--bundle"), odd.clone()],
        vec![OsString::from_vec(b"--bundle=/b\xff".to_vec())],
    ] {
        let words: Vec<OsString> = [vec!["create".into()], words, vec!["ID".into()]].concat();
        let Action::Create(Start { bundle, .. }) = RuntimeArguments::parse(&words).action else {
            panic!()
        };
        assert_eq!(bundle.unwrap().into_os_string(), odd);
    }
}

#[test]
fn options_of_the_runtime_as_a_whole() {
    let seen = parse("--root /r --log=/l --log-format json state ID");
    assert_eq!(seen.root, Some("/r".into()));
    assert_eq!((seen.log, seen.json_log), (Some("/l".into()), true));
    assert_eq!((seen.name.as_deref(), seen.action), (Some("state"), Action::Pass));
    assert!(!parse("--log-format text state ID").json_log);
    for version in ["--version", "-v", "-V", "-version", "--root /r --version"] {
        assert!(parse(version).version, "{version}");
    }
    // An option of the command, and a container's argument.
    assert!(!parse("exec ID prog --version").version);
    assert_eq!(parse("").action, Action::Pass);
}

#[test]
fn the_bundle_of_a_restored_container_is_found() {
    for line in [
        "restore --bundle /b ID",
        "--root /r restore -d --image-path /i --tcp-established --pid-file /p --bundle=/b --empty-ns network ID",
        "restore ID -b /b",
        "restore --manage-cgroups-mode soft --lsm-profile x -b /b --file-locks --work-path /w ID",
    ] {
        let expected = Action::Restore {
            bundle: Some("/b".into()),
            id: "ID".into(),
            unknown: Vec::new(),
        };
        assert_eq!(parse(line).action, expected, "{line}");
    }
}

#[test]
fn every_other_command_passes() {
    for line in [
        "start ID",
        "state create",
        "list -f json",
        "checkpoint --image-path run ID",
        "new-command --bundle /b ID",
        "--future value new-command create",
        "--future create ID",
        "help create",
        "kill ID",
        "kill ID TERM",
        "kill ID 15",
        "kill --all ID SIGTERM",
        "kill ID 99",
        "delete ID",
        "delete --force=false ID",
        "create",
        "create --bundle /b",
        "create --help",
        "run -h ID",
        "restore --help ID",
        "restore",
        "exec --help ID sh",
        "delete --force --help ID",
    ] {
        let seen = parse(line).action;
        match line {
            "--future create ID" => assert!(matches!(seen, Action::Create { .. }), "{line}"),
            _ => assert_eq!(seen, Action::Pass, "{line}"),
        }
    }
}

#[test]
fn an_end_without_notice_is_recognized() {
    for line in [
        "kill ID KILL",
        "kill ID SIGKILL",
        "kill ID kill",
        "kill ID 9",
        "kill --all ID 9",
        "kill -a ID KILL",
        "--root /r kill --future=x ID KILL",
        "delete --force ID",
        "delete -f ID",
        "delete --force=true ID",
        "--root /r --log /l delete --force ID",
        "delete ID --force",
        "delete ID -f",
        "kill ID KILL --all",
        "kill ID --future KILL",
        "kill --future x ID KILL",
    ] {
        assert_eq!(parse(line).action, Action::End { id: "ID".into() }, "{line}");
    }
    assert_eq!(parse("delete -- ID --force").action, Action::Pass);
    assert_eq!(parse("delete --force").action, Action::Pass);
}

#[test]
fn a_process_is_found_in_its_file_or_in_the_arguments() {
    let exec = |line: &str| match parse(line).action {
        Action::Exec(exec) => exec,
        other => panic!("{line}: {other:?}"),
    };
    for line in [
        "exec --process /p ID",
        "exec -p /p ID",
        "exec --process=/p --detach --pid-file /f ID",
        "--root /r --log /l --log-format json exec --process /p --detach --pid-file /f ID",
        "exec --pid-file /f --process /p --tty ID",
        "exec --preserve-fds 2 -tp /p ID",
        "exec --future value --process /p ID",
    ] {
        let seen = exec(line);
        assert_eq!((seen.process, seen.id.as_str()), (Some("/p".into()), "ID"), "{line}");
    }
    // A process's own arguments are not options.
    let seen = exec("exec --env A=1 --cwd / -e B=2 ID prog --process /p -e C=3");
    assert_eq!((seen.process, seen.id.as_str(), seen.at), (None, "ID", 1));
    assert_eq!(seen.env, [(1, 2, "A=1".into()), (5, 2, "B=2".into())]);
    assert_eq!(
        exec("exec -eA=1 --env=B=2 ID prog").env,
        [(1, 1, "A=1".into()), (2, 1, "B=2".into())]
    );
    assert_eq!(parse("exec --tty").action, Action::Pass);
}

#[test]
fn what_an_unknown_option_names_is_kept() {
    for (line, unknown) in [
        ("create --future /v --bundle /b ID", vec!["/v"]),
        ("create --future=/v ID -x", vec!["/v", ""]),
        ("create --bundle /b ID", vec![]),
    ] {
        let Action::Create(start) = parse(line).action else {
            panic!("{line}")
        };
        assert_eq!(start.unknown, unknown, "{line}");
        assert_eq!(start.id, "ID");
    }
}
