//! Searches the split of a device under MPS that keeps the first of two workloads within a bound, and gives the second
//! the most.

use crate::as_user::Person;
use crate::calibration::Calibrated;
use crate::clock;
use crate::command::Reading;
use crate::guarded::Guarded;
use crate::site::{LEAD, Site};
use crate::workload::{Measuring, Running, Workload};
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;
use tranche_bench::cell::Length;
use tranche_bench::latency::FigureRule;
use tranche_bench::schedule::{arrivals, input, mean_gap};
use tranche_bench::sweep::{Found, Sweep, Trial, Workloads};
use tranche_bench::way::{Allowed, Seat, Setup, Split, Way, setup};
use tranche_core::error::{Error, Kind, Result, parts};
use tranche_core::types::DeviceKey;
use tranche_state::planning::PlanOptions;

/// The load of the role `serve`, in percent of what it can serve alone.
const LOAD: u32 = 50;

/// The bound without one of a person's, as a multiple of the latency alone.
const BOUND: f64 = 2.0;

/// About how many seconds a run takes beyond its measurement: two processes and an MPS daemon start and end.
const AROUND: u32 = 4;

/// What is searched, and how.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// The machine.
    pub at: PlanOptions,
    /// The device, as a person names it.
    pub device: String,
    /// What may be changed for a while.
    pub allowed: Allowed,
    /// How long each split is measured each time.
    pub length: Length,
    /// The percentage between two splits.
    pub step: u32,
    /// The most latency of the first, in milliseconds; `None` for twice its latency alone.
    pub bound_ms: Option<f64>,
    /// The workload whose latency is measured.
    pub first: Workload,
    /// The workload whose rate is measured.
    pub second: Workload,
    /// Who runs commands, and then roles as well: an MPS daemon may serve one user at a time.
    pub person: Option<Person>,
    /// The words before a program and its arguments that run it as that person.
    pub as_person: Vec<OsString>,
    /// The words before a command for the shell that run it as that person.
    pub by_shell: Vec<OsString>,
    /// How a latency in milliseconds is found in the output of the first.
    pub latency: FigureRule,
    /// How the work in a second is found in the output of the second.
    pub rate: FigureRule,
    /// How long a command may take until its first figure.
    pub patience: Duration,
    /// The program that loads the device; `None` for the one of this installation.
    pub load: Option<PathBuf>,
    /// The seed of the requests.
    pub seed: u64,
}

/// A search that can begin. Nothing was changed yet.
pub struct Search {
    options: SearchOptions,
    site: Site,
    alone: Setup,
}

impl Search {
    /// Looks at the machine.
    ///
    /// # Errors
    /// Returns why nothing can be searched: the device is unknown or in use, or MPS cannot share it; a command has no
    /// user; or a usage error of [`Sweep::new`].
    pub fn new(options: SearchOptions) -> Result<Self> {
        Sweep::new(options.step, options.bound_ms.unwrap_or(BOUND))?;
        let both = [&options.first, &options.second];
        if options.person.is_none() && both.into_iter().any(Workload::is_command) {
            let error = Error::usage("command", "runs as a user, who is not named");
            return Err(error.hint("say --user NAME"));
        }
        let site = Site::find(&options.at, &options.device, options.load.as_ref())?;
        let site = match &options.person {
            Some(_) => site.run_by(options.as_person.clone()),
            None => site,
        };
        if !both.into_iter().all(Workload::is_command) {
            site.program()?;
        }
        let alone = needed(&site, &options, Way::Solo)?;
        let middle = Split::new(50).map(Way::Mps);
        middle.map(|way| needed(&site, &options, way)).transpose()?;
        Ok(Self { options, site, alone })
    }

    /// The device's key in the ledger.
    pub fn device(&self) -> &DeviceKey {
        &self.site.device.key
    }

