//! Changes GPUs to a layout, or back to what they had.
//!
//! After each change the driver is asked what the GPU has, and the next change follows from that. A return code alone
//! is not believed. Before the first change, a journal says what the GPUs had: a process that is killed at any point
//! leaves it, and [`finish`] puts the GPUs back.

use super::journal::MigJournal;
use super::machine::{ChangeError, MigMachine};
use std::path::Path;
use tranche_core::error::{Error, Result, line, parts};
use tranche_core::types::GpuUuid;
use tranche_plan::mig::{ExactGpu, MigChange, MigGpu};

/// How often something is tried that is in use. The driver may take a second to see that the last process has ended.
const TRIES: u32 = 10;

/// More changes than any layout of a GPU needs: 7 instances with 7 compute instances each are destroyed and created,
/// and the mode changes.
const MOST_CHANGES: usize = 256;

/// Hears of each change before it is made.
pub type Progress<'a> = &'a mut dyn FnMut(&GpuUuid, &MigChange);

/// Changes the GPUs of `target`, which have `before`, until they have what they are to have. If that fails, they get
/// back what they had.
///
/// # Errors
/// Returns what failed, and whether the GPUs have what they had before. If they do not, the journal stays in
/// `state_dir`, and [`finish`] tries again.
pub fn change(
    machine: &dyn MigMachine,
    state_dir: &Path,
    before: &[ExactGpu],
    target: &[ExactGpu],
    progress: Progress<'_>,
) -> Result<()> {
    MigJournal::new(before.to_vec(), target.to_vec()).write(state_dir)?;
    match reach(machine, target, progress) {
        Ok(()) => MigJournal::remove(state_dir),
        Err(error) => Err(put_back(machine, state_dir, before, error, progress)),
    }
}

/// Puts GPUs back that a killed process, or one that failed, left half changed. Returns the GPUs that were put back.
///
/// # Errors
/// Returns an error if the journal cannot be read, or if a GPU cannot be put back.
pub fn finish(machine: &dyn MigMachine, state_dir: &Path, progress: Progress<'_>) -> Result<Vec<GpuUuid>> {
    let Some(journal) = MigJournal::read(state_dir)? else {
        return Ok(Vec::new());
    };
    // The last change may have been made, and the journal not removed.
    let is_done = |target: &ExactGpu| {
        machine
            .gpu(&target.gpu)
            .is_ok_and(|now| matches!(target.next(&now), Ok(None)))
    };
    if !journal.target.iter().all(is_done) {
        reach(machine, &journal.before, progress).map_err(|error| {
            error.hint("tranche tries again with the next command for MIG; tranche mig status shows what there is")
        })?;
    }
    MigJournal::remove(state_dir)?;
    Ok(journal.before.into_iter().map(|gpu| gpu.gpu).collect())
}

/// `error`, after the GPUs were put back, or with why they could not be.
fn put_back(
    machine: &dyn MigMachine,
    state_dir: &Path,
    before: &[ExactGpu],
    error: Error,
    progress: Progress<'_>,
) -> Error {
    let (object, what, _) = parts(&error);
    let put_back = reach(machine, before, progress).and_then(|()| MigJournal::remove(state_dir));
    let (what, hint) = match put_back {
        Ok(()) => (format!("{what}; everything was put back as it was"), None),
        Err(other) => (
            format!("{what}; and it could not be put back: {}", line(&other)),
            Some("the next command for MIG tries again; tranche mig status shows what there is"),
        ),
    };
    let whole = Error::failed(object, what);
    match hint {
        Some(hint) => whole.hint(hint),
        None => whole,
    }
}

/// Makes changes until each GPU has what it is to have. Of all GPUs, everything that has no use is destroyed before
/// anything is created on one of them only where the GPU itself needs it: GPUs do not depend on each other.
fn reach(machine: &dyn MigMachine, target: &[ExactGpu], progress: Progress<'_>) -> Result<()> {
    for gpu in target {
        reach_one(machine, gpu, progress)?;
    }
    Ok(())
}

fn reach_one(machine: &dyn MigMachine, target: &ExactGpu, progress: Progress<'_>) -> Result<()> {
    let failed = |what: String| Error::failed(&target.gpu, what);
    let mut last: Option<(MigChange, MigGpu)> = None;
    for _ in 0..MOST_CHANGES {
        let now = machine.gpu(&target.gpu).map_err(|error| failed(error.to_string()))?;
        let next = target.next(&now).map_err(|error| failed(error.to_string()))?;
        let Some(next) = next else {
            return Ok(());
        };
        if last.is_some_and(|(change, had)| change == next && has_same(&had, &now)) {
            return Err(failed(format!("the driver reports success, and did not {next}")));
        }
        progress(&target.gpu, &next);
        patiently(machine, &target.gpu, &next).map_err(|error| failed(format!("cannot {next}: {error}")))?;
        last = Some((next, now));
    }
    Err(failed(format!(
        "still differs from the layout after {MOST_CHANGES} changes"
    )))
}

fn has_same(a: &MigGpu, b: &MigGpu) -> bool {
    (a.mode, &a.instances) == (b.mode, &b.instances)
}

fn patiently(machine: &dyn MigMachine, gpu: &GpuUuid, change: &MigChange) -> Result<(), ChangeError> {
    for _ in 1..TRIES {
        match machine.change(gpu, change) {
            Err(ChangeError::InUse) => machine.pause(),
            made => return made,
        }
    }
    machine.change(gpu, change)
}
