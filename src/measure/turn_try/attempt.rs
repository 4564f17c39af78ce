//! One program that is suspended and resumed.
//!
//! A process that was resumed is never killed as it is: with some drivers, the whole machine hangs then
//! (cuda-checkpoint issue 53). It is asked to leave, and one that does not is suspended again first.

use crate::calibration::failed_call;
use crate::machine::Measurable;
use crate::tenant::Tenant;
use crate::{clock, load};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use tranche_bench::event::Event;
use tranche_bench::schedule::input;
use tranche_broker::control::turns_driver::TurnsDriver;
use tranche_broker::turns::{EndTimes, end};
use tranche_core::error::{Error, Result, line};
use tranche_core::execute::Program;
use tranche_core::process_identity::ProcessIdentity;
use tranche_driver_protocol::TurnsFailure;
use tranche_plan::turns::change::CudaState;
use tranche_plan::turns::tries::CopyRate;

/// For how long submitted work may go on once its process is to be suspended.
const LOCK: Duration = Duration::from_secs(10);

/// How long the driver may take to say or to change a state, memory to be free, and the program to compare or to leave,
/// or a shorter time that a copy may take.
const STEP: Duration = Duration::from_secs(30);

/// How often it is looked whether memory is free.
const LOOK: Duration = Duration::from_millis(100);

/// Where no MPS daemon is: the driver cannot suspend a client of one.
const NO_DAEMON: (&str, &str) = ("CUDA_MPS_PIPE_DIRECTORY", "/dev/null/none");

/// What programs are suspended and resumed with.
pub(super) struct Attempts<'a> {
    pub(super) driver: TurnsDriver,
    pub(super) device: &'a Measurable,
    /// The file of `tranche-load`.
    pub(super) program: PathBuf,
    /// How long a copy may take.
    pub(super) patience: Duration,
    pub(super) stop: BorrowedFd<'a>,
    /// What is left that this program must not end.
    pub(super) left: Option<String>,
}

