//! The options of a verb that needs a plan, and of one that makes its own policy.

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

/// The options of a verb that needs the host and the ledger, and makes the policy itself.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct MachineArgs {
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    look: LookArgs,
}

impl MachineArgs {
    /// The host and the ledger.
    pub(super) fn options(&self) -> PlanOptions {
        PlanOptions {
            state_dir: self.state.state_dir.clone(),
            host: self.host.options(&self.look),
            ..PlanOptions::default()
        }
    }
}
