//! What a script that was written for `nvidia-ctk cdi generate` relies on, besides the contents of the specification
//! (which tests/parity.rs compares).
#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic, and says what it does"
)]

use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

#[path = "support/fake_host.rs"]
mod fake_host;
#[path = "support/skip.rs"]
mod skip;

const LIBDIR: &str = "/usr/lib/x86_64-linux-gnu";

/// What a run of `tranche` gave.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    /// The specification that was printed.
    fn spec(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}", self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }
}

fn tranche(variables: &[(&str, &str)], arguments: &[&str]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `cdi generate --format=json` of a built-in host.
fn generate(inventory: &str, more: &[&str]) -> Said {
    let inventory = format!("--inventory=sim:{inventory}");
    let first = ["cdi", "generate", "--format=json", &inventory];
    tranche(&[], &[&first, more].concat())
}

/// A test host in a directory of its own; `None` where this user cannot build it.
fn host(test: &str, name: &str) -> Option<(tempfile::TempDir, fake_host::Host)> {
    let directory = tempfile::tempdir().unwrap();
    let host = fake_host::build(name, &directory.path().join("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(&format!("drop_in::{test}"), &missing.why);
        return None;
    }
    Some((directory, host))
}

/// `cdi generate --format=json` of a test host that is this machine's: its driver's files are below a driver root.
fn with_driver_root(host: &fake_host::Host, variables: &[(&str, &str)], more: &[&str]) -> Said {
    let root = host.root.display();
    let places = [
        format!("--driver-root={root}"),
        format!("--proc-root={root}/proc"),
        format!("--sys-root={root}/sys"),
    ];
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    tranche(
        variables,
        &[&["cdi", "generate", "--format=json"], &*places, more].concat(),
    )
}

/// The container paths of the mounts that all devices get.
fn mounts(spec: &Value) -> Vec<&str> {
    let mounts = spec["containerEdits"]["mounts"].as_array().unwrap();
    mounts.iter().map(|m| m["containerPath"].as_str().unwrap()).collect()
}

/// The host path of what is mounted at `path`.
fn source<'a>(spec: &'a Value, path: &str) -> Option<&'a str> {
    let mounts = spec["containerEdits"]["mounts"].as_array().unwrap();
    mounts.iter().find(|m| m["containerPath"] == path)?["hostPath"].as_str()
}

fn device<'a>(spec: &'a Value, name: &str) -> &'a Value {
    let devices = spec["devices"].as_array().unwrap();
    devices
        .iter()
        .find(|d| d["name"] == name)
        .unwrap_or_else(|| panic!("no device {name}"))
}

fn names(spec: &Value) -> Vec<&str> {
    let devices = spec["devices"].as_array().unwrap();
    devices.iter().map(|d| d["name"].as_str().unwrap()).collect()
}

