//! What a specification costs: `tranche cdi generate` against an empty static program, for 1, 8 and 16 x 7 devices,
//! with a driver's library that answers at once; and the memory that it takes.
//!
//! Machines are noisy, so nothing here is a time to compare with another day's: what counts is a program's median over
//! the empty one's, in the same run. Memory is the largest resident set of a process (`ru_maxrss` of wait4), of
//! `tranche` without the library and of the process that opens it: their sum is more than both ever take together.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark fails by a panic"
)]

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[path = "support/runner.rs"]
mod runner;

use runner::Runner;
use tranche_test_support::fake_host::{self, Host};

const TRANCHE: &str = env!("CARGO_BIN_EXE_tranche");
const DRIVER: &str = env!("CARGO_BIN_EXE_tranche-driver");

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some([program, rest @ ..]) = arguments.get(2..).filter(|_| arguments[1] == "measure") {
        measure(program, rest);
        return;
    }
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let scene = runner::scene();
    let empty = runner::empty(scene.path());
    let hosts = [
        ("1 GPU", hgx(&scene.path().join("one"), 1)),
        ("8 GPUs", hgx(&scene.path().join("eight"), 8)),
        ("8 GPUs of 7 MIG devices", mig(&scene.path().join("mig8"), 8)),
        ("16 GPUs of 7 MIG devices", mig(&scene.path().join("mig"), 16)),
    ];
    for (name, host) in &hosts {
        if let Some(missing) = host.not_made.first() {
            println!("not run: benches/generate: {name}: {}", missing.why);
            return;
        }
    }
    let output = |number: usize| {
        let directory = scene.path().join(format!("cdi{number}"));
        fs::create_dir_all(&directory).unwrap();
        directory.join("nvidia.yaml")
    };
    let mut runners = vec![
        Runner::new("an empty static program", &empty, Vec::new(), ""),
        Runner::new("tranche --version", Path::new(TRANCHE), vec!["--version".into()], ""),
    ];
    for (number, (name, host)) in hosts.iter().enumerate() {
        let name = format!("cdi generate, {name}");
        runners.push(Runner::new(
            &name,
            Path::new(TRANCHE),
            generate(host, &output(number)),
            "",
        ));
    }
    let crowded = beside_others(&hosts[1].1, scene.path());
    let others = format!("cdi generate, {}, beside {OTHERS} others", hosts[1].0);
    runners.push(Runner::new(
        &others,
        Path::new(TRANCHE),
        generate(&hosts[1].1, &crowded),
        "",
    ));
    for _ in 0..runner::rounds(200) {
        runners.iter_mut().for_each(Runner::round);
    }
    runner::table(&mut runners);

    println!(
        "\n{:42} {:>9} {:>9} {:>9} {:>9}",
        "peak memory, KiB", "largest", "tranche", "library", "sum"
    );
    for (number, (name, host)) in hosts.iter().enumerate() {
        let arguments = generate(host, &output(number));
        let both = peak(TRANCHE, &arguments);
        let mut without = generate(host, &output(hosts.len()));
        without.push("--no-nvml".to_owned());
        let alone = peak(TRANCHE, &without);
        let library = host.path(host.nvml.as_ref().unwrap().to_str().unwrap());
        let question = format!("echo '\"inventory\"' | exec {DRIVER} {}", library.display());
        let child = peak("/bin/sh", &["-c".to_owned(), question]);
        println!(
            "{name:42} {both:>9} {alone:>9} {child:>9} {:>9}",
            both.max(alone) + child
        );
    }
    for (number, (name, _)) in hosts.iter().enumerate() {
        let spec = fs::read_to_string(output(number)).unwrap();
        let devices = spec.matches("\n- name: ").count();
        println!("{name}: {devices} names, {} KiB", spec.len() / 1024);
    }
}

/// How many specifications of other kinds are in the directory.
const OTHERS: usize = 12;

/// The output in a directory with [`OTHERS`] specifications of other kinds, each as large as the one of `host`.
fn beside_others(host: &Host, scene: &Path) -> PathBuf {
    let directory = scene.join("crowded");
    fs::create_dir_all(&directory).unwrap();
    let output = directory.join("nvidia.yaml");
    let made = Command::new(TRANCHE).args(generate(host, &output)).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = fs::read_to_string(&output).unwrap();
    for number in 0..OTHERS {
        let other = text.replace("kind: nvidia.com/gpu", &format!("kind: vendor{number}.com/device"));
        assert_ne!(other, text);
        fs::write(directory.join(format!("vendor{number}.yaml")), other).unwrap();
    }
    output
}

