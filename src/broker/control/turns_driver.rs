//! The process of `tranche-driver` that suspends and resumes the work of other processes.
//!
//! There is one for each broker, from the first question on, because initialising CUDA takes seconds. It answers one
//! question at a time, so a question may wait for the end of another one. Each has a deadline: a process that gives no
//! answer until then is killed, and what it did is found by asking the next one for the state.
//!
//! It outlives a broker that is killed, until its call is complete: [`TurnsDriver::process`] says which it is, so that
//! the next broker can wait for it ([`wait_for_earlier`]).

use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tranche_core::bounded::Lines;
use tranche_core::process_identity::ProcessIdentity;
use tranche_core::types::PROGRAM_VERSION;
use tranche_driver_protocol::{TURNS, TurnsAnswer, TurnsFailure, TurnsLine, TurnsQuestion};
use tranche_host::nvml::{NvmlProcess, driver_program, other_version};
use tranche_plan::turns::change::CudaState;
use tranche_state::mutex::lock;

/// How long the library may take to start: without persistence mode, the driver starts the GPUs first.
const START: Duration = Duration::from_secs(60);

/// How long the answer to a lock may take beyond the timeout of the lock.
const BEYOND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the program may take to end once it has no more questions.
const ENDING: Duration = Duration::from_secs(5);

/// How often a process is looked at that is waited for.
const GLANCE: Duration = Duration::from_millis(20);

/// The longest line of an answer.
const MOST_BYTES: usize = 64 << 10;

/// Who suspends and resumes work.
pub struct TurnsDriver {
    program: Option<PathBuf>,
    library: PathBuf,
    running: Mutex<Option<Running>>,
}

impl fmt::Debug for TurnsDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnsDriver")
            .field("program", &self.program)
            .field("library", &self.library)
            .finish_non_exhaustive()
    }
}

impl TurnsDriver {
    /// Uses the program at `program` (`None`: that of this installation) with the host's `libcuda.so.1` at `library`.
    /// Nothing is started yet.
    pub fn new(program: Option<PathBuf>, library: PathBuf) -> Self {
        Self {
            program,
            library,
            running: Mutex::new(None),
        }
    }

    /// Starts the process if it does not run, and returns which it is.
    ///
    /// # Errors
    /// Returns why it cannot be started, or why the library cannot be used; so do the functions below.
    pub fn process(&self) -> Result<ProcessIdentity, TurnsFailure> {
        let mut running = lock(&self.running);
        Ok(self.started(&mut running)?.identity)
    }

    /// The version of CUDA that the library has: 1000 × major + 10 × minor.
    pub fn version(&self) -> Result<i32, TurnsFailure> {
        match self.ask(&TurnsQuestion::Version, START)? {
            TurnsAnswer::Version(version) => Ok(version),
            other => Err(unexpected(&other)),
        }
    }

    /// The state of a process; `None` if it has no context.
    pub fn state(&self, process: ProcessIdentity, patience: Duration) -> Result<Option<CudaState>, TurnsFailure> {
        match self.ask(&TurnsQuestion::State(process), patience)? {
            TurnsAnswer::State(state) => Ok(Some(state)),
            TurnsAnswer::NoContext => Ok(None),
            other => Err(unexpected(&other)),
        }
    }

    /// Lets the calls of a process wait as soon as the work that it has submitted is done. If that takes longer than
    /// `timeout`, the process runs on, and the failure has `CudaResult::NOT_READY`.
    pub fn lock(&self, process: ProcessIdentity, timeout: Duration) -> Result<(), TurnsFailure> {
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        self.change(&TurnsQuestion::Lock { process, timeout_ms }, timeout + BEYOND_TIMEOUT)
    }

    /// Copies the memory of a locked process to host memory, and frees the GPU.
    pub fn checkpoint(&self, process: ProcessIdentity, patience: Duration) -> Result<(), TurnsFailure> {
        self.change(&TurnsQuestion::Checkpoint(process), patience)
    }

    /// Copies the memory of a process back. Only into memory that is free: a restore that fails once fails for ever.
    pub fn restore(&self, process: ProcessIdentity, patience: Duration) -> Result<(), TurnsFailure> {
        self.change(&TurnsQuestion::Restore(process), patience)
    }

    /// Lets the calls of a process go on.
    pub fn unlock(&self, process: ProcessIdentity, patience: Duration) -> Result<(), TurnsFailure> {
        self.change(&TurnsQuestion::Unlock(process), patience)
    }

    /// Ends the process, if there is one: it keeps the driver in use. Waits for a question that is being answered.
    pub fn let_go(&self) {
        if let Some(running) = lock(&self.running).take() {
            running.end();
        }
    }

