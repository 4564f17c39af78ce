//! Claims where something around them is wrong: the daemon, directories, the clock, the disk.

use super::*;

#[test]
fn an_mps_daemon_is_who_listens_and_not_what_it_left() {
    let Some(scene) = Scene::new("an_mps_daemon_is_who_listens_and_not_what_it_left") else {
        return;
    };
    let pipe = scene.top.path().join("pipe");
    fs::create_dir(&pipe).unwrap();
    let control = pipe.join("control");
    let init = Init::new();
    let claim = || {
        let daemon = format!("--daemon={}", pipe.display());
        let arguments = [
            "--device=GPU-11111111",
            "--label=gpu 0",
            "--share=0",
            "--size=mps:7000:10",
            "--of=10",
            &daemon,
        ];
        said(scene.with("claim", &arguments, "/b", "c", init.pid()).output().unwrap())
    };
    let refused = |says: &str| {
        let line = claim().unwrap_err();
        assert!(line.contains(says) && line.contains("tranche plan"), "{line}");
    };
    refused("its MPS daemon was not found");
    fs::write(&control, "").unwrap();
    refused("is not running");
    fs::remove_file(&control).unwrap();
    drop(bound(&control));
    refused("is not running");
    // What a killed daemon leaves, and its number is another process's by now.
    fs::write(
        pipe.join("nvidia-cuda-mps-control.pid"),
        format!("{}\n", std::process::id()),
    )
    .unwrap();
    refused("is not running");
    fs::remove_file(&control).unwrap();
    let daemon = listening(&control);
    let client = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&client, &SocketAddrUnix::new(&control).unwrap()).unwrap();
    // Stopped, or hung: its queue is full, and a client would wait for ever.
    refused("does not answer");
    assert!(scene.books().is_empty());
    drop(accept(&daemon).unwrap());
    claim().unwrap();
    assert_eq!(scene.held(), [("0".to_owned(), "c".to_owned())]);
}

#[test]
fn directories_may_be_named_from_where_one_stands() {
    let Some(scene) = Scene::new("directories_may_be_named_from_where_one_stands") else {
        return;
    };
    let top = scene.top.path();
    let policy = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n";
    fs::write(top.join("policy.yaml"), policy).unwrap();
    fs::create_dir(top.join("cdi")).unwrap();
    let tranche = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        command
            .args(arguments)
            .args(["--state-dir", "state"])
            .env_clear()
            .current_dir(top);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let host = ["--inventory", "sim:t4x2", "--config", "policy.yaml"];
    let claim = [
        "claim",
        "create",
        "--name=one",
        "--shares=3",
        "--of=0",
        "--spec-dir=cdi",
    ];
    tranche(&[&claim[..], &host].concat());
    tranche(&[&["cdi", "generate", "--output=cdi/nvidia.yaml"][..], &host].concat());
    // A hook runs wherever the engine does.
    let claimed = fs::read_to_string(top.join("cdi/nvidia.com-claim_one.yaml")).unwrap();
    let generated = fs::read_to_string(top.join("cdi/nvidia.yaml")).unwrap();
    for (text, option) in [
        (&claimed, "spec-file"),
        (&claimed, "state-dir"),
        (&generated, "state-dir"),
    ] {
        assert!(
            text.contains(&format!("--{option}={}/", top.display())),
            "{option}: {text}"
        );
    }
    tranche(&["claim", "release", "one"]);
    assert!(!top.join("cdi/nvidia.com-claim_one.yaml").exists());
}

#[test]
fn a_number_used_again_and_a_clock_that_jumps() {
    let Some(scene) = Scene::new("a_number_used_again_and_a_clock_that_jumps") else {
        return;
    };
    let (one, two) = (Init::new(), Init::new());
    scene.claim("0", "two", &two).unwrap();
    assert!(scene.claim("0", "one", &one).is_err());

    let process = scene.books()[0].claims[0].process.clone().unwrap();
    let numbers = |start: u64| format!("\t{}\t{start}\t{}\t", process.pid, process.namespace);
    scene.edit(&numbers(process.start), &numbers(1));
    scene
        .claim("0", "one", &one)
        .expect("the number is another process's now");

    let since = scene.books()[0].claims[0].since;
    // Behind it is the time since boot, which no clock changes.
    scene.edit(&format!("\t{since}:"), "\t4102444800:");
    let line = scene.claim("0", "two", &two).unwrap_err();
    assert!(line.contains("since 2100-01-01 00:00:00 UTC"), "{line}");
}

