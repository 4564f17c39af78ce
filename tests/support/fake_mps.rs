//! The fake of the driver's programs for MPS (`examples/fake-mps`), in a test host, and what it recorded.

use crate::fake_host::fake_library;
use crate::programs;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The programs that the fake stands in for.
const PROGRAMS: [&str; 3] = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi"];

/// The fake programs of one test host.
#[derive(Debug, Clone)]
pub struct FakeMps {
    root: PathBuf,
}

/// The fake program, up to date. With the first argument `client`, it is a CUDA process.
pub fn program() -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| fake_library::build("fake-mps").unwrap().join("fake-mps"));
    BUILT.clone()
}

impl FakeMps {
    /// Puts the programs into `/usr/bin` of the host at `root`, without faults.
    pub fn install(root: &Path) -> Self {
        let program = program();
        for name in PROGRAMS {
            let place = root.join("usr/bin").join(name);
            programs::install(&program, &place);
        }
        let fake = Self { root: root.to_owned() };
        fake.set_faults(json!({}));
        fake
    }

    /// A program of the host.
    pub fn program(&self, name: &str) -> PathBuf {
        self.root.join("usr/bin").join(name)
    }

    /// Where everything is recorded that changes a GPU or a daemon.
    pub fn record(&self) -> PathBuf {
        self.root.join("record")
    }

    /// Sets what goes wrong from now on; `examples/fake-mps/config.rs` has the names.
    pub fn set_faults(&self, faults: Value) {
        let config = json!({"record": self.record(), "faults": faults});
        // In one step, because a daemon may read it now.
        let new = self.root.join("fake-mps.new");
        fs::write(&new, config.to_string()).unwrap();
        fs::rename(new, self.root.join("fake-mps.json")).unwrap();
    }

    /// Everything that was recorded, in order, but for the question which options the control program takes.
    pub fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.record()).unwrap_or_default();
        // The broker asks the control program what it can do, where no daemon can work.
        let is_question = |event: &Value| {
            event["event"] == "start" && event["environment"]["CUDA_MPS_PIPE_DIRECTORY"] == "/dev/null/none"
        };
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
        events.filter(|event| !is_question(event)).collect()
    }

    /// What was recorded, one short line each: `start -f`, `command quit`, `compute mode 3`, `cgroup limit NAME 4912
    /// MiB`, `nvidia-smi …`.
    pub fn lines(&self) -> Vec<String> {
        let line = |event: &Value| {
            let kind = event["event"].as_str().unwrap();
            let words = |value: &Value| {
                let words = value.as_array().unwrap().iter().map(|word| word.as_str().unwrap());
                words.collect::<Vec<_>>().join(" ")
            };
            match kind {
                "start" | "nvidia-smi" => format!("{kind} {}", words(&event["arguments"])),
                "command" => format!("{kind} {}", event["command"].as_str().unwrap()),
                "compute mode" => format!("{kind} {}", event["mode"]),
                "cgroup limit" => {
                    assert_eq!(event["soft"], 0, "a soft limit outlives its cgroup");
                    let cgroup = Path::new(event["path"].as_str().unwrap()).file_name().unwrap();
                    let limit = match event["hard"].as_u64().unwrap() {
                        u64::MAX => "max".to_owned(),
                        bytes => format!("{} MiB", bytes >> 20),
                    };
                    format!("{kind} {} {limit}", cgroup.to_str().unwrap())
                }
                other => other.to_owned(),
            }
        };
        self.events().iter().map(line).collect()
    }

    /// Forgets what was recorded.
    pub fn forget(&self) {
        let _ = fs::remove_file(self.record());
    }
}
