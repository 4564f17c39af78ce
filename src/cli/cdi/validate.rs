//! `tranche cdi validate`: what an engine will refuse, where it is written, and which devices are lost by it; and what a
//! specification points at that this host does not have.

use super::super::out;
use super::super::place::SpecDirArgs;
use crate::cdi::Problem;
use crate::cdi::registry::Registry;
use crate::error::{Error, Kind, Result};
use crate::text::{shown, some};
use crate::types::QualifiedName;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files to check, each on its own, instead of the directories that engines read
    files: Vec<PathBuf>,
    #[command(flatten)]
    dirs: SpecDirArgs,
    /// Check a specification for another machine: do not check whether the files, nodes and hooks in it exist
    #[arg(long)]
    for_other_host: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Report {
    files: usize,
    devices: usize,
    problems: Vec<Problem>,
    shadowed: Vec<Shadowed>,
}

impl Report {
    /// Whether there was no specification at all, good or bad.
    fn is_empty(&self) -> bool {
        self.files == 0 && self.problems.is_empty()
    }
}

#[derive(serde::Serialize)]
struct Shadowed {
    name: QualifiedName,
    file: PathBuf,
    by: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let report = if args.files.is_empty() {
        directories(args)?
    } else {
        files(args)?
    };
    if args.json {
        out::json(&report)?;
    } else {
        let problems: String = report
            .problems
            .iter()
            .map(|p| format!("{}\n", shown(&p.to_string())))
            .collect();
        out::result(&problems)?;
        for one in &report.shadowed {
            let (name, file, by) = (&one.name, one.file.display(), one.by.display());
            out::note(shown(&format!(
                "{file}: {name} is ignored, because {by} takes precedence"
            )));
        }
        let found = match report.problems.len() {
            0 => "no problems".to_owned(),
            n => out::counted(n, "problem"),
        };
        let (files, devices) = (
            out::counted(report.files, "file"),
            out::counted(report.devices, "device"),
        );
        if !report.is_empty() {
            out::note(format_args!("engines find {devices} in {files}; {found}"));
        }
    }
    if report.is_empty() {
        return Err(nothing_to_check(args));
    }
    Ok(match report.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => out::code(Kind::Found),
    })
}

/// Says where no specification was found, and how to write one.
fn nothing_to_check(args: &Args) -> Error {
    let places = match args.files.is_empty() {
        true => super::spec_dirs(&args.dirs),
        false => args.files.clone(),
    };
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Error::new(Kind::Nothing, some(&places), "no CDI specification found")
        .hint("tranche cdi generate --output /etc/cdi/nvidia.yaml writes one")
}

fn directories(args: &Args) -> Result<Report> {
    let mut registry = super::registry(&args.dirs)?;
    if !args.for_other_host {
        registry.check_references();
    }
    let shadowed = registry
        .shadowed()
        .into_iter()
        .map(|(name, file, by)| Shadowed {
            name,
            file: file.to_owned(),
            by: by.to_owned(),
        })
        .collect();
    Ok(Report {
        files: registry.files().len(),
        devices: registry.devices().count(),
        shadowed,
        problems: registry.problems,
    })
}

fn files(args: &Args) -> Result<Report> {
    let mut report = Report {
        files: 0,
        devices: 0,
        problems: Vec::new(),
        shadowed: Vec::new(),
    };
    for file in &args.files {
        if file.symlink_metadata().is_err() {
            return Err(Error::usage(file.display(), "no such file or directory"));
        }
        let mut registry = if file.is_dir() {
            Registry::read(std::slice::from_ref(file))
        } else {
            Registry::read_file(file)
        };
        if !args.for_other_host {
            registry.check_references();
        }
        report.files += registry.files().len();
        report.devices += registry.devices().count();
        report.problems.extend(registry.problems);
    }
    Ok(report)
}
