//! `tranche cdi inspect NAME`: everything that a container with a device gets.

mod report;

use super::super::out;
use super::super::place::SpecDirArgs;
use anyhow::Result;
use report::Report;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tranche_core::error::Context;
use tranche_core::types::QualifiedName;
use tranche_plan::cdi::inject::{self, host_node};
use tranche_plan::cdi::registry::{FoundDevice, Registry};
use tranche_plan::cdi::unresolvable;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Devices as you give them to an engine: nvidia.com/gpu=0
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    dirs: SpecDirArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print this OCI config.json (- is stdin) with the changes that an engine would make for the devices
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    oci: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let dirs = super::spec_dirs(&args.dirs);
    let registry = Registry::read(&dirs);
    let find = |name: &String| {
        let found = name.parse().ok().and_then(|name: QualifiedName| registry.find(&name));
        found.ok_or_else(|| unresolvable(name, &registry, &dirs))
    };
    let found = args
        .names
        .iter()
        .map(find)
        .collect::<Result<Vec<FoundDevice<'_>>, _>>()?;
    let edits = inject::collect(found.iter().map(|f| (&f.file.spec, f.device)));
    if let Some(file) = &args.oci {
        let mut config = read(file)?;
        inject::apply(&mut config, &edits, &host_node)?;
        out::json(&config)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = Report::new(&args.names, &found, &edits, &host_node);
    out::either(args.json, &report, || report.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Value> {
    let (name, text) = super::read_input(file)?;
    Ok(serde_json::from_slice(&text).about(name, "is not valid JSON")?)
}
