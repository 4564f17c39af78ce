//! Ends a process that was suspended or resumed.

use crate::control::turns_driver::TurnsDriver;
use std::time::Duration;
use tranche_core::process_identity::ProcessIdentity;
use tranche_driver_protocol::TurnsFailure;
use tranche_plan::turns::change::CudaState;

/// How long each step may take.
#[derive(Debug, Clone, Copy)]
pub struct EndTimes {
    /// For how long submitted work may go on.
    pub lock: Duration,
    /// A copy of the memory.
    pub copy: Duration,
    /// The driver's word about the state.
    pub state: Duration,
}

/// Kills a process. One that was resumed is suspended before: with some drivers, the whole machine hangs when it is
/// killed as it is ([`tranche_plan::turns::drivers::hangs`]).
///
/// # Errors
/// Returns why it still runs: it cannot be suspended again, or not be killed.
pub fn end(driver: &TurnsDriver, process: ProcessIdentity, was_resumed: bool, times: EndTimes) -> Result<(), String> {
    let Some(held) = process.hold().map_err(|error| error.to_string())? else {
        return Ok(());
    };
    if was_resumed {
        match suspend(driver, process, times) {
            Ok(()) | Err(TurnsFailure::Ended(_)) => {}
            Err(why) => return Err(format!("it cannot be suspended again ({why})")),
        }
    }
    held.kill().map_err(|error| error.to_string())
}

fn suspend(driver: &TurnsDriver, process: ProcessIdentity, times: EndTimes) -> Result<(), TurnsFailure> {
    match driver.state(process, times.state)? {
        Some(CudaState::Checkpointed) | None => return Ok(()),
        Some(CudaState::Running) => driver.lock(process, times.lock)?,
        Some(CudaState::Locked) => {}
        Some(CudaState::Failed) => {
            let what = "the driver cannot go on with it";
            return Err(TurnsFailure::NoAnswer(what.to_owned()));
        }
    }
    driver.checkpoint(process, times.copy)
}
