//! `tranche cdi list`: the names of all devices, one on a line.

use super::super::out;
use super::super::place::SpecDirArgs;
use super::MissingDir;
use anyhow::Result;

use std::process::ExitCode;
use tranche_core::types::QualifiedName;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    dirs: SpecDirArgs,
    /// Print JSON, with the file of each device
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct ListedDevice<'a> {
    name: &'a QualifiedName,
    file: &'a std::path::Path,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    // NVIDIA's tool lists nothing of a directory that does not exist, so that a script need not look for it first.
    let registry = super::registry(&args.dirs, MissingDir::Reported)?;
    for problem in &registry.problems {
        out::note(problem);
    }
    let rows: Vec<ListedDevice<'_>> = registry
        .devices()
        .map(|(name, found)| ListedDevice {
            name,
            file: &found.file.path,
        })
        .collect();
    if args.json {
        out::json(&rows)?;
    } else {
        let lines: String = rows.iter().map(|r| format!("{}\n", r.name)).collect();
        out::result(&lines)?;
        out::note(format_args!("Found {} CDI devices", rows.len()));
    }
    Ok(ExitCode::SUCCESS)
}
