//! A host with a low-level runtime that only records how it was called.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tranche_core::types::HostPath;
use tranche_plan::host_file::{self, HostFile};
use tranche_plan::policy::{self, AcceptAnnotations, RuntimeSettings};
use tranche_plan::share::{self, Plan};
use tranche_plan::sim;

use crate::support::programs::install;

/// The exit code of the low-level runtime: an exit code of tranche is another one.
pub(crate) const EXECUTED: i32 = 7;

/// A directory with the programs, a state directory and a bundle.
pub(crate) struct Place {
    top: tempfile::TempDir,
}

/// How a low-level runtime was started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The arguments after the program's name.
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: String,
    pub(crate) directory: String,
    pub(crate) descriptors: String,
    pub(crate) limits: String,
    /// The umask, and blocked, ignored and caught signals.
    pub(crate) status: Vec<String>,
}

impl Place {
    pub(crate) fn new() -> Place {
        let place = Place {
            top: tempfile::tempdir().unwrap(),
        };
        for directory in ["bin", "state", "bundle", "specs"] {
            fs::create_dir(place.at(directory)).unwrap();
        }
        fs::write(place.at("specs/thing.json"), SPEC).unwrap();
        compile("low-level.c", &place.at("bin/runc"));
        install(Path::new(env!("CARGO_BIN_EXE_tranche-runtime")), place.runtime());
        place.low_level_runtimes(&[&place.at("bin/runc")]);
        place.configure(&request());
        place
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    /// `tranche-runtime`.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.at("bin/tranche-runtime")
    }

    /// Writes `host.json` with these low-level runtimes.
    pub(crate) fn low_level_runtimes(&self, paths: &[&Path]) {
        fs::write(self.at("state/host.json"), self.host(paths).to_string()).unwrap();
    }

    /// Writes the `host.json` of a version of tranche that had another form of the file, with this low-level runtime.
    pub(crate) fn host_file_of_the_first_form(&self) {
        let mut host: Value = serde_json::from_str(include_str!("../data/host-file/version-1.json")).unwrap();
        host["runtime"]["runtimes"] = vec![self.at("bin/runc").display().to_string()].into();
        host["runtime"]["accept_annotations"] = "always".into();
        fs::write(self.at("state/host.json"), host.to_string()).unwrap();
    }

    /// The content of `host.json`.
    pub(crate) fn host(&self, paths: &[&Path]) -> Value {
        let runtimes = paths.iter().map(|path| path.display().to_string()).collect();
        let inventory = sim::open("hgx-h200").unwrap();
        let plan = Plan::default();
        let file = HostFile {
            version: host_file::VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            host: tranche_specs::digests::of_host(&inventory).unwrap(),
            policy: tranche_specs::digests::of_plan(&plan).unwrap(),
            inventory,
            plan,
            runtime: RuntimeSettings {
                runtimes,
                // The command lines of these tests are no engine's.
                accept_annotations: Some(AcceptAnnotations::Always),
                spec_dirs: vec![self.at("specs")],
                ..RuntimeSettings::default()
            },
            wrong_policy: None,
            hook: HostPath::new("/usr/bin/tranche-oci").unwrap(),
            arguments: Vec::new(),
            sources: Vec::new(),
        };
        let mut file = serde_json::to_value(file).unwrap();
        with_nodes(&mut file);
        file
    }

    /// Writes `host.json` with a plan that dedicates GPU 0, and returns the plan.
    pub(crate) fn dedicate_gpu_0(&self) -> Plan {
        self.plan("version: v1\nsharing: {dedicated: {devices: [0]}}\n")
    }

    /// Writes `host.json` with the plan of this policy, and returns the plan.
    pub(crate) fn plan(&self, policy: &str) -> Plan {
        let policy = policy::read::parse("policy.yaml", policy).unwrap().policy;
        let plan = share::plan(&policy, &sim::open("hgx-h200").unwrap()).unwrap();
        let mut host = self.host(&[&self.at("bin/runc")]);
        host["plan"] = serde_json::to_value(&plan).unwrap();
        fs::write(self.at("state/host.json"), host.to_string()).unwrap();
        plan
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.at("bundle/config.json")
    }

