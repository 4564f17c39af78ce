//! The options that say which layout is meant.

use super::configuration;
use crate::out;
use anyhow::Result;
use std::path::{Path, PathBuf};
use tranche_broker::mig::{MigView, check_policy};
use tranche_core::error::Error;
use tranche_plan::mig::mig_parted::NodeGpu;
use tranche_plan::mig::{ExactGpu, Layout, MigGpu, plan};
use tranche_protocol::PolicyCheck;
use tranche_state::planning::{self, PolicyOptions};

/// Which layout.
#[derive(Debug, clap::Args)]
pub(super) struct WantedArgs {
    /// What a GPU is to have: 0:3g.20gb,2x1g.5gb, or all:7x1g.5gb; GPU:empty for MIG mode without instances, GPU:off
    /// for no MIG mode. May be repeated. A GPU that is not named is not touched [default: the layouts of the policy]
    #[arg(long = "layout", value_name = "GPU:PROFILES")]
    layouts: Vec<Layout>,
    /// A configuration file of NVIDIA's mig-parted, or a ConfigMap with one; - for stdin
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
    ///
    /// # Errors
    /// Returns an error if no layout is given and the policy has none, if a given one contradicts the policy, and the
    /// errors of the planner.
    pub(super) fn changes<'v>(&self, view: &'v MigView, policy: &PolicyOptions) -> Result<Vec<Change<'v>>> {
        let read = self
            .config_file
            .as_deref()
            .map(|file| self.read(file, view))
            .transpose()?;
        let policy = planning::policy_or_none(policy)?;
        let layouts = match read.as_deref() {
            Some(read) => read,
            None if self.layouts.is_empty() => &policy.mig_layouts,
            None => &self.layouts,
        };
        if read.is_none() && layouts.is_empty() {
            let error = Error::usage("--layout", "is not given, and the policy has no layout");
            return Err(error
                .hint("give for example --layout 0:3g.20gb,2x1g.5gb, or write mig: {layout: [...]} into the policy")
                .into());
        }
        check_policy(layouts, &policy, &view.gpus, PolicyCheck::Layouts)?;
        changes(plan(layouts, &view.gpus, &view.holders)?, view)
    }

    fn read(&self, file: &Path, view: &MigView) -> Result<Vec<Layout>> {
        let configuration = configuration::read(file, self.selected_config.as_deref())?;
        let gpus: Vec<NodeGpu<'_>> = view.gpus.iter().map(NodeGpu::from).collect();
        let lines = configuration.check_selectors(&file.display().to_string(), &gpus)?;
        lines.iter().for_each(out::note);
        Ok(configuration.layouts())
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
