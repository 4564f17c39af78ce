//! The process of `tranche-driver` that stays while the broker asks it.
//!
//! To load the library takes longer than most answers. The process ends by itself when it has not been asked for a
//! while, because NVML keeps the driver in use. One question is answered at a time: another one that comes meanwhile
//! has a process of its own, so that a library that hangs holds nobody up for longer than its own deadline.

use std::ffi::OsStr;
use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tranche_core::bounded::Lines;
use tranche_core::types::PROGRAM_VERSION;
use tranche_driver_protocol::{Line, MachineAnswer, MachineQuestion, NvmlFailure, Question};
use tranche_host::nvml::{NvmlProcess, driver_program, other_version};
use tranche_state::mutex::{lock, try_lock};

/// For how long it waits for the next question, in seconds.
const IDLE: &str = "10";

/// How long it may take to end once it writes no more.
const ENDING: Duration = Duration::from_millis(500);

/// The longest line of an answer: 16 GPUs with 20 profiles and 16,000 processes each have less.
const MOST_BYTES: usize = 4 << 20;

/// The most lines before an answer: a sign of life each 20 ms for an hour.
const MOST_LINES: usize = 180_000;

/// The process that asks NVML, from the first question on.
pub struct ResidentDriver {
    program: Option<PathBuf>,
    running: Mutex<Option<Running>>,
}

impl fmt::Debug for ResidentDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResidentDriver")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// Why a question was not answered.
enum Unanswered {
    /// The process has ended without an answer, and the question may be asked again.
    Ended,
    Failed(NvmlFailure),
}

impl ResidentDriver {
    /// The program at `program`; `None`: that of this installation. Nothing is started yet.
    pub fn new(program: Option<PathBuf>) -> Self {
        Self {
            program,
            running: Mutex::new(None),
        }
    }

    /// The program; `None`: that of this installation.
    pub fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    /// Asks the library at `library`, which may be silent for `patience`.
    ///
    /// # Errors
    /// Returns why there is no answer. An answer may say that NVML refused.
    pub(super) fn ask(
        &self,
        library: &Path,
        patience: Duration,
        question: &MachineQuestion,
    ) -> Result<MachineAnswer, NvmlFailure> {
        let Some(mut running) = try_lock(&self.running) else {
            let mut own = self.start(library, &[])?;
            return own.ask(question, patience).map_err(Unanswered::into_failure);
        };
        if let Some(process) = running.as_mut().filter(|process| process.library == library) {
            match process.ask(question, patience) {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::Ended) => {}
                Err(Unanswered::Failed(failure)) => {
                    *running = None;
                    return Err(failure);
                }
            }
        }
        *running = None;
        let mut process = self.start(library, &[OsStr::new(IDLE)])?;
        let answer = process.ask(question, patience).map_err(Unanswered::into_failure)?;
        *running = Some(process);
        Ok(answer)
    }

    /// Ends the process, if there is one.
    pub(super) fn let_go(&self) {
        *lock(&self.running) = None;
    }

    fn start(&self, library: &Path, more: &[&OsStr]) -> Result<Running, NvmlFailure> {
        let started = driver_program(self.program.as_deref()).and_then(|program| {
            let arguments = [&[library.as_os_str()], more].concat();
            // The numbers of processes are those of this process's pid namespace.
            NvmlProcess::start(&program, &arguments, true)
        });
        let (process, questions, answers) =
            started.map_err(|e| NvmlFailure::Other(format!("NVML's process cannot be started: {e}")))?;
        Ok(Running {
            library: library.to_owned(),
            process,
            questions,
            answers: Lines::new(answers),
            has_answered: false,
        })
    }
}

/// A process that has been started.
struct Running {
    library: PathBuf,
    process: NvmlProcess,
    questions: ChildStdin,
    answers: Lines<ChildStdout>,
    /// Whether it has answered a question.
    has_answered: bool,
}

