//! `tranche cdi generate`: write a specification for a host.
//!
//! The options and environment variables of `nvidia-ctk cdi generate` have the same meaning here, so that a script only
//! changes the program's name.

mod arguments;
mod nvidia;
mod options;

pub(crate) use arguments::Args;
pub(super) use nvidia::{take_nvidia_options, with_nvidia_names};

use crate::{look, out};
use anyhow::Result;
use std::process::ExitCode;
use tranche_specs::generate::generate;

pub(super) fn run(args: Args) -> Result<ExitCode> {
    let options = options::options(args)?;
    let generated = out::with_notes(|notes| generate(options, notes))?;
    out::document(&generated.documents.concat())?;
    Ok(look::exit_code(generated.missing.as_deref()))
}
