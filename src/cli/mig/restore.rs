//! `tranche mig restore`.

use super::ViewArgs;
use super::apply::{ask, refresh, request};
use super::wanted::changes;
use crate::out;
use anyhow::Result;
use std::process::ExitCode;
use tranche_broker::mig::{SavedGpu, SavedLayouts};
use tranche_core::broker::{MigAnswer, MigRequest};
use tranche_core::error::{Error, Kind, line};
use tranche_core::text::some;
use tranche_plan::host_file::HostFile;
use tranche_plan::mig::{ExactGpu, Layout, MigGpu, plan};
use tranche_state::planning;
use tranche_state::restore_failures::{FailedRestore, RestoreFailures};

/// Make the layouts of the policy, and those that tranche has made, as at boot: no instance survives one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let state_dir = &args.view.at.state.state_dir;
    let mut failures = Vec::new();
    let restored = restore_all(args, &mut failures);
    let is_nothing = |error: &anyhow::Error| error.downcast_ref::<Error>().map(Error::kind) == Some(Kind::Nothing);
    if let Err(error) = &restored
        && failures.is_empty()
        && !is_nothing(error)
    {
        failures.push(failure(None, error));
    }
    // Doctor says it until a restore succeeds.
    let kept = RestoreFailures::new(failures).write(state_dir);
    match (restored, kept) {
        (Err(error), Err(other)) => {
            out::complain(error);
            Err(other.into())
        }
        (restored, kept) => restored.and_then(|code| kept.map(|()| code).map_err(Into::into)),
    }
}

fn failure(gpu: Option<&MigGpu>, error: &anyhow::Error) -> FailedRestore {
    FailedRestore {
        gpu: gpu.map(|gpu| gpu.uuid.clone()),
        reason: line(error.as_ref()),
    }
}

/// Makes the layouts, and adds to `failures` those that cannot be made.
fn restore_all(args: &Args, failures: &mut Vec<FailedRestore>) -> Result<ExitCode> {
    let at = &args.view;
    let saved = SavedLayouts::read(&at.at.state.state_dir)?;
    let policy = planning::policy(&at.at.options().policy)?;
    let layouts = policy.map(|read| read.policy.mig_layouts).unwrap_or_default();
    if saved.gpus.is_empty() && layouts.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let view = at.look()?;
    let before = HostFile::read(&at.at.state.state_dir).ok();
    let mut failed = Vec::new();
    let mut changed = Vec::new();
    // One GPU after the other: one that fails keeps no other from its layout.
    for gpu in &view.gpus {
        let layout = Layout::of(gpu, &layouts);
        let made = restored(gpu, layout, saved.of(&gpu.uuid)).and_then(|target| {
            let changes = changes(target.into_iter().collect(), &view)?;
            let request = MigRequest {
                may_change_mode: true,
                ..request(&changes)
            };
            match changes.is_empty() {
                true => Ok(MigAnswer::default()),
                false => ask(at, &request),
            }
        });
        match made {
            Ok(answer) if answer.changed.is_empty() => {}
            Ok(_) => changed.push(format!("gpu {}", gpu.index)),
            Err(error) => {
                failures.push(failure(Some(gpu), &error));
                failed.push(error);
            }
        }
    }
    if !changed.is_empty() {
        out::note(format!("{}: changed", some(&changed)));
    }
    // Also after a failure: a GPU that could not be put back has other instances than before.
    let mut refreshed = Ok(ExitCode::SUCCESS);
    if !changed.is_empty() || !failed.is_empty() {
        refreshed = refresh(at, before.as_ref());
    }
    let mut failed = failed.into_iter().chain(refreshed.err());
    let Some(last) = failed.next() else {
        return Ok(ExitCode::SUCCESS);
    };
    for error in failed {
        out::complain(error);
    }
    Err(last)
}

/// What a GPU is to have at boot: what the policy says, at the places where it was; without a policy for it, what was
/// saved. `None` if neither says anything.
fn restored(now: &MigGpu, layout: Option<&Layout>, saved: Option<&SavedGpu>) -> Result<Option<ExactGpu>> {
    let Some(layout) = layout else {
        return Ok(saved.map(|saved| saved.layout.clone()));
    };
    let mut had = now.clone();
    if let Some(saved) = saved {
        had.mode.current = saved.layout.mode;
        had.instances.clone_from(&saved.instances);
    }
    let target = plan(std::slice::from_ref(layout), std::slice::from_ref(&had), &[])?;
    Ok(target.into_iter().next())
}
