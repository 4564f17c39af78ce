//! All hook work of one start against the same work with `ldconfig`, and a container's start with the hook and without.
//!
//! Machines are noisy, so every round runs each program once, and medians of one run are compared with each other. What
//! counts is the ratio to an empty static program of the same run. Where valgrind is installed, the instructions of one
//! run are counted too: they do not depend on what else the machine does.
//!
//! ```text
//! make bench                                      # builds tranche-oci as it is shipped
//! TRANCHE_OCI_BEFORE=/path/to/other make bench    # measures another tranche-oci in the same run
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, dead_code)]

#[path = "support/crun.rs"]
mod crun;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tranche_test_support::stub_elf;

use crun::{compile, hook, median, starts};
use serde_json::json;
use stub_elf::{Machine, library};

const LIBDIR: &str = "/usr/lib/x86_64-linux-gnu";
/// About as many libraries as a driver with graphics brings.
const DRIVER_LIBRARIES: usize = 50;
/// What a first start may take at most, by the number of libraries in the image, as a ratio to an empty static program.
const LIMITS: [(usize, f64); 2] = [(50, 1.7), (3000, 2.5)];

/// Runs the program that it is given, and says how much memory that took at most, in KiB.
const PEAK: &str = r#"
#include <sys/wait.h>
#include <sys/resource.h>
#include <unistd.h>
#include <stdio.h>
int main(int argc, char **argv) {
    pid_t child = fork();
    if (child == 0) { execv(argv[1], argv + 1); _exit(127); }
    struct rusage usage;
    int status;
    if (wait4(child, &status, 0, &usage) != child || status != 0) return 1;
    printf("%ld\n", usage.ru_maxrss);
    return 0;
}
"#;

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let Some(oci) = std::env::var_os("TRANCHE_OCI_STATIC").map(PathBuf::from) else {
        println!("not run: benches/prepare: TRANCHE_OCI_STATIC is not set: run `make bench`");
        return;
    };
    if !nix::unistd::Uid::effective().is_root() || !Path::new("/sbin/ldconfig").exists() {
        println!("not run: benches/prepare: needs root and glibc's ldconfig");
        return;
    }
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(101);
    // In memory where that is possible: what is measured is the program, not a disk.
    let place = if Path::new("/dev/shm").is_dir() {
        PathBuf::from("/dev/shm")
    } else {
        std::env::temp_dir()
    };
    let top = tempfile::tempdir_in(place).unwrap();
    let empty = compile(top.path(), "empty", "int main(void) { return 0; }\n");
    let peak = compile(top.path(), "peak", PEAK);

    let before = std::env::var_os("TRANCHE_OCI_BEFORE").map(PathBuf::from);
    println!(
        "{:>9} {:>9} {:>12} {:>7} {:>6} {:>12} {:>7} {:>12} {:>10} {:>9} {:>13}",
        "libraries",
        "empty",
        "first start",
        "ratio",
        "limit",
        "before",
        "ratio",
        "next start",
        "ldconfig",
        "peak KiB",
        "instructions"
    );
    let mut over = Vec::new();
    for count in [50, 500, 3000, 10_000] {
        let bench = Bench::new(top.path(), &oci, count);
        let mut times = [const { Vec::new() }; 5];
        for round in 0..rounds {
            times[0].push(bench.time(Command::new(&empty)));
            bench.reset();
            times[1].push(bench.time(bench.hook(&bench.oci, &bench.arguments)));
            times[2].push(bench.time(bench.hook(&bench.oci, &bench.arguments)));
            // It is slow, and its median needs no more.
            if round % 10 == 0 {
                times[3].push(bench.time(bench.ldconfig()));
            }
            if let Some(before) = &before {
                bench.reset();
                times[4].push(bench.time(bench.hook(before, &bench.arguments_before)));
            }
        }
        let [empty, first, next, theirs, earlier] = times.map(median);
        let ratio = |time: Duration| time.as_secs_f64() / empty.as_secs_f64();
        let limit = LIMITS.iter().find(|(of, _)| *of == count).map(|(_, limit)| *limit);
        over.extend(limit.filter(|limit| ratio(first) > *limit).map(|_| count));
        bench.reset();
        let mut measured = Command::new(&peak);
        measured
            .arg(&bench.oci)
            .args(&bench.arguments)
            .stdin(File::open(bench.at("state.json")).unwrap());
        let peak = String::from_utf8(measured.output().unwrap().stdout).unwrap();
        let shown = |time: Option<String>| time.unwrap_or_else(|| "-".to_owned());
        println!(
            "{count:>9} {:>9} {:>12} {:>6.2}x {:>6} {:>12} {:>7} {:>12} {:>10} {:>9} {:>13}",
            format!("{empty:.2?}"),
            format!("{first:.2?}"),
            ratio(first),
            shown(limit.map(|limit| format!("{limit:.1}x"))),
            shown(before.as_ref().map(|_| format!("{earlier:.2?}"))),
            shown(before.as_ref().map(|_| format!("{:.2}x", ratio(earlier)))),
            format!("{next:.2?}"),
            format!("{theirs:.2?}"),
            peak.trim(),
            bench.instructions().unwrap_or_else(|| "no valgrind".to_owned())
        );
    }
    println!("ratio: over an empty static program in the same run; {rounds} rounds, medians");
    for count in over {
        println!("over the limit: a first start with {count} libraries");
    }
    start_of_a_container(top.path(), &oci, before.as_deref(), rounds.min(31));
}

/// A bundle whose image has `count` libraries, and a driver among them.
struct Bench {
    bundle: PathBuf,
    oci: PathBuf,
    arguments: Vec<String>,
    /// The arguments of a specification that was written before there was `--library`.
    arguments_before: Vec<String>,
}

