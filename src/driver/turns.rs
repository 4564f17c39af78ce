//! Suspends and resumes the work of processes, as the broker asks for it: `tranche-driver turns LIBRARY`.
//!
//! Unlike the process that asks NVML, it does not end with its parent in the middle of a call, and not by a signal that
//! ends a service: work that is being copied is copied to the end. It ends when there are no more questions. Its
//! client has the deadline, and kills it.

use crate::pipe::{self, Pipe};
use crate::questions::Questions;
use crate::sys::checkpoint::{Checkpoint, ProcessChange, ProcessNumber};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::geteuid;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use tranche_core::driver_rights;
use tranche_core::process_identity::ProcessIdentity;
use tranche_core::types::PROGRAM_VERSION;
use tranche_driver_protocol::{CudaResult, TurnsAnswer, TurnsFailure, TurnsLine, TurnsQuestion};
use tranche_plan::turns::change::CudaState;

/// Answers questions until there are no more. The exit code only shows whether the pipe worked.
pub(crate) fn run(library: &OsStr) -> ExitCode {
    let Ok(mut questions) = Questions::take(None) else {
        return ExitCode::FAILURE;
    };
    let Ok(mut out) = prepare() else {
        return ExitCode::FAILURE;
    };
    out.write(&TurnsLine::Hello(PROGRAM_VERSION.to_owned()));
    let mut driver = Driver { library, loaded: None };
    while let Some(question) = questions.next::<TurnsQuestion>() {
        let answer = driver.answer(question).unwrap_or_else(TurnsAnswer::Failed);
        out.write(&TurnsLine::Answer(answer));
    }
    ExitCode::SUCCESS
}

fn prepare() -> io::Result<Pipe> {
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT]).thread_block()?;
    pipe::without_core_files()?;
    let out = Pipe::of_standard_output()?;
    driver_rights::keep_trace_alone()?;
    Ok(out)
}

/// The driver's library, from the first question on.
struct Driver<'p> {
    library: &'p OsStr,
    loaded: Option<Checkpoint>,
}

impl Driver<'_> {
    fn answer(&mut self, question: TurnsQuestion) -> Result<TurnsAnswer, TurnsFailure> {
        if self.loaded.is_none() {
            check(Path::new(self.library)).map_err(TurnsFailure::Library)?;
            self.loaded = Some(Checkpoint::load(self.library)?);
        }
        let Some(driver) = &self.loaded else {
            return Err(TurnsFailure::Library("libcuda.so.1 is not loaded".to_owned()));
        };
        let change = |process, change| {
            of_one_process(process, |pid| driver.change(change, pid))?;
            Ok(TurnsAnswer::Done)
        };
        match question {
            TurnsQuestion::Version => driver.version().map(TurnsAnswer::Version),
            TurnsQuestion::State(process) => of_one_process(process, |pid| state(driver, pid)),
            TurnsQuestion::Lock { process, timeout_ms } => change(process, ProcessChange::Lock(timeout_ms)),
            TurnsQuestion::Checkpoint(process) => change(process, ProcessChange::Checkpoint),
            TurnsQuestion::Restore(process) => change(process, ProcessChange::Restore),
            TurnsQuestion::Unlock(process) => change(process, ProcessChange::Unlock),
        }
    }
}

/// Calls `call` with the number of a process. The library takes a bare number, so the process is held meanwhile: if it
/// has not ended after the call, the number meant no other one.
fn of_one_process<T>(
    process: ProcessIdentity,
    call: impl FnOnce(i32) -> Result<T, TurnsFailure>,
) -> Result<T, TurnsFailure> {
    let unknown = |e: io::Error| TurnsFailure::NoAnswer(format!("process {} cannot be looked at: {e}", process.pid));
    let ended = TurnsFailure::Ended(process);
    let Some(held) = process.hold().map_err(unknown)? else {
        return Err(ended);
    };
    let answer = call(process.pid);
    match held.has_ended().map_err(unknown)? {
        true => Err(ended),
        false => answer,
    }
}

/// The state of a process. One that uses only NVML has no restore thread, and the question for its state would fail
/// (gVisor, `state_cuda.go`).
fn state(driver: &Checkpoint, pid: i32) -> Result<TurnsAnswer, TurnsFailure> {
    match driver.number(ProcessNumber::RestoreThread, pid) {
        Ok(_) => {}
        Err(TurnsFailure::Refused { result, .. }) if says_no_context(result) => return Ok(TurnsAnswer::NoContext),
        Err(failure) => return Err(failure),
    }
    // CUprocessState (cuda.h).
    let state = match driver.number(ProcessNumber::State, pid)? {
        0 => CudaState::Running,
        1 => CudaState::Locked,
        2 => CudaState::Checkpointed,
        3 => CudaState::Failed,
        other => return Err(TurnsFailure::UnknownState(other)),
    };
    Ok(TurnsAnswer::State(state))
}

/// Whether the answer to a question for the restore thread means that the process has none. All other errors are about
/// the driver, about rights, or about work that cannot be had back.
fn says_no_context(result: CudaResult) -> bool {
    // CUDA_ERROR_INVALID_VALUE, _INVALID_CONTEXT, _INVALID_HANDLE, _NOT_FOUND: no page says which of them it is.
    matches!(result.0, 1 | 201 | 400 | 500)
}

/// Refuses a library that another user than root, or than the one who runs this program, could have written: it gets
/// the right to trace every process.
fn check(library: &Path) -> Result<(), String> {
    let file = library
        .canonicalize()
        .map_err(|e| format!("{}: {e}", library.display()))?;
    let directory = file.parent().unwrap_or(Path::new("/"));
    for path in [file.as_path(), directory] {
        let data = fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
        if !is_closed(&data) {
            let mode = data.permissions().mode() & 0o7777;
            return Err(format!(
                "{} can be changed by others than root (owner {}, mode {mode:04o}); let root own it, with mode 0755",
                path.display(),
                data.uid()
            ));
        }
    }
    Ok(())
}

fn is_closed(data: &Metadata) -> bool {
    [0, geteuid().as_raw()].contains(&data.uid()) && data.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_others_can_change_is_not_loaded() {
        let top = tempfile::tempdir().unwrap();
        let library = top.path().join("libcuda.so.1");
        fs::write(&library, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(&library, 0o755);
        assert_eq!(check(&library), Ok(()));
        set(&library, 0o775);
        let error = check(&library).unwrap_err();
        assert!(
            error.contains("can be changed by others than root") && error.contains("0775"),
            "{error}"
        );
        set(&library, 0o755);
        set(top.path(), 0o777);
        assert!(check(&library).unwrap_err().contains("0777"));
        assert!(check(&top.path().join("none")).unwrap_err().contains("No such file"));
    }
}
