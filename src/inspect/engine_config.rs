//! The configuration files of docker, containerd, CRI-O and podman: adds tranche's runtime to them, and removes it.
//!
//! ```text
//! text ──ConfigFile::read──▶ ConfigFile ──docker::edits, …──▶ [Edit] ──ConfigFile::with──▶ ConfigFile ──install──▶ file
//! ```
//!
//! One module for each engine says which values its file needs. The formats ([`json`], [`toml`]) write them into the
//! text and leave everything else as it is. Only [`install`], [`elsewhere`] and [`check`] have effects.

pub mod by_hand;
pub mod changes;
pub mod check;
pub mod containerd;
pub mod crio;
pub mod docker;
pub mod document;
pub mod edit;
pub mod elsewhere;
pub mod install;
mod json;
mod lines;
pub mod podman;
mod record;
mod toml;
pub mod view;

use std::str::FromStr;
use tranche_core::error::Error;
use tranche_core::types::HostPath;

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

    /// Takes a name of letters, digits, `-`, `_` and `.`: every engine accepts these, in its file and on its command
    /// line.
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
