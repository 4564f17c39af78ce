//! The command lines of hooks, as specifications carry them.
//!
//! `derive` writes these calls and `hook` reads them; `cdi transform root` moves their paths ([`with_moved_paths`]),
//! and `tranche` reads from them which share a device of a specification offers ([`ClaimCall::of_hook`]). Each call has
//! its options in one file: how they are written, how they are parsed, and which of them are paths of the host or of
//! the container.

mod bound_path;
mod claim;
mod in_service;
mod link;
mod moved;
mod nvidia;
mod options;
mod prepare;
mod release;

pub use bound_path::BoundPath;
pub use claim::{ClaimCall, Siblings};
pub use in_service::InServiceCall;
pub use moved::with_moved_paths;
pub use nvidia::{NvidiaCall, NvidiaHook};
pub use options::{Unknown, state_dir};
pub use prepare::{ByPath, KnownLibrary, PrepareCall};
pub use release::ReleaseCall;

use crate::types::HostPath;
use options::ValueKind;

/// A program that a specification names as its hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// tranche's own.
    Tranche,
    /// NVIDIA's `nvidia-cdi-hook`.
    NvidiaCdiHook,
    /// NVIDIA's `nvidia-ctk`, of which the hooks are a subcommand.
    NvidiaCtk,
}

impl Program {
    /// The program at `path`, by its file name. A program of an unknown name is tranche's: its owner may have renamed
    /// it.
    pub fn at(path: &HostPath) -> Self {
        Self::named(path.file_name()).unwrap_or(Program::Tranche)
    }

    fn named(name: &str) -> Option<Self> {
        [Program::Tranche, Program::NvidiaCdiHook, Program::NvidiaCtk]
            .into_iter()
            .find(|program| program.words()[0] == name)
    }

    /// What a command line of the program begins with, before the hook's verb.
    fn words(self) -> &'static [&'static str] {
        match self {
            Program::Tranche => &["tranche-oci", "hook"],
            Program::NvidiaCdiHook => &["nvidia-cdi-hook"],
            Program::NvidiaCtk => &["nvidia-ctk", "hook"],
        }
    }

    /// The whole command line that runs `verb`.
    fn command(self, verb: &str, options: Vec<String>) -> Vec<String> {
        let words = self.words().iter().chain([&verb]).map(|word| (*word).to_owned());
        words.chain(options).collect()
    }
}

/// The verb of a hook's command line and what follows it; `None` for a program that is not known.
fn verb_and_options(args: &[String]) -> Option<(Program, &str, &[String])> {
    let (name, rest) = args.split_first()?;
    let program = Program::named(name.rsplit('/').next()?)?;
    let words = program.words().get(1..)?;
    let rest = words.iter().try_fold(rest, |rest, word| {
        rest.split_first()
            .filter(|(first, _)| first == word)
            .map(|(_, rest)| rest)
    })?;
    let (verb, options) = rest.split_first()?;
    Some((program, verb, options))
}

/// The options of the hook `verb`, each with what its value is; empty for a verb that is not known.
fn options_of(program: Program, verb: &str) -> &'static [(&'static str, ValueKind)] {
    match verb {
        PrepareCall::VERB if program == Program::Tranche => PrepareCall::OPTIONS,
        ClaimCall::VERB if program == Program::Tranche => ClaimCall::OPTIONS,
        ReleaseCall::VERB if program == Program::Tranche => ReleaseCall::OPTIONS,
        InServiceCall::VERB if program == Program::Tranche => InServiceCall::OPTIONS,
        _ if verb.parse::<NvidiaHook>().is_ok() => NvidiaCall::OPTIONS,
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
