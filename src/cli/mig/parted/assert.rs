//! `nvidia-mig-parted assert`

use super::node::Node;
use super::{FileArgs, ViewArgs};
use crate::out;
use anyhow::Result;
use clap::builder::BoolishValueParser;
use tranche_core::error::{Error, Kind};

/// Check that the GPUs have what a configuration says; a GPU that it does not name fails the check
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Check only that the file is valid and has the configuration; no GPU is looked at
    #[arg(short = 'a', long, env = "MIG_PARTED_VALID_CONFIG", hide_env = true, value_parser = BoolishValueParser::new())]
    valid_config: bool,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let configuration = args.file.read()?;
    if args.valid_config {
        return out::result(&format!("configuration {} is valid\n", configuration.name));
    }
    let node = Node::look(&args.view)?;
    let gpus = node.gpus();
    configuration.notes.iter().for_each(out::note);
    let difference = configuration.other_mode(&gpus).or_else(|| match args.file.mode_only {
        true => None,
        false => configuration.other_devices(&gpus),
    });
    match difference {
        None => out::result(&format!(
            "the GPUs have what configuration {} says\n",
            configuration.name
        )),
        Some(line) => {
            let object = format!("configuration {}", configuration.name);
            Err(Error::new(Kind::Found, object, format!("is not what the GPUs have: {line}")).into())
        }
    }
}
