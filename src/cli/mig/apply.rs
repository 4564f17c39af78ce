//! `tranche mig plan`, `apply` and `undo`.

use super::ViewArgs;
use super::wanted::{Change, WantedArgs, changes};
use crate::out;
use anyhow::Result;
use serde::de::DeserializeOwned;
use std::io::{ErrorKind, IsTerminal, stdin};
use std::process::ExitCode;
use std::time::Duration;
use tranche_broker::mig::{self, KNOWN_SERVICES, MigHost, MigJournal, SavedLayouts};
use tranche_broker::serve::change_without_broker;
use tranche_core::broker::{self, BrokerError, Command};
use tranche_core::error::{Error, Kind, Result as CoreResult};
use tranche_core::text::some;
use tranche_plan::mig::ExactGpu;
use tranche_protocol::{MigRequest, PolicyCheck};
use tranche_state::renew;

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
    apply(&args.view, &args.how, &changes, PolicyCheck::Layouts)
}

pub(super) fn undo(args: &UndoArgs) -> Result<ExitCode> {
    let view = args.view.look()?;
    let saved = SavedLayouts::read(&args.view.at.state.state_dir)?;
    if saved.previous.is_empty() {
        let what = "tranche has changed no layout";
        return Err(Error::new(Kind::Nothing, "MIG", what).into());
    }
    let changes = changes(saved.previous, &view)?;
    apply(&args.view, &args.how, &changes, PolicyCheck::Nothing)
}

/// Shows the changes, asks the person, and has them made.
fn apply(at: &ViewArgs, how: &HowArgs, changes: &[Change<'_>], check: PolicyCheck) -> Result<ExitCode> {
    show(changes, at.json)?;
    let options = at.at.options();
    if changes.is_empty() {
        // What was made and could not be recorded is recorded now: the next boot would not make it.
        if MigJournal::read(&options.state_dir)?.is_some() {
            let request = MigRequest::default();
            at.changed_by(&request, |host| mig::apply(host, &request))?;
            renew::specifications(&options.state_dir, &options.arguments())?;
        }
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
        check,
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

/// Has the changes made, and says what came of them.
pub(super) fn send(at: &ViewArgs, request: &MigRequest, changes: &[Change<'_>]) -> Result<ExitCode> {
    let answer = at.changed_by(request, |host| mig::apply(host, request))?;
    let names: Vec<String> = changes
        .iter()
        .map(|change| format!("gpu {}", change.now.index))
        .collect();
    out::note(match answer.changed.is_empty() {
        true => "nothing had to be changed".to_owned(),
        false => format!("{}: changed", some(&names)),
    });
    answer.notes.iter().for_each(out::note);
    if !answer.refreshed {
        let at = at.at.options();
        renew::specifications(&at.state_dir, &at.arguments())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl ViewArgs {
    /// Has the broker do what `request` says; where none runs, `here` does the same in this process.
    pub(super) fn changed_by<T: DeserializeOwned>(
        &self,
        request: &impl Command,
        here: impl FnOnce(&MigHost<'_>) -> CoreResult<T>,
    ) -> CoreResult<T> {
        let state_dir = &self.at.state.state_dir;
        match broker::ask(&state_dir.join(broker::SOCKET), request, PATIENCE) {
            Ok(answer) => Ok(answer),
            Err(BrokerError::Refused(error)) => Err(error),
            Err(BrokerError::Unreachable(error)) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => change_without_broker(&self.at.options(), here),
                _ => Err(
                    Error::failed(state_dir.display(), "the broker, which changes GPUs, does not answer")
                        .from_source(error)
                        .hint("look at its log, and start it again: systemctl restart tranche-broker"),
                ),
            },
        }
    }
}