    fn change(&self, question: &TurnsQuestion, patience: Duration) -> Result<(), TurnsFailure> {
        match self.ask(question, patience)? {
            TurnsAnswer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&self, question: &TurnsQuestion, patience: Duration) -> Result<TurnsAnswer, TurnsFailure> {
        let mut running = lock(&self.running);
        let answer = self.started(&mut running)?.ask(question, patience);
        if matches!(answer, Err(TurnsFailure::NoAnswer(_) | TurnsFailure::Killed)) {
            *running = None;
        }
        answer
    }

    /// The process, with its library loaded.
    fn started<'r>(&self, running: &'r mut Option<Running>) -> Result<&'r mut Running, TurnsFailure> {
        // One that has ended since, which a person or the kernel's killer of memory may do, was not in a call.
        let process = match running.take().filter(|process| !process.process.has_ended()) {
            Some(process) => process,
            None => {
                let mut process = Running::start(self.program.as_deref(), &self.library)?;
                process.ask(&TurnsQuestion::Version, START)?;
                process
            }
        };
        Ok(running.insert(process))
    }
}

/// Waits until the process of an earlier broker has ended, at most for `limit`, and kills it then. A call that it makes
/// is so complete, or as incomplete as it will ever be, before the next one is made.
///
/// # Errors
/// Returns the kernel's error.
pub fn wait_for_earlier(process: ProcessIdentity, limit: Duration) -> io::Result<()> {
    let Some(held) = process.hold()? else {
        return Ok(());
    };
    let until = Instant::now() + limit;
    while !held.has_ended()? {
        if Instant::now() >= until {
            return held.kill();
        }
        std::thread::sleep(GLANCE);
    }
    Ok(())
}

/// A process that has been started.
struct Running {
    process: NvmlProcess,
    identity: ProcessIdentity,
    questions: ChildStdin,
    answers: Lines<ChildStdout>,
}

impl Running {
    fn start(program: Option<&Path>, library: &Path) -> Result<Self, TurnsFailure> {
        let arguments = [OsStr::new(TURNS), library.as_os_str()];
        // The numbers of processes are those of this process's pid namespace.
        let started = driver_program(program).and_then(|program| {
            let (process, questions, answers) = NvmlProcess::start(&program, &arguments, true)?;
            let identity = ProcessIdentity::of(process.pid())?;
            let identity = identity.ok_or_else(|| io::Error::other("it ended at once"))?;
            Ok(Self {
                process,
                identity,
                questions,
                answers: Lines::new(answers),
            })
        });
        started.map_err(|e| no_answer(format_args!("cannot be started: {e}")))
    }

    fn ask(&mut self, question: &TurnsQuestion, patience: Duration) -> Result<TurnsAnswer, TurnsFailure> {
        let line = serde_json::to_string(question).map_err(|e| no_answer(format_args!("cannot be asked: {e}")))?;
        // How one ended that does not read is found below.
        let _ = self.questions.write_all(format!("{line}\n").as_bytes());
        let until = Instant::now() + patience;
        loop {
            let line = match self.answers.next(MOST_BYTES, until) {
                Ok(line) => line,
                Err(e) if e.kind() == ErrorKind::TimedOut => {
                    let seconds = patience.as_secs_f32();
                    return Err(no_answer(format_args!(
                        "gave no answer for {seconds} s{}",
                        self.end_now()
                    )));
                }
                Err(e) => {
                    return Err(match self.process.end(ENDING) {
                        Ok(status) if status.signal() == Some(Signal::SIGKILL as i32) => TurnsFailure::Killed,
                        Ok(status) => no_answer(format_args!("ended without an answer ({status})")),
                        Err(end) => no_answer(format_args!("ended without an answer ({e}), and {end}")),
                    });
                }
            };
            match serde_json::from_slice(&line) {
                Ok(TurnsLine::Hello(version)) if version == PROGRAM_VERSION => {}
                Ok(TurnsLine::Hello(version)) => return Err(no_answer(other_version(&version))),
                Ok(TurnsLine::Answer(TurnsAnswer::Failed(failure))) => return Err(failure),
                Ok(TurnsLine::Answer(answer)) => return Ok(answer),
                Err(e) => {
                    return Err(no_answer(format_args!(
                        "gave an invalid answer ({e}){}",
                        self.end_now()
                    )));
                }
            }
        }
    }

    /// Kills the process, and returns what a message adds about it.
    fn end_now(&mut self) -> String {
        match self.process.end(Duration::ZERO) {
            Ok(status) => format!(" and was ended ({status})"),
            Err(e) => format!(", and {e}"),
        }
    }

    fn end(self) {
        let Self {
            mut process, questions, ..
        } = self;
        drop(questions);
        // One that does not end by itself is killed, and dropping it takes care of one that does not die.
        let _ = process.end(ENDING);
    }
}

fn no_answer(what: impl fmt::Display) -> TurnsFailure {
    TurnsFailure::NoAnswer(format!("the process that suspends and resumes work {what}"))
}

fn unexpected(answer: &TurnsAnswer) -> TurnsFailure {
    no_answer(format_args!("answered another question: {answer:?}"))
}
