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
mod place;
mod prepare;
mod report;

use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};

use nix::sys::stat::{Mode, umask};

use crate::call::{self, ClaimCall, NvidiaHook, PrepareCall, ReleaseCall};
use crate::error::{Error, Result};
use crate::oci::State;
use report::HookReport;

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
    let mut report = HookReport::new("hook", name.as_deref().filter(|name| is_known(name)), lines);
    let arguments: Vec<OsString> = arguments.collect();
    let state_dir = call::state_dir(&arguments);
    let done = match name.as_deref() {
        Some(PrepareCall::VERB) => confine::enter().and_then(|()| prepare::run(arguments, state, &mut report)),
        // These two work in the engine's namespaces and on our own ledger; no image is near.
        Some(ClaimCall::VERB) => limits::lift().and_then(|()| claim::claim(arguments, state, &mut report)),
        Some(ReleaseCall::VERB) => limits::lift().and_then(|()| claim::release(arguments, state, &mut report)),
        Some(name) => match name.parse::<NvidiaHook>() {
            Ok(hook) => confine::enter().and_then(|()| nvidia::run(hook, arguments, state, &mut report)),
            Err(_) => {
                report.note(name, "unknown hook, ignored");
                Ok(())
            }
        },
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

/// What [`crate::fuzzing`] looks into.
#[cfg(fuzzing)]
pub(crate) mod fuzzing {
    pub(crate) use super::cuda_compat::{Host, is_used};
    pub(crate) use super::driver_params::without_modification;
}

const OWN: [&str; 3] = [PrepareCall::VERB, ClaimCall::VERB, ReleaseCall::VERB];

/// Whether a verb is one that we have: only then it may stand at the beginning of a line, for it may be anything else.
fn is_known(verb: &str) -> bool {
    OWN.contains(&verb) || verb.parse::<NvidiaHook>().is_ok()
}

fn no_verb() -> Result<()> {
    Err(Error::usage("arguments", "no hook named").hint(format!(
        "there is: {}, and the hooks of nvidia-cdi-hook",
        OWN.join(", ")
    )))
}
