//! `tranche-oci hook claim` and `hook release`: a container takes its share when it is made and gives it back when it is
//! gone.
//!
//! `claim` is a `createRuntime` hook: it runs in the engine's namespaces, where a process's number means something, and
//! its failure keeps the container from starting. `release` is a `poststop` hook, a courtesy: engines skip it after a crash,
//! and then whoever looks next sees that the process is gone.
//!
//! # Arguments
//!
//! | option | value | meaning |
//! |---|---|---|
//! | `--device` | the device's key in the ledger | which device (once; `claim` needs it) |
//! | `--label` | `gpu 0` | its name in messages |
//! | `--share` | a share's name, or `any` | what is claimed (`any`: the first free one of equal replicas); or |
//! | `--whole` | – | all of it; or |
//! | `--claim` | a claim's name | the claim made beforehand that the container enters |
//! | `--of` | `10`, or `big,small` | the shares that the device has: to say what is free |
//! | `--alone` | – | the container may hold nothing else of this device |
//! | `--node` | `/dev/nvidia0` | with it, the container may have no other GPU's node than those named |
//! | `--daemon` | `/run/tranche/mps/0` | the pipe directory of the MPS daemon that must be running |
//! | `--state-dir` | a directory | where the ledger is [default: /run/tranche] |
//! | `--spec-file` | a file | (release) the spec of a claim made beforehand, removed with it |
//!
//! `release` gives back all that the container holds of `--device`, or of every device where none is named: one such hook
//! serves a whole spec, and so runs at the end of containers that hold nothing, too. `--claim` and `--spec-file` go together.

mod any;
mod arguments;
mod daemon;
mod neighbours;

use super::report::Report;
use crate::error::{Error, Result};
use crate::ledger::process::Machine;
use crate::ledger::{Ask, Book, Change, ContainerName, Ledger, Part, Refused, State as Firmness, World};
use crate::oci::{Bundle, State};
use arguments::{Request, What};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

/// Runs `hook claim`.
pub(super) fn claim(arguments: Vec<OsString>, state: &mut dyn Read, report: &mut Report<'_>) -> Result<()> {
    let request = Request::parse(arguments, report)?;
    let what = request.what()?;
    request.device()?;
    let state = State::read(state)?;
    report.about(&state);
    let container = name_of(&state)?;
    refuse_rootless()?;
    let machine = Machine::here()?;
    let ledger = Ledger::open(&request.state_dir)?;
    take(&request, what, &state, &container, &machine, &ledger)
}

fn take(
    request: &Request,
    what: &What,
    state: &State,
    container: &ContainerName,
    machine: &Machine,
    ledger: &Ledger,
) -> Result<()> {
    if !request.nodes.is_empty() {
        neighbours::check(&Bundle::open(state)?.config, request)?;
    }
    if let Some(directory) = &request.daemon {
        daemon::check(directory, &request.label)?;
    }
    let pid = state.pid.ok_or_else(|| {
        Error::failed("container state", "has no pid")
            .hint("this is a createRuntime hook: it needs the container's process")
    })?;
    let process = machine.process(pid)?;
    let uid = nix::unistd::getuid().as_raw();
    ledger.change(request.device()?, |book| {
        let part = match what {
            What::Part(part) => part.clone(),
            What::Any => any::choose(request, book, container, machine)?,
            What::Claim(_) => Part::Whole,
        };
        let container = container.clone();
        let done = match what {
            What::Claim(name) => book.enter(name, container, process, uid, request.alone, machine),
            What::Part(_) | What::Any => {
                let ask = Ask {
                    part,
                    name: None,
                    container: Some(container),
                    process: Some(process),
                    state: Firmness::Held,
                    keep: false,
                    alone: request.alone,
                    uid,
                    ttl: None,
                };
                book.take(&ask, machine)
            }
        };
        done.map_err(|refused| refusal(request, what, book, &refused, machine))?;
        Ok(((), Change::Made))
    })
}

/// Runs `hook release`. It never fails: an engine that is told of a failure here can do nothing with it but alarm people.
pub(super) fn release(arguments: Vec<OsString>, state: &mut dyn Read, report: &mut Report<'_>) -> Result<()> {
    if let Err(error) = try_release(arguments, state, report) {
        report.failure(&error);
    }
    Ok(())
}

