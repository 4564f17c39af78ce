//! Runs a program in a share, without a container.
//!
//! 1. The share is reserved. The reservation ends with this process.
//! 2. The program's process is started, and waits ([`start`]).
//! 3. The process gets a cgroup of its own where that is possible ([`own_cgroup`](crate::own_cgroup)), and enters the
//!    claim. From here on the claim lasts while a process of that cgroup lives, or the process itself, whatever happens
//!    to this one.
//! 4. What serves the share is prepared. On a device that its holders have by turns, the first turn is waited for. Then
//!    the process becomes the program.
//! 5. The claim is released when the program has ended.
//!
//! If this process is killed before step 4 is complete, the waiting process sees it and ends, and so does the claim.
//!
//! For a user other than root, the broker does 1, 3 and 5 ([`by_broker`]).

mod by_broker;
mod environment;
pub(crate) mod planned;
mod served;
mod start;
mod supervise;
pub mod wanted;

pub use start::{NotStarted, run_if_asked};

use crate::own_cgroup::OwnCgroup;
use planned::PlannedClaim;
use start::WaitingProgram;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tranche_core::broker::MigMakeRequest;
use tranche_core::claims::{ClaimEntry, Claims, explain};
use tranche_core::error::{Error, Result, line};
use tranche_core::ledger::{Claim, Holder, is_start_name, start_name};
use tranche_core::types::{MigProfile, Selection, WaitTime};
use tranche_plan::derive::Sharing;
use tranche_plan::host_file::HostFileSeen;
use tranche_plan::reserve::{OfExamined, Reservation, Unoffered};
use tranche_plan::share::Method;
use tranche_state::held::names::DeviceNames;
use tranche_state::held::{self, View};
use tranche_state::planning::{self, PlanOptions};

/// What is run, and in which share.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The host, its policy and its ledger.
    pub at: PlanOptions,
    /// The share.
    pub share: ShareForRun,
    /// How long to wait for what others hold, and for the first turn with a device that its holders have by turns. By
    /// default, nobody waits for the former, and for the latter without an end.
    pub wait: Option<WaitTime>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

impl RunOptions {
    /// How much is left at most of the time to wait; `None` without an end.
    fn left(&self, began: Instant) -> Option<Duration> {
        self.wait.map(|wait| wait.get().saturating_sub(began.elapsed()))
    }

    /// The name of the program's file, for people.
    fn program(&self) -> String {
        let program = self.command.first().map(OsString::as_os_str).unwrap_or_default();
        let program = Path::new(program).file_name().unwrap_or(program);
        program.to_string_lossy().into_owned()
    }
}

/// What a program holds while it runs.
#[derive(Debug, Clone)]
pub enum ShareForRun {
    /// Shares of one device, as a person names them: `0.big`, `0.any`; a dedicated device, or `any` of these.
    Named {
        /// What the person typed.
        names: Vec<String>,
        /// Conditions on the device, if it is any.
        select: Selection,
    },
    /// The claim of this name.
    Claim(String),
}

impl ShareForRun {
    /// With instances of MIG that are made now in place of names such as `mig-1g.10gb.any`.
    fn with_instances(&self, state_dir: &Path) -> Result<Self> {
        let Self::Named { names, select } = self else {
            return Ok(self.clone());
        };
        let named = |name: &String| match on_demand_profile(name) {
            Some(profile) => Ok(MigMakeRequest { profile }.ask(state_dir)?.to_string()),
            None => Ok(name.clone()),
        };
        Ok(Self::Named {
            names: names.iter().map(named).collect::<Result<_>>()?,
            select: select.clone(),
        })
    }
}

/// The profile of an instance that is made on demand, if `typed` is the name of one.
fn on_demand_profile(typed: &str) -> Option<MigProfile> {
    MigProfile::of_on_demand(typed.strip_prefix(GPU_KIND).unwrap_or(typed))
}

/// The kind of devices, which may stand before their names.
const GPU_KIND: &str = "nvidia.com/gpu=";

