//! Programs of users other than root, for whom the broker keeps what they hold.
//!
//! The program's process is started and waits, and the broker enters it: the claim ends with that process, or when this
//! one is killed before the program begins, because the process that waits then ends.

use super::served::await_first_turn;
use super::start::WaitingProgram;
use super::{RunOptions, ShareForRun, environment, on_demand_profile, supervise};
use crate::own_cgroup::OwnCgroup;
use std::process::ExitStatus;
use std::time::Instant;
use tranche_core::error::{Error, Result};
use tranche_protocol::{RunAnswer, RunRequest};
use tranche_state::held::by_broker;

/// Runs the program, and returns how it ended.
///
/// # Errors
/// Returns the broker's refusal, or why the program cannot be started.
pub(super) fn run(options: &RunOptions, say: &mut dyn FnMut(&str)) -> Result<ExitStatus> {
    let (began, wait) = (Instant::now(), options.wait.unwrap_or_default());
    let mut request = RunRequest {
        program: options.program(),
        wait,
        ..RunRequest::default()
    };
    match &options.share {
        ShareForRun::Claim(name) => request.claim = Some(name.clone()),
        ShareForRun::Named { names, select } => {
            if let Some(name) = names.iter().find(|name| on_demand_profile(name).is_some()) {
                let error = Error::usage(format!("share {name}"), "only root can have an instance made");
                return Err(error.hint("ask root for a claim"));
            }
            request.shares.clone_from(names);
            request.select = select.clone();
        }
    }
    // Declared first, because it can only be removed after the process has ended.
    let _cgroup;
    let inherited = environment::without_shares(std::env::vars_os());
    let mut waiting = WaitingProgram::start(&options.command, inherited)?;
    _cgroup = OwnCgroup::of(waiting.pid());
    request.pid = waiting.pid();
    let answer: RunAnswer = by_broker::ask_waiting(&options.at.state_dir, &request, wait.get())?;
    if let Some(device) = &answer.by_turns {
        let share = request.claim.clone().unwrap_or_else(|| request.shares.join(" "));
        let left = options.left(began);
        await_first_turn(&options.at.state_dir, (&share, device), request.pid, left, say)?;
    }
    supervise::wait(waiting.release(&answer.environment)?)
}