fn try_release(arguments: Vec<OsString>, state: &mut dyn Read, report: &mut Report<'_>) -> Result<()> {
    let request = Request::parse(arguments, report)?;
    let state = State::read(state)?;
    report.about(&state);
    let container = name_of(&state)?;
    // Neither has such a container anything to give back, nor is a line at its end of use to anybody.
    if !is_root_of_the_machine() {
        return Ok(());
    }
    let Some(ledger) = Ledger::existing(&request.state_dir)? else {
        return Ok(());
    };
    let uid = nix::unistd::getuid().as_raw();
    let machine = Machine::here()?;
    let locked = ledger.lock()?;
    let release = |book: &mut Book| match book.release_container(&container, uid, &machine) {
        0 => Change::None,
        _ => Change::Made,
    };
    match &request.device {
        Some(device) => locked.change(device, |book| {
            let made = release(book);
            // The spec of a claim goes when the claim is gone, and stays when the claim is kept for the next container.
            // Under the lock: whoever makes a claim of the same name writes its spec after taking it.
            if let (Some(What::Claim(name)), Some(file)) = (&request.what, &request.spec_file)
                && !book.claims.iter().any(|c| c.name.as_ref() == Some(name))
            {
                remove(file)?;
            }
            Ok(((), made))
        }),
        None => {
            let wrong = locked.change_each(release)?;
            wrong.iter().for_each(|error| report.failure(error));
            Ok(())
        }
    }
}

fn remove(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::failed(file.display(), "cannot be removed").from_source(e))
        }
        _ => Ok(()),
    }
}

fn name_of(state: &State) -> Result<ContainerName> {
    if state.id.is_empty() {
        return Err(Error::failed("container state", "has no id"));
    }
    // Two spellings of one directory are one container: as the kernel has it, where it still is.
    let bundle = std::fs::canonicalize(&state.bundle).unwrap_or_else(|_| state.bundle.clone());
    match bundle.into_os_string().into_string() {
        Ok(bundle) => Ok(ContainerName {
            bundle,
            id: state.id.clone(),
        }),
        Err(bundle) => Err(Error::failed(bundle.display(), "the bundle's path is not valid UTF-8")),
    }
}

/// A hook of a rootless engine is root in its own user namespace only: it could not write root's ledger, and must not be
/// able to hold its lock.
fn refuse_rootless() -> Result<()> {
    if is_root_of_the_machine() {
        return Ok(());
    }
    Err(
        Error::failed("shares", "are given to containers of engines that run as root")
            .hint("ask for a whole device, or start the container as root"),
    )
}

fn is_root_of_the_machine() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let whole = map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    nix::unistd::geteuid().is_root() && whole
}

fn refusal(request: &Request, what: &What, book: &Book, refused: &Refused, world: &impl World) -> Error {
    let what = match what {
        What::Claim(name) => format!("claim {name}"),
        What::Part(part) => format!("{} {part}", request.label),
        What::Any => format!("{} any share", request.label),
    };
    let error = Error::failed(what, refused);
    match refused {
        Refused::Another { .. } if request.daemon.is_some() => error.hint(request.several_as_one()),
        Refused::Another { .. } => error.hint("its policy says failRequestsGreaterThanOne"),
        Refused::NoSuchClaim(_) => error.hint("tranche claim list shows those that are there"),
        _ => match free(request, book, world) {
            Some(free) if free.is_empty() => error.hint("no share of it is free"),
            Some(free) => error.hint(format!("free: {}", free.join(", "))),
            None => error,
        },
    }
}

/// The names of shares that nobody holds; at most a handful, for a line that is read.
fn free(request: &Request, book: &Book, world: &impl World) -> Option<Vec<String>> {
    if request.siblings.is_empty() {
        return None;
    }
    let mut book = book.clone();
    book.reconcile(world);
    let held = |name: &str| {
        book.claims.iter().any(|c| match &c.part {
            Part::Whole => true,
            Part::Shares(names) => names.iter().any(|n| n.as_str() == name),
        })
    };
    let mut free: Vec<String> = request.siblings.names().filter(|n| !held(n)).take(6).collect();
    if free.len() == 6 {
        free[5] = "…".to_owned();
    }
    Some(free)
}
