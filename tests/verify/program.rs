//! `tranche-verify` by itself, with a fake CUDA library.

use crate::support::fake_host::fake_library::CUDA;
use crate::support::programs;
use crate::verify_program;
use object::Endianness;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use serde_json::{Value, json};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const FIRST: &str = "GPU-11111111-2222-3333-4444-555555555555";
const SECOND: &str = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee";

/// The newest glibc that the program may need: the first on the machine.
const GLIBC: &str = if cfg!(target_arch = "x86_64") {
    "GLIBC_2.2.5"
} else {
    "GLIBC_2.17"
};

/// A directory with the fake library and a daemon that accepts connections in `mps`.
struct Machine {
    top: TempDir,
    _daemon: OwnedFd,
}

impl Machine {
    fn new() -> Self {
        Self::with(&json!({
            "version": 12040,
            "gpus": [
                {"uuid": FIRST, "name": "Tesla \"T4\"", "sms": 40, "memory_mib": 15360, "used_mib": 512},
                {"uuid": SECOND, "name": "Tesla T4", "sms": 47, "memory_mib": 15360}
            ]
        }))
    }

    fn with(config: &Value) -> Self {
        let top = tempfile::tempdir().unwrap();
        CUDA.install(&top.path().join("libcuda.so.1"), &[]).unwrap();
        fs::write(top.path().join("cuda.json"), config.to_string()).unwrap();
        fs::create_dir(top.path().join("mps")).unwrap();
        let daemon = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&daemon, &SocketAddrUnix::new(top.path().join("mps/control")).unwrap()).unwrap();
        listen(&daemon, 100).unwrap();
        Self { top, _daemon: daemon }
    }

    fn pipe(&self) -> String {
        self.top.path().join("mps").display().to_string()
    }

    fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(verify_program::path());
        command
            .args(arguments)
            .env_clear()
            .env("LD_LIBRARY_PATH", self.top.path());
        command.envs(environment.iter().copied()).output().unwrap()
    }

    fn json(&self, environment: &[(&str, &str)]) -> Value {
        let output = self.run(&["--json", "--largest-allocation"], environment);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The versions of symbols that the program needs, and the libraries.
fn needs(file: &Path) -> (Vec<String>, Vec<String>) {
    let bytes = fs::read(file).unwrap();
    let elf_file = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    let endian = elf_file.endian();
    let header = elf_file.elf_header();
    let sections = header.sections(endian, &*bytes).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (mut versions, strings) = sections.gnu_verneed(endian, &*bytes).unwrap().unwrap();
    let strings = sections.strings(endian, &*bytes, strings).unwrap();
    let mut found = Vec::new();
    while let Some((_, mut names)) = versions.next().unwrap() {
        while let Some(name) = names.next().unwrap() {
            found.push(text(name.name(endian, strings).unwrap()));
        }
    }
    let (dynamic, strings) = sections.dynamic(endian, &*bytes).unwrap().unwrap();
    let strings = sections.strings(endian, &*bytes, strings).unwrap();
    let needed = dynamic.iter().filter(|entry| entry.d_tag.get(endian) == elf::DT_NEEDED);
    let needed = needed.map(|entry| text(strings.get(u32::try_from(entry.d_val.get(endian)).unwrap()).unwrap()));
    (found, needed.collect())
}

#[test]
fn the_programs_need_only_the_first_glibc() {
    for (program, most) in [
        (verify_program::path().to_owned(), 40 << 10),
        (verify_program::load(), 64 << 10),
    ] {
        let (versions, needed) = needs(&program);
        assert_eq!(needed, ["libc.so.6", "libdl.so.2"]);
        assert_eq!(versions, [GLIBC, GLIBC], "one for each library");
        let size = fs::metadata(&program).unwrap().len();
        assert!(size < most, "{size} bytes");
    }
    // The test program was linked as usual, so this check finds what it is for.
    let (versions, _) = needs(&std::env::current_exe().unwrap());
    assert!(versions.iter().any(|version| *version != GLIBC), "{versions:?}");
}

#[test]
fn without_mps_it_reports_every_device_in_full() {
    let machine = Machine::new();
    let report = machine.json(&[]);
    let expected = json!({
        "version": 1, "uid": nix::unistd::getuid().as_raw(), "environment": {},
        "mps": {"pipe_directory": "/tmp/nvidia-mps", "accepts": false, "errno": 2},
        "cuda": 12040, "device_count": 2,
        "devices": [
            {"name": "Tesla \"T4\"", "uuid": &FIRST[4..], "compute_mode": "default", "sms": 40, "mps": false,
             "memory_free": (15360_u64 - 512) << 20, "memory_total": 15360_u64 << 20,
             "largest_allocation": (15360_u64 - 512) << 20, "not_asked": {}},
            {"name": "Tesla T4", "uuid": &SECOND[4..], "compute_mode": "default", "sms": 47, "mps": false,
             "memory_free": 15360_u64 << 20, "memory_total": 15360_u64 << 20,
             "largest_allocation": 15360_u64 << 20, "not_asked": {}}
        ]
    });
    assert_eq!(report, expected);
}

#[test]
fn a_client_of_mps_gets_its_limits() {
    let machine = Machine::new();
    let (pipe, limit) = (machine.pipe(), format!("{SECOND}=4096M"));
    let environment = [
        ("CUDA_MPS_PIPE_DIRECTORY", pipe.as_str()),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limit.as_str()),
        ("CUDA_VISIBLE_DEVICES", SECOND),
        ("UNRELATED", "x"),
    ];
    let report = machine.json(&environment);
    let device = &report["devices"][0];
    assert_eq!(report["device_count"], 1);
    assert_eq!(device["uuid"], SECOND[4..]);
    assert_eq!(
        (&device["sms"], &device["mps"]),
        (&json!(22), &json!(true)),
        "23.5, rounded down to a pair"
    );
    assert_eq!(device["memory_free"], 4096_u64 << 20);
    assert_eq!(device["memory_total"], 15360_u64 << 20);
    assert_eq!(device["largest_allocation"], 4096_u64 << 20);
    assert_eq!(
        report["mps"],
        json!({"pipe_directory": pipe, "accepts": true, "errno": null})
    );
    let variables = report["environment"].as_object().unwrap();
    assert_eq!(variables.len(), 4, "{variables:?}");
    assert_eq!(variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], limit);
    // An entry for a device that is not visible voids the limits.
    let both = format!("{SECOND}=4096M,{FIRST}=1G");
    let mut more = environment;
    more[2].1 = &both;
    assert_eq!(machine.json(&more)["devices"][0]["memory_free"], 15360_u64 << 20);
}

