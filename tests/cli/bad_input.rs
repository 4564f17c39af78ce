//! Everything that can be wrong with a machine or a request, through the real program: one line that says it, the right
//! exit code, and never half a file.
//!
//! What discovery makes of a broken host is held in detail by `tests/discovery`, wrong options and broken files of
//! other vendors by `tests/cli/cdi_options.rs` and `cdi_inspect.rs`; here is what comes out at the end.

mod lost;

use crate::program;
use crate::support::{fake_host, skip};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fake_host::Host;

const TRANCHE: &str = env!("CARGO_BIN_EXE_tranche");
const LIBDIR: &str = "/usr/lib/x86_64-linux-gnu";

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// One way in which a host is broken, and what comes of it.
struct Broken {
    what: &'static str,
    host: &'static str,
    by: fn(&Host),
    code: i32,
    /// A part of the one line on stderr that tells it; empty where nothing is worth a line.
    line: &'static str,
    /// Devices by index in the specification that is written all the same, where none was there before.
    devices: &'static [&'static str],
}

const T4: &str = "t4x2-old-driver";

fn faults(host: &Host, faults: Value) {
    host.nvml(|config| config["faults"] = faults).unwrap();
}

fn put(host: &Host, path: &str, bytes: &[u8]) {
    let place = host.path(path);
    let _ = fs::remove_file(&place);
    fs::write(place, bytes).unwrap();
}

const BROKEN: &[Broken] = &[
    Broken {
        what: "no driver",
        host: "no-driver",
        by: |_| (),
        code: 3,
        line: "no NVIDIA driver",
        devices: &[],
    },
    Broken {
        what: "a driver and no GPU",
        host: "driver-no-gpu",
        by: |_| (),
        code: 1,
        line: "no GPU",
        devices: &[],
    },
    Broken {
        what: "NVML that hangs in init",
        host: T4,
        by: |host| faults(host, json!({"init": "hang"})),
        code: 1,
        line: "gave no answer",
        devices: &["0", "1"],
    },
    Broken {
        what: "NVML that crashes in init",
        host: T4,
        by: |host| faults(host, json!({"init": "crash"})),
        code: 1,
        line: "crashed",
        devices: &["0", "1"],
    },
    Broken {
        what: "a library that is no ELF file",
        host: T4,
        by: |host| put(host, &format!("{LIBDIR}/libnvidia-ml.so.555.58.02"), b"no library"),
        code: 1,
        line: "libnvidia-ml",
        devices: &["0", "1"],
    },
    Broken {
        what: "a lost GPU",
        host: "l4-one-lost",
        by: |_| (),
        code: 1,
        line: "gpu 2",
        devices: &["0", "1", "3"],
    },
    Broken {
        what: "a device node that is a regular file",
        host: T4,
        by: |host| put(host, "/dev/nvidia1", b"no node"),
        code: 1,
        line: "/dev/nvidia1",
        devices: &["0"],
    },
    Broken {
        what: "a device node that is a link to another device",
        host: T4,
        by: |host| {
            fs::remove_file(host.path("/dev/nvidia1")).unwrap();
            symlink("/dev/nvidia-uvm", host.path("/dev/nvidia1")).unwrap();
        },
        code: 1,
        line: "/dev/nvidia1",
        devices: &["0"],
    },
    Broken {
        what: "a truncated ld.so.cache",
        host: T4,
        by: |host| {
            let bytes = fs::read(host.path("/etc/ld.so.cache")).unwrap();
            put(host, "/etc/ld.so.cache", &bytes[..bytes.len() / 2]);
        },
        code: 0,
        line: "ld.so.cache",
        devices: &["0", "1"],
    },
];

