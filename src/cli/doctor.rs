//! `tranche doctor`: what is wrong with this host, why it matters, and which command corrects it.

use super::out;
use super::place::{EngineArgs, SpecDirArgs};
use super::sharing::SharingArgs;
use anyhow::Result;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use tranche_core::error::{Error, Kind};
use tranche_core::execute::Program;
use tranche_core::text::shown;
use tranche_inspect::doctor::{CheckResult, Diagnosis, Trouble, check_names, examine, gather};
use tranche_state::planning::PlanOptions;

/// Find what is wrong with this host: driver, device nodes, specifications, hooks, engines, shares
///
/// The exit code is 4 if something is wrong.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    // In this order, because options without a heading of their own would get that of the ones before them.
    #[command(flatten)]
    specs: SpecDirArgs,
    #[command(flatten)]
    engines: EngineArgs,
    #[command(flatten)]
    at: SharingArgs,
    /// Correct what can be corrected without harm, and examine the host again
    #[arg(long, help_heading = None)]
    fix: bool,
    /// Only this check, by its name; may be repeated
    #[arg(long, value_name = "NAME", help_heading = None, value_parser = PossibleValuesParser::new(check_names()))]
    check: Vec<String>,
    /// Print checks that found nothing wrong as well
    #[arg(long, help_heading = None)]
    all: bool,
    /// Print JSON
    #[arg(long, help_heading = None)]
    json: bool,
}

#[derive(Serialize)]
struct DoctorReport<'a> {
    checks: &'a [CheckResult],
    /// How many are wrong.
    wrong: usize,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = args.at.options();
    let examined = || -> Result<Vec<CheckResult>> {
        let subject = gather::subject(&options, &args.specs.spec_dirs, &args.engines.options())?;
        let mut results = examine(&subject);
        results.retain(|one| args.check.is_empty() || args.check.iter().any(|name| name == one.check));
        Ok(results)
    };
    let mut results = examined()?;
    if args.fix {
        let found = faults(&results);
        let mut run = Vec::new();
        // What one command corrects may let another one do its work.
        while fix(&options, args.specs.spec_dirs.last(), &results, &mut run)? {
            results = examined()?;
        }
        let next = first(&results).filter(|_| faults(&results) == found);
        if let Some((check, fault)) = next {
            let (why, fix) = (if run.is_empty() { WITHOUT_COMMAND } else { "" }, fault.fix.text());
            out::note(format_args!("--fix: nothing was corrected{why}; next, {check}: {fix}"));
        }
    }
    let wrong = results
        .iter()
        .filter(|one| matches!(one.diagnosis, Diagnosis::Wrong(_)));
    let wrong = wrong.count();
    let report = DoctorReport {
        checks: &results,
        wrong,
    };
    out::written(&out::page_text(args.json, &report, HANGING, || {
        page(&results, args.all)
    })?)?;
    Ok(match wrong {
        0 => ExitCode::SUCCESS,
        _ => out::code(Kind::Found),
    })
}

/// How far a line that is continued is indented: behind `why: `.
const HANGING: usize = 14;

/// Why nothing was corrected if no command was run.
const WITHOUT_COMMAND: &str = ", because each fix needs a person";

/// What was found, in a form that can be compared.
fn faults(results: &[CheckResult]) -> Vec<Trouble> {
    let faults = results.iter().filter_map(|one| one.diagnosis.fault());
    faults.cloned().collect()
}

/// What a person should correct first.
fn first(results: &[CheckResult]) -> Option<(&str, &Trouble)> {
    let faults = || {
        results
            .iter()
            .filter_map(|one| Some((one.check, one.diagnosis.fault()?, &one.diagnosis)))
    };
    let wrong = faults().find(|(_, _, diagnosis)| matches!(diagnosis, Diagnosis::Wrong(_)));
    let next = wrong.or_else(|| faults().next());
    next.map(|(check, fault, _)| (check, fault))
}

/// The page for people.
fn page(results: &[CheckResult], all: bool) -> String {
    let mut page = String::new();
    let mut add = |line: String| {
        page.push_str(&shown(&line));
        page.push('\n');
    };
    let (mut good, mut skipped) = (0, 0);
    for CheckResult { check, diagnosis } in results {
        let (mark, fault) = match diagnosis {
            Diagnosis::Wrong(fault) => ("wrong", fault),
            Diagnosis::Advice(fault) => ("advice", fault),
            Diagnosis::Good { found } => {
                good += 1;
                if all {
                    add(format!("good     {check}: {found}"));
                }
                continue;
            }
            Diagnosis::Skipped { why } => {
                skipped += 1;
                if all {
                    add(format!("skipped  {check}: {why}"));
                }
                continue;
            }
        };
        let Trouble { found, why, fix, .. } = fault;
        let fix = fix.text();
        add(format!("{mark:<8} {check}: {found}"));
        add(format!("         why: {why}"));
        add(format!("         fix: {fix}"));
    }
    let faults = results.iter().filter(|one| one.diagnosis.fault().is_some()).count();
    let rest = if all || good + skipped == 0 {
        ""
    } else {
        "; --all shows them"
    };
    add(format!(
        "{} with something to do, {good} good, {skipped} skipped{rest}",
        tranche_core::text::counted(faults, "result")
    ));
    page
}

/// Runs the commands that correct what was found and can do no harm, except those in `run`, to which they are added.
/// Returns whether there was one. `output_dir` is where specifications are written.
///
/// # Errors
/// Returns an error if this is not the machine that was examined, or if this program cannot be started.
fn fix(
    options: &PlanOptions,
    output_dir: Option<&PathBuf>,
    results: &[CheckResult],
    run: &mut Vec<Vec<&'static str>>,
) -> Result<bool> {
    if !options.host.is_here() {
        let error = Error::usage(
            "--fix",
            "corrects this machine, and --root or --inventory names another",
        );
        return Err(error.into());
    }
    let mut commands: Vec<Vec<&'static str>> = Vec::new();
    for fault in results.iter().filter_map(|one| one.diagnosis.fault()) {
        let command = fault.fix.safe_arguments().to_vec();
        if !command.is_empty() && !commands.contains(&command) && !run.contains(&command) {
            commands.push(command);
        }
    }
    let host = options.host.choices();
    for command in &commands {
        out::note(format_args!("running tranche {}", command.join(" ")));
        let words = command
            .iter()
            .map(OsString::from)
            .chain(host.iter().map(OsString::from));
        let mut child = Program::new("/proc/self/exe");
        child
            .args(words)
            .environment_of_caller()
            .ends_with_caller()
            .stderr(Stdio::inherit());
        if command.first() == Some(&"cdi") {
            child.arg(format!("--state-dir={}", options.state_dir.display()));
            let file = options.policy.file.as_ref();
            child.args(file.map(|file| format!("--config={}", file.display())));
            // The last directory wins, so engines find there what is written.
            child.args(output_dir.map(|dir| format!("--output-dir={}", dir.display())));
        }
        if !child.spawn()?.wait()?.success() {
            out::note(format_args!("tranche {} failed", command.join(" ")));
        }
    }
    let has_run = !commands.is_empty();
    run.extend(commands);
    Ok(has_run)
}