#[test]
fn a_ledger_that_is_not_ours() {
    let Some(scene) = Scene::new("a_ledger_that_is_not_ours") else {
        return;
    };
    let (one, two) = (Init::new(), Init::new());
    scene.claim("0", "one", &one).unwrap();
    let good = fs::read_to_string(scene.file()).unwrap();
    for (bad, says) in [
        (&good[..good.len() / 2], "line 2 is not valid in a ledger"),
        (&good.replace("tranche-ledger 3", "tranche-ledger 7"), "has format 7"),
        ("GPU memory is full\n", "line 1 is not valid in a ledger"),
    ] {
        fs::write(scene.file(), bad).unwrap();
        let line = scene.claim("1", "two", &two).unwrap_err();
        assert!(line.contains(says) && line.contains("GPU-11111111.claims"), "{line}");
        assert_eq!(fs::read_to_string(scene.file()).unwrap(), bad, "nothing is lost");
        // This program is not built without that feature.
        if cfg!(feature = "cli") {
            let status = Command::new(env!("CARGO_BIN_EXE_tranche"))
                .args(["status", "--state-dir"])
                .arg(scene.state_dir())
                .output()
                .unwrap();
            let line = String::from_utf8(status.stderr).unwrap();
            assert!(
                status.status.code() == Some(1) && line.contains(says) && line.lines().count() == 1,
                "{line}"
            );
        }
    }
    fs::write(scene.file(), &good).unwrap();
    scene.claim("1", "two", &two).unwrap();
    std::os::unix::fs::chown(scene.state_dir().join("ledger"), Some(65534), Some(65534)).unwrap();
    let line = scene.claim("2", "three", &two).unwrap_err();
    assert!(line.contains("is not a directory of the user who runs this"), "{line}");
}

/// A hook as a shell runs it.
fn in_shell(scene: &Scene, share: &str, id: &str, init: &Init) -> String {
    let hook = scene.hook("claim", share, "/b", id, init.pid());
    let words = std::iter::once(hook.get_program()).chain(hook.get_args());
    let words: Vec<String> = words.map(|w| format!("'{}'", w.to_str().unwrap())).collect();
    let state = scene.top.path().join(format!("{id}-claim-{}.state", init.pid()));
    format!("{} < '{}'", words.join(" "), state.display())
}

#[test]
fn a_full_disk_and_one_that_is_read_only() {
    let test = "a_full_disk_and_one_that_is_read_only";
    let Some(scene) = Scene::new(test) else { return };
    let init = Init::new();
    let [one, two, three] = ["one", "two", "three"].map(|id| {
        let share = if id == "one" { "0" } else { "1" };
        in_shell(&scene, share, id, &init)
    });
    let dir = scene.state_dir();
    fs::create_dir_all(&dir).unwrap();
    // This program is not built without that feature.
    let status = match cfg!(feature = "cli") {
        true => format!("{} status --state-dir {}", env!("CARGO_BIN_EXE_tranche"), dir.display()),
        false => "true".to_owned(),
    };
    // A hook that has no room to write refuses, and the first container keeps what it has.
    let script = format!(
        "mount -t tmpfs -o size=32k,mode=755 tmpfs {dir} || exit 9
         {one} || exit 1
         dd if=/dev/zero of={dir}/fill bs=4k count=1000 2> /dev/null
         {two} && exit 2
         {status} || exit 3
         rm {dir}/fill
         {two} || exit 4
         mount -o remount,ro {dir} || exit 9
         {three} && exit 5
         {status}",
        dir = dir.display(),
    );
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", &script])
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    if output.status.code() == Some(9) || err.contains("unshare") {
        return skip::not_run(&format!("claims::{test}"), "may not mount");
    }
    assert!(output.status.success(), "{:?}\n{out}\n{err}", output.status);
    if cfg!(feature = "cli") {
        assert_eq!(
            out.lines()
                .filter(|l| l.contains(".0  ") && l.contains(" held "))
                .count(),
            2,
            "status can be asked on both:\n{out}"
        );
        let second = out.lines().filter(|l| l.contains(".1  ") && l.contains(" held "));
        assert_eq!(second.count(), 1, "{out}");
    }
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 2, "{err}");
    assert!(
        lines[0].contains("/ledger/new: cannot be written: No space left on device"),
        "{err}"
    );
    assert!(
        lines[1].contains("/ledger/lock: cannot be opened: Read-only file system"),
        "{err}"
    );
}

