//! `tranche run`: runs a program in a share, without a container.

use super::out;
use super::sharing::SharingArgs;
use anyhow::Result;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use tranche_broker::run::{self, NotStarted, RunOptions, ShareForRun};
use tranche_core::types::{Selection, WaitTime};

/// Run a program in a share of a device, without a container, and pass on its exit code
#[derive(Debug, clap::Args)]
#[command(
    after_help = "If the program cannot be started, the exit code is 127 (not found) or 126, as in a shell. If a signal \
                  ends the program, the exit code is 128 and the number of the signal."
)]
pub(super) struct Args {
    /// The share: 0.big, 0:1.3, 0.any (any free one), GPU-….big, the name of a dedicated device, any for a free one, or
    /// mig-1g.10gb.any for an instance of MIG that is made for it. May be repeated for several shares of one device
    #[arg(
        long,
        value_name = "DEVICE.SHARE",
        conflicts_with = "claim",
        required_unless_present = "claim"
    )]
    share: Vec<String>,
    /// With --share any: only a device with these properties: memory>=40Gi,product=A100
    #[arg(long, value_name = "CONDITIONS", conflicts_with = "claim")]
    select: Option<Selection>,
    /// Use this claim, which was made with tranche claim create
    #[arg(long, value_name = "NAME")]
    claim: Option<String>,
    /// Wait up to this time for what others hold: 30s, 5m. Root's requests are served in the order of their coming, and
    /// then those of users: who has held less lately comes first. The first turn with a device that its holders have by
    /// turns is waited for up to this time, too, and without --wait until it comes; 0s refuses to wait
    #[arg(long, value_name = "TIME", conflicts_with = "claim")]
    wait: Option<WaitTime>,
    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
    #[command(flatten)]
    at: SharingArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = RunOptions {
        at: args.at.options(),
        share: match &args.claim {
            Some(name) => ShareForRun::Claim(name.clone()),
            None => ShareForRun::Named {
                names: args.share.clone(),
                select: args.select.clone().unwrap_or_default(),
            },
        },
        wait: args.wait,
        command: args.command.clone(),
    };
    Ok(exit_code(run::run(&options, &mut |line| out::note(line))?))
}

/// The exit code for how a program ended: 128 and the number of the signal that ended it, as shells have it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Runs as the process of a program that waits for its share, if this program was started as one: see
/// [`run::run_if_asked`].
pub fn run_if_waiting() -> Option<ExitCode> {
    let NotStarted { error, code } = run::run_if_asked()?;
    if let Some(error) = error {
        out::complain(error.into());
    }
    Some(ExitCode::from(code))
}
