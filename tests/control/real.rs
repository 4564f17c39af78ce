//! The broker with NVIDIA's own MPS programs, of each branch that Debian has. They run without a GPU; their server does
//! not start there, and says so.

mod attacks;
mod corrections;
mod cycles;

use crate::bed::Bed;
use crate::support::nvidia_packages::{BRANCHES, unpacked};
use crate::support::{programs, skip};
use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A machine with the programs of one branch, in Debian's places.
pub(crate) struct RealBed {
    pub(crate) bed: Bed,
    pub(crate) branch: u32,
}

/// Calls `check` for each branch that can be fetched.
pub(crate) fn each(test: &str, policy: &str, check: impl Fn(&RealBed)) {
    for branch in BRANCHES {
        let package = match unpacked("nvidia-cuda-mps", branch) {
            Ok(package) => package,
            Err(why) => {
                skip::not_run(&format!("control::real::{test}, {branch}"), &why);
                continue;
            }
        };
        println!("{test}: {}", package.version);
        let driver = package.version.split('-').next().unwrap();
        let policy = match branch {
            // It has no limits of memory.
            ..495 => without_memory(policy),
            _ => policy.to_owned(),
        };
        let bed = Bed::upgraded(driver, &policy);
        install(&bed, &package.root, branch);
        bed.discover(&policy);
        check(&RealBed { bed, branch });
    }
}

/// As [`each`], for what a tenant tries: it is a row of the table of attacks (tests/bed/run-tests.sh). `attack` returns
/// how many variations it has tried on the broker's daemon, and panics if one escapes, or if it does nothing to the
/// daemon as earlier versions ran it.
pub(crate) fn attack(test: &str, idea: &str, policy: &str, attack: impl Fn(&RealBed) -> usize) {
    let tried = Cell::new(0);
    each(test, policy, |real| tried.set(tried.get() + attack(real)));
    if let Some(file) = std::env::var_os("TRANCHE_TEST_ATTACKS")
        && tried.get() > 0
    {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        let row = format!("mps::{test}\t{}\t0\t-\t{idea}\ta tenant's process\n", tried.get());
        file.write_all(row.as_bytes()).unwrap();
    }
}

fn without_memory(policy: &str) -> String {
    policy.replace("memory: 80%, ", "").replace("memory: 20%, ", "")
}

/// Puts the programs of a package in the place of the fake.
pub(crate) fn install(bed: &Bed, package: &Path, _branch: u32) {
    let _ = fs::remove_file(bed.host.root.join("usr/bin/nvidia-cuda-mps-server"));
    for program in ["usr/bin/nvidia-cuda-mps-control", "usr/sbin/nvidia-cuda-mps-server"] {
        let place = bed.host.root.join(program);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        programs::install(package.join(program), &place);
    }
}

impl RealBed {
    /// The control program.
    pub(crate) fn control(&self) -> PathBuf {
        self.bed.host.root.join("usr/bin/nvidia-cuda-mps-control")
    }

    /// Whether the daemon has limits of memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.branch >= 495
    }

    /// The directory that the daemon works in.
    pub(crate) fn work(&self) -> PathBuf {
        self.bed.state().join("mps-daemon/0")
    }

    /// What the daemon in `directory` answers to a command of this user, within two seconds.
    pub(crate) fn ask(&self, directory: &Path, uid: &str, command: &str) -> Option<String> {
        ask(&self.control(), directory, uid, command)
    }

    /// What the broker's daemon answers.
    pub(crate) fn answer(&self, command: &str) -> String {
        let answer = self.ask(&self.work(), "0", command).unwrap();
        answer.trim().to_owned()
    }

    /// The names in the directory of the clients.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.bed.pipe()).unwrap();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

/// In the place of a user: root of a user namespace that user 1000 has made.
pub(crate) const OF_NAMESPACE: &str = "root of a namespace";

/// What the daemon in `directory` answers to a command of `uid`; `None` if it does not within two seconds.
pub(crate) fn ask(program: &Path, directory: &Path, uid: &str, command: &str) -> Option<String> {
    let mut front = Command::new("timeout");
    let number = if uid == OF_NAMESPACE { "1000" } else { uid };
    front.args(["2", "setpriv", &format!("--reuid={number}"), "--clear-groups"]);
    if uid == OF_NAMESPACE {
        front.args(["unshare", "--user", "--map-root-user"]);
    }
    front.arg(program);
    front.env("CUDA_MPS_PIPE_DIRECTORY", directory);
    front
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut front = front.spawn().unwrap();
    let _ = front.stdin.take().unwrap().write_all(format!("{command}\n").as_bytes());
    let Output { status, stdout, .. } = front.wait_with_output().unwrap();
    (status.code() != Some(124)).then(|| String::from_utf8(stdout).unwrap())
}

/// Waits until `is_so`, at most for half a minute.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
