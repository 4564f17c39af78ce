//! The configuration files of docker, containerd, CRI-O and podman: adds tranche's runtime to them, and removes it.
//!
//! ```text
//! text ──ConfigFile::read──▶ ConfigFile ──docker::edits, …──▶ [Edit] ──ConfigFile::with──▶ ConfigFile ──install──▶ file
//! ```
//!
//! One module for each engine says which values its file needs. The formats ([`json`], [`toml`]) write them into the text
//! and leave everything else as it is. Only [`install`] and [`check`] have effects.

pub mod check;
pub mod containerd;
pub mod crio;
pub mod docker;
pub mod document;
pub mod edit;
pub mod install;
mod json;
mod lines;
pub mod podman;
mod record;
mod toml;
pub mod view;

use crate::error::Error;
use crate::types::HostPath;
use std::fmt;
use std::str::FromStr;

/// An engine whose configuration tranche can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// dockerd
    Docker,
    /// containerd with its CRI plugin
    Containerd,
    /// CRI-O
    Crio,
    /// podman
    Podman,
}

impl Engine {
    /// All engines.
    pub const ALL: [Engine; 4] = [Engine::Docker, Engine::Containerd, Engine::Crio, Engine::Podman];

    /// The name that a user types.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Docker => "docker",
            Engine::Containerd => "containerd",
            Engine::Crio => "crio",
            Engine::Podman => "podman",
        }
    }

    /// The file that the engine reads first.
    pub fn default_file(self) -> &'static str {
        match self {
            Engine::Docker => "/etc/docker/daemon.json",
            Engine::Containerd => "/etc/containerd/config.toml",
            Engine::Crio => "/etc/crio/crio.conf",
            Engine::Podman => "/etc/containers/containers.conf",
        }
    }

    /// What a person does so that the engine uses its new configuration.
    pub fn restart(self) -> &'static str {
        match self {
            Engine::Docker => "run systemctl restart docker to apply it",
            Engine::Containerd => "run systemctl restart containerd to apply it",
            Engine::Crio => "run systemctl restart crio to apply it",
            Engine::Podman => "podman applies it to the next container",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let engine = Engine::ALL.into_iter().find(|engine| engine.name() == text);
        engine.ok_or_else(|| Error::unknown(format!("engine \"{text}\""), &Engine::ALL.map(Engine::name)))
    }
}

/// The name of a runtime in an engine's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeName(String);

impl RuntimeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RuntimeName {
    type Err = Error;

    /// Takes a name of letters, digits, `-`, `_` and `.`: every engine accepts these, in its file and on its command line.
    fn from_str(text: &str) -> Result<Self, Error> {
        let object = format!("runtime name \"{text}\"");
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) || !text.bytes().all(is_plain) {
            let what = "expected letters, digits, - , _ and ., beginning with a letter or a digit";
            return Err(Error::usage(object, what));
        }
        // The engine's own runtimes stay available, and docker refuses the first name.
        if ["runc", "crun"].contains(&text) {
            return Err(Error::usage(object, "is the name of a low-level runtime").hint("choose another name"));
        }
        Ok(RuntimeName(text.to_owned()))
    }
}

/// What an engine's configuration shall contain.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of the runtime, which users type after `--runtime`.
    pub name: RuntimeName,
    /// The program of the runtime: an absolute path, or for docker a name that it finds in its `PATH`.
    pub path: String,
    /// Whether containers that name no runtime use this one.
    pub is_default: bool,
    /// Whether CDI is turned on, for engines that can turn it off.
    pub cdi: bool,
    /// The prefix of annotations that containerd shall pass to the runtime, such as `tranche.dev/`.
    pub annotations: Option<&'static str>,
    /// A directory with hooks that podman shall read in addition to its own.
    pub hooks_dir: Option<HostPath>,
}
