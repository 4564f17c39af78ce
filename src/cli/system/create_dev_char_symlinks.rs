//! `tranche system create-dev-char-symlinks`.

use super::{WithNodes, make_nodes, modules};
use crate::out;
use crate::sharing::SharingArgs;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use tranche_core::error::Error;
use tranche_specs::device_files::{LinkChange, NodeSet, links};
use tranche_state::replace::make_directory;

/// Make the links in /dev/char that lead from the numbers of the driver's devices to their nodes
///
/// Without them, systemd takes the devices away from running containers at its next daemon-reload.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the links
    #[arg(long, value_name = "DIR", env = "DEV_CHAR_PATH", default_value = "/dev/char")]
    dev_char_path: PathBuf,
    /// Make links for nodes that do not exist yet as well
    #[arg(long, env = "CREATE_ALL")]
    create_all: bool,
    /// Load the modules nvidia, nvidia-uvm and nvidia-modeset first
    #[arg(long, requires = "create_all")]
    load_kernel_modules: bool,
    /// Make the nodes that do not exist first
    #[arg(long, requires = "create_all")]
    create_device_nodes: bool,
    /// Print what would be made, and make nothing
    #[arg(long, env = "DRY_RUN")]
    dry_run: bool,
    #[command(flatten)]
    at: SharingArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = args.at.options();
    if args.load_kernel_modules {
        for command in modules::load(options.host.roots.driver_root.as_deref(), args.dry_run)? {
            out::note(command);
        }
    }
    let WithNodes {
        inventory, mut wrong, ..
    } = match args.create_device_nodes && !args.dry_run {
        true => make_nodes(&options, NodeSet::All)?,
        false => WithNodes::without_making(&options.host)?,
    };
    let directory = std::path::absolute(&args.dev_char_path)?;
    if !args.dry_run {
        make_directory(&directory)?;
    }
    let wanted = links(&inventory, args.create_all);
    for link in &wanted {
        let change = match args.dry_run {
            true => link.look(&directory),
            false => link.make(&directory),
        };
        let (path, target) = (directory.join(&link.name), link.target.display());
        let (path, would) = (path.display(), if args.dry_run { "would be " } else { "" });
        match change {
            Ok(LinkChange::Kept) => {}
            Ok(LinkChange::Made) => out::note(format_args!("{path}: {would}linked to {target}")),
            Ok(LinkChange::Replaced(old)) => {
                let old = old.display();
                out::note(format_args!("{path}: {would}linked to {target}; it led to {old}"));
            }
            Err(error) => wrong.push(error),
        }
    }
    if wanted.is_empty() && wrong.is_empty() {
        let error = Error::new(
            tranche_core::error::Kind::Nothing,
            options
                .host
                .roots
                .dev_root
                .clone()
                .unwrap_or_else(|| "/dev".into())
                .display(),
            "has no device node of the driver",
        );
        bail!(error.hint("load the driver's modules, and run tranche system create-device-nodes"));
    }
    Ok(out::complain_all(&wrong))
}
