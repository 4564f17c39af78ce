//! `tranche cdi`: specifications for engines.

mod generate;
mod inspect;
mod list;
mod refresh;
mod transform;
mod validate;

use super::out;
use super::place::SpecDirArgs;
use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tranche_core::error::{Context, Error};
use tranche_plan::cdi::registry::Registry;

/// The verbs of `tranche cdi`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Write a CDI specification for this host
    #[command(mut_args = generate::with_nvidia_names)]
    Generate(Box<generate::Args>),
    /// Keep the specifications of this host and /run/tranche/host.json current; write only what has changed
    Refresh(Box<refresh::Args>),
    /// Keep the specifications current until SIGTERM: refresh at the start and after each change, where systemd does
    /// not
    Watch(Box<refresh::WatchArgs>),
    /// List the devices that engines find
    List(list::Args),
    /// Check specifications of any vendor; print each problem with its place and the devices that are lost
    Validate(Box<validate::Args>),
    /// Show exactly what a container would get with a device
    Inspect(inspect::Args),
    /// Change the paths in a specification
    #[command(subcommand)]
    Transform(transform::Verb),
}

/// Runs the verb.
///
/// # Errors
/// Returns the error of the verb.
pub(super) fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Generate(args) => generate::run(*args),
        Verb::Refresh(args) => refresh::run(*args),
        Verb::Watch(args) => refresh::watch(*args),
        Verb::List(args) => list::run(&args),
        Verb::Validate(args) => validate::run(*args),
        Verb::Inspect(args) => inspect::run(&args),
        Verb::Transform(transform::Verb::Root(args)) => transform::root_of(&args),
    }
}

/// What happens if a directory that was named does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingDir {
    /// It is reported, as one of the usual directories is.
    Reported,
    /// It is an error.
    Refused,
}

/// What is in the directories that an engine reads. The usual ones need not exist, and a missing one is reported.
///
/// # Errors
/// Returns an error if a directory was named and does not exist, unless this is only to be reported.
fn registry(args: &SpecDirArgs, missing: MissingDir) -> Result<Registry> {
    let dirs = spec_dirs(args);
    let is_refused = missing == MissingDir::Refused && dirs != SpecDirArgs::default().dirs();
    for dir in dirs.iter().filter(|dir| !dir.is_dir()) {
        match dir.symlink_metadata() {
            Err(e) if e.kind() == ErrorKind::NotFound && !is_refused => {
                out::note(format_args!("{}: not found", dir.display()));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                bail!(Error::usage(dir.display(), "no such directory"));
            }
            // Other problems with it are reported when it is read.
            _ => {}
        }
    }
    Ok(Registry::read(&dirs))
}

/// The directories that an engine reads; `NVIDIA_CTK_CDI_SPEC_DIRS` is understood as NVIDIA's tool does.
fn spec_dirs(args: &SpecDirArgs) -> Vec<PathBuf> {
    match std::env::var_os("NVIDIA_CTK_CDI_SPEC_DIRS") {
        Some(list) if args.spec_dirs.is_empty() && !list.is_empty() => between_commas(&list).collect(),
        _ => args.dirs(),
    }
}

/// The paths in a variable of NVIDIA's tool, which has commas between them.
fn between_commas(list: &OsStr) -> impl Iterator<Item = PathBuf> {
    let paths = list
        .as_bytes()
        .split(|byte| *byte == b',')
        .filter(|path| !path.is_empty());
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path)))
}

/// Reads `input`, or stdin if it is `-`. Returns its name for messages, and its content.
///
/// # Errors
/// Returns an error if it cannot be read.
fn read_input(input: &Path) -> Result<(String, Vec<u8>)> {
    if input == Path::new("-") {
        let mut text = Vec::new();
        std::io::stdin()
            .read_to_end(&mut text)
            .about("stdin", "cannot be read")?;
        return Ok(("stdin".to_owned(), text));
    }
    let name = input.display().to_string();
    let text = std::fs::read(input).about(&name, "cannot be read")?;
    Ok((name, text))
}
