//! A scene for attacks on `tranche-runtime`: a bundle, a host with shares, and a low-level runtime that keeps the
//! configuration which it finds.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use tranche_core::claims::Claims;
use tranche_core::types::HostPath;
use tranche_plan::host_file::{self, HostFile};
use tranche_plan::policy::{self, AcceptAnnotations, RuntimeSettings};
use tranche_plan::{share, sim};

use crate::run::{Ended, finish_measured, is_bidirectional};
use crate::stage::{MARK, differences, temporary};
use crate::subject::Subject;
use crate::support::programs;
use crate::support::scene::snapshot;

/// The exit code of the low-level runtime.
pub(crate) const EXECUTED: i32 = 7;

/// The longest line that is printed.
const LONGEST_LINE: usize = 16 << 10;

/// Four equal shares of the first GPU, by MPS.
const POLICY: &str = "
version: v1
sharing:
  mps:
    daemon: external
    computeMode: keep
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 4}
";

/// What the low-level runtime does: it keeps its arguments and the configuration that it finds.
const LOW_LEVEL: &str = r#"#!/bin/sh
bundle=. before=
for word; do
  [ "$before" = --bundle ] && bundle=$word
  before=$word
done
printf '%s\n' "$@" > TOP/seen/arguments
[ "$bundle" = . ] || cat "$bundle/config.json" > TOP/seen/config.json
exit 7
"#;

/// The specification of a vendor with many devices.
const VENDOR: &str = "vendor.example/nic";
const VENDOR_DEVICES: usize = 64;

/// A directory with `bin/`, `state/`, `cdi/`, `bundle/`, `seen/`, and `outside/`, which must stay as it is.
pub(crate) struct Shim {
    top: tempfile::TempDir,
    pub(crate) subject: Subject,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// A program, with arguments, that runs the shim.
    pub(crate) wrapper: Vec<OsString>,
}

impl Shim {
    /// A bundle that asks for a share.
    pub(crate) fn new() -> Shim {
        let shim = Shim {
            top: temporary(),
            subject: Subject::current(),
            environment: Vec::new(),
            wrapper: Vec::new(),
        };
        for directory in ["bin", "state", "bundle", "seen", "outside", "cdi"] {
            fs::DirBuilder::new().mode(0o755).create(shim.at(directory)).unwrap();
        }
        fs::write(shim.at("outside/shadow"), format!("root:{MARK}:1::\n")).unwrap();
        shim.program("bin/runc", &LOW_LEVEL.replace("TOP", shim.top.path().to_str().unwrap()));
        shim.write_host(&shim.host());
        let device = |n: usize| json!({"name": format!("eth{n}"), "containerEdits": {"env": [format!("NIC={n}")]}});
        let devices: Vec<Value> = (0..VENDOR_DEVICES).map(device).collect();
        let vendor = json!({"cdiVersion": "0.5.0", "kind": VENDOR, "devices": devices});
        fs::write(shim.at("cdi/vendor.json"), vendor.to_string()).unwrap();
        shim.configure(&asking(&["NVIDIA_VISIBLE_DEVICES=0.any"]));
        shim
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.at("bundle/config.json")
    }

    pub(crate) fn configure(&self, config: &Value) {
        fs::write(self.config(), config.to_string()).unwrap();
    }

    /// Makes a program of this text at `path`.
    pub(crate) fn program(&self, path: &str, text: &str) {
        programs::write(self.at(path), text);
    }

    pub(crate) fn write_host(&self, host: &Value) {
        fs::write(self.at("state/host.json"), host.to_string()).unwrap();
    }

    /// What `tranche cdi refresh` writes.
    pub(crate) fn host(&self) -> Value {
        let mut inventory = sim::open("t4x2").unwrap();
        // The nodes do not exist on the machine that runs the tests, so their numbers are in the edits.
        let nodes = inventory.gpus.iter_mut().filter_map(|gpu| gpu.node.as_mut());
        let control = inventory.nodes.control.iter_mut().map(|control| &mut control.node);
        nodes.chain(control).for_each(|node| node.present = false);
        let policy = policy::read::parse("policy.yaml", POLICY).unwrap().policy;
        let plan = share::plan(&policy, &inventory).unwrap();
        let file = HostFile {
            version: host_file::VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            host: tranche_specs::digests::of_host(&inventory).unwrap(),
            policy: tranche_specs::digests::of_plan(&plan).unwrap(),
            inventory,
            plan,
            runtime: RuntimeSettings {
                runtimes: vec![self.at("bin/runc").display().to_string()],
                spec_dirs: vec![self.at("cdi")],
                // The command lines of these attacks are no engine's.
                accept_annotations: Some(AcceptAnnotations::Always),
                ..RuntimeSettings::default()
            },
            wrong_policy: None,
            hook: HostPath::new(env!("CARGO_BIN_EXE_tranche-oci")).unwrap(),
            arguments: Vec::new(),
            sources: Vec::new(),
        };
        serde_json::to_value(file).unwrap()
    }

