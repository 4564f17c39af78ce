//! `tranche claim …` and `tranche status` as a person or a script uses them, and what is left of them when they are
//! killed.

mod collected;
mod created;
mod drained;
mod killed;
mod metrics;
mod observed;
mod policy_changed;
mod policy_diff;
mod released;
mod reserved;
mod shown;
mod starts;
mod stopped;
mod waiting_hooks;

use crate::support::{init, programs, rights, skip};
use crate::{Said, said};
use init::Init;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tranche_plan::cdi::registry::Registry;

/// GPU 0 in four turns, GPU 1 in two unequal shares.
const POLICY: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 4}
  mps:
    daemon: external
    resources:
    - name: nvidia.com/gpu
      devices: [1]
      shares:
      - {name: big, compute: 60%, memory: 8Gi}
      - {name: small, compute: 20%, memory: 2Gi}
";

/// A command that can be run with and without something around it.
#[derive(Clone)]
struct Call {
    words: Vec<String>,
    input: Option<PathBuf>,
}

impl Call {
    /// Runs it behind `before`, which is empty or a program that runs another.
    fn run_behind(&self, before: &[&str]) -> Said {
        let words: Vec<&str> = before
            .iter()
            .copied()
            .chain(self.words.iter().map(String::as_str))
            .collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env_clear();
        command.stdin(
            self.input
                .as_ref()
                .map_or_else(Stdio::null, |i| File::open(i).unwrap().into()),
        );
        said(command)
    }

    fn run(&self) -> Said {
        self.run_behind(&[])
    }
}

impl Said {
    /// Its result, where it must have succeeded.
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// Its one line, where it must have failed with this code.
    #[track_caller]
    fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        self.err
    }
}

/// A state directory and a directory of specifications, for a built-in host with two GPUs under [`POLICY`].
struct Scene {
    top: tempfile::TempDir,
}

impl Scene {
    /// A scene, or `None` where shares cannot be used: they are for engines that run as root.
    fn new(test: &str) -> Option<Scene> {
        if !rights::owns_machine(&format!("claim_verbs::{test}")) {
            return None;
        }
        let scene = Scene {
            top: tempfile::tempdir().unwrap(),
        };
        scene.policy(POLICY);
        scene.refresh();
        Some(scene)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn policy(&self, text: &str) {
        fs::write(self.at("policy.yaml"), text).unwrap();
    }

    fn option(&self, name: &str, path: &str) -> String {
        format!("--{name}={}", self.at(path).display())
    }

    /// `tranche` with these arguments and the scene's state directory.
    fn tranche(&self, arguments: &[&str]) -> Call {
        let mut words = vec![env!("CARGO_BIN_EXE_tranche").to_owned()];
        words.extend(arguments.iter().map(|a| (*a).to_owned()));
        words.push(self.option("state-dir", "state"));
        Call { words, input: None }
    }

    /// As [`Scene::tranche`], for a verb that looks at the host.
    fn at_host(&self, arguments: &[&str]) -> Call {
        let config = self.option("config", "policy.yaml");
        self.tranche(&[arguments, &["--inventory=sim:t4x2", &config]].concat())
    }

    /// Writes the specifications and host.json for the policy of now.
    fn refresh(&self) {
        let output = self.option("output-dir", "cdi");
        self.at_host(&["cdi", "refresh", &output, "--degraded"]).run().ok();
    }

    fn collect(&self, arguments: &[&str]) -> Call {
        let specs = self.option("spec-dir", "cdi");
        self.tranche(&[&["claim", "gc", &specs], arguments].concat())
    }

    fn create(&self, more: &[&str]) -> Call {
        let specs = self.option("spec-dir", "cdi");
        self.at_host(&[&["claim", "create", &specs], more].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let said = self.tranche(&[arguments, &["--json"]].concat()).run();
        serde_json::from_str(&said.ok()).unwrap()
    }

    /// The names of the claims that were made beforehand.
    fn claims(&self) -> Vec<String> {
        let list = self.json(&["claim", "list"]);
        let names = list
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned());
        names.collect()
    }

    /// The hook of this stage that an engine would run for a container with `device`, whose id is `id` and whose init
    /// is `pid`; with it its state.
    fn hook(&self, stage: &str, device: &str, id: &str, pid: u32) -> Call {
        let registry = Registry::read(&[self.at("cdi")]);
        let found = registry
            .find(&device.parse().unwrap())
            .unwrap_or_else(|| panic!("{device}: {:?}", registry.problems));
        let hooks = found.device.edits.hooks.iter().chain(&found.file.spec.edits.hooks);
        let hook = hooks
            .into_iter()
            .find(|h| h.hook_name == stage && h.args[0] == "tranche-oci")
            .unwrap();
        let bundle = self.at("store/kind-containers").join(id).join("userdata");
        fs::create_dir_all(&bundle).unwrap();
        if !bundle.join("config.json").exists() {
            fs::write(bundle.join("config.json"), "{}").unwrap();
        }
        let state = json!({"ociVersion": "1.0.2", "id": id, "status": "creating", "bundle": bundle, "pid": pid});
        let input = self.at(&format!("{id}-{stage}.state"));
        fs::write(&input, state.to_string()).unwrap();
        let mut words = vec![env!("CARGO_BIN_EXE_tranche-oci").to_owned()];
        words.extend(hook.args[1..].iter().cloned());
        Call {
            words,
            input: Some(input),
        }
    }

    /// A container that starts with `device`.
    fn start(&self, device: &str, id: &str) -> Init {
        let init = Init::new();
        self.hook("createRuntime", device, id, init.pid()).run().ok();
        init
    }

    /// Gives containers the names that podman would keep.
    fn name_containers(&self, names: &[(&str, &str)]) {
        let list: Vec<Value> = names
            .iter()
            .map(|(id, name)| json!({"id": id, "names": [name]}))
            .collect();
        fs::create_dir_all(self.at("store/kind-containers")).unwrap();
        fs::write(
            self.at("store/kind-containers/containers.json"),
            json!(list).to_string(),
        )
        .unwrap();
    }

    fn spec(&self, name: &str) -> PathBuf {
        self.at("cdi").join(format!("nvidia.com-claim_{name}.yaml"))
    }
}

/// The names in a directory, sorted.
fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
