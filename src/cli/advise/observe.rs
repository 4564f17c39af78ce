//! What runs on the GPUs, for wishes.

use crate::out;
use anyhow::{Result, bail};
use std::thread;
use std::time::{Duration, Instant};
use tranche_core::error::{Error, line};
use tranche_core::types::{MemorySize, WaitTime};
use tranche_inspect::observed::{ObserveOptions, Observed, ProcessRow};
use tranche_plan::advise::observed::Used;
use tranche_state::planning::PlanOptions;

/// The shortest time between two looks: a look starts the driver's library.
const SHORTEST: Duration = Duration::from_secs(1);

/// About how many looks there are.
const LOOKS: u32 = 120;

/// Looks at the processes on the GPUs for so long, at least once.
pub(super) fn observe(time: WaitTime, options: &PlanOptions) -> Result<Vec<Vec<Used>>> {
    if options.host.inventory.is_some() {
        bail!(Error::usage("--observe", "nothing runs on a machine that is described").hint("remove --inventory"));
    }
    let options = ObserveOptions {
        state_dir: options.state_dir.clone(),
        host: options.host.clone(),
    };
    out::note(format_args!(
        "looking at the processes on the GPUs for {time}; nothing is changed"
    ));
    let end = Instant::now() + time.get();
    let pause = (time.get() / LOOKS).max(SHORTEST);
    let mut looks = Vec::new();
    loop {
        let observed = Observed::look(&options, true)?;
        let used = observed.processes.iter().filter(|process| process.needs_a_share());
        looks.push(used.map(used_by).collect());
        // What is unknown at first is unknown at each look.
        if looks.len() == 1 {
            observed.problems().map(|problem| line(problem)).for_each(out::note);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(looks);
        }
        thread::sleep(pause.min(left));
    }
}

fn used_by(process: &ProcessRow) -> Used {
    let of_container = process.container.clone();
    let holder = of_container.unwrap_or_else(|| process.pid.to_string());
    Used {
        program: process.command.clone().unwrap_or_else(|| "unknown".to_owned()),
        holder: format!("{holder} {}", process.device),
        memory: process.memory_mib.map(MemorySize::from_mib),
        busy: process.busy_percent,
    }
}
