//! A workstation whose GPU computes in time.

use crate::support::fake_host::fake_library::CUDA;
use crate::support::fake_host::{self, Host};
use crate::support::fake_mps::FakeMps;
use crate::support::measured::measured;
use crate::support::on_host::on_host;
use crate::verify_program;
use serde_json::{Value, json};
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use tempfile::TempDir;

/// Whether times are measured that another machine's work would lengthen.
static MEASURING: RwLock<()> = RwLock::new(());

thread_local! {
    /// Whether this thread has [`MEASURING`] to itself.
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Tests times while no other machine of these tests is in use, up to three times ([`measured`]).
pub(crate) fn alone(measure: impl Fn()) {
    let _alone = MEASURING.write().unwrap_or_else(PoisonError::into_inner);
    IS_ALONE.set(true);
    measured(measure);
}

pub(crate) struct Bed {
    pub(crate) top: TempDir,
    pub(crate) host: Host,
    pub(crate) mps: FakeMps,
    /// Nobody measures meanwhile; `None` where this test does.
    _others: Option<RwLockReadGuard<'static, ()>>,
}

#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::that_cheats(&[])
    }

    /// A machine whose GPU breaks these promises.
    pub(crate) fn that_cheats(cheats: &[&str]) -> Self {
        Self::on("workstation-rtx4090", 40, cheats)
    }

    /// A machine with GPUs that have MIG, of which the first one computes.
    pub(crate) fn with_mig() -> Self {
        Self::on("hgx-h200", 132, &[])
    }

    pub(crate) fn on(host: &str, sms: u32, cheats: &[&str]) -> Self {
        let others = || MEASURING.read().unwrap_or_else(PoisonError::into_inner);
        let others = (!IS_ALONE.get()).then(others);
        let top = tempfile::Builder::new().prefix("bench").tempdir().unwrap();
        let host = fake_host::build(host, &top.path().join("host")).unwrap();
        let mps = FakeMps::install(&host.root);
        let mut uuid = String::new();
        host.nvml(|config| {
            config["record"] = mps.record().to_str().unwrap().into();
            config["gpus"][0]["clocks"] = json!({"sm_mhz": 2520, "celsius": 55, "slowed": 1});
            uuid = config["gpus"][0]["uuid"].as_str().unwrap().to_owned();
        })
        .unwrap();
        fs::create_dir(top.path().join("cuda")).unwrap();
        CUDA.install(&top.path().join("cuda/libcuda.so.1"), &[]).unwrap();
        let model = json!({
            "state": top.path().join("gpu"), "l2_mib": 4, "bandwidth_gb_s": 400, "cheats": cheats
        });
        let gpu = |uuid: &str, sms: u32| json!({"uuid": uuid, "name": "NVIDIA", "sms": sms, "memory_mib": 24564, "model": model});
        // An instance has the multiprocessors of 3g.71gb.
        let config = json!({"version": 12040, "gpus": [gpu(&uuid, sms), gpu("MIG-", 60)]});
        fs::write(top.path().join("cuda/cuda.json"), config.to_string()).unwrap();
        fs::write(top.path().join("policy.yaml"), "version: v1\n").unwrap();
        Self {
            top,
            host,
            mps,
            _others: others,
        }
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        command.args(arguments).env_clear().stdin(Stdio::null());
        on_host(&mut command, self.top.path());
        command.env("LD_LIBRARY_PATH", self.at("cuda"));
        for variable in ["TRANCHE_OUTPUT_DIR", "TRANCHE_SPEC_DIR"] {
            command.env(variable, self.at("cdi"));
        }
        command
    }

    pub(crate) fn tranche(&self, arguments: &[&str]) -> Said {
        self.command(arguments).output().unwrap().into()
    }

    /// `tranche bench 0` with cells of so many seconds.
    pub(crate) fn bench(&self, seconds: u32, arguments: &[&str]) -> Command {
        let (load, seconds) = (verify_program::load(), format!("--seconds={seconds}"));
        let all = ["bench", "0", &seconds, "--load-program", load.to_str().unwrap()];
        self.command(&[&all, arguments].concat())
    }

    /// Nothing of a run is left.
    pub(crate) fn assert_as_it_was(&self) {
        assert!(!self.at("state/bench").exists(), "the room is removed");
        let claims: Value = serde_json::from_str(&self.tranche(&["claim", "list", "--json"]).out).unwrap();
        assert_eq!(claims, json!([]));
        let left = self.mps.lines();
        let count = |word: &str| left.iter().filter(|line| line.contains(word)).count();
        assert_eq!(count("started"), count("ended"), "{left:?}");
    }
}
