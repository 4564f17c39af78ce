//! Injection of any vendor's devices, compared with the reference library and with a second implementation.
//!
//! A case is some directories of specifications, a container's configuration and the devices that it asks for. The
//! results of the reference library (tags.cncf.io/container-device-interface, written in Go) for a fixed set of cases
//! are in tests/data/cdi-injection.jsonl. The crate container-device-interface answers each generated case.

mod cases;
mod crates_io;
mod reference;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tranche_plan::cdi::inject::{apply, collect, host_node};
use tranche_plan::cdi::registry::Registry;

/// A file in a directory of specifications.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct File {
    /// The number of its directory; a later one wins over an earlier one.
    dir: usize,
    name: String,
    spec: Value,
}

/// Specifications, a container, and the devices that it asks for. `@` at the beginning of a path is a directory that is
/// made for the case and has some files in it: see [`Place`].
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Case {
    files: Vec<File>,
    devices: Vec<String>,
    config: Value,
}

/// What an implementation makes of a case.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Outcome {
    /// The devices that it finds.
    found: BTreeSet<String>,
    /// The container's configuration; nothing if it refuses to inject the devices.
    config: Option<Value>,
}

/// How many directories of specifications there are.
const DIRS: usize = 3;

/// A case in the file system.
struct Place {
    top: tempfile::TempDir,
}

impl Place {
    /// Writes the files of `case`.
    fn of(case: &Case) -> Place {
        let place = Place {
            top: tempfile::tempdir().unwrap(),
        };
        let at = |name: &str| place.top.path().join(name);
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o640)).unwrap();
        symlink("/dev/null", at("link")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        for dir in place.dirs() {
            std::fs::create_dir(dir).unwrap();
        }
        for (file, path) in case.files.iter().zip(place.paths(case)) {
            std::fs::write(path, place.enter(&file.spec).to_string()).unwrap();
        }
        place
    }

    fn dirs(&self) -> Vec<PathBuf> {
        (0..DIRS).map(|i| self.top.path().join(format!("dir{i}"))).collect()
    }

    /// Where the files of `case` are.
    fn paths(&self, case: &Case) -> Vec<PathBuf> {
        let dirs = self.dirs();
        case.files.iter().map(|file| dirs[file.dir].join(&file.name)).collect()
    }

    fn top(&self) -> &str {
        self.top.path().to_str().unwrap()
    }

    /// `value` with this directory in the place of `@`.
    fn enter(&self, value: &Value) -> Value {
        texts(value, &|text| match text.strip_prefix('@') {
            Some(rest) => format!("{}{rest}", self.top()),
            None => text.to_owned(),
        })
    }

    /// The reverse of [`Place::enter`].
    fn leave(&self, value: &Value) -> Value {
        texts(value, &|text| text.replace(self.top(), "@"))
    }
}

/// `value` with each of its texts changed.
fn texts(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => json!(change(text)),
        Value::Array(items) => items.iter().map(|item| texts(item, change)).collect(),
        Value::Object(fields) => Value::Object(fields.iter().map(|(k, v)| (k.clone(), texts(v, change))).collect()),
        _ => value.clone(),
    }
}

/// What tranche makes of `case`.
fn ours(case: &Case) -> Outcome {
    let place = Place::of(case);
    let registry = Registry::read(&place.dirs());
    let found = registry.devices().map(|(name, _)| name.to_string()).collect();
    let before = case.config.clone();
    let mut config = before.clone();
    let inject = || {
        let devices: Option<Vec<_>> = case
            .devices
            .iter()
            .map(|name| registry.find(&name.parse().ok()?))
            .collect();
        let edits = collect(devices?.iter().map(|d| (&d.file.spec, d.device)));
        let done = apply(&mut config, &edits, &host_node);
        assert!(done.is_ok() || config == before, "a failure changes nothing");
        done.ok().map(|()| config)
    };
    let config = inject().map(|config| place.leave(&config));
    Outcome { found, config }
}

/// An OCI configuration in one of the many ways to write it: each field that oci-spec knows, and none that is empty.
fn normal(config: &Value) -> Value {
    let mut config = config.clone();
    if let Some(process) = config.get_mut("process").and_then(Value::as_object_mut) {
        // oci-spec requires these. A process that injection has made lacks them.
        process.entry("cwd").or_insert(json!(""));
        let user = process.entry("user").or_insert(json!({}));
        for id in ["uid", "gid"] {
            user.as_object_mut().unwrap().entry(id).or_insert(json!(0));
        }
    }
    let typed: oci_spec::runtime::Spec =
        serde_json::from_value(config.clone()).unwrap_or_else(|e| panic!("{e}: {config}"));
    full(&serde_json::to_value(typed).unwrap())
}

/// `value` without its empty fields.
fn full(value: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        // No field is true by default.
        Value::Bool(set) => !set,
        _ => false,
    };
    match value {
        Value::Array(items) => items.iter().map(full).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| (name.clone(), full(field)));
            Value::Object(fields.filter(|(_, field)| !is_empty(field)).collect())
        }
        _ => value.clone(),
    }
}

/// `outcome` in a form that can be compared.
fn comparable(outcome: Outcome) -> Outcome {
    Outcome {
        config: outcome.config.as_ref().map(normal),
        ..outcome
    }
}

/// Fails with a short text if two implementations differ.
fn same(case: &Case, ours: Outcome, theirs: Outcome) -> Result<(), String> {
    let (ours, theirs) = (comparable(ours), comparable(theirs));
    if ours == theirs {
        return Ok(());
    }
    let show = |outcome: &Outcome| serde_json::to_string_pretty(outcome).unwrap();
    Err(format!(
        "{}\nours: {}\ntheirs: {}",
        serde_json::to_string(case).unwrap(),
        show(&ours),
        show(&theirs)
    ))
}

/// The path of a file of the tests.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}