#[test]
fn a_broken_host_costs_what_is_broken() {
    for broken in BROKEN {
        let directory = tempfile::tempdir().unwrap();
        let host = fake_host::build(broken.host, &directory.path().join("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            return skip::not_run("a_broken_host_costs_what_is_broken", &missing.why);
        }
        (broken.by)(&host);
        let specs = directory.path().join("specs");
        fs::create_dir(&specs).unwrap();
        let output = program(&["cdi", "generate", "--nvml-deadline=2", "--device-name-strategy=index"])
            .arg(format!("--root={}", host.root.display()))
            .arg(format!("--output={}/nvidia.json", specs.display()))
            .output()
            .unwrap();
        let (what, said) = (broken.what, said(&output));
        assert_eq!(output.status.code(), Some(broken.code), "{what}: {said}");
        assert!(output.stdout.is_empty(), "{what}");
        assert!(said.contains(broken.line), "{what}: {said}");
        assert!(said.lines().count() <= 4, "{what}: {said}");
        let written: Vec<_> = fs::read_dir(&specs).unwrap().map(|e| e.unwrap().path()).collect();
        if broken.devices.is_empty() {
            assert!(written.is_empty(), "{what}: {written:?}");
            continue;
        }
        let [file] = written.as_slice() else {
            panic!("{what}: {written:?}")
        };
        let spec: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let names: Vec<&str> = spec["devices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d["name"].as_str().unwrap())
            .filter(|name| name.starts_with(|c: char| c.is_ascii_digit()))
            .collect();
        assert_eq!(names, broken.devices, "{what}");
    }
}

/// Runs `tranche cdi generate` for a host, over a specification that is there already.
fn generate_over(host: &Host, file: &Path, more: &[&str]) -> Output {
    fs::write(file, "good\n").unwrap();
    program(&["cdi", "generate", "--nvml-deadline=2"])
        .arg(format!("--root={}", host.root.display()))
        .arg(format!("--output={}", file.display()))
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn a_degraded_host_never_replaces_a_specification() {
    let nothing_in_dev: fn(&Host) = |host| {
        fs::remove_dir_all(host.path("/dev")).unwrap();
        fs::write(host.path("/proc/devices"), "Character devices:\n  1 mem\n").unwrap();
    };
    /// What is wrong, the host, how it is broken, more options, and whether the file is replaced.
    type Case<'a> = (&'a str, &'a str, fn(&Host), &'a [&'a str], bool);
    let cases: [Case<'_>; 8] = [
        ("healthy", T4, |_| (), &[], true),
        ("silent", T4, |host| faults(host, json!({"init": "hang"})), &[], false),
        ("crashed", T4, |host| faults(host, json!({"init": "crash"})), &[], false),
        ("lost", "l4-one-lost", |_| (), &[], false),
        ("no library", T4, |_| (), &["--library-search-path=/nonexistent"], false),
        ("no device node", T4, nothing_in_dev, &[], false),
        ("no GPU", "driver-no-gpu", |_| (), &[], false),
        (
            "silent, and accepted",
            T4,
            |host| faults(host, json!({"init": "hang"})),
            &["--degraded"],
            true,
        ),
    ];
    for (what, name, by, more, replaces) in cases {
        let directory = tempfile::tempdir().unwrap();
        let host = fake_host::build(name, &directory.path().join("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            return skip::not_run("a_degraded_host_never_replaces_a_specification", &missing.why);
        }
        by(&host);
        let file = directory.path().join("nvidia.json");
        let output = generate_over(&host, &file, more);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(i32::from(!replaces)), "{what}: {said}");
        let now = fs::read_to_string(&file).unwrap();
        assert_eq!(now != "good\n", replaces, "{what}: {said}");
        let last = said.lines().next_back().unwrap();
        assert_eq!(
            last.contains("--degraded") || last.starts_with("tranche: host: "),
            !replaces,
            "{what}: {said}"
        );
        // To stdout it is printed, and is no success.
        let root = format!("--root={}", host.root.display());
        let output = program(&["cdi", "generate", "--nvml-deadline=2", &root])
            .args(more)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(i32::from(!replaces)), "{what}, to stdout");
        let has_no_device = name == "driver-no-gpu" || what == "no library";
        assert_eq!(output.stdout.is_empty(), has_no_device, "{what}, to stdout");
    }
}

/// What an inventory lacks travels with it.
#[test]
fn a_saved_degraded_inventory_never_replaces_a_specification() {
    let directory = tempfile::tempdir().unwrap();
    let host = fake_host::build("l4-one-lost", &directory.path().join("host")).unwrap();
    let root = format!("--root={}", host.root.display());
    let saved = program(&["inventory", &root]).output().unwrap();
    assert_eq!(saved.status.code(), Some(0), "{}", said(&saved));
    let inventory = directory.path().join("inventory.json");
    fs::write(&inventory, &saved.stdout).unwrap();
    let file = directory.path().join("nvidia.yaml");
    let generate = |more: &[&str]| {
        let mut command = program(&["cdi", "generate"]);
        command.arg("--inventory").arg(&inventory).arg("--output").arg(&file);
        command.args(more).output().unwrap()
    };
    // Without an earlier specification, an incomplete one is better than nothing.
    let first = generate(&[]);
    assert_eq!(first.status.code(), Some(1), "{}", said(&first));
    assert!(
        said(&first).ends_with("tranche: not complete: gpu 2 does not answer\n"),
        "{}",
        said(&first)
    );
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("- name: \"3\"\n") && !text.contains("- name: \"2\"\n"),
        "{text}"
    );
    fs::write(&file, "good\n").unwrap();
    let second = generate(&[]);
    assert_eq!(second.status.code(), Some(1), "{}", said(&second));
    assert_eq!(fs::read_to_string(&file).unwrap(), "good\n");
    let third = generate(&["--degraded"]);
    assert_eq!(third.status.code(), Some(0), "{}", said(&third));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

/// The program by itself in a directory: there is no hook beside it.
#[test]
fn a_hook_that_does_not_exist_is_a_warning_on_this_machine_alone() {
    let directory = tempfile::tempdir().unwrap();
    let host = fake_host::build(T4, &directory.path().join("host")).unwrap();
    let at = host.root.display();
    let here = [
        format!("--driver-root={at}"),
        format!("--dev-root={at}"),
        format!("--proc-root={at}/proc"),
        format!("--sys-root={at}/sys"),
    ];
    let hook = directory.path().join("hook");
    let generate = |place: &[String]| {
        let output = program(&["cdi", "generate", "--hook-path"])
            .arg(&hook)
            .args(place)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        said(&output)
    };
    assert!(
        generate(&here).contains("hook: does not exist, and no container"),
        "{}",
        generate(&here)
    );
    fs::write(&hook, "").unwrap();
    assert!(
        generate(&here).contains("hook: is not an executable file, and no container"),
        "{}",
        generate(&here)
    );
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!generate(&here).contains("hook: "), "{}", generate(&here));
    fs::remove_file(&hook).unwrap();
    assert!(!generate(&[format!("--root={at}")]).contains("no container"));
    assert!(!generate(&["--inventory=sim:t4x2".to_owned()]).contains("no container"));
}

/// Every verb that takes an inventory.
#[test]
fn the_built_in_inventories_are_listed_by_every_verb() {
    for verb in [
        &["list"][..],
        &["inventory"],
        &["plan"],
        &["policy", "check"],
        &["cdi", "generate"],
        &["claim", "create", "--name=x"],
    ] {
        let output = program(verb).arg("--inventory=sim:help").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{verb:?}: {}", said(&output));
        let list = String::from_utf8(output.stdout).unwrap();
        assert!(
            list.contains("sim:dgx-a100-mig") && list.lines().count() == 5,
            "{verb:?}: {list}"
        );
    }
}

/// Runs `tranche cdi generate` with a file system of its own at `specs`, in a mount namespace that goes with it, and
/// `before` in a shell there first. Afterwards the directory is listed on stdout.
fn generate_on(specs: &Path, mount: &str, before: &str) -> Output {
    let script = format!(
        "mount -t tmpfs -o size=16k tmpfs {specs} && {before} && {mount} || exit 99
         {TRANCHE} cdi generate --inventory=sim:dgx-a100-mig --output {specs}/nvidia.yaml
         code=$?; ls -A {specs}; cat {specs}/nvidia.yaml; exit $code",
        specs = specs.display()
    );
    Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", &script])
        .output()
        .unwrap()
}

#[test]
fn a_directory_that_takes_nothing_keeps_what_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let specs = directory.path();
    let may = Command::new("unshare").args(["-m", "true"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        let name = "a_directory_that_takes_nothing_keeps_what_it_has";
        return skip::not_run(name, "may not make a mount namespace");
    }
    let before = format!("echo before > {}/nvidia.yaml", specs.display());
    let read_only = format!("mount -o remount,ro {}", specs.display());
    for (what, mount, line) in [
        ("full", "true", "cannot be written: No space left on device"),
        (
            "read-only",
            read_only.as_str(),
            "cannot be written: Read-only file system",
        ),
    ] {
        let output = generate_on(specs, mount, &before);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains(line), "{what}: {said}");
        let complaints: Vec<&str> = said.lines().filter(|l| l.starts_with("tranche: ")).collect();
        assert_eq!(complaints.len(), 1, "{what}: {said}");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "nvidia.yaml\nbefore\n",
            "{what}"
        );
    }
}

