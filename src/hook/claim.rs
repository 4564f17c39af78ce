//! `tranche-oci hook claim` and `hook release`: a container takes its share when it is created and returns it when it
//! has ended.
//!
//! `claim` is a `createRuntime` hook: it runs in the engine's pid namespace, so the container's pid is valid, and a
//! failure prevents the start. `release` is a `poststop` hook. Engines skip it after a crash; then the next program
//! that reads the ledger notices that the process has ended.
//!
//! # Arguments
//!
//! The table of arguments is in `hooks/README.md`.
//!
//! Exactly one of `--share`, `--whole` and `--claim` is given. `release` returns everything that the container holds of
//! `--device`, or of every device without that option. A specification has one such hook, so it also runs for
//! containers that hold nothing. `--claim` and `--spec-file` go together.

mod broker;
mod neighbours;
mod pod;

use super::report::HookReport;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Instant;
use tranche_core::call::{ClaimCall, ReleaseCall, Siblings, Unknown};
use tranche_core::claims::{ClaimEntry, Claims, NotEntered, OfferedClaim, explain, until_ended};
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{
    Book, ContainerName, HeldPart, HeldShare, Holder, KubernetesObject, LedgerError, Refused, is_start_name,
};
use tranche_core::oci::State;
use tranche_core::root::is_in_user_namespace;
use tranche_core::text::some;
use tranche_core::types::{HostPath, Part, Promise, Subject};

/// Runs `hook claim`.
pub(super) fn claim(arguments: Vec<OsString>, state: &mut dyn Read, report: &mut HookReport<'_>) -> Result<()> {
    let call = ClaimCall::parse(arguments, &mut |unknown| refuse_options(&unknown, report))?;
    let state = State::read(state)?;
    report.about(&state);
    let container = name_of(&state)?;
    let pid = state.pid.ok_or_else(|| {
        Error::failed("container state", "has no pid")
            .hint("this is a createRuntime hook: it needs the container's process")
    })?;
    if !is_root_of_the_machine() {
        // It cannot write root's ledger, and must not hold its lock.
        // A configuration that cannot be read costs a process that is not the user its access to nodes, and no start.
        let user = neighbours::config(&state).ok().map(|config| config.user);
        return broker::enter(&call, container, pid, user);
    }
    if !call.nodes.is_empty() {
        neighbours::check(&state, &call)?;
    }
    if !call.prepare {
        refuse_without_daemon(&call)?;
    }
    let entry = ClaimEntry::of(&call);
    // The low-level runtime, and the engine's program that started it.
    let claims = Claims::open(call.state_dir.as_path())?.called_by(2);
    let pod = pod::of(&state, pid, claims.machine());
    let claims = claims.for_pod(pod);
    let holder = Holder::Container(container);
    let (wait, began) = (call.wait.get(), Instant::now());
    let entered = claims.enter_waiting(&entry, &holder, Some(pid), wait);
    entered.map_err(|refused| refusal(&call, refused))?;
    let ready = match (call.prepare, wait.is_zero()) {
        // The broker reads from the ledger what the device must be ready for.
        (true, _) => broker::prepare(&call)
            .and_then(|()| refuse_without_daemon(&call))
            .and_then(|()| match is_by_turns(&call) && !wait.is_zero() {
                true => broker::first_turn(&call, pid, wait.saturating_sub(began.elapsed())),
                false => Ok(()),
            }),
        // The daemon may have ended while its share was waited for.
        (false, false) => refuse_without_daemon(&call),
        (false, true) => Ok(()),
    };
    if ready.is_err()
        && let Err(error) = claims.release_failed_start(&holder, &call.device)
    {
        report.failure(&error.into());
    }
    ready
}

/// Whether the holders of the device have it by turns.
fn is_by_turns(call: &ClaimCall) -> bool {
    let (Subject::Part(_, promise) | Subject::Claim(_, Some(promise))) = &call.subject else {
        return false;
    };
    matches!(promise, Promise::Turns { .. })
}

/// Refuses a share whose MPS daemon does not serve clients.
fn refuse_without_daemon(call: &ClaimCall) -> Result<()> {
    match &call.daemon {
        Some(directory) => tranche_core::mps::check_daemon(directory.as_path(), &call.label),
        None => Ok(()),
    }
}

