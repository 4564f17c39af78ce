//! `tranche claim release`: releases a claim, a share, or everything that a container holds.

use super::PlaceArgs;
use crate::call::Subject;
use crate::claim_spec;
use crate::claims::{Claims, LockedClaims};
use crate::cli::containers::Names;
use crate::cli::held::{Held, View};
use crate::cli::specs::{Specs, is_named};
use crate::cli::{by_broker, out};
use crate::error::Error;
use crate::ledger::{Books, Claim, ClaimState, HeldPart, LedgerError, Refused, utc};
use anyhow::{Result, bail};
use serde_json::json;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The name of a claim; a device or share (nvidia.com/gpu=0.3, or 0.3); or a container's name or id, or at least the
    /// first four characters of an id, if no other container's id begins with them
    #[arg(value_name = "CLAIM|DEVICE|CONTAINER")]
    what: String,
    /// Release the claim although a running container uses it. The container keeps its access to the device until it ends
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    at: PlaceArgs,
}

/// The fewest characters of a container's id that are taken for the beginning of one.
const SHORTEST_ID: usize = 4;

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let state_dir = &args.at.state.state_dir;
    if by_broker::is_needed(state_dir) {
        let fields = json!({"what": args.what, "force": args.force});
        let mut answer = by_broker::ask(state_dir, "release", fields)?;
        show(args, &by_broker::held::<Vec<Held>>(answer["released"].take())?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(claims) = Claims::existing(state_dir)? else {
        bail!(not_found(&args.what, &[], &mut View::default()));
    };
    // Locked until the specification is gone: a claim made anew under this name writes its own under the same lock.
    let locked = claims.lock()?;
    let books = locked.books()?;
    let done = release(args, &locked, &books, claims.uptime());
    // Nothing is printed before: a terminal that was stopped would keep every container with a share from starting.
    drop(locked);
    // What is meant may be in a book that cannot be read: these lines come before "not found".
    out::complain_all(books.errors());
    let Released { released, left } = done?;
    let code = out::complain_all(&left);
    show(args, &released)?;
    Ok(code)
}

/// Says what was released.
fn show(args: &Args, released: &[Held]) -> Result<()> {
    if args.at.json {
        return out::json(&json!({ "released": released }));
    }
    for held in released {
        let by = held.container.as_ref().map(|_| format!(", held by {}", held.holder()));
        out::note(format_args!("released {}{}", held.cdi, by.unwrap_or_default()));
    }
    Ok(())
}

/// What was released.
struct Released {
    released: Vec<Held>,
    /// Specifications that could not be removed.
    left: Vec<Error>,
}

/// Releases the claims that the user means, and removes their specifications. `books` are those of the ledger.
fn release(args: &Args, locked: &LockedClaims<'_>, books: &Books, uptime: u64) -> Result<Released> {
    let state_dir = &args.at.state.state_dir;
    let claims: Vec<&Claim> = books.claims().collect();
    let mut view = View::new(Specs::read(&args.at.specs, state_dir), uptime);
    let meant = resolve(&args.what, &claims, &mut view)?;
    let done = locked.release_by_hand(&meant, args.force);
    done.map_err(|error| refusal(error, &mut view))?;
    Ok(Released {
        released: meant.iter().map(|claim| view.held(claim)).collect(),
        // After the ledger: a process that is killed in between leaves a specification without a claim, which no container
        // can use and `gc` removes.
        left: meant
            .iter()
            .filter_map(|claim| claim_spec::remove_of(claim, state_dir).err())
            .collect(),
    })
}

/// The error for a claim that is not released.
fn refusal(error: LedgerError, view: &mut View) -> Error {
    match error {
        LedgerError::Refused(Refused::NotYours(claim)) => {
            Error::failed(view.specs.name(&claim), format!("belongs to user {}", claim.uid))
        }
        LedgerError::Refused(Refused::InUse { claim, runs }) => {
            let held = view.held(&claim);
            let reason = match runs {
                true if claim.state == ClaimState::Reserved => "is being created",
                true => "is running",
                false => "may be running: its pid namespace cannot be examined, and has processes",
            };
            let what = format!("is held since {} by {}, which {reason}", utc(held.since), held.by());
            Error::failed(&held.cdi, what)
                .hint("stop that container, or give --force: it then keeps its access to the device until it ends")
        }
        other => other.into(),
    }
}

/// The claims that `typed` means. A claim's name is tried first, then a device, then a container.
fn resolve<'a>(typed: &str, claims: &[&'a Claim], view: &mut View) -> Result<Vec<&'a Claim>> {
    let name = typed.strip_prefix("nvidia.com/claim=").unwrap_or(typed);
    let by_name = claims.iter().filter(|claim| claim.name.as_deref() == Some(name));
    let by_name: Vec<&Claim> = by_name.copied().collect();
    if !by_name.is_empty() {
        return Ok(by_name);
    }
    let by_device = of_device(typed, claims, &view.specs);
    match &by_device[..] {
        [] => {}
        [one] if is_whole_of(one, typed, &view.specs) => return Ok(by_device),
        [one] => {
            let container = one.holder.any_container().map(|container| &*container.id);
            let own = one.given_name().or(container).unwrap_or_default();
            bail!(
                Error::usage(typed, format!("is one of several shares of {}", one.who()))
                    .hint(format!("tranche claim release {own} releases all of them"))
            );
        }
        _ => bail!(ambiguous(typed, &by_device, view)),
    }
    let by_container = of_container(typed, claims, &mut view.names);
    let mut containers = by_container
        .iter()
        .filter(|claim| claim.holder.any_container().is_some());
    match containers.next() {
        None => Err(not_found(typed, claims, view).into()),
        Some(first) if containers.all(|other| other.holder == first.holder) => Ok(by_container),
        Some(_) => Err(ambiguous(typed, &by_container, view).into()),
    }
}