impl Running {
    fn ask(&mut self, question: &MachineQuestion, patience: Duration) -> Result<MachineAnswer, Unanswered> {
        let failed = |why: String| Unanswered::Failed(NvmlFailure::Other(why));
        let line = serde_json::to_string(&Question::Machine(question.clone())).map_err(|e| failed(e.to_string()))?;
        // How one ended that has never answered is read below.
        if self.questions.write_all(format!("{line}\n").as_bytes()).is_err() && self.has_answered {
            return Err(Unanswered::Ended);
        }
        let until = Instant::now() + patience;
        let mut answer = None;
        for _ in 0..MOST_LINES {
            let line = match self.answers.next(MOST_BYTES, until) {
                Ok(line) => line,
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                    // It may have ended at the moment at which it was asked: by itself, it leaves a question unread.
                    let was_left = self.has_answered && (question.can_be_asked_again() || self.has_ended_by_itself());
                    return Err(match was_left && answer.is_none() {
                        true => Unanswered::Ended,
                        false => failed(self.how_it_ended()),
                    });
                }
                Err(e) if e.kind() == ErrorKind::TimedOut => {
                    let seconds = patience.as_secs_f32();
                    return Err(failed(format!("NVML gave no answer for {seconds} s and was ended")));
                }
                Err(e) => return Err(failed(format!("NVML's answer cannot be read: {e}"))),
            };
            match serde_json::from_slice(&line) {
                Ok(Line::Hello(version)) if version == PROGRAM_VERSION => {}
                Ok(Line::Hello(version)) => return Err(failed(format!("NVML {}", other_version(&version)))),
                Ok(Line::At(_) | Line::Alive) => {}
                Ok(Line::Machine(said)) => answer = Some(*said),
                Ok(Line::End) => {
                    self.has_answered = true;
                    return answer.ok_or_else(|| failed("NVML's process gave no answer".to_owned()));
                }
                Ok(_) | Err(_) => return Err(failed(self.how_it_ended())),
            }
        }
        Err(failed("NVML gave an endless answer and was ended".to_owned()))
    }

    fn has_ended_by_itself(&mut self) -> bool {
        self.process.end(ENDING).is_ok_and(|status| status.success())
    }

    fn how_it_ended(&mut self) -> String {
        match self.process.end(Duration::ZERO) {
            Ok(status) => format!("NVML crashed or gave an invalid answer ({status})"),
            Err(e) => format!("NVML gave an invalid answer, and its process cannot be ended: {e}"),
        }
    }
}

impl Unanswered {
    fn into_failure(self) -> NvmlFailure {
        match self {
            Self::Ended => NvmlFailure::Other("NVML's process ended before it was asked".to_owned()),
            Self::Failed(failure) => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs;
    use tranche_core::types::GpuInstanceId;
    use tranche_plan::mig::MigChange;

    #[test]
    fn a_change_is_not_asked_for_twice_where_the_first_may_have_been_made() {
        let top = tempfile::tempdir().unwrap();
        let (program, asked) = (top.path().join("driver"), top.path().join("asked"));
        let hello = serde_json::to_string(&Line::Hello(PROGRAM_VERSION.to_owned())).unwrap();
        let (models, end) = (r#"{"machine":{"models":[]}}"#, r#""end""#);
        let change = MigChange::Destroy(GpuInstanceId(7));
        let change = MachineQuestion::ChangeMig("GPU-8188460b-0e3a-9d61-0000-000000000000".parse().unwrap(), change);
        for (question, how, starts) in [
            (&MachineQuestion::Models, "kill -KILL $$", 2),
            (&change, "kill -KILL $$", 1),
            // It had waited for too long.
            (&change, "exit 0", 2),
        ] {
            let _ = std::fs::remove_file(&asked);
            programs::script(
                &program,
                &format!(
                    "echo >> '{}'; echo '{hello}'; read q; echo '{models}'; echo '{end}'; read q; {how}",
                    asked.display()
                ),
            );
            let driver = ResidentDriver::new(Some(program.clone()));
            let ask = |question| driver.ask(Path::new("lib"), Duration::from_secs(60), question);
            assert_eq!(ask(&MachineQuestion::Models), Ok(MachineAnswer::Models(Vec::new())));
            let again = ask(question);
            assert_eq!(again.is_ok(), starts == 2, "{how}: {again:?}");
            assert_eq!(std::fs::read(&asked).unwrap().len(), starts, "{how}");
        }
    }
}
