//! `tranche cdi validate`: what an engine will refuse, where it is written, and which devices are lost by it.

use super::super::out;
use super::super::place::SpecDirArgs;
use crate::cdi::registry::{Problem, Registry};
use crate::error::{Error, Kind, Result};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files to check, each by itself, instead of the directories that engines read
    files: Vec<PathBuf>,
    #[command(flatten)]
    dirs: SpecDirArgs,
    /// As JSON
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

#[derive(serde::Serialize)]
struct Shadowed {
    name: String,
    file: PathBuf,
    by: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let report = if args.files.is_empty() {
        directories(args)
    } else {
        files(&args.files)?
    };
    if args.json {
        out::json(&report)?;
    } else {
        let problems: String = report.problems.iter().map(|p| format!("{p}\n")).collect();
        out::result(&problems)?;
        for one in &report.shadowed {
            let (name, file, by) = (&one.name, one.file.display(), one.by.display());
            out::note(format_args!("{file}: {name} does not count: {by} wins"));
        }
        let found = match report.problems.len() {
            0 => "nothing wrong".to_owned(),
            n => out::counted(n, "problem"),
        };
        let (files, devices) = (
            out::counted(report.files, "good file"),
            out::counted(report.devices, "device"),
        );
        out::note(format_args!("{files} with {devices}; {found}"));
    }
    Ok(match report.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => out::code(Kind::Found),
    })
}

fn directories(args: &Args) -> Report {
    let registry = Registry::read(&super::spec_dirs(&args.dirs));
    let shadowed = registry
        .shadowed()
        .into_iter()
        .map(|(name, file, by)| Shadowed {
            name,
            file: file.to_owned(),
            by: by.to_owned(),
        })
        .collect();
    Report {
        files: registry.files().len(),
        devices: registry.devices().count(),
        shadowed,
        problems: registry.problems,
    }
}

fn files(files: &[PathBuf]) -> Result<Report> {
    let mut report = Report {
        files: 0,
        devices: 0,
        problems: Vec::new(),
        shadowed: Vec::new(),
    };
    for file in files {
        if !file.exists() {
            return Err(Error::usage(file.display(), "there is no such file"));
        }
        let registry = if file.is_dir() {
            Registry::read(std::slice::from_ref(file))
        } else {
            Registry::read_file(file)
        };
        report.files += registry.files().len();
        report.devices += registry.devices().count();
        report.problems.extend(registry.problems);
    }
    Ok(report)
}