    /// The program with `arguments` behind the state directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let words: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let state = [OsString::from("--state-dir"), self.at("state").into()];
        let (hook, words) = match words.first().is_some_and(|word| word == "hook") {
            true => words.split_at(2),
            false => words.split_at(0),
        };
        let program = [self.subject.runtime().into_os_string()];
        let line: Vec<&OsString> = self
            .wrapper
            .iter()
            .chain(&program)
            .chain(hook)
            .chain(&state)
            .chain(words)
            .collect();
        let mut command = Command::new(line[0]);
        command
            .args(&line[1..])
            .args(self.subject.arguments(&[self.top.path()]));
        command.env_clear().current_dir(self.top.path());
        if !self.subject.is_real() {
            command.env("PATH", format!("{}:/usr/bin:/bin", self.at("bin").display()));
        }
        command.envs(self.environment.iter().cloned());
        command
    }

    /// Runs `create` and looks at everything that it must not have done.
    pub(crate) fn create(&self) -> Ended {
        self.run(&["create", "--bundle", "bundle", "ID"])
    }

    /// As [`Self::create`], with other arguments.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        let before = self.outside();
        let start = Instant::now();
        let _ = fs::remove_dir_all(self.at("seen"));
        fs::create_dir(self.at("seen")).unwrap();
        let finished = finish_measured(self.command(arguments), b"", &self.subject);
        let mut ended = Ended {
            code: finished.code,
            stderr: finished.stderr,
            took: start.elapsed(),
            processor: finished.processor,
            ..Ended::default()
        };
        differences("the host", &before, &self.outside(), &mut ended.wrong);
        self.judge(&mut ended);
        ended
    }

    /// What is wrong with how it ended, whatever was asked.
    fn judge(&self, ended: &mut Ended) {
        let wrong = &mut ended.wrong;
        if ![EXECUTED, 1, 2].contains(&ended.code) {
            wrong.push(format!("exit code {}: {:.200}", ended.code, ended.stderr));
        }
        for line in ended.stderr.lines() {
            let foreign = line.chars().any(|c| c.is_control() || is_bidirectional(c));
            let other = self.subject.is_real() && !line.starts_with("tranche-runtime: ");
            if foreign || line.len() > LONGEST_LINE || other {
                wrong.push(format!("a line of {} bytes: {line:.200?}", line.len()));
            }
        }
        if ended.stderr.contains(MARK) {
            wrong.push("a secret file is shown".to_owned());
        }
        let executed = self.at("seen/arguments").exists();
        if executed != (ended.code == EXECUTED) {
            wrong.push(format!(
                "the low-level runtime was executed: {executed}, exit code {}",
                ended.code
            ));
        }
        let names = fs::read_dir(self.at("bundle")).unwrap().flatten();
        for name in names
            .map(|entry| entry.file_name())
            .filter(|name| name.as_encoded_bytes().starts_with(b".tranche"))
        {
            wrong.push(format!("{} was left in the bundle", name.display()));
        }
    }

    pub(crate) fn outside(&self) -> BTreeMap<PathBuf, String> {
        snapshot(&self.at("outside"), &|_| true)
    }

    /// The configuration that the low-level runtime found; `None` if it was not executed or found no JSON.
    pub(crate) fn seen(&self) -> Option<Value> {
        json_of(&self.at("seen/config.json"))
    }

    /// The variables by which a process finds its share, as the low-level runtime found them.
    pub(crate) fn limits(&self) -> Vec<String> {
        let seen = self.seen().unwrap_or_default();
        let env = seen["process"]["env"].as_array().cloned().unwrap_or_default();
        let entries = env.iter().filter_map(Value::as_str).map(str::to_owned);
        let is_limit = |entry: &String| {
            ["CUDA_MPS_", "NVIDIA_GPU_MEMORY_", "CUDA_VISIBLE_DEVICES"]
                .iter()
                .any(|name| entry.starts_with(name))
        };
        entries.filter(is_limit).collect()
    }

    /// How many bytes the ledger has.
    pub(crate) fn ledger_size(&self) -> u64 {
        let files = fs::read_dir(self.at("state/ledger")).into_iter().flatten().flatten();
        files.map(|file| file.metadata().unwrap().len()).sum()
    }

    /// The claims in the ledger, as `tranche claim list` would show them after the end of the processes that made them.
    pub(crate) fn held(&self) -> Vec<String> {
        let claims = Claims::existing(&self.at("state")).unwrap();
        let books = claims.map(|claims| claims.books().unwrap().books).unwrap_or_default();
        books
            .iter()
            .flat_map(|book| &book.claims)
            .map(|claim| format!("{} {}", claim.holder, claim.part))
            .collect()
    }

    pub(crate) fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.at(path), PermissionsExt::from_mode(mode)).unwrap();
    }
}

pub(crate) fn json_of(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// A configuration with this environment.
pub(crate) fn asking(env: &[&str]) -> Value {
    json!({"ociVersion": "1.0.2", "process": {"env": env, "args": ["sh"], "user": {"uid": 0, "gid": 0}},
           "root": {"path": "rootfs"}, "linux": {"resources": {}}})
}

/// A configuration that asks for a share and has a mark.
pub(crate) fn marked(mark: &str) -> Value {
    let mut config = asking(&["NVIDIA_VISIBLE_DEVICES=0.any"]);
    config["hostname"] = json!(mark);
    config
}

/// A run that was looked at in another way.
pub(crate) fn judged(code: i32, wrong: Vec<String>) -> Ended {
    Ended {
        code,
        wrong,
        ..Ended::default()
    }
}
