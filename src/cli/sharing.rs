//! The options of a verb that needs a plan.

use super::look::LookArgs;
use super::place::{ConfigArgs, HostArgs, StateArgs};
use tranche_state::planning::PlanOptions;

/// The options of a verb that needs a plan.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SharingArgs {
    // In this order, because options without a heading of their own would get that of the ones before them.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) state: StateArgs,
    #[command(flatten)]
    pub(super) host: HostArgs,
    #[command(flatten)]
    pub(super) look: LookArgs,
}

impl SharingArgs {
    /// What the plan is made from.
    pub(super) fn options(&self) -> PlanOptions {
        PlanOptions {
            policy: self.config.options(&self.state.state_dir),
            state_dir: self.state.state_dir.clone(),
            host: self.host.options(&self.look),
        }
    }
}