/// Refuses unknown options: each may limit the claim, and a claim without that limit could not be kept.
fn refuse_options(unknown: &Unknown, report: &mut HookReport<'_>) -> Result<()> {
    match unknown {
        Unknown::Word(_) => report.ignored(unknown),
        Unknown::Option(_) | Unknown::Value(_) => Err(Error::usage(unknown.argument(), "unknown option of a claim")),
    }
}

/// Runs `hook release`. It never fails, because an engine cannot do anything about a failure at that point.
pub(super) fn release(arguments: Vec<OsString>, state: &mut dyn Read, report: &mut HookReport<'_>) -> Result<()> {
    if let Err(error) = try_release(arguments, state, report) {
        report.failure(&error);
    }
    Ok(())
}

fn try_release(arguments: Vec<OsString>, state: &mut dyn Read, report: &mut HookReport<'_>) -> Result<()> {
    let call = ReleaseCall::parse(arguments, &mut |unknown| refuse_options(&unknown, report))?;
    let state = State::read(state)?;
    report.about(&state);
    let container = name_of(&state)?;
    if !is_root_of_the_machine() {
        return broker::leave(&call, container);
    }
    let Some(claims) = Claims::existing(call.state_dir.as_path())? else {
        return Ok(());
    };
    let is_own = |text: &str| call.is_in(text);
    let file = call.spec_file.as_ref().map(HostPath::as_path);
    let offered = call.claim.as_deref().zip(file).map(|(name, file)| OfferedClaim {
        name,
        file,
        is_own: &is_own,
    });
    let wrong = claims.release(&Holder::Container(container), call.device.as_ref(), offered.as_ref())?;
    wrong.into_iter().for_each(|error| report.failure(&error.into()));
    Ok(())
}

fn name_of(state: &State) -> Result<ContainerName> {
    // crun (1.8.1) gives `/` where root of the container's user namespace may not enter the bundle. Until the container
    // is started, its first process is in the bundle's directory.
    let is_lost = state.bundle == Path::new("/");
    let directory = state.pid.filter(|_| is_lost).map(|pid| format!("/proc/{pid}/cwd"));
    let bundle = directory.and_then(|directory| fs::read_link(directory).ok());
    ContainerName::at(bundle.as_deref().unwrap_or(&state.bundle), &state.id)
}

/// Whether this process is root, and not only in a user namespace as the hooks of a rootless engine are.
fn is_root_of_the_machine() -> bool {
    nix::unistd::geteuid().is_root() && !is_in_user_namespace()
}

fn refusal(call: &ClaimCall, refused: NotEntered) -> Error {
    let waited = refused.waited;
    let error = refusal_of(call, refused);
    match waited {
        Some(waited) => error.and_hint(format!("waited {} s for it", waited.as_secs())),
        None => error,
    }
}

