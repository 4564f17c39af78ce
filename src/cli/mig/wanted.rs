//! The options that say which layout is meant.

use anyhow::Result;
use std::path::{Path, PathBuf};
use tranche_core::error::Error;
use tranche_node::mig::MigView;
use tranche_plan::mig::{ExactGpu, Layout, MigGpu, mig_parted, plan};

/// Which layout.
#[derive(Debug, clap::Args)]
pub(super) struct WantedArgs {
    /// What a GPU is to have: 0:3g.20gb,2x1g.5gb, or all:7x1g.5gb; GPU:empty for MIG mode without instances, GPU:off
    /// for no MIG mode. May be repeated. A GPU that is not named is not touched
    #[arg(
        long = "layout",
        value_name = "GPU:PROFILES",
        required_unless_present = "config_file"
    )]
    layouts: Vec<Layout>,
    /// A configuration file of NVIDIA's mig-parted; - for stdin
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with = "layouts")]
    config_file: Option<PathBuf>,
    /// The configuration of that file, if it has several
    #[arg(short = 'c', long, value_name = "NAME", requires = "config_file")]
    selected_config: Option<String>,
}

/// A GPU that is to change, as it is now.
pub(super) struct Change<'v> {
    pub(super) now: &'v MigGpu,
    pub(super) target: ExactGpu,
}

impl WantedArgs {
    /// The changes that the layout needs: none for a GPU that has what it is to have.
    pub(super) fn changes<'v>(&self, view: &'v MigView) -> Result<Vec<Change<'v>>> {
        let read = self.config_file.as_deref().map(|file| self.read(file)).transpose()?;
        let layouts = read.as_ref().unwrap_or(&self.layouts);
        changes(plan(layouts, &view.gpus, &view.holders)?, view)
    }

    fn read(&self, file: &Path) -> Result<Vec<Layout>> {
        let name = file.display().to_string();
        let text = match name.as_str() {
            "-" => std::io::read_to_string(std::io::stdin()),
            _ => std::fs::read_to_string(file),
        };
        let text = text.map_err(|error| Error::usage(&name, "cannot be read").from_source(error))?;
        Ok(mig_parted::read(&name, &text, self.selected_config.as_deref())?)
    }
}

/// The GPUs that are to become `target` and are not.
pub(super) fn changes(target: Vec<ExactGpu>, view: &MigView) -> Result<Vec<Change<'_>>> {
    let mut changes = Vec::new();
    for target in target {
        let now = view.gpus.iter().find(|gpu| gpu.uuid == target.gpu);
        let now = now.ok_or_else(|| Error::failed(&target.gpu, "is not on this machine any more"))?;
        if !matches!(target.next(now), Ok(None)) {
            changes.push(Change { now, target });
        }
    }
    Ok(changes)
}
