//! Layouts of MIG: one change at a time.

use super::commands::Commands;
use super::socket;
use crate::control::nvml::Nvml;
use crate::control::{Control, ControlOptions};
use crate::facts::HostNow;
use crate::mig::{self, MigHost, MigJournal, MigTools};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Error, Result, line};
use tranche_protocol::MigRequest;
use tranche_state::mutex::lock;
use tranche_state::planning::PlanOptions;

impl Commands<'_> {
    /// The machine, for a change of its layouts.
    fn mig_host(&self) -> MigHost<'_> {
        MigHost {
            facts: self.host,
            control: self.control,
            state_dir: self.state_dir(),
            policy: &self.options.policy,
            refresh: &self.options.refresh,
        }
    }
}

/// Does `work`, which changes layouts, while nobody else does.
///
/// # Errors
/// Returns the error of `work`.
pub(super) fn change<T: Serialize>(
    commands: &Commands<'_>,
    work: impl FnOnce(&MigHost<'_>) -> Result<T>,
) -> Result<Value> {
    let _one = lock(&commands.mig);
    commands.turns.let_go();
    let answer = work(&commands.mig_host())?;
    serde_json::to_value(answer).about("broker", "cannot write its answer")
}

/// Calls `work` with what layouts are applied with, after what a killed broker left was put back. The caller has
/// [`Commands::mig`].
///
/// # Errors
/// As [`MigHost::with_tools`].
pub(super) fn with_tools<T>(
    commands: &Commands<'_>,
    may_reset: bool,
    work: impl FnOnce(&MigTools<'_>, &Nvml) -> Result<T>,
) -> Result<T> {
    commands.mig_host().with_tools(may_reset, work)
}

/// Puts back what a broker that was killed left half changed.
pub(super) fn recover(commands: &Commands<'_>) {
    let is_unfinished = MigJournal::read(commands.state_dir()).map(|journal| journal.is_some());
    let put_back = match is_unfinished {
        Ok(false) => return,
        Ok(true) => change(commands, |host| mig::apply(host, &MigRequest::default())).map(drop),
        Err(error) => Err(error),
    };
    if let Err(error) = put_back {
        tracing::error!("{}", line(&error));
    }
    // What was made on demand and has nobody is destroyed now, and not at the next look.
    commands.wake();
}

/// Does `work`, which changes layouts, in this process. No broker starts meanwhile.
///
/// # Errors
/// Returns an error if a broker runs or the driver cannot be used, and those of `work`.
pub fn change_without_broker<T>(at: &PlanOptions, work: impl FnOnce(&MigHost<'_>) -> Result<T>) -> Result<T> {
    let state_dir = std::path::absolute(&at.state_dir).about(at.state_dir.display(), "has no absolute path")?;
    drop(Claims::open(&state_dir)?);
    let Some(_lock) = socket::lock(&state_dir)? else {
        return Err(Error::failed("broker", "has just started").hint("try again"));
    };
    let facts = Arc::new(HostNow::new(at.clone()));
    let control = Control::open(ControlOptions::of(at)?, facts.clone())?;
    work(&MigHost {
        facts: &*facts,
        control: &control,
        state_dir: &state_dir,
        policy: &at.policy,
        refresh: &at.arguments(),
    })
}