/// Runs the program, and returns how it ended. Signals to this process are passed on to it meanwhile. `say` gets
/// lines for the person who runs it.
///
/// # Errors
/// Returns an error if the host or the policy has no such share, if it cannot be had in time, or if the program cannot
/// be started.
pub fn run(options: &RunOptions, say: &mut dyn FnMut(&str)) -> Result<ExitStatus> {
    let state_dir = &options.at.state_dir;
    if held::by_broker::is_needed(state_dir) {
        return by_broker::run(options, say);
    }
    let began = Instant::now();
    let share = options.share.with_instances(state_dir)?;
    let seen = HostFileSeen::now(state_dir);
    let (inventory, sharing) = planning::required(&options.at)?;
    let claims = Claims::open(state_dir)?;
    let holder = Holder::Process {
        program: options.program(),
        id: start_name()?,
    };
    let reserved = match &share {
        ShareForRun::Claim(name) => ReservedForRun::of_claim(name, &claims, &sharing)?,
        ShareForRun::Named { names, select } => {
            let wish = wanted::wish(names, select, &inventory, &sharing.plan)?;
            let reservation = Reservation {
                asked_as: wanted::asked_as(names, &wish, &sharing.plan),
                ..Reservation::for_start(wish, holder.clone(), Some(std::process::id()))?
            };
            let refused = |error| {
                let names = DeviceNames::new(inventory.clone(), sharing.plan.clone());
                View::new(names, claims.uptime()).not_reserved(reservation.wish.text(), error)
            };
            let offer = OfExamined {
                offer: Unoffered,
                inventory: &inventory,
                seen: &seen,
            };
            let wait = options.wait.unwrap_or_default().get();
            let reserved = sharing.plan.reserve_waiting(&claims, &reservation, &offer, wait);
            let (_, claim) = reserved.map_err(refused)?;
            ReservedForRun::with(&reservation.name, claim, &sharing)?
        }
    };
    let left = options.left(began);
    let ran = reserved.run(&options.command, &claims, &holder, &sharing, left, say);
    // What has entered its claim, and then what has not.
    let released = claims.release(&holder, Some(&reserved.claim.device), None);
    let withdrawn = match is_start_name(&reserved.name) {
        true => claims.withdraw(&[&reserved.name]),
        false => Ok(()),
    };
    let status = ran?;
    if let Err(error) = released.map(drop).and(withdrawn) {
        // The program has ended, so the next one that reads the ledger releases it. The exit code stays the program's.
        say(&line(&explain(&reserved.planned.label, error)));
    }
    Ok(status)
}

/// What the program will hold.
struct ReservedForRun<'a> {
    /// The name under which it is entered.
    name: String,
    claim: Claim,
    planned: PlannedClaim<'a>,
}

impl<'a> ReservedForRun<'a> {
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
        Ok(Self {
            name: name.to_owned(),
            planned: PlannedClaim::of(&claim, &sharing.plan)?,
            claim,
        })
    }

    /// Runs the program, and returns how it ended.
    fn run(
        &self,
        command: &[OsString],
        claims: &Claims,
        holder: &Holder,
        sharing: &Sharing,
        left: Option<Duration>,
        say: &mut dyn FnMut(&str),
    ) -> Result<ExitStatus> {
        let PlannedClaim { label, split, .. } = &self.planned;
        let of_share = self.planned.environment(&sharing.state_dir)?;
        // Declared first, because it can only be removed after the process has ended.
        let cgroup;
        let mut waiting = WaitingProgram::start(command, environment::without_shares(std::env::vars_os()))?;
        cgroup = OwnCgroup::of(waiting.pid());
        let entry = ClaimEntry::reserved(&self.name, &self.claim);
        let entered = claims.enter(&entry, holder.clone(), Some(waiting.pid()));
        entered.map_err(|refused| explain(label, refused.error))?;
        served::check(split, label, &sharing.state_dir)?;
        if matches!(split.method, Method::Turns(_)) {
            let state_dir = sharing.state_dir.as_path();
            served::await_first_turn(state_dir, (label, &split.key), waiting.pid(), left, say)?;
        }
        let status = supervise::wait(waiting.release(&of_share)?)?;
        if cgroup.as_ref().is_some_and(OwnCgroup::has_processes) {
            say(&format!(
                "{label}: is held until the processes that the program left behind have ended"
            ));
        }
        Ok(status)
    }
}
