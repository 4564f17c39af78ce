//! `tranche system create-device-nodes`.

use super::{WithNodes, make_nodes, modules};
use crate::out;
use crate::sharing::SharingArgs;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeSet;
use std::process::ExitCode;
use tranche_specs::device_files::{DeviceFile, NodeSet, nodes};

/// Make the driver's device nodes in /dev that do not exist
///
/// The driver makes nodes only when a program asks for them (nvidia-modprobe). Nodes that exist are checked: one with
/// the numbers of another device is reported, and the command fails.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make only the nodes of the driver as a whole: nvidiactl, nvidia-modeset, nvidia-uvm, nvidia-uvm-tools
    #[arg(long)]
    control_devices: bool,
    /// Load the modules nvidia, nvidia-uvm and nvidia-modeset first
    #[arg(long)]
    load_kernel_modules: bool,
    /// Print what would be made, and make nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: SharingArgs,
}

/// A node, as `--json` prints it.
#[derive(Debug, Serialize)]
struct MadeNode<'a> {
    path: &'a str,
    major: u32,
    minor: u32,
    /// Whether it was made, or would be.
    made: bool,
}

impl<'a> MadeNode<'a> {
    fn of(file: &DeviceFile<'a>, made: &BTreeSet<String>) -> Self {
        let node = file.node;
        Self {
            path: node.host.as_str(),
            major: node.major,
            minor: node.minor,
            made: !node.present || made.contains(node.host.as_str()),
        }
    }
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = args.at.options();
    if args.load_kernel_modules {
        for command in modules::load(options.host.roots.driver_root.as_deref(), args.dry_run)? {
            out::note(command);
        }
    }
    let set = match args.control_devices {
        true => NodeSet::Control,
        false => NodeSet::All,
    };
    let WithNodes { inventory, made, wrong } = match args.dry_run {
        true => WithNodes::without_making(&options.host)?,
        false => make_nodes(&options, set)?,
    };
    let files = nodes(&inventory, set);
    let report: Vec<_> = files.iter().map(|file| MadeNode::of(file, &made)).collect();
    match args.json {
        true => out::json(&report)?,
        false => report.iter().filter(|node| node.made).for_each(|node| {
            let MadeNode { path, major, minor, .. } = node;
            let verb = if args.dry_run { "would make" } else { "made" };
            out::note(format_args!("{verb} {path} ({major}:{minor})"));
        }),
    }
    if files.is_empty() && wrong.is_empty() {
        out::note("there are no device nodes to make: the driver's modules are not loaded");
    }
    Ok(out::complain_all(&wrong))
}
