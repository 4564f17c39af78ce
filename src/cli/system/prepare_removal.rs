//! `tranche system prepare-removal`: what a package manager runs before it removes the programs.
//!
//! A specification whose hook is gone makes every start fail, and a daemon or a mode that tranche set would stay for
//! ever.

mod devices;
mod hook_files;
mod specifications;

use super::protect;
use crate::place::{SpecDirArgs, TmpfilesArgs};
use crate::sharing::SharingArgs;
use crate::{out, runtime};
use anyhow::Result;
use std::path::Path;
use std::process::ExitCode;
use tranche_broker::serve::Socket;
use tranche_broker::turns;
use tranche_core::error::{Context, Error, Kind};
use tranche_core::ledger::ClaimState;
use tranche_host::examine;
use tranche_plan::host_file;
use tranche_state::held::names::DeviceNames;
use tranche_state::held::{View, books, root_only};
use tranche_state::planning::{PlanOptions, pipe_directories};
use tranche_state::turns::TurnRecord;

/// Prepare this machine for the removal of tranche: restore engines' files, remove specifications, end what is unused
///
/// Takes back what tranche wrote into the configuration files of engines, removes the specifications that it wrote,
/// opens the device nodes that tranche system protect has closed, and those that are kept from holders by turns,
/// stops the MPS daemons that no container uses, and puts their devices back as they were. Says on standard error what
/// still runs, which files it could not restore and how that is done by hand, and which other files name a program of
/// tranche; the exit code is 4 then. The packages of tranche run this before they are removed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    specs: SpecDirArgs,
    #[command(flatten)]
    tmpfiles: TmpfilesArgs,
    #[command(flatten)]
    at: SharingArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = args.at.options();
    root_only::check(&options.state_dir)?;
    let mut failed: Vec<Error> = Vec::new();
    // While host.json still says what devices and shares are called.
    let names = DeviceNames::of_host(&options.state_dir);
    // First of all, so that nothing starts any more that needs a daemon.
    let found = specifications::find(&args.specs.dirs());
    let mut files = found.own;
    // The runtime gives devices by it.
    files.push(options.state_dir.join(host_file::NAME));
    files.extend(pipe_directories::own_file(&args.tmpfiles.tmpfiles_dir));
    for file in files.iter().filter(|file| file.symlink_metadata().is_ok()) {
        failed.extend(remove(file, args.dry_run).err());
    }
    match protect::open_for_removal(&options, args.dry_run) {
        Ok(wrong) => failed.extend(wrong),
        Err(error) => failed.push(error),
    }
    let mut remaining = Vec::new();
    // What cannot be read keeps the rest from nothing: the package is removed all the same.
    match devices::put_back(&options, args.dry_run) {
        Ok(left) => remaining.extend(left),
        Err(error) => failed.push(error),
    }
    match by_turns(&options, args.dry_run) {
        Ok(left) => remaining.extend(left),
        Err(error) => failed.push(error),
    }
    match held(&options.state_dir, names) {
        Ok(left) => remaining.extend(left),
        Err(error) => failed.push(error),
    }
    remaining.extend(found.foreign.iter().map(|file| {
        let what = "names a hook of tranche, and tranche did not write it: after the removal, no container with its \
                    devices starts";
        Error::new(Kind::Found, file.display(), what).hint("remove it, or the hook in it")
    }));
    if options.host.is_here() {
        remaining.extend(hook_files::find(&hook_files::DIRECTORIES).iter().map(|file| {
            let what = "names a hook of tranche: after the removal, podman and CRI-O start no container that it is for";
            Error::new(Kind::Found, file.display(), what).hint(format!("run rm {}", file.display()))
        }));
        remaining.extend(runtime::take_back(&options.state_dir, args.dry_run));
    }
    // The exit code is that of the last line, and a failure counts for more.
    Ok(out::complain_all(remaining.iter().chain(&failed)))
}

pub(super) fn remove(file: &Path, dry_run: bool) -> Result<(), Error> {
    if dry_run {
        out::note(format_args!("{}: would be removed", file.display()));
        return Ok(());
    }
    std::fs::remove_file(file).about(file.display(), "cannot be removed")?;
    out::note(format_args!("{}: removed", file.display()));
    Ok(())
}

/// Lets everybody open again what is held by turns. A broker that a person has started would keep them from it.
fn by_turns(at: &PlanOptions, dry_run: bool) -> Result<Vec<Error>, Error> {
    if dry_run || TurnRecord::devices(&at.state_dir)?.is_empty() {
        return Ok(Vec::new());
    }
    // In the place of the broker, so that no other one starts meanwhile.
    let _place = Socket::open(&at.state_dir)?;
    turns::open_all(&at.state_dir, &examine::quietly(&at.host)?)
}

/// What containers still hold.
fn held(state_dir: &Path, names: DeviceNames) -> Result<Option<Error>, Error> {
    let (books, uptime) = books(state_dir)?;
    let in_use: Vec<_> = books.claims().filter(|claim| claim.state == ClaimState::Held).collect();
    if in_use.is_empty() {
        return Ok(None);
    }
    let list = View::new(names, uptime).list(in_use);
    let hint = "they keep their devices until they end; remove them before the package, because their engine then runs a \
                hook that is gone";
    Ok(Some(
        Error::new(Kind::Found, "containers", format!("still run: {list}")).hint(hint),
    ))
}
