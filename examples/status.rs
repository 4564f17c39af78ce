//! How a program outside this crate reads the state of the shares: it prints what `tranche status --json` prints.
//!
//! ```text
//! cargo run --example status -- [STATE_DIR]
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use std::error::Error;
use std::process::ExitCode;
use tranche_inspect::observed::{ObserveOptions, Observed, Status, kept};

/// The state as JSON; with `with_gpus`, also what NVML says of the GPUs.
pub(crate) fn status(options: &ObserveOptions, with_gpus: bool) -> Result<String, Box<dyn Error>> {
    let observed = Observed::look(options, with_gpus)?;
    let kept = kept(&options.state_dir)?;
    Ok(serde_json::to_string_pretty(&Status::of(&observed, &kept))?)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut options = ObserveOptions::default();
    if let Some(state_dir) = std::env::args_os().nth(1) {
        options.state_dir = state_dir.into();
    }
    println!("{}", status(&options, true)?);
    Ok(ExitCode::SUCCESS)
}
