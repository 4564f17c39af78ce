//! `tranche cdi inspect NAME`: everything that a container with a device gets.

mod report;

use super::super::out;
use super::super::place::SpecDirArgs;
use crate::cdi::inject::{self, HostNode};
use crate::cdi::registry::{FoundDevice, Registry};
use crate::error::{Context, Error};
use crate::text::{some, there_are};
use crate::types::QualifiedName;
use anyhow::Result;
use report::Report;
use serde_json::Value;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
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

/// The reason why `name` is not a device: engines say only "unresolvable CDI devices".
fn unresolvable(name: &str, registry: &Registry, dirs: &[PathBuf]) -> Error {
    if let Some(problem) = registry.loss_of(name) {
        return Error::usage(name, "is lost").hint(problem);
    }
    let Some((kind, _)) = name.split_once('=') else {
        return incomplete(name, registry);
    };
    let names = names(registry, |name| name.kind.to_string() == kind);
    let dirs: Vec<String> = dirs.iter().map(|d| d.display().to_string()).collect();
    Error::usage(name, "no such CDI device").hint(match names.as_slice() {
        [] => format!("no file in {} has that kind", some(&dirs)),
        names => there_are(names),
    })
}

/// Suggests the whole name of a device for `name`, which lacks the kind.
fn incomplete(name: &str, registry: &Registry) -> Error {
    let names = names(registry, |whole| whole.device.as_str() == name);
    Error::usage(name, "is not a complete CDI name").hint(match names.as_slice() {
        [] => "write it as KIND=NAME, for example nvidia.com/gpu=0".to_owned(),
        [one] => format!("use {one}"),
        names => there_are(names),
    })
}

/// The devices of which `is_meant` is true.
fn names(registry: &Registry, is_meant: impl Fn(&QualifiedName) -> bool) -> Vec<String> {
    let names = registry.devices().map(|(name, _)| name);
    names.filter(|name| is_meant(name)).map(ToString::to_string).collect()
}

fn read(file: &Path) -> Result<Value> {
    let (name, text) = super::read_input(file)?;
    Ok(serde_json::from_slice(&text).about(name, "is not valid JSON")?)
}

/// The device node at `path` on this machine.
fn host_node(path: &str) -> Option<HostNode> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    let kind = meta.file_type();
    let types = [
        (kind.is_char_device(), 'c'),
        (kind.is_block_device(), 'b'),
        (kind.is_fifo(), 'p'),
    ];
    let (_, node_type) = types.into_iter().find(|(is_it, _)| *is_it)?;
    let number = meta.rdev();
    Some(HostNode {
        node_type,
        major: i64::try_from(nix::sys::stat::major(number)).ok()?,
        minor: i64::try_from(nix::sys::stat::minor(number)).ok()?,
        mode: meta.mode() & 0o7777,
    })
}
