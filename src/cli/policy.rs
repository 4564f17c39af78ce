//! `tranche policy check`: whether a policy is valid, and can be applied to this host; and `tranche policy diff`: what
//! would change with it.

use super::out;
use super::sharing::SharingArgs;
use anyhow::Result;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tranche_core::error::{Kind, line};
use tranche_host::examine;
use tranche_inspect::policy_change;
use tranche_plan::policy::read;
use tranche_plan::share;
use tranche_state::accounts::{AccountSources, Accounts};
use tranche_state::held::earlier::earlier;
use tranche_state::planning::PlanOptions;
use tranche_state::turn_tries;

/// The verbs of `tranche policy`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Read the policy, plan its shares for this host, and print the problems. Exit code 4 means that there are any
    Check(Box<CheckArgs>),
    /// Show what would change if NEW became the policy: names, sizes, who holds what is no longer offered, and what is
    /// refused until when. Changes nothing. Exit code 4 means that something would change
    Diff(Box<DiffArgs>),
}

#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    // Options without a heading of their own come first: clap would show them below the heading of those before them.
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: SharingArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct DiffArgs {
    // Options without a heading of their own come first: clap would show them below the heading of those before them.
    /// The policy file that is to be compared with the present policy
    #[arg(value_name = "NEW", value_hint = clap::ValueHint::FilePath)]
    new: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: SharingArgs,
}

/// What a check found. With `--json` it is the result.
#[derive(Debug, Default, Serialize)]
struct PolicyReport {
    /// The file that was checked.
    file: String,
    /// What must be changed in the file. If there is anything, the exit code is 4.
    problems: Vec<String>,
    /// Held shares that the policy does not have. If there are any, the exit code is 4.
    held: Vec<String>,
    /// Keys without effect, and choices that were made between two entries.
    warnings: Vec<String>,
    /// For each entry of the policy that limits users, how much and for how long they may hold something.
    limits: Vec<String>,
    /// How many devices the policy splits on this host.
    split_devices: usize,
    /// Into how many shares.
    shares: usize,
    /// How many devices go whole to one container at a time.
    dedicated_devices: usize,
    /// Whether there is a GPU to plan the policy for.
    gpu_found: bool,
}

/// `tranche policy check`.
pub(super) fn check(args: &CheckArgs) -> Result<ExitCode> {
    let options = args.at.options();
    let file = options.policy.path();
    // A file that cannot be read is a failure of the check, and not its result: the exit code is 1.
    let text = read::text(&file)?;
    let report = PolicyReport::new(&options, &file, &text)?;
    if args.json {
        out::json(&report)?;
    } else {
        for warning in &report.warnings {
            out::note(warning);
        }
        out::result(&report.text())?;
    }
    if report.problems.is_empty() && report.held.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(out::code(Kind::Found))
    }
}

/// `tranche policy diff`.
pub(super) fn diff(args: &DiffArgs) -> Result<ExitCode> {
    let mut warnings = Vec::new();
    let change = policy_change::of(&args.at.options(), &args.new, &mut warnings)?;
    warnings.iter().for_each(out::note);
    out::either(args.json, &change, || match change.is_empty() {
        true => "nothing changes\n".to_owned(),
        false => change.lines.iter().map(|line| format!("{line}\n")).collect(),
    })?;
    match change.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(out::code(Kind::Found)),
    }
}

impl PolicyReport {
    fn new(options: &PlanOptions, file: &Path, text: &str) -> Result<Self> {
        let mut report = PolicyReport {
            file: file.display().to_string(),
            ..PolicyReport::default()
        };
        let refused = |mut report: PolicyReport, error| {
            report.problems.push(line(&error));
            Ok(report)
        };
        let read = match read::parse_key(&report.file, text, options.policy.key.as_deref()) {
            Ok(read) => read,
            Err(error) => return refused(report, error),
        };
        report.warnings.extend(read.warnings);
        report.limits = read.policy.users.limits();
        if options.host.is_here() {
            let accounts = Accounts::new(AccountSources::default());
            report.warnings.extend(accounts.without_effect(&read.policy.users));
        }
        let inventory = examine::inventory(&options.host)?;
        report.gpu_found = !inventory.gpus.is_empty();
        if !report.gpu_found {
            return Ok(report);
        }
        let mut plan = match share::plan(&read.policy, &inventory) {
            Ok(plan) => plan,
            Err(error) => return refused(report, error),
        };
        let earlier = earlier(&inventory, Some(&plan), &options.state_dir)?;
        report.held = earlier.all_lines().cloned().collect();
        if options.host.inventory.is_none() {
            plan.take_in(&turn_tries::read(&options.state_dir)?, inventory.driver.as_ref());
        }
        report.warnings.extend(plan.warnings);
        report.warnings.extend(plan.notes);
        report.problems.extend(plan.absent.iter().map(ToString::to_string));
        let (dedicated, split): (Vec<_>, Vec<_>) = plan.devices.iter().partition(|d| d.method.is_whole());
        report.dedicated_devices = dedicated.len();
        report.split_devices = split.len();
        report.shares = split.iter().map(|d| d.shares.len()).sum();
        Ok(report)
    }

    /// The result for people: one line for each problem, or a summary of the plan.
    fn text(&self) -> String {
        let lines = self.problems.iter().chain(&self.held);
        if lines.clone().next().is_some() {
            return lines.map(|line| format!("{line}\n")).collect();
        }
        let limits: String = self.limits.iter().map(|line| format!("{line}\n")).collect();
        if !self.gpu_found {
            return format!(
                "{}: valid; not planned, because this host has no GPU\n{limits}",
                self.file
            );
        }
        let mut parts = Vec::new();
        if self.split_devices > 0 || self.dedicated_devices == 0 {
            parts.push(format!(
                "{} of {}",
                tranche_core::text::counted(self.shares, "share"),
                tranche_core::text::counted(self.split_devices, "device")
            ));
        }
        if self.dedicated_devices > 0 {
            parts.push(format!(
                "{} for one container at a time",
                tranche_core::text::counted(self.dedicated_devices, "device")
            ));
        }
        format!("{}: valid; {}\n{limits}", self.file, parts.join(", "))
    }
}
