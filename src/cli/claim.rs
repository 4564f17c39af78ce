//! `tranche claim`: shares taken beforehand, for a container to come.

mod create;

use super::out;
use super::place::StateArgs;
use super::status;
use crate::error::{Context, Error, Result};
use crate::ledger::process::Machine;
use crate::ledger::{Change, Claim, Ledger};
use crate::types::DeviceKey;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `tranche claim`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Take shares for a container to come; prints the name of the device to give it
    Create(Box<create::Args>),
    /// List claims that were made beforehand
    List(ListArgs),
    /// Show one claim
    Show(NameArgs),
    /// Give a claim back
    Release(NameArgs),
    /// Give back what nobody can hold any more, and remove the specifications of claims that are gone
    Gc(GcArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    state: StateArgs,
    /// For programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct NameArgs {
    /// The claim's name
    name: String,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    dir: ClaimDirArgs,
}

#[derive(Debug, clap::Args)]
struct GcArgs {
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    dir: ClaimDirArgs,
}

/// Where the specifications of claims are.
#[derive(Debug, Clone, clap::Args)]
struct ClaimDirArgs {
    /// The directory for the specifications of claims
    #[arg(
        long = "spec-dir",
        value_name = "DIR",
        env = "TRANCHE_SPEC_DIR",
        default_value = "/var/run/cdi"
    )]
    spec_dir: PathBuf,
}

impl ClaimDirArgs {
    /// The file of one claim: `nvidia.com-claim_NAME.yaml`, as CDI names a transient specification.
    fn file(&self, name: &str) -> PathBuf {
        self.spec_dir.join(format!("{PREFIX}{name}{SUFFIX}"))
    }
}

const PREFIX: &str = "nvidia.com-claim_";
const SUFFIX: &str = ".yaml";

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Verb::Create(args) => create::run(args),
        Verb::List(args) => list(args),
        Verb::Show(args) => show(args),
        Verb::Release(args) => release(args),
        Verb::Gc(args) => gc(args),
    }
}

/// Claims that have a name, with their devices.
fn named(state: &StateArgs) -> Result<Vec<(DeviceKey, Claim)>> {
    let (books, damaged) = status::books(state)?;
    for error in damaged {
        out::note(error);
    }
    let claims = books
        .into_iter()
        .flat_map(|b| b.claims.into_iter().map(|c| (c.device.clone(), c)));
    Ok(claims.filter(|(_, c)| c.name.is_some()).collect())
}

fn list(args: &ListArgs) -> Result<ExitCode> {
    let claims = named(&args.state)?;
    if args.json {
        out::json(&claims.iter().map(|(_, c)| c).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for (_, claim) in &claims {
        text.push_str(&format!(
            "nvidia.com/claim={}\n",
            claim.name.as_deref().unwrap_or_default()
        ));
    }
    out::result(&text)?;
    out::note(out::counted(claims.len(), "claim"));
    Ok(ExitCode::SUCCESS)
}

fn show(args: &NameArgs) -> Result<ExitCode> {
    let (device, claim) = find(&args.state, &args.name)?;
    out::json(&serde_json::json!({ "device": device, "claim": claim, "spec": args.dir.file(&args.name) }))?;
    Ok(ExitCode::SUCCESS)
}

fn find(state: &StateArgs, name: &str) -> Result<(DeviceKey, Claim)> {
    let claims = named(state)?;
    let known: Vec<String> = claims.iter().filter_map(|(_, c)| c.name.clone()).collect();
    claims
        .into_iter()
        .find(|(_, c)| c.name.as_deref() == Some(name))
        .ok_or_else(|| {
            let known = if known.is_empty() {
                "there is none".to_owned()
            } else {
                format!("there are {}", known.join(", "))
            };
            Error::usage(format!("claim {name}"), "is not there").hint(known)
        })
}

fn release(args: &NameArgs) -> Result<ExitCode> {
    let (device, claim) = find(&args.state, &args.name)?;
    if let Some(container) = &claim.holder.container {
        return Err(
            Error::failed(format!("claim {}", args.name), format!("{container} is using it"))
                .hint("stop that first; the claim goes with it"),
        );
    }
    let uid = nix::unistd::getuid().as_raw();
    let machine = Machine::here()?;
    Ledger::open(&args.state.state_dir)?.change(&device, |book| {
        book.reconcile(&machine);
        let in_use = book
            .claims
            .iter()
            .any(|c| c.name == claim.name && c.holder.process.is_some());
        if in_use {
            return Err(Error::failed(
                format!("claim {}", args.name),
                "a container has just begun to use it",
            ));
        }
        book.release_name(&args.name, uid)
            .map_err(|refused| Error::failed(format!("claim {}", args.name), refused))?;
        // Under the lock: a claim made anew under this name writes its specification after taking it.
        remove(&args.dir.file(&args.name))?;
        Ok(((), Change::Made))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn gc(args: &GcArgs) -> Result<ExitCode> {
    let machine = Machine::here()?;
    let ledger = Ledger::open(&args.state.state_dir)?;
    let mut collected = 0;
    // Before the claims are looked at: a specification is younger than its claim, so one seen here without a claim then is
    // nobody's.
    let files = specifications(&args.dir.spec_dir)?;
    for book in ledger.books()?.books {
        collected += ledger.change(&DeviceKey::whole(book.gpu), |book| {
            Ok((book.reconcile(&machine), Change::Made))
        })?;
    }
    let mut removed = 0;
    let live: Vec<String> = named(&args.state)?.into_iter().filter_map(|(_, c)| c.name).collect();
    for file in files {
        let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let name = name
            .strip_prefix(PREFIX)
            .and_then(|n| n.strip_suffix(SUFFIX))
            .unwrap_or_default();
        if !live.iter().any(|l| l == name) {
            remove(&file)?;
            removed += 1;
        }
    }
    out::note(format_args!(
        "{collected} claims given back, {removed} specifications removed"
    ));
    Ok(ExitCode::SUCCESS)
}

/// The files of claims in `dir`.
fn specifications(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::failed(dir.display(), "cannot be listed").from_source(e)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.about(dir.display(), "cannot be listed")?;
        let is_one = entry
            .file_name()
            .to_str()
            .is_some_and(|n| n.starts_with(PREFIX) && n.ends_with(SUFFIX));
        if is_one {
            files.push(entry.path());
        }
    }
    Ok(files)
}

fn remove(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::failed(file.display(), "cannot be removed").from_source(e))
        }
        _ => Ok(()),
    }
}
