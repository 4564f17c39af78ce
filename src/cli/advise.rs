//! `tranche advise`: a policy for what people want of this machine, and why it is this one.

mod observe;
mod options;
mod text;

use super::out;
use super::sharing::MachineArgs;
use anyhow::{Result, bail};
use options::WishArgs;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tranche_bench::kept::MeasuredHere;
use tranche_broker::mig::MigView;
use tranche_core::error::{Error, line};
use tranche_core::types::WaitTime;
use tranche_host::examine;
use tranche_inspect::measured;
use tranche_plan::advise::observed::{self, Observed};
use tranche_plan::advise::{Advice, advise};
use tranche_plan::inventory::Inventory;
use tranche_plan::mig::MigGpu;
use tranche_plan::{policy, share};
use tranche_state::planning::PlanOptions;
use tranche_state::replace;

/// What the advice does not rest on.
const NOT_MEASURED: &str = "nothing was measured on this machine: the rules rest on the grades of tranche plan, on \
                            documentation, and on measurements of others";

/// Propose a policy for what people want of this machine, with the reason for each choice
///
/// The wishes are in a file, or one is given by options. Exit code 4 means that no policy satisfies them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example of a file:\n  trust: team                  # none: tenants may try to break out\n  wishes:\n  - {name: \
                  chat, kind: service, count: 2, memory: 7Gi, compute: 40%, latency: bounded}\n  - {name: nb, kind: \
                  notebook, count: 4, memory: 4Gi}\n  - {name: train, kind: training, wholeGpu: true}\n\
                  Further keys: latency (usual, bounded), tenant (a name, with trust: none). docs/explanation/advice.md \
                  has the rules."
)]
pub(super) struct Args {
    // Options without a heading of their own come first: clap would show them below the heading of those before them.
    /// A file with wishes (YAML)
    #[arg(
        value_name = "WISHES",
        value_hint = clap::ValueHint::FilePath,
        required_unless_present_any = ["kind", "observe"]
    )]
    file: Option<PathBuf>,
    /// Wish for what runs now: look at the processes on the GPUs for TIME first (10m)
    #[arg(long, value_name = "TIME", conflicts_with_all = ["file", "one wish"])]
    observe: Option<WaitTime>,
    #[command(flatten)]
    wish: WishArgs,
    /// Write the policy to FILE as well, which must not exist
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    write: Option<PathBuf>,
    /// Replace the FILE of --write if it exists
    #[arg(long, requires = "write")]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: MachineArgs,
}

/// The result with `--json`.
#[derive(Serialize)]
struct Report<'a> {
    /// With `--observe`, what was seen, and the wish that it became.
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<&'a [Observed]>,
    #[serde(flatten)]
    advice: &'a Advice,
    /// What was measured on this machine of the shares of the policy; `null` if nothing was.
    measured: Option<&'a [MeasuredHere]>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = args.at.options();
    if let Some(file) = args.write.as_deref().filter(|_| !args.force) {
        refuse_existing(file)?;
    }
    let (wishes, seen) = match (&args.file, args.observe) {
        (Some(file), _) => (options::read(file)?, None),
        (None, Some(time)) => {
            let (wishes, seen) = observed::wishes(&observe::observe(time, &options)?)?;
            (wishes, Some(seen))
        }
        (None, None) => (args.wish.wishes()?, None),
    };
    let inventory = examine::inventory(&options.host)?;
    if inventory.gpus.is_empty() {
        bail!(examine::no_gpu(&inventory));
    }
    let (mig, problems) = gpus_with_mig(&inventory, &options);
    let mut advice = advise(&wishes, &inventory, &mig)?;
    advice.notes.extend(problems);
    if let Some(file) = &args.write {
        replace::write(file, &advice.policy)?;
        out::note(format_args!("{}: written", file.display()));
    }
    let measured = measured_of(&advice, &inventory, &options)?;
    let report = Report {
        observed: seen.as_deref(),
        advice: &advice,
        measured: (!measured.is_empty()).then_some(&measured),
    };
    out::either(args.json, &report, || {
        let seen = seen.as_deref().map(text::observed).unwrap_or_default();
        seen + &text::of(&advice, &measured, args.write.as_deref())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What was measured on this machine of the shares that the policy makes.
fn measured_of(advice: &Advice, inventory: &Inventory, options: &PlanOptions) -> Result<Vec<MeasuredHere>> {
    // The instances of a layout that nobody has made yet are no devices, and were never measured.
    if !advice.mig_layouts.is_empty() {
        return Ok(Vec::new());
    }
    let read = policy::read::parse("policy", &advice.policy)?;
    let plan = share::plan(&read.policy, inventory)?;
    let driver = inventory.driver.as_ref();
    let mut here = measured::here(&options.state_dir, &options.host, driver, &plan.devices);
    here.retain(|one| one.measured.is_some());
    Ok(here)
}

/// The GPUs that have MIG, as the driver describes them, and a line for each that it does not describe: without MIG,
/// there may still be advice.
fn gpus_with_mig(inventory: &Inventory, options: &PlanOptions) -> (Vec<MigGpu>, Vec<String>) {
    if inventory.gpus.iter().all(|gpu| gpu.mig.is_none()) {
        return (Vec::new(), Vec::new());
    }
    match MigView::look(options) {
        Ok(view) => (view.gpus, view.problems),
        Err(error) => (Vec::new(), vec![format!("MIG was not considered: {}", line(&error))]),
    }
}

fn refuse_existing(file: &Path) -> Result<()> {
    match file.symlink_metadata() {
        Ok(_) => Err(Error::usage(file.display(), "exists")
            .hint("give --force to replace it, or another file")
            .into()),
        Err(_) => Ok(()),
    }
}