    /// Searches. `say` gets a line before each run. It ends early when `stop` can be read.
    ///
    /// # Errors
    /// Returns why a split could not be measured.
    pub fn run(&self, _guarded: &Guarded, stop: BorrowedFd<'_>, say: &mut dyn FnMut(&str)) -> Result<Found> {
        let options = &self.options;
        if let Some(person) = &options.person {
            self.site.room.admit(person.gid())?;
        }
        self.site.room.set_policy(&self.alone.policy)?;
        let calibrated = match options.first.is_command() && options.second.is_command() {
            true => None,
            false => {
                say("calibration");
                let seat = self.alone.seats.first();
                let seat = seat.ok_or_else(|| self.site.failed("has no share"))?;
                Some(Calibrated::of(&self.site, seat)?)
            }
        };
        let calibrated = calibrated.as_ref();
        let (alone_ms, bound_ms) = match options.bound_ms {
            Some(bound) => (None, bound),
            None => {
                say("the first alone");
                let alone = self.measure(&self.alone.seats, calibrated, options.seed, stop)?;
                let alone = alone.latency_ms.median;
                (Some(alone), (alone * BOUND * 100.0).round() / 100.0)
            }
        };
        let mut sweep = Sweep::new(options.step, bound_ms)?;
        let seconds = options.length.measure_s + options.length.warm_up_s + AROUND;
        while let Some(split) = sweep.next_run() {
            say(&sweep.progress(seconds));
            let setup = needed(&self.site, options, Way::Mps(split))?;
            self.site.room.set_policy(&setup.policy)?;
            // Each split is tried with the same requests, and each repetition with others.
            let seed = options.seed.wrapping_add(sweep.runs_of_next() as u64);
            sweep.answer(self.measure(&setup.seats, calibrated, seed, stop)?);
        }
        let workloads = Workloads {
            first: options.first.to_string(),
            second: options.second.to_string(),
            alone_ms,
        };
        Ok(Found::new(workloads, &sweep))
    }

    /// Measures the first workload in the first seat, and the second in the second, if there is one.
    fn measure(
        &self,
        seats: &[Seat],
        calibrated: Option<&Calibrated>,
        seed: u64,
        stop: BorrowedFd<'_>,
    ) -> Result<Trial> {
        let (options, site) = (&self.options, &self.site);
        let first = seats.first().ok_or_else(|| site.failed("has no share"))?;
        let mut first = self.start(&options.first, first, calibrated, self.latency())?;
        let second = seats.get(1);
        let second = second.map(|seat| self.start(&options.second, seat, calibrated, self.rate()));
        let mut second = second.transpose()?;
        first.ready(site, stop)?;
        if let Some(second) = second.as_mut() {
            second.ready(site, stop)?;
        }
        let window = options.length.window();
        let requests = match (&options.first, calibrated) {
            (Workload::Serve, Some(of)) => arrivals(seed, mean_gap(of.request_ns, LOAD), window.until)?,
            _ => Vec::new(),
        };
        let begin = clock::now()?.saturating_add(LEAD);
        let end = begin.saturating_add(window.end);
        first.tell(&input(&requests, begin, end))?;
        if let Some(second) = second.as_mut() {
            second.tell(&input(&[], begin, end))?;
        }
        // Requests of a role have some time more to be served.
        let until = if calibrated.is_some() { window.end } else { window.until };
        site.wait(begin.saturating_add(until), stop)?;
        let measuring = Measuring { begin, window };
        let rate = second.as_mut().map(|second| second.rate(measuring)).transpose()?;
        Ok(Trial {
            latency_ms: first.latency(measuring, &requests)?,
            rate: rate.flatten(),
        })
    }

    fn start<'a>(
        &'a self,
        workload: &Workload,
        seat: &Seat,
        calibrated: Option<&Calibrated>,
        reading: Reading<'a>,
    ) -> Result<Running<'a>> {
        let Length {
            measure_s, warm_up_s, ..
        } = self.options.length;
        match (workload, calibrated) {
            (Workload::Command(command), _) => {
                let mut words = self.options.by_shell.clone();
                words.push(command.into());
                Running::command(&self.site, seat, &words, reading)
            }
            (_, Some(of)) => Running::role(&self.site, seat, workload, of, measure_s + warm_up_s),
            (_, None) => Err(self.site.failed("has no calibration")),
        }
    }

    fn latency(&self) -> Reading<'_> {
        Reading {
            name: "the first command",
            figure: "latency_ms",
            rule: &self.options.latency,
            patience: self.options.patience,
        }
    }

    fn rate(&self) -> Reading<'_> {
        Reading {
            name: "the second command",
            figure: "rate",
            rule: &self.options.rate,
            patience: self.options.patience,
        }
    }
}

/// What a way needs on the device.
fn needed(site: &Site, options: &SearchOptions, way: Way) -> Result<Setup> {
    let device = &site.device;
    setup(way, &device.uuid, &device.facts.inventory, &[], options.allowed).map_err(|error| match error.kind() {
        Kind::Found => site.failed(&format!("cannot be shared by {way}: {}", parts(&error).1)),
        _ => error,
    })
}
