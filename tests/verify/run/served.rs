//! Everything together: a broker that starts the MPS daemon, a program in a share, and CUDA that says what the share
//! gives.

use super::{text, until};
use crate::support::fake_host::fake_library::CUDA;
use crate::support::fake_mps::FakeMps;
use crate::support::{fake_host, skip};
use crate::verify_program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const POLICY: &str = "\
version: v1
sharing:
  mps:
    grace: 0
    resources:
    - name: nvidia.com/gpu
      shares:
      - {name: big, memory: 8Gi, compute: 60%}
      - {name: small, memory: 4Gi, compute: 20%}
";

/// The broker, and the daemons that it has started.
struct Broker {
    process: Child,
    programs: PathBuf,
}

impl Broker {
    fn daemons(&self) -> Vec<Pid> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let is_daemon = |path: &Path| fs::read_link(path.join("exe")).is_ok_and(|exe| exe.starts_with(&self.programs));
        let daemons = processes.filter(|process| is_daemon(&process.path()));
        let number = |process: fs::DirEntry| process.file_name().to_str()?.parse().ok().map(Pid::from_raw);
        daemons.filter_map(number).collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for daemon in self.daemons() {
            let _ = kill(daemon, Signal::SIGKILL);
        }
    }
}

/// A workstation whose shares a broker serves.
struct Served {
    broker: Broker,
    fake: FakeMps,
    root: PathBuf,
    top: tempfile::TempDir,
}

impl Served {
    /// With this driver; `None` where the host cannot be made.
    fn new(test: &str, driver: &str, policy: &str) -> Option<Self> {
        let top = tempfile::Builder::new().prefix("run").tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        let host = fake_host::build_with_driver("workstation-rtx4090", driver, &at("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            skip::not_run(test, &missing.why);
            return None;
        }
        let fake = FakeMps::install(&host.root);
        let mut uuid = String::new();
        host.nvml(|config| {
            config["record"] = fake.record().to_str().unwrap().into();
            uuid = config["gpus"][0]["uuid"].as_str().unwrap().to_owned();
        })
        .unwrap();
        fs::create_dir_all(host.path("/sys/fs/cgroup")).unwrap();
        fs::write(host.path("/sys/fs/cgroup/cgroup.controllers"), "memory pids\n").unwrap();
        CUDA.install(&at("libcuda.so.1"), &[]).unwrap();
        let gpu = json!({"uuid": uuid, "name": "a GPU", "sms": 128, "memory_mib": 24564, "exclusive": true});
        fs::write(at("cuda.json"), json!({"version": 12040, "gpus": [gpu]}).to_string()).unwrap();
        fs::write(at("policy.yaml"), policy).unwrap();
        let said = fs::File::create(at("broker.txt")).unwrap();
        let process = tranche(top.path(), &["broker"]).stderr(said).spawn().unwrap();
        let programs = host.root.join("usr/bin");
        let mut served = Self {
            broker: Broker { process, programs },
            fake,
            root: host.root,
            top,
        };
        let socket = served.at("state/broker.sock");
        until("the broker listens, or has ended", || {
            socket.exists() || served.broker.process.try_wait().unwrap().is_some()
        });
        Some(served)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    /// Runs a program in a share, and returns how it ended, and what the broker has printed.
    fn run(&self, share: &str, command: &[&str]) -> (Output, String) {
        let words = [&["run", "--share", share, "--"], command].concat();
        let output = tranche(self.top.path(), &words).output().unwrap();
        (output, fs::read_to_string(self.at("broker.txt")).unwrap())
    }

    /// Waits until the device is as it was after the last claim.
    fn wait_until_it_is_put_back(&self) {
        until("the device is put back", || {
            !self.at("state/control/0.json").exists() && self.broker.daemons().is_empty()
        });
        let lines = self.fake.lines();
        assert_eq!(lines.last().map(String::as_str), Some("compute mode 0"), "{lines:?}");
    }
}

/// The program in a place of its own.
fn tranche(top: &Path, words: &[&str]) -> Command {
    let at = |path: &str| top.join(path);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
    command.args(words).env("TRANCHE_STATE_DIR", at("state"));
    command
        .env("TRANCHE_ROOT", at("host"))
        .env("TRANCHE_CONFIG", at("policy.yaml"));
    command.env("TRANCHE_SPEC_DIR", at("specs")).env("LD_LIBRARY_PATH", top);
    command.stdin(Stdio::null());
    command
}

#[test]
fn a_program_gets_its_share_of_a_device_that_the_broker_serves() {
    let test = "run::served::a_program_gets_its_share_of_a_device_that_the_broker_serves";
    let Some(served) = Served::new(test, "550.163.01", POLICY) else {
        return;
    };
    let program = verify_program::path().to_str().unwrap();
    let (output, log) = served.run("0.big", &[program, "--json"]);
    assert!(output.status.success(), "{}{log}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &report["devices"][0];
    assert_eq!((&device["mps"], &device["sms"]), (&json!(true), &json!(76)), "{report}");
    assert_eq!(device["memory_free"], 8192_u64 << 20);
    let pipe = served.at("state/mps/0");
    assert_eq!(report["mps"]["pipe_directory"], pipe.to_str().unwrap());
    let lines = served.fake.lines();
    let limit = "command set_default_device_pinned_mem_limit 0 8192M";
    assert!(lines.iter().any(|line| line == limit), "{lines:?}");
    served.wait_until_it_is_put_back();
}

#[test]
fn the_memory_of_a_programs_cgroup_is_limited_before_it_starts() {
    let test = "run::served::the_memory_of_a_programs_cgroup_is_limited_before_it_starts";
    // The first thing that the program does is to look at the limits that NVML has.
    let show = "cat /proc/self/cgroup; echo; cat fake-nvml.cgroups.json";
    let v2 = POLICY.replace("grace: 0", "grace: 0\n    enforcement: v2");
    for (policy, is_limited) in [(POLICY, true), (v2.as_str(), false)] {
        let Some(served) = Served::new(test, "615.71.09", policy) else {
            return;
        };
        let script = format!("cd {}; {show}", served.root.display());
        let (output, log) = served.run("0.big", &["sh", "-c", &script]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        if err.contains("it has no cgroup of its own") {
            return skip::not_run(test, "no cgroup of version 2 can be made");
        }
        let (cgroups, limits) = out.split_once("\n\n").unwrap_or_else(|| panic!("{out}{err}{log}"));
        let lines = served.fake.lines();
        let limited: Vec<&String> = lines.iter().filter(|line| line.starts_with("cgroup limit")).collect();
        if !is_limited {
            assert_eq!((limits, limited), ("", Vec::new()), "{err}{log}");
            continue;
        }
        let limits: Value = serde_json::from_str(limits).unwrap();
        let [limit] = &limits.as_object().unwrap().values().collect::<Vec<_>>()[..] else {
            panic!("{limits}")
        };
        assert_eq!((&limit["hard"], &limit["soft"]), (&json!(8192_u64 << 20), &json!(0)));
        let path = Path::new(limit["path"].as_str().unwrap());
        let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
        assert!(path.ends_with(own) && !own.is_empty(), "{limits} {cgroups}");
        served.wait_until_it_is_put_back();
        // The kernel has removed the limit together with the cgroup.
        assert!(!path.exists());
    }
}
