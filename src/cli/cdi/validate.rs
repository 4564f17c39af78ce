//! `tranche cdi validate`: what an engine refuses, with its place and the devices that are lost by it; what a
//! specification refers to that this host does not have; and whether a specification of tranche is older than the host
//! or the policy.

use super::super::look::LookArgs;
use super::super::out;
use super::super::place::{ConfigArgs, HostArgs, SpecDirArgs};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tranche_core::error::{Error, Kind};
use tranche_core::ledger::STATE_DIR;
use tranche_core::text::{shown, some};
use tranche_host::examine::HostOptions;
use tranche_plan::cdi::Problem;
use tranche_plan::cdi::registry::{Registry, Shadowed};
use tranche_specs::generate::stale::{self, Staleness};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files to check, each on its own, instead of the directories that engines read
    files: Vec<PathBuf>,
    #[command(flatten)]
    dirs: SpecDirArgs,
    /// The specifications are for another machine: do not check whether files, nodes and hooks exist here, or whether
    /// this host has changed since (with --root or --inventory, that host is compared)
    #[arg(long)]
    for_other_host: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A feature flag that cdi generate was given
    #[arg(long = "feature-flag", value_name = "FLAG", value_delimiter = ',')]
    feature_flags: Vec<String>,
    #[command(flatten)]
    compare: CompareArgs,
}

/// What specifications are compared with: the same options as those of `cdi generate`.
#[derive(Debug, clap::Args)]
struct CompareArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    look: LookArgs,
}

#[derive(serde::Serialize)]
struct ValidationReport {
    files: usize,
    devices: usize,
    problems: Vec<Problem>,
    shadowed: Vec<Shadowed>,
    /// Checks that were not made.
    notes: Vec<String>,
}

pub(super) fn run(args: Args) -> Result<ExitCode> {
    let mut host = args.compare.host.options(&args.compare.look);
    super::generate::take_nvidia_options(&mut host, &args.feature_flags)?;
    let report = ValidationReport::new(&args, &host, registries(&args)?)?;
    match args.json {
        true => out::json(&report)?,
        false => report.print()?,
    }
    if report.files == 0 && report.problems.is_empty() {
        bail!(nothing_to_check(&args));
    }
    Ok(match report.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => out::code(Kind::Found),
    })
}

/// What was asked for: the directories that engines read, or each file and directory that was named.
fn registries(args: &Args) -> Result<Vec<Registry>> {
    if args.files.is_empty() {
        return Ok(vec![super::registry(&args.dirs, super::MissingDir::Refused)?]);
    }
    let read = |file: &PathBuf| match file.symlink_metadata() {
        Err(_) => Err(Error::usage(file.display(), "no such file or directory").into()),
        Ok(_) if file.is_dir() => Ok(Registry::read(std::slice::from_ref(file))),
        Ok(_) => Ok(Registry::read_file(file)),
    };
    args.files.iter().map(read).collect()
}

impl ValidationReport {
    fn new(args: &Args, host: &HostOptions, mut registries: Vec<Registry>) -> Result<Self> {
        let is_here = host.is_here();
        if !args.for_other_host && is_here {
            registries.iter_mut().for_each(Registry::check_references);
        }
        let files = registries.iter().flat_map(|registry| registry.files());
        let stale = match args.for_other_host && is_here {
            true => Staleness::default(),
            false => stale::find(files, host, &args.compare.config.options(STATE_DIR.as_ref()))?,
        };
        Ok(Self {
            files: registries.iter().map(|registry| registry.files().len()).sum(),
            devices: registries.iter().map(|registry| registry.devices().count()).sum(),
            shadowed: registries.iter().flat_map(Registry::shadowed).collect(),
            notes: stale.notes,
            problems: registries
                .into_iter()
                .flat_map(|registry| registry.problems)
                .chain(stale.problems)
                .collect(),
        })
    }

    fn print(&self) -> Result<()> {
        let problems: String = self.problems.iter().map(|problem| format!("{problem}\n")).collect();
        out::result(&problems)?;
        // A file that another one hides usually loses all its devices: one line about the file is enough.
        let mut hidden: BTreeMap<(&Path, &Path), Vec<String>> = BTreeMap::new();
        for one in &self.shadowed {
            let names = hidden.entry((&one.file, &one.by)).or_default();
            names.push(one.name.to_string());
        }
        for ((file, by), names) in &hidden {
            let (file, by, names) = (file.display(), by.display(), some(names));
            out::note(shown(&format!(
                "{file}: engines ignore {names}, because {by} takes precedence"
            )));
        }
        for note in &self.notes {
            out::note(note);
        }
        let found = match self.problems.len() {
            0 => "no problems".to_owned(),
            n => tranche_core::text::counted(n, "problem"),
        };
        let (files, devices) = (
            tranche_core::text::counted(self.files, "file"),
            tranche_core::text::counted(self.devices, "device"),
        );
        if self.files > 0 || !self.problems.is_empty() {
            out::note(format_args!("engines find {devices} in {files}; {found}"));
        }
        Ok(())
    }
}

/// The error for places without a specification. Its hint is how to write one.
fn nothing_to_check(args: &Args) -> Error {
    let places = match args.files.is_empty() {
        true => super::spec_dirs(&args.dirs),
        false => args.files.clone(),
    };
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Error::new(Kind::Nothing, some(&places), "no CDI specification found").hint("tranche cdi refresh writes one")
}
