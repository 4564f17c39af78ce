//! `tranche mig plan`, `apply` and `undo`.

use super::ViewArgs;
use super::wanted::{Change, WantedArgs, changes};
use crate::out;
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::{IsTerminal, stdin};
use std::process::ExitCode;
use std::time::Duration;
use tranche_broker::mig::{KNOWN_SERVICES, SavedLayouts};
use tranche_core::broker::{self, BrokerError, MigAnswer, MigRequest};
use tranche_core::error::{Error, Kind};
use tranche_core::text::some;
use tranche_core::types::{GpuUuid, MigUuid};
use tranche_plan::host_file::HostFile;
use tranche_plan::inventory::{Gpu, Inventory};
use tranche_plan::mig::ExactGpu;
use tranche_specs::refresh::{Refresh, RefreshOptions};
use tranche_state::restore_failures::RestoreFailures;

/// How long the broker may take: services are stopped, and GPUs reset.
const PATIENCE: Duration = Duration::from_secs(600);

/// Show what would change for a layout; exit code 0 if nothing would, 4 if something would
#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    wanted: WantedArgs,
    #[command(flatten)]
    view: ViewArgs,
}

/// Change GPUs to a layout with the least change; nothing that is in use is touched
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    wanted: WantedArgs,
    #[command(flatten)]
    how: HowArgs,
    #[command(flatten)]
    view: ViewArgs,
}

/// Change the GPUs of the last change back to what they had before it
#[derive(Debug, clap::Args)]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    how: HowArgs,
    #[command(flatten)]
    view: ViewArgs,
}

/// What a change may cost.
#[derive(Debug, clap::Args)]
struct HowArgs {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Also change the MIG mode of GPUs: no process may use them meanwhile
    #[arg(long)]
    mode: bool,
    /// Also reset GPUs that cannot change their mode otherwise
    #[arg(long, requires = "mode")]
    reset: bool,
    /// Stop services that keep a GPU open whose mode changes, and start them again [default: monitors and
    /// nvidia-persistenced]
    #[arg(long, value_name = "UNIT", num_args = 0.., value_delimiter = ',')]
    stop_services: Option<Vec<String>>,
}

impl HowArgs {
    fn services(&self) -> Vec<String> {
        match self.stop_services.as_deref() {
            None => Vec::new(),
            Some([]) => KNOWN_SERVICES.iter().map(|unit| (*unit).to_owned()).collect(),
            Some(units) => units.to_vec(),
        }
    }
}

pub(super) fn show_plan(args: &PlanArgs) -> Result<ExitCode> {
    let view = args.view.look()?;
    let changes = args.wanted.changes(&view, &args.view.at.options().policy)?;
    show(&changes, args.view.json)?;
    Ok(match changes.is_empty() {
        true => ExitCode::SUCCESS,
        false => out::code(Kind::Found),
    })
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let view = args.view.look()?;
    let changes = args.wanted.changes(&view, &args.view.at.options().policy)?;
    apply(&args.view, &args.how, &changes)
}

pub(super) fn undo(args: &UndoArgs) -> Result<ExitCode> {
    let view = args.view.look()?;
    let saved = SavedLayouts::read(&args.view.at.state.state_dir)?;
    if saved.previous.is_empty() {
        let what = "tranche has changed no layout";
        return Err(Error::new(Kind::Nothing, "MIG", what).into());
    }
    let changes = changes(saved.previous, &view)?;
    apply(&args.view, &args.how, &changes)
}