#[test]
fn a_client_is_below_the_defaults_of_its_daemon() {
    let machine = Machine::with(&json!({
        "version": 12000,
        "gpus": [{"uuid": FIRST, "name": "a", "sms": 100, "memory_mib": 10000, "exclusive": true}],
        "daemon": {"percent": 30, "memory_mib": 2000}
    }));
    let pipe = machine.pipe();
    let report = machine.json(&[
        ("CUDA_MPS_PIPE_DIRECTORY", &pipe),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "90"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4000M"),
    ]);
    let device = &report["devices"][0];
    assert_eq!(
        (&device["sms"], &device["memory_free"]),
        (&json!(30), &json!(2000_u64 << 20))
    );
    assert_eq!(device["compute_mode"], "exclusive-process");
    assert_eq!(device["mps"], Value::Null);
    let why = "cuDeviceGetAttribute returned CUDA_ERROR_INVALID_VALUE (1)";
    assert_eq!(
        device["not_asked"],
        json!({"mps": why}),
        "an older library does not know this attribute"
    );
}

#[test]
fn what_cannot_be_asked_is_reported() {
    let machine = Machine::with(&json!({
        "version": 12040,
        "gpus": [{"uuid": FIRST, "name": "a", "sms": 100, "memory_mib": 10000, "exclusive": true}]
    }));
    let device = machine.json(&[])["devices"][0].clone();
    let why = "cuDevicePrimaryCtxRetain returned CUDA_ERROR_DEVICE_UNAVAILABLE (46)";
    assert_eq!(
        device["not_asked"],
        json!({"sms": why, "memory_free": why, "largest_allocation": why})
    );
    assert_eq!(device["uuid"], FIRST[4..]);
    let lines = String::from_utf8(machine.run(&[], &[]).stdout).unwrap();
    assert!(lines.contains(&format!("  Could not ask for sms: {why}.\n")), "{lines}");
    // A library of another version lacks functions.
    let library = machine.top.path().join("libcuda.so.1");
    CUDA.install(&library, &["cuDeviceGetUuid_v2"]).unwrap();
    let device = machine.json(&[])["devices"][0].clone();
    assert_eq!(
        device["not_asked"]["uuid"],
        "cuDeviceGetUuid is not in this libcuda.so.1"
    );

    fs::remove_file(&library).unwrap();
    let output = machine.run(&["--json"], &[]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        report["error"]
            .as_str()
            .unwrap()
            .starts_with("libcuda.so.1: cannot open"),
        "{report}"
    );
}

#[test]
fn a_failing_and_a_hanging_library_are_reported() {
    let config = |init: &str| json!({"version": 12040, "gpus": [], "init": init});
    let refused = Machine::with(&config("800")).run(&["--json"], &[]);
    let report: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(report["error"], "cuInit returned CUDA_ERROR_NOT_PERMITTED (800)");
    let hung = Machine::with(&config("hang"));
    let output = hung.run(&["--json", "--deadline", "1"], &[]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        report,
        json!({"version": 1, "error": "cuInit has not answered in time"})
    );
    let output = hung.run(&["--deadline", "1"], &[]);
    assert_eq!(output.stdout, b"cuInit has not answered in time.\n");
}

#[test]
fn names_and_variables_of_an_image_are_escaped() {
    let machine = Machine::new();
    let report = machine.json(&[("CUDA_MPS_X", "a\"\\\n\u{1b}é")]);
    assert_eq!(report["environment"]["CUDA_MPS_X"], "a\"\\\n\u{1b}é");
    let lines = String::from_utf8(machine.run(&[], &[("CUDA_MPS_X", "a\n\u{1b}[31m")]).stdout).unwrap();
    assert!(lines.contains("Set: CUDA_MPS_X=a\\u000a\\u001b[31m\n"), "{lines}");
    let long = "x".repeat(20_000);
    assert_eq!(
        machine.json(&[("CUDA_MPS_X", &long)])["environment"]["CUDA_MPS_X"],
        long
    );
}

#[test]
fn it_removes_its_own_file_and_refuses_other_arguments() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("verify");
    programs::install(verify_program::path(), &copy);
    assert!(Command::new(&copy).arg("--remove").status().unwrap().success());
    assert!(!copy.exists());
    for arguments in [&["--no-such"][..], &["--deadline", "0"], &["--deadline"]] {
        let output = Machine::new().run(arguments, &[]);
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{arguments:?}"
        );
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("tranche-verify: invalid argument: --"));
    }
}