#[test]
fn a_directory_that_was_named_must_exist_to_be_read_and_is_made_to_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("a/b");
    let dir = format!("--spec-dir={}", missing.display());
    let output = program(&["cdi", "validate", &dir]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).ends_with("/a/b: no such directory\n"),
        "{}",
        said(&output)
    );
    assert!(output.stdout.is_empty());
    // As NVIDIA's tool: a list of nothing.
    let output = program(&["cdi", "list", &dir]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("/a/b: not found\n"), "{}", said(&output));
    assert!(output.stdout.is_empty());
    let output = program(&["cdi", "inspect", "nvidia.com/gpu=0", &dir]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    assert!(!missing.exists(), "reading makes nothing");
    let file = missing.join("nvidia.yaml");
    let output = program(&["cdi", "generate", "--inventory=sim:t4x2"])
        .arg("--output")
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(file.is_file());
}

/// Every verb that writes a result.
const RESULTS: &[&[&str]] = &[
    &["list", "--inventory=sim:t4x2"],
    &["list", "--json", "--inventory=sim:t4x2"],
    &["inventory", "--inventory=sim:t4x2"],
    &["cdi", "generate", "--inventory=sim:t4x2"],
    &["cdi", "list", "--spec-dir=cdi-specs"],
];

/// A directory as another user could prepare it for root.
#[test]
fn a_specification_that_leads_elsewhere_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let secret = at("secret");
    fs::write(&secret, "root:$6$secret:19000:0:99999:7:::\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let specs = at("specs");
    fs::create_dir(&specs).unwrap();
    symlink(&secret, specs.join("a.yaml")).unwrap();
    symlink("/proc/kmsg", specs.join("b.yaml")).unwrap();
    symlink("/dev/urandom", specs.join("c.yaml")).unwrap();
    nix::unistd::mkfifo(&specs.join("d.yaml"), nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    fs::write(specs.join("e\u{1b}[31m.yaml"), "x").unwrap();
    fs::copy("cdi-specs/t4x2-old-driver.yaml", at("store.yaml")).unwrap();
    symlink("../store.yaml", specs.join("f.yaml")).unwrap();
    let dir = format!("--spec-dir={}", specs.display());
    for verb in ["list", "validate"] {
        let output = program(&["cdi", verb, &dir]).output().unwrap();
        let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), said(&output));
        // What is the user's own may be shown to him.
        let root = nix::unistd::geteuid().is_root();
        assert!(
            !root || !all.contains("secret:") && !all.contains("$6$"),
            "{verb}: {all}"
        );
        assert!(!all.contains('\u{1b}') && all.contains("\\u{1b}[31m"), "{verb}: {all}");
        for name in ["c.yaml", "d.yaml"] {
            assert!(
                all.contains(&format!("{name}: cannot be read: not a regular file")),
                "{verb}: {all}"
            );
        }
        if root {
            assert_eq!(all.matches("that not everybody may read").count(), 2, "{verb}: {all}");
        }
    }
    let output = program(&["cdi", "list", &dir]).output().unwrap();
    assert!(
        String::from_utf8(output.stdout).unwrap().contains("nvidia.com/gpu=0\n"),
        "a link to a readable file counts"
    );
}

