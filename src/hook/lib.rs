//! The hooks, which run as root before the container's first process: one file for each action.
//!
//! An engine runs `tranche-oci hook VERB …` with the container's state on standard input, in the container's
//! namespaces, while the host's files are still visible. So every path of the image goes through
//! [`tranche_core::root`], no program of the image or of the host is started, and no environment variable is used.

mod application_profile;
mod back_ends;
mod by_path;
mod chmod;
mod claim;
mod confine;
mod container;
mod cuda_compat;
mod driver_params;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod in_service;
mod ldcache;
mod limits;
mod links;
mod loader;
mod nvidia;
mod place;
mod prepare;
mod report;
mod sockets;

#[cfg(test)]
use tranche_test_support::own_mounts;

use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};

use nix::sys::stat::{Mode, umask};

use report::HookReport;
use tranche_core::call::{self, ClaimCall, InServiceCall, NvidiaHook, PrepareCall, ReleaseCall};
use tranche_core::error::{Error, Result};
use tranche_core::oci::State;

/// Runs `tranche-oci hook` with these arguments (the verb first) and returns the process's exit code. `state` is the
/// standard input, `lines` the standard error, which gets one line for each failure and each remark.
///
/// An unknown verb is reported and ignored: a specification may be newer than the program that it calls.
pub fn run(arguments: impl IntoIterator<Item = OsString>, state: &mut dyn Read, lines: &mut dyn Write) -> u8 {
    // Independent of the engine's: new files are for every user of a container, or of the ledger.
    umask(Mode::from_bits_truncate(0o022));
    let mut arguments = arguments.into_iter();
    // Options before the verb are about the log of NVIDIA's program, which tranche-oci does not have.
    let verb = arguments.find(|argument| !argument.as_encoded_bytes().starts_with(b"-"));
    let name = verb.as_ref().map(|verb| verb.to_string_lossy().into_owned());
    let arguments: Vec<OsString> = arguments.collect();
    let known = name.as_deref().filter(|name| is_known(name));
    let mut report = HookReport::new("hook", known, call::state_dir(&arguments), lines);
    report.speak_at_limit();
    let done = match name.as_deref() {
        Some(PrepareCall::VERB) => confine::enter().and_then(|()| prepare::run(arguments, state, &mut report)),
        // These three work in the engine's namespaces and on the ledger, not in an image.
        Some(ClaimCall::VERB) => limits::lift().and_then(|()| claim::claim(arguments, state, &mut report)),
        Some(ReleaseCall::VERB) => limits::lift().and_then(|()| claim::release(arguments, state, &mut report)),
        Some(InServiceCall::VERB) => limits::lift().and_then(|()| in_service::run(arguments, state, &mut report)),
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
    // A hook may fail before it reads the state, and its messages are still about a container. At a terminal there is
    // no state to read.
    if name.is_some()
        && report.needs_container()
        && !std::io::stdin().is_terminal()
        && let Ok(state) = State::read(state)
    {
        report.about(&state);
    }
    // A message that cannot be kept was printed already and must not prevent the start.
    let _ = report.keep();
    code
}

const OWN: [&str; 4] = [
    PrepareCall::VERB,
    ClaimCall::VERB,
    ReleaseCall::VERB,
    InServiceCall::VERB,
];

/// Whether `verb` exists. An unknown verb may be any text, so it is not written at the beginning of a line.
fn is_known(verb: &str) -> bool {
    OWN.contains(&verb) || verb.parse::<NvidiaHook>().is_ok()
}

fn no_verb() -> Result<()> {
    Err(Error::usage("arguments", "no hook named").hint(format!(
        "there is: {}, and the hooks of nvidia-cdi-hook",
        OWN.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_verb_the_verbs_are_named() {
        let error = no_verb().unwrap_err();
        assert_eq!(error.kind().exit_code(), 2);
        assert!(
            error
                .to_string()
                .contains("there is: prepare, claim, release, in-service"),
            "{error}"
        );
    }
}