/// The arguments of each hook in `edits`.
fn hooks(edits: &Value) -> Vec<Vec<&str>> {
    let hooks = edits["hooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    hooks
        .iter()
        .map(|h| {
            h["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|a| a.as_str().unwrap())
                .collect()
        })
        .collect()
}

/// An executable file, in a directory that nobody but its owner can write.
fn program(path: &Path) {
    let directory = path.parent().unwrap();
    fs::create_dir_all(directory).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

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

#[test]
fn a_hook_that_nobody_knows_is_a_warning() {
    let plain = generate("t4x2", &[]);
    for option in ["--disable-hook", "--enable-hook"] {
        let said = generate("t4x2", &[option, "nonsense"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert_eq!(said.out, plain.out);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(said.err.contains("nonsense"), "{}", said.err);
    }
    let said = generate("t4x2", &["--enable-hook=all"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
}

#[test]
fn enable_hook_chmod_writes_that_hook_for_the_devices_that_need_it() {
    let ours = generate("rtx4090", &["--enable-hook=chmod", "--hook-path=/usr/bin/tranche-oci"]).spec();
    for name in ["0", "all"] {
        assert_eq!(
            hooks(&device(&ours, name)["containerEdits"]),
            [["tranche-oci", "hook", "chmod", "--mode", "755", "--path", "/dev/dri"]],
            "{name}"
        );
    }
    assert!(hooks(&device(&ours, "none")["containerEdits"]).is_empty());
    let theirs = generate(
        "rtx4090",
        &["--enable-hook=chmod", "--hook-path=/usr/bin/nvidia-cdi-hook"],
    )
    .spec();
    let wanted = ["nvidia-cdi-hook", "chmod", "--mode", "755", "--path", "/dev/dri"];
    assert!(
        hooks(&device(&theirs, "0")["containerEdits"])
            .iter()
            .any(|h| h[..] == wanted)
    );
    // A MIG device has the directory of its capabilities; a GPU that has none of the two gets no hook.
    let mig = generate(
        "dgx-a100-mig",
        &["--enable-hook=chmod", "--hook-path=/usr/bin/tranche-oci"],
    )
    .spec();
    let of_mig = hooks(&device(&mig, "0:0")["containerEdits"]);
    assert!(of_mig[0].ends_with(&["--path", "/dev/nvidia-caps"]), "{of_mig:?}");
    assert_eq!(hooks(&device(&mig, "7")["containerEdits"]), Vec::<Vec<&str>>::new());
    // The usual specification has no such hook, and `--disable-hook` has no say against `--enable-hook`.
    assert!(hooks(&device(&generate("rtx4090", &[]).spec(), "0")["containerEdits"]).is_empty());
    let both = generate("rtx4090", &["--disable-hook=all", "--enable-hook=chmod"]).spec();
    assert!(hooks(&both["containerEdits"]).is_empty());
    assert_eq!(hooks(&device(&both, "0")["containerEdits"]).len(), 1);
}

#[test]
fn search_paths_are_paths_of_the_host_also_with_a_driver_root() {
    let Some((directory, host)) = host("search_paths", "workstation-rtx4090") else {
        return;
    };
    // Below the driver root: the container gets the path without it.
    let inside = format!("{}{LIBDIR}", host.root.display());
    let spec = with_driver_root(&host, &[], &["--library-search-path", &inside]).spec();
    let library = format!("{LIBDIR}/libcuda.so.550.163.01");
    assert_eq!(
        source(&spec, &library),
        Some(format!("{}{library}", host.root.display()).as_str())
    );
    assert!(
        !mounts(&spec)
            .iter()
            .any(|m| m.contains("/xorg/") && m.contains("libcuda"))
    );
    // The same path means nothing below the driver root, where NVIDIA's tool does not look either.
    let below = with_driver_root(&host, &[], &["--library-search-path", LIBDIR]);
    assert!(!below.out.contains("libcuda.so"), "{}", below.out);

    // Elsewhere on the host: as it is there.
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir_all(elsewhere.join("etc/OpenCL/vendors")).unwrap();
    fs::copy(host.path(&library), elsewhere.join("libcuda.so.550.163.01")).unwrap();
    fs::write(
        elsewhere.join("etc/OpenCL/vendors/nvidia.icd"),
        "libnvidia-opencl.so.1\n",
    )
    .unwrap();
    let elsewhere = elsewhere.canonicalize().unwrap();
    let (libraries, configs) = (elsewhere.display().to_string(), format!("{}/etc", elsewhere.display()));
    let spec = with_driver_root(
        &host,
        &[],
        // There is no libnvidia-ml in that directory, so NVML cannot be asked.
        &[
            "--degraded",
            "--library-search-path",
            &libraries,
            "--config-search-path",
            &configs,
        ],
    )
    .spec();
    let there = format!("{libraries}/libcuda.so.550.163.01");
    assert_eq!(source(&spec, &there), Some(there.as_str()));
    assert_eq!(
        source(&spec, "/etc/OpenCL/vendors/nvidia.icd"),
        Some(format!("{configs}/OpenCL/vendors/nvidia.icd").as_str())
    );
    assert!(!mounts(&spec).contains(&"/usr/share/glvnd/egl_vendor.d/10_nvidia.json"));

    // A picture of another machine has its own paths: those of the option are in it.
    let root = format!("--root={}", host.root.display());
    let first = [
        "cdi",
        "generate",
        "--format=json",
        &root,
        "--library-search-path",
        LIBDIR,
    ];
    let spec = tranche(&[], &first).spec();
    assert_eq!(source(&spec, &library), Some(library.as_str()));
}

#[test]
fn the_variable_for_libcuda_has_the_directory_of_libcuda_alone() {
    let Some((_directory, host)) = host("libcuda_dir", "workstation-rtx4090") else {
        return;
    };
    // The loader knows VDPAU's directory too, as Debian's package tells it.
    let library = format!("{LIBDIR}/vdpau/libvdpau_nvidia.so.550.163.01");
    assert!(host.path(&library).exists());
    let entries = [
        format!("{LIBDIR}/vdpau/libvdpau_nvidia.so.1"),
        format!("{LIBDIR}/libcuda.so.1"),
    ];
    let entries = entries.map(|path| {
        let name = path.rsplit('/').next().unwrap().to_owned();
        fake_host::ld_so_cache::Entry::new(Path::new(&path), &name, fake_host::stub_elf::Machine::default())
    });
    fs::write(
        host.path("/etc/ld.so.cache"),
        fake_host::ld_so_cache::write(entries.to_vec()),
    )
    .unwrap();
    let root = format!("--root={}", host.root.display());
    let spec = tranche(&[], &["cdi", "generate", "--format=json", &root]).spec();
    assert!(mounts(&spec).contains(&library.as_str()));
    let env = spec["containerEdits"]["env"].as_array().unwrap();
    assert!(
        env.contains(&Value::from(format!("NVIDIA_CTK_LIBCUDA_DIR={LIBDIR}"))),
        "{env:?}"
    );
}

#[test]
fn a_gpu_without_an_addressing_mode_is_not_coherent() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, more: &[&str]| {
        let output = dir.path().join(name).display().to_string();
        let flag = "--feature-flag=enable-coherent-annotations";
        tranche(&[], &[&["cdi", "generate", flag, "--output", &output], more].concat())
    };
    let said = write("t4.json", &["--inventory=sim:t4x2"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let text = fs::read(dir.path().join("t4.noncoherent.json")).unwrap();
    let spec: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(spec["kind"], "nvidia.com/gpu.noncoherent");
    assert_eq!(names(&spec).iter().filter(|n| n.starts_with("GPU-")).count(), 2);
    assert!(!dir.path().join("t4.coherent.json").exists());

    // Without NVML nobody knows: neither file, and a line that says so.
    let Some((_directory, host)) = host("not_coherent", "t4x2-old-driver") else {
        return;
    };
    let root = format!("--root={}", host.root.display());
    let said = write("unknown.json", &[&root, "--no-nvml"]);
    assert!(said.err.contains("coherent"), "{}", said.err);
    assert!(!dir.path().join("unknown.noncoherent.json").exists());
    assert!(!dir.path().join("unknown.coherent.json").exists());
}

#[test]
fn explicit_driver_libraries_are_added_where_the_flag_asks_for_them() {
    let Some((_directory, host)) = host("explicit", "workstation-rtx4090") else {
        return;
    };
    symlink("libOpenCL.so.1", host.path(&format!("{LIBDIR}/libOpenCL.so"))).unwrap();
    let root = format!("--root={}", host.root.display());
    let command = ["cdi", "generate", "--format=json", &root];
    let added = [
        "libEGL.so.1.1.0",
        "libGLX.so.0.0.0",
        "libGLdispatch.so.0.0.0",
        "libOpenCL.so.1.0.0",
    ];
    let plain = tranche(&[], &command).spec();
    let flag = ["--feature-flag=enable-explicit-driver-libraries"];
    let said = tranche(&[], &[&command, &flag[..]].concat());
    assert!(!said.err.contains("enable-explicit-driver-libraries"), "{}", said.err);
    let flagged = said.spec();
    for name in added {
        let path = format!("{LIBDIR}/{name}");
        assert!(!mounts(&plain).contains(&path.as_str()), "{name}");
        assert!(
            mounts(&flagged).contains(&path.as_str()),
            "{name}: {:#?}",
            mounts(&flagged)
        );
    }
    // With the names by which programs open them; and nothing else of the system.
    let links = hooks(&flagged["containerEdits"]).concat().join(" ");
    for link in ["libEGL.so.1.1.0::", "libOpenCL.so.1.0.0::", "libOpenCL.so.1::"] {
        assert!(links.contains(link), "{link}: {links}");
    }
    assert!(!mounts(&flagged).iter().any(|m| m.contains("libc.so")));
    // A saved inventory has the files that it has.
    let said = generate("t4x2", &flag);
    assert!(said.err.contains("enable-explicit-driver-libraries"), "{}", said.err);
}

#[test]
fn none_is_none_whatever_else_is_named() {
    for ids in [
        &["--device-id=none"][..],
        &["--device-id=0,none"],
        &["--device-id=none", "--device-id=all"],
    ] {
        let spec = generate("t4x2", ids).spec();
        assert_eq!(names(&spec), ["none"], "{ids:?}");
        let edits = &device(&spec, "none")["containerEdits"];
        assert_eq!(edits["env"], serde_json::json!(["NVCT_EMPTY_DEVICE="]), "{ids:?}");
        assert!(edits["deviceNodes"].is_null());
    }
}

#[test]
fn programs_and_configuration_are_found_where_the_caller_s_environment_says() {
    let Some((_directory, host)) = host("path", "workstation-rtx4090") else {
        return;
    };
    fs::remove_file(host.path("/usr/bin/nvidia-smi")).unwrap();
    program(&host.path("/opt/driver/bin/nvidia-smi"));
    program(&host.path("/opt/driver/bin/nvidia-debugdump"));
    let config = "glvnd/egl_vendor.d/10_nvidia.json";
    fs::remove_file(host.path(&format!("/usr/share/{config}"))).unwrap();
    fs::create_dir_all(host.path("/opt/driver/share/glvnd/egl_vendor.d")).unwrap();
    fs::write(host.path(&format!("/opt/driver/share/{config}")), "{}\n").unwrap();
    let variables = [
        ("PATH", "relative:/opt/driver/bin:/usr/bin"),
        ("XDG_DATA_DIRS", "/opt/driver/share:/usr/share"),
    ];
    let found = "/opt/driver/bin/nvidia-smi";
    let plain = with_driver_root(&host, &[], &[]).spec();
    assert!(
        !mounts(&plain)
            .iter()
            .any(|m| m.ends_with("nvidia-smi") || m.ends_with(config))
    );
    let spec = with_driver_root(&host, &variables, &[]).spec();
    assert_eq!(
        source(&spec, found),
        Some(format!("{}{found}", host.root.display()).as_str())
    );
    assert!(mounts(&spec).contains(&format!("/usr/share/{config}").as_str()));
    // What is at its usual place is taken from there: one host looks alike to everybody.
    assert!(mounts(&spec).contains(&"/usr/bin/nvidia-debugdump"));

    // A picture of another machine has not been looked at with that machine's PATH.
    let root = format!("--root={}", host.root.display());
    let picture = tranche(&variables, &["cdi", "generate", "--format=json", &root]).spec();
    assert!(!mounts(&picture).iter().any(|m| m.starts_with("/opt")));
    assert!(!mounts(&picture).contains(&format!("/usr/share/{config}").as_str()));

    // A directory that somebody else can write: what lies there would run as root in containers.
    let bin = host.path("/opt/driver/bin");
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o777)).unwrap();
    let spec = with_driver_root(&host, &variables, &[]).spec();
    assert!(!mounts(&spec).contains(&found));
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o755)).unwrap();
    chown(&bin, Some(65534), None).unwrap();
    let spec = with_driver_root(&host, &variables, &[]).spec();
    assert!(!mounts(&spec).contains(&found));
}

#[test]
fn management_has_nothing_of_graphics_that_nvidia_s_has_not() {
    let spec = generate("rtx4090", &["--mode=management"]).spec();
    assert!(mounts(&spec).contains(&format!("{LIBDIR}/libcuda.so.550.163.01").as_str()));
    assert!(
        !mounts(&spec).iter().any(|m| m.contains("/xorg/")),
        "{:#?}",
        mounts(&spec)
    );
    let links = hooks(&spec["containerEdits"]).concat().join(" ");
    assert!(links.contains("libcuda.so.1::"), "{links}");
    for name in [
        "nvidia-drm_gbm.so",
        "libglxserver_nvidia.so",
        "libnvidia-vulkan-producer.so",
    ] {
        assert!(!links.contains(name), "{name}: {links}");
    }
}

#[test]
fn firmware_comes_from_every_place_that_has_it() {
    let Some((_directory, host)) = host("firmware", "dgx-a100-mig") else {
        return;
    };
    let firmware = host.path("/usr/lib/firmware/nvidia");
    let version = fs::read_dir(&firmware).unwrap().next().unwrap().unwrap().file_name();
    let version = version.to_str().unwrap();
    let updated = host.path(&format!("/usr/lib/firmware/updates/nvidia/{version}"));
    fs::create_dir_all(&updated).unwrap();
    fs::write(updated.join("gsp_ga10x.bin"), "newer\n").unwrap();
    let root = format!("--root={}", host.root.display());
    let spec = tranche(&[], &["cdi", "generate", "--format=json", &root]).spec();
    for place in ["/lib/firmware/updates/nvidia", "/lib/firmware/nvidia"] {
        let path = format!("{place}/{version}/gsp_ga10x.bin");
        assert!(mounts(&spec).contains(&path.as_str()), "{path}: {:#?}", mounts(&spec));
    }
}

#[test]
fn the_program_of_the_hook_may_be_a_bare_name() {
    let Some((directory, host)) = host("bare_name", "t4x2-old-driver") else {
        return;
    };
    let hook = directory.path().canonicalize().unwrap().join("bin/nvidia-ctk");
    program(&hook);
    let bin = hook.parent().unwrap().to_str().unwrap().to_owned();
    let written = |variables: &[(&str, &str)], name: &str| {
        let spec = with_driver_root(&host, variables, &["--hook-path", name]).spec();
        let hook = &spec["containerEdits"]["hooks"][0];
        let args = hooks(&spec["containerEdits"])[0][..2].join(" ");
        (hook["path"].as_str().unwrap().to_owned(), args)
    };
    // Where the name is nowhere, it is where packages put it.
    assert_eq!(
        written(&[], "nvidia-ctk"),
        ("/usr/bin/nvidia-ctk".to_owned(), "nvidia-ctk hook".to_owned())
    );
    assert_eq!(
        written(&[], "nvidia-cdi-hook"),
        (
            "/usr/bin/nvidia-cdi-hook".to_owned(),
            "nvidia-cdi-hook create-symlinks".to_owned()
        )
    );
    assert_eq!(
        written(&[("PATH", &format!("relative:{bin}"))], "nvidia-ctk").0,
        hook.to_str().unwrap()
    );
    for wrong in ["", "bin/nvidia-ctk", "./nvidia-ctk", ".."] {
        let option = format!("--hook-path={wrong}");
        let said = generate("t4x2", &[&option]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{wrong:?}: {}", said.err);
    }
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
    let said = ctk(&["runtime", "configure"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{}", said.err);
}