#[test]
fn a_full_stdout_is_a_failure() {
    for arguments in RESULTS {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = program(arguments).stdout(full).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(
            said.contains("stdout: cannot write: No space left"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    for arguments in RESULTS {
        let mut child = program(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
        assert!(!said(&output).contains("panic"), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn options_that_exclude_each_other_are_refused_by_name() {
    for arguments in [
        &["list", "--root=/", "--inventory=sim:t4x2"][..],
        &["cdi", "generate", "--driver-root=/x", "--inventory=sim:t4x2"],
        &["inventory", "--proc-root=/x", "--inventory=sim:t4x2"],
    ] {
        let output = program(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains("cannot be used with"), "{}", said(&output));
    }
}

/// A policy that names GPU 9 of a host that has two.
#[test]
fn a_policy_that_names_an_absent_gpu_costs_that_gpu_alone() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("policy.yaml");
    let policy = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    \
                  - {name: nvidia.com/gpu, devices: [9, 1], replicas: 2}\n";
    fs::write(&config, policy).unwrap();
    let config = format!("--config={}", config.display());
    let state = format!("--state-dir={}", directory.path().join("state").display());
    let options = ["--inventory=sim:t4x2", &config, &state];
    let output = program(&["cdi", "generate", "--device-name-strategy=index", "--format=json"])
        .args(options)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let spec: Value = serde_json::from_slice(&output.stdout).unwrap();
    let devices = spec["devices"].as_array().unwrap();
    let names: Vec<&str> = devices.iter().map(|d| d["name"].as_str().unwrap()).collect();
    for name in ["0", "1.0", "1.1"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(
        said(&output).contains("device 9: not found; this host has "),
        "{}",
        said(&output)
    );

    let specs = format!("--spec-dir={}", directory.path().join("specs").display());
    let output = program(&["claim", "create", "--name=train", "--device=1", "--shares=1", &specs])
        .args(options)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(output.stdout, b"nvidia.com/claim=train\n");

    let output = program(&["policy", "check"]).args(&options[..2]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    let result = String::from_utf8(output.stdout).unwrap();
    assert!(result.contains(":5:40: device 9: not found"), "{result}");
}
