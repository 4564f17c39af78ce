//! `tranche runtime configure` and `unconfigure`: what they write, on the collection in `tests/engine-configs`, and
//! what they leave as it is.

use crate::support::{programs, rights, sample, skip};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

mod bad;
mod collection;
mod names;
mod properties;
mod removal;
mod since;

/// A directory with an engine's files, and a program to configure as the runtime.
struct Bed {
    top: tempfile::TempDir,
    engine: &'static str,
}

/// What a run gave.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn last(&self) -> &str {
        self.err.lines().last().unwrap_or_default()
    }
}

impl Bed {
    fn new(engine: &'static str) -> Bed {
        let bed = Bed {
            top: tempfile::tempdir().unwrap(),
            engine,
        };
        fs::create_dir(bed.at("etc")).unwrap();
        programs::script(bed.runtime(), "");
        bed
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    fn runtime(&self) -> PathBuf {
        self.at("bin/tranche-runtime")
    }

    /// The main file of the engine.
    fn main(&self) -> PathBuf {
        self.at(match self.engine {
            "docker" => "etc/daemon.json",
            "containerd" => "etc/config.toml",
            "crio" => "etc/crio.conf",
            _ => "etc/containers.conf",
        })
    }

    fn drop_in(&self) -> PathBuf {
        self.at(match self.engine {
            "containerd" => "etc/conf.d/99-tranche.toml",
            "crio" => "etc/crio.conf.d/99-tranche.conf",
            _ => "etc/containers.conf.d/99-tranche.conf",
        })
    }

    /// The options that name the files.
    fn files(&self, has_drop_in: bool) -> Vec<String> {
        let drop_in = if has_drop_in {
            self.drop_in().display().to_string()
        } else {
            String::new()
        };
        vec![
            format!("--runtime={}", self.engine),
            format!("--config={}", self.main().display()),
            format!("--drop-in-config={drop_in}"),
        ]
    }

    fn run(&self, verb: &str, options: &[String]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        // podman needs a home for its own files.
        command.env("HOME", self.top.path());
        command.env("TRANCHE_STATE_DIR", self.at("state"));
        said(command.args(["runtime", verb]).args(options))
    }

    /// Configures in the main file, with these options in addition.
    fn configure(&self, more: &[&str]) -> Said {
        self.configure_in(false, more)
    }

    fn configure_in(&self, has_drop_in: bool, more: &[&str]) -> Said {
        let mut options = self.files(has_drop_in);
        options.push(format!("--runtime-path={}", self.runtime().display()));
        options.extend(more.iter().map(|option| (*option).to_owned()));
        self.run("configure", &options)
    }

    fn unconfigure(&self) -> Said {
        self.run("unconfigure", &self.files(false))
    }

    /// Every file below `etc`, with its bytes, mode, and a number that changes when it is written.
    fn tree(&self) -> BTreeMap<String, (Vec<u8>, u32, u64)> {
        let files = walkdir::WalkDir::new(self.at("etc")).into_iter().map(Result::unwrap);
        let files = files.filter(|entry| entry.file_type().is_file());
        let of = |entry: walkdir::DirEntry| {
            let data = entry.metadata().unwrap();
            let name = entry.path().strip_prefix(self.at("etc")).unwrap().display().to_string();
            (name, (fs::read(entry.path()).unwrap(), data.mode(), data.ino()))
        };
        files.map(of).collect()
    }
}

fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// What a TOML or JSON text says, by a reader that the program does not use for TOML.
fn read(text: &str, is_json: bool) -> Value {
    if is_json {
        return match text.trim() {
            "" => json!({}),
            text => serde_json::from_str(text).unwrap(),
        };
    }
    of_toml(
        toml_span::parse(text)
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
            .as_ref(),
    )
}

fn of_toml(value: &toml_span::value::ValueInner<'_>) -> Value {
    use toml_span::value::ValueInner;
    match value {
        ValueInner::String(text) => Value::from(text.to_string()),
        ValueInner::Integer(number) => Value::from(*number),
        ValueInner::Float(number) => Value::from(*number),
        ValueInner::Boolean(value) => Value::from(*value),
        ValueInner::Array(list) => list.iter().map(|item| of_toml(item.as_ref())).collect(),
        ValueInner::Table(table) => {
            let entries = table
                .iter()
                .map(|(key, value)| (key.name.to_string(), of_toml(value.as_ref())));
            Value::Object(entries.collect::<Map<String, Value>>())
        }
    }
}

/// The value at a path of keys.
fn at<'a>(value: &'a Value, keys: &[&str]) -> &'a Value {
    keys.iter().fold(value, |value, key| &value[*key])
}

/// The answer for podman and CRI-O says why annotations cannot ask.
#[test]
fn each_engine_s_answer_about_annotations_is_printed() {
    for (engine, expected) in [
        (
            "docker",
            "annotations may ask for devices, because no image can write them",
        ),
        (
            "containerd",
            "annotations may ask for devices, because no image can write them",
        ),
        (
            "crio",
            "annotations may not ask for devices, because CRI-O copies annotations from every pod",
        ),
        // Whatever podman this machine has, or none.
        (
            "podman",
            "run tranche cdi refresh to record it; runtime.acceptAnnotations in /etc/tranche/config.yaml",
        ),
    ] {
        let bed = Bed::new(engine);
        for _ in 0..2 {
            let said = bed.configure(&[]);
            assert!(
                said.code == Some(0) && said.err.contains(&format!("{engine}: ")) && said.err.contains(expected),
                "{engine}: {said:?}"
            );
        }
    }
}