/// Shows the changes, asks the person, and has the broker make them.
fn apply(at: &ViewArgs, how: &HowArgs, changes: &[Change<'_>]) -> Result<ExitCode> {
    show(changes, at.json)?;
    if changes.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if !how.yes && !agreed()? {
        out::note("nothing was changed");
        return Ok(out::code(Kind::Failed));
    }
    let request = MigRequest {
        may_change_mode: how.mode,
        may_reset: how.reset,
        services: how.services(),
        ..request(changes)
    };
    send(at, &request, changes)
}

pub(super) fn request(changes: &[Change<'_>]) -> MigRequest {
    MigRequest {
        layouts: changes
            .iter()
            .map(|change| change.target.layout().to_string())
            .collect(),
        seen: changes
            .iter()
            .map(|change| ExactGpu::of(change.now).layout().to_string())
            .collect(),
        ..MigRequest::default()
    }
}

pub(super) fn show(changes: &[Change<'_>], json: bool) -> Result<()> {
    let steps = |change: &Change<'_>| change.target.differences(change.now);
    let values: Vec<_> = changes
        .iter()
        .map(|change| {
            serde_json::json!({
                "gpu": change.now.index, "uuid": change.now.uuid,
                "layout": change.target.layout().wish.to_string(), "steps": steps(change),
            })
        })
        .collect();
    out::either(json, &values, || {
        let lines = changes.iter().flat_map(|change| {
            let gpu = change.now.index;
            steps(change)
                .into_iter()
                .map(move |step| format!("gpu {gpu}: {step}\n"))
        });
        match changes.is_empty() {
            true => "nothing to do\n".to_owned(),
            false => lines.collect(),
        }
    })
}

/// Whether the person agrees.
fn agreed() -> Result<bool> {
    if !stdin().is_terminal() {
        let error = Error::usage("standard input", "is not a terminal, so nobody can be asked");
        return Err(error.hint("give --yes to change it all the same").into());
    }
    out::note("change it? [y/N]");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "yes"))
}

/// Has the broker make the changes, and brings the specifications up to date.
pub(super) fn send(at: &ViewArgs, request: &MigRequest, changes: &[Change<'_>]) -> Result<ExitCode> {
    let before = HostFile::read(&at.at.state.state_dir).ok();
    let answer = ask(at, request)?;
    let names: Vec<String> = changes
        .iter()
        .map(|change| format!("gpu {}", change.now.index))
        .collect();
    out::note(match answer.changed.is_empty() {
        true => "nothing had to be changed".to_owned(),
        false => format!("{}: changed", some(&names)),
    });
    let code = refresh(at, before.as_ref())?;
    // What the boot could not make counts no more.
    let gpus: Vec<GpuUuid> = changes.iter().map(|change| change.now.uuid.clone()).collect();
    RestoreFailures::forget(&at.at.state.state_dir, &gpus)?;
    Ok(code)
}

/// Has the broker make the changes.
pub(super) fn ask(at: &ViewArgs, request: &MigRequest) -> Result<MigAnswer> {
    let state_dir = &at.at.state.state_dir;
    match broker::ask(&state_dir.join(broker::SOCKET), request, PATIENCE) {
        Ok(answer) => Ok(answer),
        Err(BrokerError::Refused(error)) => Err(error.into()),
        Err(BrokerError::Unreachable(error)) => {
            let what = "the broker, which changes GPUs, cannot be reached";
            let error = Error::failed(state_dir.display(), what).from_source(error);
            Err(error
                .hint("start it: systemctl start tranche-broker.socket, or tranche broker &")
                .into())
        }
    }
}

/// Brings the specifications and host.json up to date, and says which names mean another device now.
pub(super) fn refresh(at: &ViewArgs, before: Option<&HostFile>) -> Result<ExitCode> {
    let options = RefreshOptions {
        at: at.at.options(),
        output_dir: at.output_dir.clone(),
        ..RefreshOptions::default()
    };
    let refreshed = Refresh::begin(&options, false).and_then(|refresh| out::with_notes(|notes| refresh.run(notes)));
    if let Err(error) = refreshed {
        let what = "the instances were changed, and the specifications could not be brought up to date";
        return Err(Error::failed(at.output_dir.display(), what)
            .from_source(error)
            .hint("tranche cdi refresh does it")
            .into());
    }
    let after = HostFile::read(&at.at.state.state_dir).ok();
    if let Some((before, after)) = before.zip(after.as_ref()) {
        renamed(&before.inventory, &after.inventory).iter().for_each(out::note);
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each name of a MIG device that means another one now, or none.
fn renamed(before: &Inventory, after: &Inventory) -> Vec<String> {
    let names = |inventory: &Inventory| -> BTreeMap<String, Option<MigUuid>> {
        let of = |gpu: &Gpu| {
            let named = gpu.mig_devices.iter();
            named
                .map(|mig| (format!("{}:{}", gpu.index, mig.index), mig.uuid.clone()))
                .collect::<Vec<_>>()
        };
        inventory.gpus.iter().flat_map(of).collect()
    };
    let after = names(after);
    let line = |(name, was): (String, Option<MigUuid>)| match after.get(&name) {
        None => Some(format!("nvidia.com/gpu={name} is no device any more")),
        Some(is) if *is != was => Some(format!("nvidia.com/gpu={name} is another device now")),
        Some(_) => None,
    };
    names(before).into_iter().filter_map(line).collect()
}
