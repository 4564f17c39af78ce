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
//! | `--as` | `nvidia.com/gpu=0.3` | the name under which an engine was asked for it, for people |
//! | `--share` | a share's name, or `any` | what is claimed (`any`: the first free one of equal replicas); or |
//! | `--whole` | – | all of it; or |
//! | `--claim` | a claim's name | the claim made beforehand that the container enters |
//! | `--size` | `1/10`, `mps:7000:30` | how much of the device the share is, or the claim was promised (see [`crate::ledger::Promise`]) |
//! | `--capacity` | `81559:100` | the most MiB and percent that may be promised of the device to all holders together |
//! | `--of` | `10`, or `big,small` | the shares that the device has: to say what is free |
//! | `--alone` | – | the container may hold nothing else of this device |
//! | `--node` | `/dev/nvidia0`, or `/dev/nvidia0:HOST` | with it, the container may have no other device than those whose nodes are named (in the container, and on the host where that differs) |
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
use crate::claims::{Claims, Entry, NotEntered, Wanted, explain};
use crate::error::{Error, Result};
use crate::ledger::{Book, ContainerName, Holder, LedgerError, Part, Refused, Share};
use crate::oci::State;
use crate::types::DeviceKey;
use arguments::{Request, What};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Read;

/// Runs `hook claim`.
pub(super) fn claim(arguments: Vec<OsString>, state: &mut dyn Read, report: &mut Report<'_>) -> Result<()> {
    let request = Request::parse(arguments, report)?;
    let what = request.what()?;
    request.device()?;
    let state = State::read(state)?;
    report.about(&state);
    let container = name_of(&state)?;
    refuse_rootless()?;
    if !request.nodes.is_empty() {
        neighbours::check(&state, &request)?;
    }
    if let Some(directory) = &request.daemon {
        daemon::check(directory, &request.label)?;
    }
    let pid = state.pid.ok_or_else(|| {
        Error::failed("container state", "has no pid")
            .hint("this is a createRuntime hook: it needs the container's process")
    })?;
    let entry = Entry {
        device: request.device()?.clone(),
        wanted: match what {
            What::Part(part) => Wanted::Part(part.clone()),
            What::Any(promise) => Wanted::AnyReplica {
                replicas: request.siblings.replicas(),
                promise: *promise,
            },
            What::Claim { name, promise } => Wanted::Reserved {
                name: name.clone(),
                promise: *promise,
            },
        },
        bounds: request.bounds,
        asked_as: request.asked_as.clone(),
        alone: request.alone,
    };
    let claims = Claims::open(&request.state_dir)?;
    let entered = claims.enter(&entry, Holder::Container(container), Some(pid));
    entered.map_err(|refused| refusal(&request, &entry.device, what, refused))
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
    let Some(claims) = Claims::existing(&request.state_dir)? else {
        return Ok(());
    };
    let reserved = match (&request.what, &request.spec_file) {
        (Some(What::Claim { name, .. }), Some(file)) => Some((name.as_str(), file.as_path())),
        _ => None,
    };
    let wrong = claims.release(&Holder::Container(container), request.device.as_ref(), reserved)?;
    wrong.into_iter().for_each(|error| report.failure(&error.into()));
    Ok(())
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

fn refusal(request: &Request, device: &DeviceKey, what: &What, NotEntered { error, book }: NotEntered) -> Error {
    let name = match what {
        What::Claim { name, .. } => format!("claim {name}"),
        What::Part(part) => format!("{} {part}", request.label),
        What::Any(_) => format!("{} any share", request.label),
    };
    let (LedgerError::Refused(refused), Some(book)) = (&error, book) else {
        return explain(name, error);
    };
    let hint = match refused {
        Refused::NoneFree => {
            let why = format!("none of its {} shares is free", request.siblings.replicas());
            return Error::failed(name, why).hint(any::holders(&book.claims));
        }
        Refused::Another { .. } if request.daemon.is_some() => Some(request.several_as_one()),
        Refused::Another { part } if *part == Part::Whole || *what == What::Part(Part::Whole) => {
            Some("give it the whole device or shares of it, and not both".to_owned())
        }
        Refused::Another { .. } => Some("its policy says failRequestsGreaterThanOne".to_owned()),
        Refused::Taken { .. } | Refused::Unreadable(_) | Refused::NotYours(_) => free(request, device, what, &book)
            .map(|free| match &free[..] {
                [] => "no share of it is free".to_owned(),
                free => format!("free: {}", crate::text::some(free)),
            }),
        _ => None,
    };
    let error = explain(name, error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The names of shares that nobody holds; at most a handful, for a line that is read.
///
/// A share is told by its name and, among equal replicas, by its size: the size of a named one is known to its own hook.
fn free(request: &Request, device: &DeviceKey, what: &What, book: &Book) -> Option<Vec<String>> {
    const MOST: usize = 6;
    if request.siblings.is_empty() {
        return None;
    }
    let promise = match what {
        What::Part(part) if request.siblings.replicas() > 0 => part.shares().first().map(|share| share.promise),
        _ => None,
    };
    let beside = || book.held().filter(|(other, _)| other.overlaps(device));
    if beside().any(|(other, part)| *part == Part::Whole || other != device) {
        return Some(Vec::new());
    }
    let shares = || beside().flat_map(|(_, part)| part.shares());
    let siblings: HashSet<String> = request.siblings.names().collect();
    if shares().any(|share| !siblings.contains(share.name.as_str())) {
        // A share of an earlier policy: what fits beside it does not follow from names.
        return None;
    }
    let same_size = |share: &&Share| promise.is_none_or(|promise| promise == share.promise);
    let held: HashSet<&str> = shares().filter(same_size).map(|share| share.name.as_str()).collect();
    let free = request.siblings.names().filter(|name| !held.contains(name.as_str()));
    let mut free: Vec<String> = free.take(MOST).collect();
    if free.len() == MOST {
        free[MOST - 1] = "…".to_owned();
    }
    Some(free)
}