/// The claims on the device or share that `typed` names.
fn of_device<'a>(typed: &str, claims: &[&'a Claim], specs: &Specs) -> Vec<&'a Claim> {
    let is_name = |name: &str| is_named(name, typed);
    let meant = specs.meant(typed);
    let is_meant = |claim: &Claim| {
        let by_spec = meant.iter().any(|(key, subject)| {
            claim.device == *key
                && match subject {
                    Subject::Whole => claim.part == HeldPart::Whole,
                    Subject::Share(name, _) => claim.part.shares().iter().any(|share| share.name == *name),
                    Subject::Any(_) | Subject::Claim(..) => false,
                }
        });
        // The specification may have changed since; the claim still knows what its container asked for.
        by_spec || is_name(&specs.name(claim)) || claim.asked_as.as_deref().is_some_and(is_name)
    };
    claims.iter().copied().filter(|claim| is_meant(claim)).collect()
}

/// Whether `typed` names all that `claim` holds, and not one of several shares.
fn is_whole_of(claim: &Claim, typed: &str, specs: &Specs) -> bool {
    claim.part.shares().len() < 2 || specs.name(claim) == typed
}

/// The claims of the container whose name or id is `typed`, or else of those whose id begins with it.
fn of_container<'a>(typed: &str, claims: &[&'a Claim], names: &mut Names) -> Vec<&'a Claim> {
    let mut exact = Vec::new();
    let mut begins = Vec::new();
    for claim in claims.iter().copied() {
        let Some(container) = claim.holder.any_container() else {
            continue;
        };
        let mut name = || claim.holder.container().and_then(|of_root| names.of(of_root));
        if container.id == typed || name().as_deref() == Some(typed) {
            exact.push(claim);
        } else if typed.len() >= SHORTEST_ID && container.id.starts_with(typed) {
            begins.push(claim);
        }
    }
    if exact.is_empty() { begins } else { exact }
}

fn ambiguous(typed: &str, claims: &[&Claim], view: &mut View) -> Error {
    let candidates = view.list(claims.iter().copied());
    Error::usage(typed, "matches more than one").hint(format!("name one of them: {candidates}"))
}

fn not_found(typed: &str, claims: &[&Claim], view: &mut View) -> Error {
    Error::usage(typed, "not found among claims, held devices and containers").hint(match claims {
        [] => "nothing is held".to_owned(),
        held => format!("these are held: {}", view.list(held.iter().copied())),
    })
}
