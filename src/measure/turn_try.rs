//! `tranche turns try`: suspends a program of tranche on a GPU of this machine and resumes it, with every byte of its
//! memory compared and the copies measured. What was found is kept for `tranche plan` and for the broker, which gives a
//! device by turns only where this has succeeded.

mod attempt;

use crate::machine::Measurable;
use attempt::Attempts;
use serde::Serialize;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;
use tranche_broker::control::turns_driver::TurnsDriver;
use tranche_broker::mig::DevicesHeld;
use tranche_broker::turns::host_memory_room;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::events::this_boot;
use tranche_core::own_programs;
use tranche_core::types::DeviceSelector;
use tranche_plan::turns::drivers;
use tranche_plan::turns::tries::{CopyRate, TryOutcome, TurnTries, TurnTry};
use tranche_state::planning::PlanOptions;
use tranche_state::turn_tries;

/// The name of the program in `tranche status` and in refusals.
const PROGRAM: &str = "tranche turns try";

/// How much is copied first, in bytes: little, so that a driver that cannot do it shows that at once.
const FIRST: u64 = 100_000_000;

/// What is tried, and how.
#[derive(Debug, Clone)]
pub struct TryOptions {
    /// The machine.
    pub at: PlanOptions,
    /// The device, as a person names it.
    pub device: String,
    /// The program that fills memory; `None` for the one of this installation.
    pub load: Option<PathBuf>,
    /// How long a copy may take.
    pub patience: Duration,
    /// The day.
    pub date: String,
}

/// What was found. With `--json` it is the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// The version of the driver.
    pub driver: String,
    /// The product.
    pub product: String,
    /// The amounts of memory that came back as they were, in order, with the times of the copies.
    pub copies: Vec<CopyRate>,
    /// Why the next one did not; `None` if all did.
    pub failed: Option<String>,
    /// What is left on the machine that this program must not end.
    pub left: Option<String>,
}

/// Tries it, and keeps what was found. `say` gets a line before each part. It ends early when `stop` can be read.
///
/// # Errors
/// Returns why nothing could be tried: the device is in use, is no whole GPU, or is known not to be fit for it. A try
/// that failed is a result.
pub fn try_turns(options: &TryOptions, stop: BorrowedFd<'_>, say: &mut dyn FnMut(&str)) -> Result<Tried> {
    let state_dir = &options.at.state_dir;
    let device = Measurable::find(&options.at, &options.device)?;
    let inventory = &device.facts.inventory;
    let target = inventory.catalogue().get(&device.uuid.parse::<DeviceSelector>()?)?;
    let failed = |what: &str| Error::failed(target, what);
    let version = inventory.driver.as_ref().map(|driver| driver.version.to_string());
    let version = version.ok_or_else(|| failed("the version of the driver is unknown"))?;
    if let Some(why) = drivers::unfit(inventory, target) {
        return Err(failed(&why));
    }
    let library = device.access.cuda.clone();
    let library = library.ok_or_else(|| failed("libcuda.so.1, the driver's library, was not found"))?;
    let program = options
        .load
        .clone()
        .map_or_else(|| own_programs::find("tranche-load"), Ok)?;
    let memory = device.access.nvml.memory(&device.gpu);
    let memory = memory.map_err(|error| failed("its memory is unknown").from_source(error))?;
    let room = host_memory_room().unwrap_or(u64::MAX);
    if room < FIRST {
        return Err(failed(
            "the memory of the machine has no room for 100 MB of suspended work",
        ));
    }
    let half = memory.total / 2;
    if room < half {
        say("half of the memory of the device is more than the machine has room for: less is tried");
    }
    // Nobody starts anything on the device meanwhile.
    let claims = Claims::open(state_dir)?;
    let _held = DevicesHeld::take(&claims, PROGRAM, [device.key.clone()])?;
    let mut tries = turn_tries::read(state_dir)?;
    let driver_program = device.access.nvml.driver.program().map(ToOwned::to_owned);
    let mut attempts = Attempts {
        driver: TurnsDriver::new(driver_program, library),
        device: &device,
        program,
        patience: options.patience,
        stop,
        left: None,
    };
    // A try that was killed has left a program that is suspended.
    for earlier in tries.begun(&this_boot()) {
        attempts.end_suspended(earlier, true);
    }
    let mut tried = Tried {
        driver: version,
        product: target.product(),
        copies: Vec::new(),
        failed: None,
        left: None,
    };
    let mut record = |tried: &Tried, outcome| record(options, &mut tries, tried, outcome);
    for bytes in [FIRST, half.min(room)] {
        say(&format!(
            "{} of GPU memory are suspended, resumed and compared",
            megabytes(bytes)
        ));
        let begun = |process| record(&tried, TryOutcome::Begun(process));
        match attempts.make(bytes, begun)? {
            Ok(rate) => tried.copies.push(rate),
            Err(why) => {
                tried.failed = Some(why);
                break;
            }
        }
    }
    tried.left = attempts.left.take();
    let outcome = match (&tried.failed, tried.copies.last()) {
        (Some(why), _) => TryOutcome::Failed(why.clone()),
        (None, Some(rate)) => TryOutcome::Passed(*rate),
        (None, None) => TryOutcome::Failed("nothing was copied".to_owned()),
    };
    record(&tried, outcome)?;
    Ok(tried)
}

fn record(options: &TryOptions, tries: &mut TurnTries, tried: &Tried, outcome: TryOutcome) -> Result<()> {
    tries.record(TurnTry {
        driver: tried.driver.clone(),
        product: tried.product.clone(),
        date: options.date.clone(),
        outcome,
        boot: this_boot(),
    });
    turn_tries::write(&options.at.state_dir, tries)
}

/// `100 MB`
pub fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes / 1_000_000)
}
