//! Changes GPUs to a layout, or back to what they had.
//!
//! After each change the driver is asked what the GPU has, and the next change follows from that. A return code alone
//! is not believed. Before the first change, a journal says what the GPUs had: a process that is killed at any point
//! leaves it, and [`settle`] continues from there.

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

/// A change that was not made.
#[derive(Debug)]
pub struct Unchanged {
    /// Why, and whether the GPUs have what they had before.
    pub error: Error,
    /// Whether the journal stays: what it says is not finished yet.
    pub is_unfinished: bool,
}

impl From<Error> for Unchanged {
    fn from(error: Error) -> Self {
        Self {
            error,
            is_unfinished: false,
        }
    }
}

/// Writes `journal` to `state_dir`, and changes its GPUs until they have what they are to have. If that fails, they get
/// back what they had. The caller removes the journal when everything else is finished too.
///
/// # Errors
/// Returns what failed, and whether the GPUs have what they had before. If they do not, the journal has to stay in
/// `state_dir`, and [`settle`] tries again.
pub fn change(
    machine: &dyn MigMachine,
    state_dir: &Path,
    journal: &MigJournal,
    progress: Progress<'_>,
) -> Result<(), Unchanged> {
    journal.write(state_dir)?;
    reach(machine, &journal.target, progress)
        .map_err(|error| put_back(machine, &journal.layouts_before(), error, progress))
}

/// How the GPUs of a journal are after [`settle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// They have what they were to have.
    Reached,
    /// They have what they had before.
    PutBack,
}

/// Puts the GPUs of a journal back that a killed process, or one that failed, left half changed. Those that have what
/// they were to have are left. So are instances that somebody has created meanwhile.
///
/// # Errors
/// Returns an error if a GPU does not answer, or cannot be put back.
pub fn settle(machine: &dyn MigMachine, journal: &MigJournal, progress: Progress<'_>) -> Result<Settled> {
    let mut is_reached = true;
    let mut back = Vec::new();
    for (before, target) in journal.before.iter().zip(&journal.target) {
        let now = machine.gpu(&target.gpu);
        let now = now.map_err(|error| Error::failed(&target.gpu, error))?;
        let wanted = target.beside_strangers(&before.layout, &now);
        is_reached &= matches!(wanted.next(&now), Ok(None));
        back.push(before.layout.beside_strangers(target, &now));
    }
    // The last change was made, and the journal not removed.
    if is_reached {
        return Ok(Settled::Reached);
    }
    let put_back = reach(machine, &back, progress);
    put_back.map(|()| Settled::PutBack).map_err(|error| {
        error.hint("tranche tries again with the next command for MIG; tranche mig status shows what there is")
    })
}

/// `error`, after the GPUs were put back, or with why they could not be.
fn put_back(machine: &dyn MigMachine, before: &[ExactGpu], error: Error, progress: Progress<'_>) -> Unchanged {
    let (object, what, _) = parts(&error);
    match reach(machine, before, progress) {
        Ok(()) => Error::failed(object, format!("{what}; everything was put back as it was")).into(),
        Err(other) => {
            let what = format!("{what}; and it could not be put back: {}", line(&other));
            let hint = "the next command for MIG tries again; tranche mig status shows what there is";
            Unchanged {
                error: Error::failed(object, what).hint(hint),
                is_unfinished: true,
            }
        }
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
    let mut last: Option<(MigChange, MigGpu)> = None;
    for _ in 0..MOST_CHANGES {
        let now = machine
            .gpu(&target.gpu)
            .map_err(|error| Error::failed(&target.gpu, error))?;
        let failed = |what: String| Error::failed(format!("gpu {}", now.index), what);
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
    let what = format!("still differs from the layout after {MOST_CHANGES} changes");
    Err(Error::failed(&target.gpu, what))
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
