//! The two workloads of a search: roles of `tranche-load`, or commands of a user.

use crate::calibration::{Calibrated, failed_call};
use crate::command::{Command, Reading};
use crate::load;
use crate::site::{AFTER, Site};
use crate::tenant::Tenant;
use std::ffi::OsString;
use std::fmt;
use std::os::fd::BorrowedFd;
use tranche_bench::cell::Neighbour;
use tranche_bench::event::Event;
use tranche_bench::latency::latency_of_run;
use tranche_bench::measured::{Service, rate};
use tranche_bench::schedule::Window;
use tranche_bench::statistics::Spread;
use tranche_bench::way::Seat;
use tranche_core::error::{Error, Result};

/// The role of the first workload.
const SERVE: &str = "serve";

/// The roles of the second one: those whose work has a rate.
const SECOND: [Neighbour; 5] = [
    Neighbour::Batch,
    Neighbour::HogSm,
    Neighbour::HogDram,
    Neighbour::HogL2,
    Neighbour::HogPcie,
];

/// A workload of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workload {
    /// `tranche-load` serves requests at half of its capacity.
    Serve,
    /// `tranche-load` does this work.
    Role(Neighbour),
    /// A command of a user, for the shell.
    Command(String),
}

impl Workload {
    /// The first workload, whose latency is measured: `serve`, or a command.
    ///
    /// # Errors
    /// Returns a usage error for the name of another role.
    pub fn first(text: &str) -> Result<Self> {
        match text.parse::<Neighbour>() {
            _ if text == SERVE => Ok(Self::Serve),
            Ok(_) => Err(Error::usage(format!("first {text}"), "has no latency").hint("say serve, or a command")),
            Err(_) => Ok(Self::Command(text.to_owned())),
        }
    }

    /// The second workload, whose rate is measured: a role such as `batch`, or a command.
    ///
    /// # Errors
    /// Returns a usage error for the name of a role without a rate.
    pub fn second(text: &str) -> Result<Self> {
        match text.parse::<Neighbour>() {
            Ok(role) if SECOND.contains(&role) => Ok(Self::Role(role)),
            Err(_) if text != SERVE => Ok(Self::Command(text.to_owned())),
            _ => {
                let roles = SECOND.map(|role| role.to_string()).join(", ");
                let error = Error::usage(format!("second {text}"), "does no work that has a rate");
                Err(error.hint(format!("say {roles}, or a command")))
            }
        }
    }

    /// Whether it is a command of a user.
    pub fn is_command(&self) -> bool {
        matches!(self, Self::Command(_))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serve => f.write_str("serve at half of its capacity"),
            Self::Role(role) => role.fmt(f),
            Self::Command(command) => f.write_str(command),
        }
    }
}

/// A workload that runs. It ends when this is dropped.
pub(crate) enum Running<'a> {
    Load(Tenant),
    Command(Command<'a>),
}

/// When a workload is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measuring {
    /// The time of the clock at which it begins.
    pub(crate) begin: u64,
    pub(crate) window: Window,
}

impl<'a> Running<'a> {
    /// Starts a role of `tranche-load` for so many seconds.
    pub(crate) fn role(site: &Site, seat: &Seat, workload: &Workload, of: &Calibrated, seconds: u32) -> Result<Self> {
        let words = match workload {
            Workload::Role(role) => load::neighbour(*role, of.fma, &of.ready, seconds).unwrap_or_default(),
            _ => load::serve(of.fma, seconds),
        };
        Tenant::start(site, seat, &words).map(Self::Load)
    }

    /// Starts the command `words`.
    pub(crate) fn command(site: &Site, seat: &Seat, words: &[OsString], reading: Reading<'a>) -> Result<Self> {
        Command::start(site, seat, words, reading).map(Self::Command)
    }

    /// Waits until it can be measured.
    pub(crate) fn ready(&mut self, site: &Site, stop: BorrowedFd<'_>) -> Result<()> {
        match self {
            Self::Load(tenant) => tenant.ready().map(drop),
            Self::Command(command) => command.ready(site, stop),
        }
    }

    /// Tells a role when it begins, and what to do. A command does not ask.
    pub(crate) fn tell(&mut self, text: &str) -> Result<()> {
        match self {
            Self::Load(tenant) => tenant.tell(text),
            Self::Command(_) => Ok(()),
        }
    }

    /// Its latency in milliseconds: the 99th percentile. A role was given the requests `arrivals`.
    pub(crate) fn latency(&mut self, measuring: Measuring, arrivals: &[u64]) -> Result<Spread> {
        let Measuring { begin, window } = measuring;
        let latency = match self {
            Self::Load(tenant) => {
                let events = tenant.events(measuring.patience())?;
                if events.iter().any(|event| matches!(event, Event::Error { .. })) {
                    return Err(failed_call(SERVE, &events));
                }
                let of_99 = Service::of(window, arrivals, &events)?.percentile(99);
                of_99.map(|ns| ns as f64 / 1e6)
            }
            Self::Command(command) => latency_of_run(&command.figures(begin, window)?),
        };
        let latency = latency.and_then(|ms| Spread::of([ms]));
        latency.ok_or_else(|| Error::failed(SERVE, "has no request in this time").hint("measure for a longer time"))
    }

    /// Its work in a second; of a command, the median of what it prints.
    pub(crate) fn rate(&mut self, measuring: Measuring) -> Result<Option<f64>> {
        let Measuring { begin, window } = measuring;
        match self {
            Self::Load(tenant) => {
                let events = tenant.events(measuring.patience())?;
                match events.iter().any(|event| matches!(event, Event::Error { .. })) {
                    true => Err(failed_call("the second", &events)),
                    false => Ok(rate(window, &events)),
                }
            }
            Self::Command(command) => Ok(Spread::of(command.figures(begin, window)?).map(|rate| rate.median)),
        }
    }
}

impl Measuring {
    fn patience(self) -> u64 {
        self.begin.saturating_add(self.window.end).saturating_add(AFTER)
    }
}
