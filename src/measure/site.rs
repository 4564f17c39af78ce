//! The device that is measured, and how programs are started in its shares.

use crate::clock;
use crate::machine::Measurable;
use crate::room::Room;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;
use tranche_bench::way::Seat;
use tranche_core::error::{Context, Error, Result};
use tranche_core::execute::Program;
use tranche_core::own_programs;
use tranche_core::types::ShareName;
use tranche_driver_protocol::GpuClocks;
use tranche_state::planning::PlanOptions;

/// The program that loads the device.
const LOAD: &str = "tranche-load";

/// How long after the line that tells them all processes begin, in nanoseconds.
pub(crate) const LEAD: u64 = 200_000_000;

/// How long processes may take after the end of a cell, in nanoseconds: requests that were begun are completed.
pub(crate) const AFTER: u64 = 30_000_000_000;

/// How often the sensors are read, and how often it is looked whether somebody ended the run.
const LOOK: Duration = Duration::from_millis(500);

/// The device of a run, and its room.
pub(crate) struct Site {
    pub(crate) device: Measurable,
    pub(crate) room: Room,
    /// The device as a person names it.
    name: String,
    /// The program that loads the device; `None` for the one of this installation.
    load: Option<PathBuf>,
    /// What is put before each program in a share.
    before: Vec<OsString>,
}

impl Site {
    /// The device `name` of the machine `at`.
    ///
    /// # Errors
    /// Returns an error if the host has no such device, or if somebody uses it.
    pub(crate) fn find(at: &PlanOptions, name: &str, load: Option<&PathBuf>) -> Result<Self> {
        Ok(Self {
            device: Measurable::find(at, name)?,
            room: Room::of(at),
            name: name.to_owned(),
            load: load.cloned(),
            before: Vec::new(),
        })
    }

    /// Has the words `before` put before each program, which run it as another user.
    pub(crate) fn run_by(self, before: Vec<OsString>) -> Self {
        Self { before, ..self }
    }

    /// An error about the device.
    pub(crate) fn failed(&self, what: &str) -> Error {
        Error::failed(&self.name, what)
    }

    /// Waits until the time `until` of the clock, and reads the sensors meanwhile.
    ///
    /// # Errors
    /// Returns an error if somebody ends the run.
    pub(crate) fn wait(&self, until: u64, stop: BorrowedFd<'_>) -> Result<Vec<GpuClocks>> {
        let mut samples = Vec::new();
        loop {
            let left = Duration::from_nanos(until.saturating_sub(clock::now()?));
            if left.is_zero() {
                return Ok(samples);
            }
            let mut fds = [PollFd::new(stop, PollFlags::POLLIN)];
            let patience = PollTimeout::try_from(left.min(LOOK)).unwrap_or(PollTimeout::ZERO);
            if poll(&mut fds, patience).about("tranche bench", "cannot wait")? > 0 {
                return Err(Error::failed("tranche bench", "was ended; nothing was written"));
            }
            samples.extend(self.device.clocks());
        }
    }

    /// The program that loads the device.
    ///
    /// # Errors
    /// Returns an error if it is not installed.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        match &self.load {
            Some(program) => Ok(program.clone()),
            None => own_programs::find(LOAD),
        }
    }

    /// That program in `seat`, with its arguments, as the user of the run.
    ///
    /// # Errors
    /// Returns an error if a program of tranche is missing.
    pub(crate) fn load_in(&self, seat: &Seat, arguments: &[String]) -> Result<Program> {
        let mut words = self.before.clone();
        words.push(self.program()?.into());
        words.extend(arguments.iter().map(OsString::from));
        self.in_share(seat, &words)
    }

    /// The program `words` in `seat`, as it is.
    ///
    /// # Errors
    /// Returns an error if a program of tranche is missing.
    pub(crate) fn in_share(&self, seat: &Seat, words: &[OsString]) -> Result<Program> {
        let mut program = Program::new(own_programs::find("tranche")?);
        program.arg("run").args(self.room.inside().arguments());
        program.arg("--share").arg(named(seat)).arg("--").args(words);
        program.environment_of_caller();
        Ok(program)
    }
}

/// The name by which people ask for the share.
fn named(seat: &Seat) -> String {
    let device = seat.device.cdi_name();
    match seat.share == ShareName::whole() {
        true => device,
        false => format!("{device}.{}", seat.share),
    }
}