fn generate(host: &Host, output: &Path) -> Vec<String> {
    let root = host.root.display();
    vec![
        "cdi".to_owned(),
        "generate".to_owned(),
        format!("--driver-root={root}"),
        format!("--dev-root={root}"),
        format!("--proc-root={root}/proc"),
        format!("--sys-root={root}/sys"),
        format!("--output={}", output.display()),
    ]
}

/// An HGX with the first `count` of its GPUs.
fn hgx(into: &Path, count: usize) -> Host {
    let host = fake_host::build("hgx-h200", into).unwrap();
    host.nvml(|config| config["gpus"].as_array_mut().unwrap().truncate(count))
        .unwrap();
    for gpu in count..8 {
        // A user who cannot make nodes has none to remove, and nothing is measured.
        let _ = fs::remove_file(host.path(&format!("/dev/nvidia{gpu}")));
    }
    // A GPU that the driver lists and that NVML does not have is one that does not answer.
    let listed = fs::read_dir(host.path("/proc/driver/nvidia/gpus")).unwrap();
    let mut gpus: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    gpus.sort();
    gpus.iter().skip(count).for_each(|gpu| fs::remove_dir_all(gpu).unwrap());
    host
}

/// So many GPUs of seven MIG devices each.
fn mig(into: &Path, count: u64) -> Host {
    let mut host = fake_host::build("dgx-a100-mig", into).unwrap();
    let mut minors = String::from("config 1\nmonitor 2\n");
    let mut caps = Vec::new();
    let mut gpus = Vec::new();
    for gpu in 0..count {
        let instances: Vec<Value> = (0..7)
            .map(|n| {
                let (gi, cap) = (n + 7, 3 + gpu * 14 + n * 2);
                writeln!(
                    minors,
                    "gpu{gpu}/gi{gi}/access {cap}\ngpu{gpu}/gi{gi}/ci0/access {}",
                    cap + 1
                )
                .unwrap();
                caps.extend([cap, cap + 1]);
                let uuid = format!("MIG-00000000-0000-0000-{gpu:04}-{n:012}");
                json!({"id": gi, "profile": "1g.5gb", "memory_mib": 4864, "sms": 14, "start": n,
                       "compute": [{"id": 0, "uuid": uuid, "index": n}]})
            })
            .collect();
        gpus.push(json!({
            "uuid": format!("GPU-00000000-0000-0000-0000-{gpu:012}"), "minor": gpu, "pci": format!("00000000:{:02x}:00.0", gpu + 1),
            "pci_device_id": 548_409_566, "name": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "architecture": "ampere",
            "compute": "8.0", "brand": 14, "persistence": true, "virtualization": "none", "addressing": "none",
            "mig": {"current": true, "max": 7, "instances": instances}
        }));
        node(&mut host, &format!("/dev/nvidia{gpu}"), 195, gpu);
    }
    for cap in caps {
        node(&mut host, &format!("/dev/nvidia-caps/nvidia-cap{cap}"), 237, cap);
    }
    fs::write(host.path("/proc/driver/nvidia-caps/mig-minors"), minors).unwrap();
    host.nvml(|config| config["gpus"] = gpus.into()).unwrap();
    host
}

fn node(host: &mut Host, path: &str, major: u64, minor: u64) {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let place = host.path(path);
    let _ = fs::remove_file(&place);
    let mode = Mode::from_bits_truncate(0o666);
    if let Err(why) = mknod(&place, SFlag::S_IFCHR, mode, makedev(major, minor)) {
        host.not_made.push(fake_host::NotMade {
            path: PathBuf::from(path),
            why: why.to_string(),
        });
    }
}

/// The largest resident set of a program and its children, in KiB, as [`measure`] sees it.
///
/// A process begins with the peak of the one that it was split from: so a small process in between starts it, not this
/// one.
fn peak(program: &str, arguments: &[String]) -> i64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg("measure")
        .arg(program)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn measure(program: &str, arguments: &[String]) {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdout(Stdio::null());
    assert!(command.status().unwrap().success());
    println!("{}", getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss());
}