impl Attempts<'_> {
    /// Suspends and resumes a program with so many bytes. `begun` gets its process before anything is done to it.
    /// Returns the times of the copies, or why it failed.
    ///
    /// # Errors
    /// Returns the error of `begun`.
    pub(super) fn make(
        &mut self,
        bytes: u64,
        begun: impl FnOnce(ProcessIdentity) -> Result<()>,
    ) -> Result<Result<CopyRate, String>> {
        let mut tenant = match self.start(bytes) {
            Ok(tenant) => tenant,
            Err(error) => return Ok(Err(line(&error))),
        };
        let identity = match ProcessIdentity::of(tenant.pid()) {
            Ok(Some(identity)) => identity,
            // Its events say why it has ended.
            Ok(None) => return Ok(Err(ended(&mut tenant))),
            Err(error) => return Ok(Err(format!("process {}: {error}", tenant.pid()))),
        };
        begun(identity)?;
        tenant.spare();
        let mut is_resumed = false;
        let made = self.suspend_and_resume(&mut tenant, identity, bytes, &mut is_resumed);
        let has_ended = self.end(&mut tenant, identity, is_resumed);
        let made = match (made, has_ended) {
            (Ok(rate), true) => Ok(rate),
            (Ok(_), false) => Err("the program was resumed, and does not end".to_owned()),
            (Err(error), _) => Err(line(&error)),
        };
        Ok(made)
    }

    fn start(&self, bytes: u64) -> Result<Tenant> {
        let mut program = Program::new(&self.program);
        program.args(load::keep(bytes));
        program.env("CUDA_VISIBLE_DEVICES", &self.device.uuid);
        program.env(NO_DAEMON.0, NO_DAEMON.1);
        if let Some(directory) = &self.device.access.cuda_dir {
            program.env("LD_LIBRARY_PATH", directory);
        }
        Tenant::run("tranche-load".to_owned(), program)
    }

    fn suspend_and_resume(
        &self,
        tenant: &mut Tenant,
        process: ProcessIdentity,
        bytes: u64,
        is_resumed: &mut bool,
    ) -> Result<CopyRate> {
        let failed = |what: &str, why: &dyn std::fmt::Display| Error::failed(what, why);
        tenant.ready()?;
        self.refuse_stop()?;
        let locked = self.driver.lock(process, LOCK.min(self.patience));
        locked.map_err(|why| failed("it cannot be locked", &why))?;
        let begin = Instant::now();
        let copied = self.driver.checkpoint(process, self.patience);
        copied.map_err(|why| failed("it cannot be suspended", &why))?;
        let out = begin.elapsed();
        self.await_memory(process, bytes)?;
        let begin = Instant::now();
        let copied = self.driver.restore(process, self.patience);
        // Without an answer, it may have been.
        *is_resumed = matches!(copied, Ok(()) | Err(TurnsFailure::NoAnswer(_) | TurnsFailure::Killed));
        copied.map_err(|why| {
            let for_ever = "a restore that has failed fails for ever (cuda-checkpoint issue 44)";
            failed("it cannot be resumed", &format_args!("{why}; {for_ever}"))
        })?;
        let back = begin.elapsed();
        let unlocked = self.driver.unlock(process, self.step());
        unlocked.map_err(|why| failed("it cannot be unlocked", &why))?;
        self.compare(tenant, bytes)?;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Ok(CopyRate {
            bytes,
            out_ns: nanoseconds(out),
            back_ns: nanoseconds(back),
        })
    }

    /// Waits until the memory of a suspended process is free: a restore that fails once fails for ever.
    fn await_memory(&self, process: ProcessIdentity, bytes: u64) -> Result<()> {
        let until = Instant::now() + self.step();
        loop {
            let memory = self.device.access.nvml.memory(&self.device.gpu);
            let memory =
                memory.map_err(|error| Error::failed("NVML", "does not say what is in use").from_source(error))?;
            let is_free = memory.total.saturating_sub(memory.used) >= bytes;
            if is_free && memory.processes.is_empty() {
                return Ok(());
            }
            self.refuse_stop()?;
            if Instant::now() >= until {
                let others = memory.processes.keys().filter(|pid| pid.cast_signed() != process.pid);
                let what = match others.count() {
                    0 => "the memory of the suspended program is not free",
                    _ => "another process uses the device: a restore could fail for ever",
                };
                return Err(Error::failed("it is not resumed", what));
            }
            thread::sleep(LOOK);
        }
    }

    /// Has the program compare its memory.
    fn compare(&self, tenant: &mut Tenant, bytes: u64) -> Result<()> {
        let now = clock::now()?;
        tenant.tell(&input(&[], now, now.saturating_add(1)))?;
        let events = tenant.events(now.saturating_add(u64::try_from(self.step().as_nanos()).unwrap_or(u64::MAX)))?;
        let compared = events.iter().find_map(|event| match event {
            Event::Compared { bytes, wrong } => Some((*bytes, *wrong)),
            _ => None,
        });
        match compared {
            None => Err(failed_call("its comparison", &events)),
            Some((compared, 0)) if compared >= bytes / 8 * 8 => Ok(()),
            Some((compared, 0)) => {
                let what = format!("compared {compared} of {bytes} bytes");
                Err(Error::failed("tranche-load", what))
            }
            Some((_, wrong)) => {
                let what = format!("{wrong} of {} numbers of 8 bytes differ", bytes / 8);
                Err(Error::failed("its memory is not what it was", what))
            }
        }
    }

    /// Ends the program. Returns whether it has ended.
    fn end(&mut self, tenant: &mut Tenant, process: ProcessIdentity, is_resumed: bool) -> bool {
        let state = self.driver.state(process, self.step());
        // A suspended one does not read its input's end: its next call waits.
        let is_suspended = matches!(state, Ok(Some(CudaState::Checkpointed)));
        if !is_suspended && tenant.leave(self.step()) {
            return true;
        }
        self.end_suspended(process, is_resumed) && tenant.leave(self.step())
    }

    /// Kills a process, and suspends one before that may have been resumed. Returns whether it was killed, or has
    /// ended.
    pub(super) fn end_suspended(&mut self, process: ProcessIdentity, is_resumed: bool) -> bool {
        let times = EndTimes {
            lock: LOCK.min(self.patience),
            copy: self.patience,
            state: self.step(),
        };
        let killed = end(&self.driver, process, is_resumed, times);
        if let Err(why) = &killed {
            self.left = Some(format!(
                "process {} is left: {why}, and killing it as it is can hang the whole machine with some drivers \
                 (cuda-checkpoint issue 53); restart the machine when it suits",
                process.pid
            ));
        }
        killed.is_ok()
    }

    fn step(&self) -> Duration {
        STEP.min(self.patience)
    }

    fn refuse_stop(&self) -> Result<()> {
        let mut fds = [PollFd::new(self.stop, PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(0) | Err(_) => Ok(()),
            Ok(_) => Err(Error::failed("tranche turns try", "was ended by a person")),
        }
    }
}

/// Why a program has ended before it was ready.
fn ended(tenant: &mut Tenant) -> String {
    match tenant.ready() {
        Ok(_) => "tranche-load has ended".to_owned(),
        Err(error) => line(&error),
    }
}
