//! What runs inside a container's root, as root, before the container's first process: one file per action.
//!
//! An engine runs `tranche-oci hook VERB …` with the container's state on standard input, in the container's
//! namespaces, while the host's files are still in sight and the image's files are under its hands. So: every path of
//! the image goes through [`crate::root`]; no program is started, neither the image's nor the host's; no environment
//! variable, `PATH` or current directory is looked at.

mod application_profile;
mod by_path;
mod chmod;
mod claim;
mod confine;
mod container;
mod cuda_compat;
mod driver_params;
mod ldcache;
mod limits;
mod links;
mod loader;
mod nvidia;
mod options;
mod place;
mod prepare;
mod report;

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::sys::stat::{Mode, umask};

use crate::error::{Error, Result};
use crate::ledger::STATE_DIR;
use crate::oci::State;
use report::Report;

/// Runs `tranche-oci hook` with these arguments (the verb first) and returns the process's exit code. `state` is the
/// standard input, `lines` the standard error: one line for each failure, and for each thing that was left undone.
///
/// A verb that we do not know is a line and success: a spec may be newer than the program that it calls.
pub fn run(arguments: impl IntoIterator<Item = OsString>, state: &mut dyn Read, lines: &mut dyn Write) -> u8 {
    // Whatever the engine's is: what we make is for every user of a container, or of the ledger.
    umask(Mode::from_bits_truncate(0o022));
    let mut arguments = arguments.into_iter();
    // Options of NVIDIA's program as a whole, for its logs: ours has lines for what goes wrong, and no others.
    let verb = arguments.find(|argument| !argument.as_encoded_bytes().starts_with(b"-"));
    let name = verb.as_ref().map(|verb| verb.to_string_lossy().into_owned());
    let mut report = Report::new("hook", name.as_deref().filter(|name| is_known(name)), lines);
    let arguments: Vec<OsString> = arguments.collect();
    let state_dir = state_dir(&arguments);
    let done = match name.as_deref() {
        Some("prepare") => confine::enter().and_then(|()| prepare::run(arguments, state, &mut report)),
        // These two work in the engine's namespaces and on our own ledger; no image is near.
        Some("claim") => limits::lift().and_then(|()| claim::claim(arguments, state, &mut report)),
        Some("release") => limits::lift().and_then(|()| claim::release(arguments, state, &mut report)),
        Some(verb) if nvidia::VERBS.contains(&verb) => {
            confine::enter().and_then(|()| nvidia::run(verb, arguments, state, &mut report))
        }
        Some(unknown) => {
            report.note(unknown, "unknown hook, ignored");
            Ok(())
        }
        None => no_verb(),
    };
    let code = match done {
        Ok(()) => 0,
        Err(error) => {
            report.failure(&error);
            error.kind().exit_code()
        }
    };
    // What ended, or was left out, before the state was read is still about a container. A person who tries a hook at a
    // terminal has no state to give.
    if name.is_some()
        && report.needs_container()
        && !std::io::stdin().is_terminal()
        && let Ok(state) = State::read(state)
    {
        report.about(&state);
    }
    // A courtesy: a message that cannot be kept must not cost a container its start, and has been printed already.
    let _ = report.keep(&state_dir);
    code
}

/// The directory that `--state-dir` names, whatever else is wrong with the arguments.
fn state_dir(arguments: &[OsString]) -> PathBuf {
    const OPTION: &[u8] = b"--state-dir";
    let value = |(at, argument): (usize, &OsString)| {
        let rest = argument.as_bytes().strip_prefix(OPTION)?;
        match rest.strip_prefix(b"=") {
            Some(value) => Some(PathBuf::from(OsStr::from_bytes(value))),
            None if rest.is_empty() => arguments.get(at + 1).map(PathBuf::from),
            None => None,
        }
    };
    let named = arguments.iter().enumerate().filter_map(value).next_back();
    named.unwrap_or_else(|| PathBuf::from(STATE_DIR))
}

/// What [`crate::fuzzing`] looks into.
#[cfg(fuzzing)]
pub(crate) mod fuzzing {
    pub(crate) use super::cuda_compat::{Host, decide};
    pub(crate) use super::driver_params::without_modification;
}

const OWN: [&str; 3] = ["prepare", "claim", "release"];

/// Whether a verb is one that we have: only then it may stand at the beginning of a line, for it may be anything else.
fn is_known(verb: &str) -> bool {
    OWN.contains(&verb) || nvidia::VERBS.contains(&verb)
}

fn no_verb() -> Result<()> {
    Err(Error::usage("arguments", "no hook named").hint(format!(
        "there is: {}, and the hooks of nvidia-cdi-hook",
        OWN.join(", ")
    )))
}
