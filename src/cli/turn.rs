//! `tranche suspend` and `tranche resume`: what somebody holds by turns, by hand.

use crate::out;
use crate::place::StateArgs;
use anyhow::Result;
use serde::de::IgnoredAny;
use std::process::ExitCode;
use std::time::Duration;
use tranche_protocol::TurnRequest;
use tranche_state::held::by_broker;

/// How long a change may take: the memory of the largest GPU at half a gigabyte in a second.
const LONGEST: Duration = Duration::from_secs(600);

/// Suspend the GPU work of a claim until it is resumed, where the policy gives a device by turns (experimental)
///
/// Its GPU memory is copied to the memory of the machine, and another holder has the device.
#[derive(Debug, clap::Args)]
pub(super) struct SuspendArgs {
    #[command(flatten)]
    turn: TurnArgs,
}

/// Let a suspended claim have its device again as soon as it is free or another turn ends (experimental)
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    turn: TurnArgs,
}

#[derive(Debug, clap::Args)]
struct TurnArgs {
    /// The name of a claim; a share (nvidia.com/gpu=0.3, or 0.3); or a container's name or id
    #[arg(value_name = "CLAIM|SHARE|CONTAINER")]
    what: String,
    #[command(flatten)]
    state: StateArgs,
}

pub(super) fn suspend(args: &SuspendArgs) -> Result<ExitCode> {
    ask(&args.turn, true)?;
    out::note(format_args!(
        "{} is suspended as soon as its running work is done",
        args.turn.what
    ));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn resume(args: &ResumeArgs) -> Result<ExitCode> {
    ask(&args.turn, false)?;
    out::note(format_args!("{} is resumed when it is its turn", args.turn.what));
    Ok(ExitCode::SUCCESS)
}

/// Only the broker makes changes, for root too.
fn ask(args: &TurnArgs, suspend: bool) -> Result<()> {
    let request = TurnRequest {
        what: args.what.clone(),
        suspend,
    };
    let _: IgnoredAny = by_broker::ask_waiting(&args.state.state_dir, &request, LONGEST)?;
    Ok(())
}
