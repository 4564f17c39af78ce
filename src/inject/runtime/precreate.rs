//! `hook precreate`, for podman alone: reads a whole configuration from standard input, and writes it to standard
//! output, edited if it requests a GPU.
//!
//! podman calls it before it creates a container, and replaces the configuration by what it writes. Every other program
//! that reads hooks refuses to work when it finds this stage, so the hook's file is in a directory of its own
//! (`hooks/README.md`).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;

use super::arguments::RuntimeArguments;
use super::host::OwnerSettings;
use super::report::RuntimeReport;
use super::{host, state_dir};
use crate::{CallingEngine, RewriteContext};
use tranche_core::bounded;
use tranche_core::error::{Context, Error, Result};
use tranche_core::oci::CONFIG_LIMIT;
use tranche_core::sys::inherited;
use tranche_plan::engines::Engine;

/// Runs the hook with the arguments after its verb, and returns the exit code.
pub(super) fn run(words: Vec<OsString>, lines: &mut dyn Write) -> u8 {
    let (state_dir, rest) = state_dir(words);
    let arguments = RuntimeArguments {
        name: Some("hook precreate".to_owned()),
        ..RuntimeArguments::default()
    };
    let report = RuntimeReport::new(&arguments, &state_dir, lines);
    let done = match rest.first() {
        Some(word) => Err(Error::usage(word.display(), "unknown argument of hook precreate")),
        None => edit(&state_dir, &report),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            report.failure(&error);
            error.kind().exit_code()
        }
    }
}

fn edit(state_dir: &Path, report: &RuntimeReport<'_>) -> Result<()> {
    let bytes = bounded::read(stdin().lock(), CONFIG_LIMIT).about("standard input", "cannot be read")?;
    report.about(&bytes);
    let settings = OwnerSettings::read(state_dir).or_provisional(report);
    let context = RewriteContext {
        settings: &settings,
        state_dir,
        host: &|| host::host(state_dir),
        caller: CallingEngine::Known(Engine::Podman),
        // podman does not pass the id. This process ends before the container is created, so a reservation lasts for a
        // fixed time instead.
        container: None,
        process: None,
        refresh: &|arguments| host::refresh_once(state_dir, arguments),
        remark: &|remark| report.remark(&remark),
    };
    let edited = crate::rewrite(&bytes, &context)?;
    let written = print(edited.as_deref().unwrap_or(&bytes)).about("standard output", "cannot be written");
    if let (Err(_), Some(edited)) = (&written, &edited) {
        crate::withdraw(edited, state_dir)?;
    }
    written
}

/// Writes to the standard output. The one of the standard library takes a closed one, or one that is only open to read,
/// for a success, and podman would start the container without its devices.
fn print(bytes: &[u8]) -> io::Result<()> {
    let out = stdout();
    if inherited::was_closed(1) {
        return Err(Errno::EBADF.into());
    }
    File::from(out.as_fd().try_clone_to_owned()?).write_all(bytes)
}
