//! Answers questions until there are no more.

use crate::convert::meaning;
use crate::pipe::Pipe;
use crate::questions::Questions;
use crate::sys::nvml;
use crate::{inventory, machine, turns, usage};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;
use tranche_core::types::PROGRAM_VERSION;
use tranche_driver_protocol::{Line, MachineAnswer, NvmlStep, Question, TURNS};

/// Does what the program `tranche-driver` does: the arguments are the library to load, and for how many seconds the
/// next question is waited for (without it, for ever).
///
/// With `turns` before the library, it suspends and resumes work ([`turns`]).
///
/// The answers go through the pipe; the exit code only shows whether the pipe worked.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(library) = arguments.next() else {
        return ExitCode::from(2);
    };
    if library == TURNS {
        return arguments
            .next()
            .map_or(ExitCode::from(2), |library| turns::run(&library));
    }
    let seconds = arguments.next().and_then(|word| word.to_str()?.parse().ok());
    let Ok(mut questions) = Questions::take(seconds.map(Duration::from_secs)) else {
        return ExitCode::FAILURE;
    };
    let Ok(mut out) = Pipe::take() else {
        return ExitCode::FAILURE;
    };
    out.write(&Line::Hello(PROGRAM_VERSION.to_owned()));
    let mut library = Library {
        path: &library,
        nvml: None,
    };
    while let Some(question) = questions.next::<Question>() {
        if !library.answer(&question, &mut out) {
            break;
        }
    }
    library.shut_down();
    ExitCode::SUCCESS
}

/// The driver's library, from the first question on.
struct Library<'p> {
    path: &'p OsStr,
    nvml: Option<Nvml>,
}

impl Library<'_> {
    /// Answers one question. Returns whether another one can be answered: a library that could not be used once is not
    /// tried again by this process.
    fn answer(&mut self, question: &Question, out: &mut Pipe) -> bool {
        let nvml = match self.load(out) {
            Ok(nvml) => nvml,
            Err(error) => {
                out.write(&match question {
                    Question::Machine(_) => Line::Machine(Box::new(MachineAnswer::Failed(machine::failure(&error)))),
                    Question::Inventory | Question::Usage => Line::Useless(useless(&error)),
                });
                out.write(&Line::End);
                return false;
            }
        };
        let asked = match question {
            Question::Inventory => inventory::ask(nvml, out),
            Question::Usage => usage::ask(nvml, out),
            Question::Machine(question) => {
                out.write(&Line::Machine(Box::new(machine::answer(nvml, question))));
                Ok(())
            }
        };
        out.write(&asked.map_or_else(Line::Useless, |()| Line::End));
        true
    }

    fn load(&mut self, out: &mut Pipe) -> Result<&Nvml, NvmlError> {
        if self.nvml.is_none() {
            out.write(&Line::At(NvmlStep::Load));
            nvml::preload(self.path);
            out.write(&Line::At(NvmlStep::Init));
            self.nvml = Some(Nvml::builder().lib_path(self.path).init()?);
        }
        self.nvml.as_ref().ok_or(NvmlError::Uninitialized)
    }

    /// The answers are complete, so the result does not matter. Without the function, dropping panics.
    fn shut_down(self) {
        if let Some(nvml) = self.nvml {
            match nvml.lib().nvmlShutdown.is_ok() {
                true => drop(nvml),
                false => std::mem::forget(nvml),
            }
        }
    }
}

fn useless(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(e) => format!("cannot be loaded: {e}"),
        error => format!("nvmlInit: {}", meaning(error)),
    }
}