/// Runs `script` in a shell in namespaces of its own; `None` if this process may not make them.
fn in_namespaces(options: &[&str], script: &str) -> Option<Output> {
    let mut unshare = Command::new("unshare");
    unshare.args(options);
    let probe = Command::new(unshare.get_program())
        .args(options)
        .arg("true")
        .output()
        .unwrap();
    if !probe.status.success() {
        return None;
    }
    Some(unshare.args(["sh", "-c", script]).output().unwrap())
}

#[test]
fn what_a_readers_own_mounts_show_ends_no_claim_of_another() {
    let test = "what_a_readers_own_mounts_show_ends_no_claim_of_another";
    let Some(scene) = Scene::new(test) else { return };
    let (one, two) = (Init::new(), Init::new());
    scene.claim("0", "one", &one).unwrap();
    let claim = in_shell(&scene, "0", "two", &two);
    let dir = scene.state_dir();
    // This program is not built without that feature.
    let gc = match cfg!(feature = "cli") {
        true => format!(
            "{} claim gc --state-dir {}",
            env!("CARGO_BIN_EXE_tranche"),
            dir.display()
        ),
        false => "true".to_owned(),
    };
    let boot = scene.top.path().join("boot");
    fs::write(&boot, "00000000-0000-0000-0000-000000000000\n").unwrap();
    let empty = scene.top.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let (pid, other) = (one.pid(), two.pid());
    for mounts in [
        // As systemd-nspawn does for its containers.
        format!("mount --bind {} /proc/sys/kernel/random/boot_id", boot.display()),
        format!("mount --bind {} /proc/{pid}", empty.display()),
        format!("mount --bind /proc/{other} /proc/{pid}"),
        format!("mount --bind /proc/{other}/stat /proc/{pid}/stat"),
        format!("mount -t tmpfs tmpfs /proc/{pid}/ns"),
        "mount -t tmpfs tmpfs /proc".to_owned(),
        "mount -t tmpfs tmpfs /sys/fs/cgroup".to_owned(),
    ] {
        let script = format!("{mounts} || exit 9\n{claim} && exit 3\n{gc}\nexit 0");
        let Some(output) = in_namespaces(&["-m", "--propagation", "private"], &script) else {
            return skip::not_run(&format!("claims::{test}"), "may not mount");
        };
        let said = format!("{mounts}: {output:?}");
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(!said.contains("1 claim released"), "{said}");
        assert_eq!(scene.held(), [("0".to_owned(), "one".to_owned())], "{said}");
    }
    drop(one);
    scene.claim("0", "two", &two).expect("who is gone is gone");
}

#[test]
fn a_proc_of_another_pid_namespace_is_refused() {
    let test = "a_proc_of_another_pid_namespace_is_refused";
    let Some(scene) = Scene::new(test) else { return };
    let (one, two) = (Init::new(), Init::new());
    scene.claim("0", "one", &one).unwrap();
    let claim = in_shell(&scene, "1", "two", &two);
    let Some(output) = in_namespaces(&["--pid", "--fork"], &claim) else {
        return skip::not_run(&format!("claims::{test}"), "may not make a pid namespace");
    };
    let line = said(output).unwrap_err();
    assert!(
        line.contains("/proc: shows the processes of another pid namespace"),
        "{line}"
    );
    assert_eq!(scene.held(), [("0".to_owned(), "one".to_owned())]);
}
