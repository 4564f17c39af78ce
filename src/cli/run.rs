//! `tranche run`: runs a program in a share, without a container.
//!
//! 1. The share is reserved. The reservation ends with this process.
//! 2. The program's process is started, and waits ([`start`]).
//! 3. The process gets a cgroup of its own where that is possible ([`cgroup`]), and enters the claim. From here on the
//!    claim lasts while a process of that cgroup lives, or the process itself, whatever happens to this one.
//! 4. What serves the share is prepared, and the process becomes the program.
//! 5. The claim is released when the program has ended.
//!
//! If this process is killed before step 4 is complete, the waiting process sees it and ends, and so does the claim.

mod cgroup;
mod environment;
mod served;
mod start;
mod supervise;
pub(super) mod wanted;

pub use start::run_if_asked;

use super::out;
use super::sharing::SharingArgs;
use crate::claims::{ClaimEntry, Claims, Reservation, Unoffered, explain};
use crate::derive::Sharing;
use crate::error::{Error, line};
use crate::held::specs::Specs;
use crate::held::{View, root_only};
use crate::ledger::{Claim, Holder, Promise, is_start_name, start_name};
use crate::planning;
use crate::policy::Priority;
use crate::share::SplitDevice;
use crate::types::WaitTime;
use anyhow::Result;
use cgroup::OwnCgroup;
use start::WaitingProgram;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Run a program in a share of a device, without a container, and pass on its exit code
#[derive(Debug, clap::Args)]
#[command(
    after_help = "If the program cannot be started, the exit code is 127 (not found) or 126, as in a shell. If a signal \
                  ends the program, the exit code is 128 and the number of the signal."
)]
pub(super) struct Args {
    /// The share: 0.big, 0:1.3, 0.any (any free one), GPU-….big, or the name of a dedicated device. May be repeated for
    /// several shares of one device
    #[arg(
        long,
        value_name = "DEVICE.SHARE",
        conflicts_with = "claim",
        required_unless_present = "claim"
    )]
    share: Vec<String>,
    /// Use this claim, which was made with tranche claim create
    #[arg(long, value_name = "NAME")]
    claim: Option<String>,
    /// Wait up to this time for what others hold: 30s, 5m. Those who wait are served in the order of their coming
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
    let state_dir = &args.at.state.state_dir;
    root_only::check(state_dir)?;
    let (inventory, sharing) = planning::required(&args.at.options())?;
    let claims = Claims::open(state_dir)?;
    let program = args.command.first().map(OsString::as_os_str).unwrap_or_default();
    let program = Path::new(program).file_name().unwrap_or(program);
    let holder = Holder::Process {
        program: program.to_string_lossy().into_owned(),
        id: start_name()?,
    };
    let reserved = match &args.claim {
        Some(name) => ReservedForRun::of_claim(name, &claims, &sharing)?,
        None => {
            let wish = wanted::wish(&args.share, &inventory, &sharing.plan)?;
            let reservation = Reservation {
                asked_as: wanted::asked_as(&args.share, &wish, &sharing.plan),
                ..Reservation::for_start(wish, holder.clone(), Some(std::process::id()))?
            };
            let wait = args.wait.map_or(Duration::ZERO, WaitTime::get);
            ReservedForRun::new(&reservation, &claims, &sharing, wait)?
        }
    };
    let ran = reserved.run(&args.command, &claims, &holder, &sharing);
    // What has entered its claim, and then what has not.
    let released = claims.release(&holder, Some(&reserved.claim.device), None);
    let withdrawn = match is_start_name(&reserved.name) {
        true => claims.withdraw(&[&reserved.name]),
        false => Ok(()),
    };
    let code = ran?;
    if let Err(error) = released.map(drop).and(withdrawn) {
        // The program has ended, so the next one that reads the ledger releases it. The exit code stays the program's.
        out::note(line(&explain(&reserved.label, error)));
    }
    Ok(code)
}

/// What the program will hold.
struct ReservedForRun<'a> {
    /// The name under which it is entered.
    name: String,
    /// What it is about, for messages: `gpu 0 share big`.
    label: String,
    claim: Claim,
    split: &'a SplitDevice,
    promise: Promise,
    priority: Priority,
}

impl<'a> ReservedForRun<'a> {
    /// Reserves shares for this program.
    fn new(reservation: &Reservation, claims: &Claims, sharing: &'a Sharing, wait: Duration) -> Result<Self> {
        let label = reservation.wish.text();
        let reserved = claims.reserve_waiting(&sharing.plan, reservation, &Unoffered, wait);
        let (_, claim) = reserved
            .map_err(|error| View::new(Specs::of_plan(&sharing.plan), claims.uptime()).not_reserved(&label, error))?;
        Self::with(&reservation.name, claim, sharing)
    }

    /// The claim that a person made under `name`.
    fn of_claim(name: &str, claims: &Claims, sharing: &'a Sharing) -> Result<Self> {
        let books = claims.books()?.books;
        let claim = books.iter().find_map(|book| book.named(name)).cloned();
        let claim = claim.ok_or_else(|| {
            Error::usage(format!("claim {name}"), "not found").hint("tranche claim list shows those that exist")
        })?;
        Self::with(name, claim, sharing)
    }

    fn with(name: &str, claim: Claim, sharing: &'a Sharing) -> Result<Self> {
        let split = sharing.plan.devices.iter().find(|split| split.key == claim.device);
        let unknown = || {
            Error::failed(
                claim.who(),
                format!("holds {}, which the policy does not share", claim.device),
            )
        };
        let split = split.ok_or_else(unknown)?;
        let promise = claim.part.promise().ok_or_else(unknown)?;
        let first = claim.part.shares().first().and_then(|held| split.share(&held.name));
        Ok(Self {
            name: name.to_owned(),
            label: format!("{} {}", split.device, claim.part),
            priority: first.map(|share| share.priority).unwrap_or_default(),
            claim,
            split,
            promise,
        })
    }

    /// Runs the program, and returns the exit code for how it ended.
    fn run(&self, command: &[OsString], claims: &Claims, holder: &Holder, sharing: &Sharing) -> Result<ExitCode> {
        let inside = self
            .split
            .in_container(self.promise, self.priority, &sharing.state_dir)?;
        let environment = environment::of(self.split, inside, std::env::vars_os())?;
        // Declared first, because it can only be removed after the process has ended.
        let cgroup;
        let mut waiting = WaitingProgram::start(command, environment)?;
        cgroup = OwnCgroup::of(waiting.pid());
        let entry = ClaimEntry::reserved(&self.name, &self.claim);
        let entered = claims.enter(&entry, holder.clone(), Some(waiting.pid()));
        entered.map_err(|refused| explain(&self.label, refused.error))?;
        served::check(self.split, &self.label, &sharing.state_dir)?;
        let status = supervise::wait(waiting.release()?)?;
        if cgroup.as_ref().is_some_and(OwnCgroup::has_processes) {
            out::note(format_args!(
                "{}: is held until the processes that the program left behind have ended",
                self.label
            ));
        }
        Ok(supervise::exit_code(status))
    }
}