impl Bench {
    fn new(top: &Path, oci: &Path, count: usize) -> Bench {
        let bundle = top.join(count.to_string());
        let root = bundle.join("rootfs");
        let directory = root.join(LIBDIR.trim_start_matches('/'));
        for path in [&directory, &root.join("etc"), &root.join("lib64")] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(root.join("lib64/ld-linux-x86-64.so.2"), "").unwrap();
        fs::write(root.join("etc/ld.so.conf"), format!("{LIBDIR}\n")).unwrap();
        for number in 0..count {
            let soname = format!("libbench{number:05}.so.1");
            fs::write(
                directory.join(format!("{soname}.2.3")),
                library(&soname, Machine::X86_64).unwrap(),
            )
            .unwrap();
            symlink(format!("{soname}.2.3"), directory.join(&soname)).unwrap();
        }
        let (mut arguments, mut mounts) = (vec!["hook".to_owned(), "prepare".to_owned()], Vec::new());
        let mut libraries = Vec::new();
        let bench = Bench {
            bundle,
            oci: oci.to_path_buf(),
            arguments: Vec::new(),
            arguments_before: Vec::new(),
        };
        let output = bench.ldconfig().output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::copy(root.join("etc/ld.so.cache"), bench.at("cache")).unwrap();
        for number in 0..DRIVER_LIBRARIES {
            let (soname, file) = (
                format!("libdriver{number}.so.1"),
                format!("libdriver{number}.so.580.95.05"),
            );
            fs::write(directory.join(&file), library(&soname, Machine::X86_64).unwrap()).unwrap();
            arguments.extend(["--link".to_owned(), format!("{file}::{LIBDIR}/{soname}")]);
            libraries.extend(["--library".to_owned(), format!("64::{LIBDIR}/{file}::{soname}")]);
            let at = format!("{LIBDIR}/{file}");
            mounts.push(json!({"destination": at, "source": at, "type": "bind", "options": ["bind"]}));
        }
        arguments.extend(["--ldcache-dir", LIBDIR, "--driver-version", "580.95.05"].map(str::to_owned));
        let config =
            json!({"root": {"path": "rootfs"}, "mounts": mounts, "linux": {"devices": [{"path": "/dev/nvidia0"}]}});
        fs::write(bench.at("config.json"), config.to_string()).unwrap();
        let state = json!({"ociVersion": "1.0.2", "id": "c", "status": "creating", "bundle": bench.bundle});
        fs::write(bench.at("state.json"), state.to_string()).unwrap();
        Bench {
            arguments: arguments.iter().chain(&libraries).cloned().collect(),
            arguments_before: arguments,
            ..bench
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.bundle.join(path)
    }

    /// The image as it was before its first start.
    fn reset(&self) {
        let root = self.at("rootfs");
        for number in 0..DRIVER_LIBRARIES {
            let link = format!("libdriver{number}.so.1");
            let _ = fs::remove_file(root.join(LIBDIR.trim_start_matches('/')).join(link));
        }
        let _ = fs::remove_dir_all(root.join("etc/nvidia"));
        fs::copy(self.at("cache"), root.join("etc/ld.so.cache")).unwrap();
    }

    fn hook(&self, program: &Path, arguments: &[String]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }

    /// A full run without its auxiliary cache, as in a container that was just made.
    fn ldconfig(&self) -> Command {
        let mut command = Command::new("/sbin/ldconfig");
        command.args(["-i", "-X", "-r"]).arg(self.at("rootfs"));
        command
    }

    fn time(&self, mut command: Command) -> Duration {
        let state = File::open(self.at("state.json")).map_or_else(|_| Stdio::null(), Stdio::from);
        command.env_clear().stdin(state).stderr(Stdio::null());
        let start = Instant::now();
        assert!(command.status().unwrap().success(), "{command:?}");
        start.elapsed()
    }

    fn instructions(&self) -> Option<String> {
        self.reset();
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(&self.oci)
            .args(&self.arguments);
        command.stdin(File::open(self.at("state.json")).unwrap());
        let text = String::from_utf8_lossy(&command.output().ok()?.stderr).into_owned();
        let line = text.lines().find(|line| line.contains("Collected : "))?;
        line.split_whitespace().last().map(str::to_owned)
    }
}

/// crun alone, on a bundle of a static program in an image with 50 libraries: without a hook, with an empty one, and
/// with the hooks of a first start.
fn start_of_a_container(top: &Path, oci: &Path, before: Option<&Path>, rounds: usize) {
    let bench = Bench::new(&top.join("crun"), oci, 50);
    // crun fails if a hook ends before it was given the state.
    let reads = "#include <unistd.h>\nint main(void) { char b[4096]; while (read(0, b, sizeof b) > 0); return 0; }\n";
    let empty = &compile(top, "reads", reads);
    let called = |program: &Path, arguments| json!({"createContainer": hook(program, arguments)});
    let mut names = vec!["no hook", "an empty hook", "the hook"];
    let mut hooks = vec![
        json!({}),
        called(empty, &bench.arguments),
        called(oci, &bench.arguments),
    ];
    if let Some(before) = before {
        names.push("the hook before");
        hooks.push(called(before, &bench.arguments_before));
    }
    let times = match starts(&bench.bundle, &hooks, rounds, || bench.reset()) {
        Ok(times) => times,
        Err(said) => return println!("not run: benches/prepare: start under crun: {said}"),
    };
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let over = times.get(1).copied().unwrap_or_default();
    for (name, time) in names.iter().zip(&times) {
        println!(
            "a container's start under crun, {name:16} {:>7.2} ms, {:>6.2} ms over the empty hook",
            milliseconds(*time),
            milliseconds(*time) - milliseconds(over)
        );
    }
}