fn refusal_of(call: &ClaimCall, NotEntered { error, book, .. }: NotEntered) -> Error {
    // The claim of a pod has names that its owner does not know, and its owner has no shell on the node.
    let of_pod = match &call.subject {
        Subject::Claim(name, _) => KubernetesObject::of_claim(name).map(|(object, _)| object),
        Subject::Part(..) => None,
    };
    let name = match (&call.subject, &of_pod) {
        (_, Some(object)) => object.to_string(),
        (Subject::Claim(name, _), None) if is_start_name(name) => call.label.clone(),
        (claim @ Subject::Claim(..), None) => claim.to_string(),
        (Subject::Part(part, _), None) => format!("{} {part}", call.label),
    };
    if let (Subject::Claim(claim, _), LedgerError::Refused(Refused::NoSuchClaim(_))) = (&call.subject, &error)
        && is_start_name(claim)
    {
        return Error::failed(name, "what was reserved for this start is not reserved any more")
            .hint("start the container again through its engine");
    }
    let (LedgerError::Refused(refused), Some(book)) = (&error, book) else {
        return explain(name, error);
    };
    let hint = match refused {
        Refused::NoneFree => {
            let why = format!("none of its {} shares is free", call.siblings.replicas());
            let holders = book
                .claims
                .iter()
                .map(|claim| format!("{} holds {}", claim.who(), claim.part));
            return Error::failed(name, why).hint(some(&holders.collect::<Vec<_>>()));
        }
        Refused::Another { .. } if call.daemon.is_some() && of_pod.is_some() => Some(
            "ask for more of one device by capacity.requests, or give each container a request of its own".to_owned(),
        ),
        Refused::Another { .. } if call.daemon.is_some() => {
            let device = call.label.trim_start_matches("gpu ");
            let command = format!("tranche claim create --name NAME --shares 2 --of {device}");
            Some(format!("{command} gives several as one"))
        }
        Refused::Another { part } if *part == HeldPart::Whole || call.subject == Subject::WHOLE => {
            Some("give it the whole device or shares of it, and not both".to_owned())
        }
        Refused::Another { .. } => Some("its policy says failRequestsGreaterThanOne".to_owned()),
        Refused::Taken { .. } | Refused::Unreadable(_) | Refused::NotYours(_) => match (free(call, &book), refused) {
            (Some(free), _) if free.is_empty() => Some("no share of it is free".to_owned()),
            (Some(free), _) => Some(format!("free: {}", some(&free))),
            // Of a policy that gave the device in another way.
            (None, Refused::Taken { by, .. }) if by.part != HeldPart::Whole => {
                Some(format!("refused {}", until_ended(&[by.with_part()], &[])))
            }
            (None, _) => None,
        },
        _ => None,
    };
    let error = explain(name, error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The names of shares that can be claimed now, at most six; `None` if this hook cannot know them.
///
/// Equal replicas have one size, so the ledger decides whether each of them is free. Of named shares, this hook knows
/// the size of its own share only, so it compares names.
fn free(call: &ClaimCall, book: &Book) -> Option<Vec<String>> {
    // Each is made when it is looked at: replicas may be more than memory has room for.
    let names = || call.siblings.names();
    names().next()?;
    if book.is_closed(&call.device) {
        return Some(Vec::new());
    }
    let size = match (&call.subject, &call.siblings) {
        (Subject::Part(Part::Share(_), size), Siblings::Replicas(_)) => Some(*size),
        _ => None,
    };
    if let Some(promise) = size {
        // Of a thousand shares, most are held, and that is seen without working out what fits.
        let shares = names().filter_map(|name| name.parse().ok());
        let unheld = book.unheld(&call.device, shares.map(|name| HeldShare { name, promise }));
        let bounds = call.bounds.unwrap_or_default();
        let fits = |share: &HeldShare| book.is_free(&call.device, &HeldPart::Shares(vec![share.clone()]), bounds);
        return Some(some_of(unheld.filter(fits).map(|share| share.name.to_string())));
    }
    let on_device = book.held().filter(|(device, _)| **device == call.device);
    let held: HashSet<&str> = on_device
        .flat_map(|(_, part)| part.shares())
        .map(|s| s.name.as_str())
        .collect();
    let is_known = |name: &&str| match &call.siblings {
        Siblings::Replicas(replicas) => name.parse().is_ok_and(|number: u32| number < *replicas),
        Siblings::Named(names) => names.iter().any(|known| known == name),
    };
    if !held.iter().all(is_known) {
        // A share of an earlier policy is held. Its size, and not its name, decides what fits in addition to it.
        return None;
    }
    Some(some_of(names().filter(|name| !held.contains(name.as_str()))))
}

/// The first of `names`; `…` stands for all that are left out.
fn some_of(names: impl Iterator<Item = String>) -> Vec<String> {
    const MOST: usize = 6;
    let mut some: Vec<String> = names.take(MOST).collect();
    if some.len() == MOST {
        some[MOST - 1] = "…".to_owned();
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::error::line;

    /// What is said of a container that holds something of the device under MPS, and enters the claim `name`.
    fn another(name: &str) -> String {
        let arguments = ["--device=GPU-11111111", "--label=gpu 0", "--alone", "--daemon=/run/mps"];
        let arguments = arguments.map(OsString::from).into_iter();
        let arguments = arguments.chain([OsString::from(format!("--claim={name}"))]).collect();
        let call = ClaimCall::parse(arguments, &mut |_| Ok(())).unwrap();
        let refused = Refused::Another { part: HeldPart::Whole };
        let book = Book::new(call.device.gpu().clone());
        let refused = NotEntered {
            error: LedgerError::Refused(refused),
            book: Some(Box::new(book)),
            waited: None,
        };
        line(&refusal(&call, refused))
    }

    #[test]
    fn a_pod_is_told_what_its_claims_have_to_say() {
        let said = another("resource-claim/lab/train/aaaaaaaa-0000-4000-8000-000000000001/gpu-0");
        assert!(said.starts_with("resource claim lab/train: "), "{said}");
        assert!(
            said.contains("capacity.requests") && !said.contains("tranche claim create"),
            "{said}"
        );
        let said = another("train");
        assert!(
            said.starts_with("claim train: ") && said.contains("tranche claim create"),
            "{said}"
        );
    }
}