    pub(crate) fn configure(&self, config: &Value) {
        fs::write(self.config(), config.to_string()).unwrap();
    }

    /// `tranche-runtime` with this state directory and these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.runtime());
        command.arg("--state-dir").arg(self.at("state")).args(arguments);
        command.current_dir(self.top.path()).env_clear();
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must reach the low-level runtime without a word of tranche.
    pub(crate) fn passes(&self, arguments: &[&str]) -> Start {
        let output = self.run(arguments);
        assert_eq!(said(&output), "");
        assert_eq!(output.status.code(), Some(EXECUTED));
        self.start()
    }

    /// Runs a command that must fail before the low-level runtime is executed, with one line, which is returned.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let _ = fs::remove_file(self.at("bin/arguments"));
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(!self.at("bin/arguments").exists(), "the low-level runtime was executed");
        let text = said(&output);
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    }

    /// How the low-level runtime was started last.
    pub(crate) fn start(&self) -> Start {
        let read = |name: &str| {
            let bytes = fs::read(self.at("bin").join(name)).unwrap();
            bytes.escape_ascii().to_string()
        };
        let arguments = fs::read(self.at("bin/arguments")).unwrap();
        let arguments = arguments
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned());
        let mut arguments: Vec<String> = arguments.collect();
        assert_eq!(arguments.pop().unwrap(), "");
        assert_eq!(Path::new(&arguments.remove(0)), self.at("bin/runc"));
        let kept = [
            "Umask:",
            "SigBlk:",
            "SigIgn:",
            "SigCgt:",
            "Seccomp:",
            "NoNewPrivs:",
            "CapEff:",
        ];
        let status = fs::read_to_string(self.at("bin/status")).unwrap();
        let status = status
            .lines()
            .filter(|line| kept.iter().any(|name| line.starts_with(name)));
        Start {
            arguments,
            environment: read("environment"),
            directory: read("directory"),
            descriptors: read("descriptors"),
            limits: read("limits"),
            status: status.map(str::to_owned).collect(),
        }
    }
}

/// Gives each device node of an inventory a path that this machine has.
fn with_nodes(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("major") {
                fields.insert("host".to_owned(), json!("/dev/full"));
            }
            fields.values_mut().for_each(with_nodes);
        }
        Value::Array(items) => items.iter_mut().for_each(with_nodes),
        _ => {}
    }
}

/// A configuration that requests nothing.
pub(crate) fn plain() -> Value {
    json!({"ociVersion": "1.0.2", "process": {"env": ["PATH=/bin", "odd"], "args": ["sh"], "x": 1.10},
           "root": {"path": "rootfs"}, "unknown": {"b": 1}})
}

/// A configuration that requests the device of [`SPEC`], which adds a variable.
pub(crate) fn request() -> Value {
    let mut config = plain();
    config["annotations"] = json!({"cdi.k8s.io/test": "example.com/thing=a"});
    config
}

/// A device that needs nothing of the host.
const SPEC: &str = r#"{"cdiVersion": "0.5.0", "kind": "example.com/thing",
    "devices": [{"name": "a", "containerEdits": {"env": ["ADDED=1"]}}]}"#;

/// Whether the file is a configuration that was edited. It must be complete.
pub(crate) fn is_edited(path: &Path) -> bool {
    let config: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    config["process"]["env"].as_array().unwrap().contains(&"ADDED=1".into())
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Compiles a program of this directory.
pub(crate) fn compile(source: &str, to: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runtime").join(source);
    let done = Command::new("cc")
        .arg("-O1")
        .arg("-o")
        .arg(to)
        .arg(source)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", said(&done));
}

pub(crate) fn link(target: impl AsRef<Path>, at: &Path) {
    symlink(target, at).unwrap();
}
