//! `tranche claim release`: releases a claim, a share, or everything that a container holds.

use super::PlaceArgs;
use crate::out;
use anyhow::{Result, bail};
use serde::Deserialize;
use serde_json::json;
use std::process::ExitCode;
use tranche_core::broker::ReleaseRequest;
use tranche_core::claims::{Claims, LockedClaims};
use tranche_core::error::Error;
use tranche_core::ledger::{Books, Claim, ClaimState, HeldPart, Holder, LedgerError, Refused, utc};
use tranche_core::types::Part;
use tranche_state::accounts::{Account, AccountSources, Accounts};
use tranche_state::claim_spec;
use tranche_state::held::containers::Names;
use tranche_state::held::specs::{Specs, is_named};
use tranche_state::held::{Held, View, by_broker, container_id};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name of a claim; a device or share (nvidia.com/gpu=0.3, or 0.3); or a container's name or id, or at least
    /// the first four characters of an id, if no other container's id begins with them. The containers of a user's
    /// own engine are named UID.ID
    #[arg(value_name = "CLAIM|DEVICE|CONTAINER", required_unless_present = "user")]
    what: Option<String>,
    /// Release all that this user holds, also under subordinate uids
    #[arg(long, value_name = "NAME|UID", conflicts_with = "what")]
    user: Option<String>,
    /// Release the claim although a running container uses it. The container keeps its access to the device until it
    /// ends
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
        if args.user.is_some() {
            bail!(
                Error::usage("--user", "only root can release what another user holds").hint("name a claim of yours")
            );
        }
        let request = ReleaseRequest {
            // Only --user makes the argument optional.
            what: args.what.clone().unwrap_or_default(),
            force: args.force,
        };
        let answer: OwnReleased = by_broker::ask(state_dir, &request)?;
        show(args, &answer.released)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before anybody has to wait for it: NSS may take seconds.
    let user = args.user.as_deref().map(UserClaims::named).transpose()?;
    let Some(claims) = Claims::existing(state_dir)? else {
        bail!(match (&args.what, &args.user) {
            (Some(what), _) => not_found(what, &[], &mut View::default()),
            (None, user) => nothing_of(user.as_deref().unwrap_or_default()),
        });
    };
    // Locked until the specification is gone: a claim made anew under this name writes its own under the same lock.
    if let Some(user) = &user {
        claims.books()?.claims().for_each(|claim| user.ask_about(claim));
    }
    let locked = claims.lock()?;
    let books = locked.books()?;
    let done = release(args, user.as_ref(), &locked, &books, claims.uptime());
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

/// What the broker says that it released.
#[derive(Deserialize)]
struct OwnReleased {
    released: Vec<Held>,
}

/// What was released.
struct Released {
    released: Vec<Held>,
    /// Specifications that could not be removed.
    left: Vec<Error>,
}

/// Releases the claims that the user means, and removes their specifications. `books` are those of the ledger.
fn release(
    args: &Args,
    user: Option<&UserClaims>,
    locked: &LockedClaims<'_>,
    books: &Books,
    uptime: u64,
) -> Result<Released> {
    let state_dir = &args.at.state.state_dir;
    let claims: Vec<&Claim> = books.claims().collect();
    let mut view = View::new(Specs::read(&args.at.specs.dirs(), state_dir), uptime);
    let meant = match (user, &args.what) {
        (Some(user), _) => user.of(&claims)?,
        (None, what) => resolve(what.as_deref().unwrap_or_default(), &claims, &mut view)?,
    };
    let done = locked.release_by_hand(&meant, args.force);
    done.map_err(|error| refusal(error, &mut view))?;
    Ok(Released {
        released: meant.iter().map(|claim| view.held(claim)).collect(),
        // After the ledger: a process that is killed in between leaves a specification without a claim, which no
        // container can use and `gc` removes.
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

/// The claims that `typed` means. A claim's name is tried first, then the device or share that is held, then what
/// root's engines asked for, then a container. What a user chose is looked for last, and with the number of the user.
fn resolve<'a>(typed: &str, claims: &[&'a Claim], view: &mut View) -> Result<Vec<&'a Claim>> {
    let name = typed.strip_prefix("nvidia.com/claim=").unwrap_or(typed);
    let all = |is_meant: &dyn Fn(&Claim) -> bool| -> Vec<&'a Claim> {
        claims.iter().copied().filter(|claim| is_meant(claim)).collect()
    };
    let by_name = all(&|claim| claim.name.as_deref() == Some(name));
    if !by_name.is_empty() {
        return Ok(by_name);
    }
    let by_device = of_device(typed, claims, &view.specs);
    let asked_for = || all(&|claim| is_named(&view.specs.name(claim), typed));
    let by_device = if by_device.is_empty() { asked_for() } else { by_device };
    match &by_device[..] {
        [] => {}
        [one] if is_whole_of(one, typed, &view.specs) => return Ok(by_device),
        [one] => {
            let container = one.holder.any_container().map(|_| view.held(one));
            let container = container.and_then(|held| held.container.map(|container| container.own_id()));
            let own = one.given_name().map(str::to_owned).or(container).unwrap_or_default();
            bail!(
                Error::usage(typed, format!("is one of several shares of {}", one.who()))
                    .hint(format!("tranche claim release {own} releases all of them"))
            );
        }
        _ => bail!(ambiguous(typed, &by_device, view)),
    }
    let by_container = of_container(typed, claims, &mut view.names);
    match by_container.first() {
        None => Err(not_found(typed, claims, view).into()),
        Some(first) if by_container.iter().all(|other| other.holder == first.holder) => Ok(by_container),
        Some(_) => Err(ambiguous(typed, &by_container, view).into()),
    }
}

/// The claims that hold the device or share that `typed` names.
fn of_device<'a>(typed: &str, claims: &[&'a Claim], specs: &Specs) -> Vec<&'a Claim> {
    let meant = specs.meant(typed);
    let is_meant = |claim: &Claim| {
        let by_spec = meant.iter().any(|(key, part)| {
            claim.device == *key
                && match part {
                    Part::Whole => claim.part == HeldPart::Whole,
                    Part::Share(name) => claim.part.shares().iter().any(|share| share.name == *name),
                    Part::Any => false,
                }
        });
        // The specification may have changed since.
        by_spec || is_named(&specs.part_name(claim), typed)
    };
    claims.iter().copied().filter(|claim| is_meant(claim)).collect()
}

/// Whether `typed` names all that `claim` holds, and not one of several shares.
fn is_whole_of(claim: &Claim, typed: &str, specs: &Specs) -> bool {
    claim.part.shares().len() < 2 || is_named(&specs.name(claim), typed) || is_named(&specs.part_name(claim), typed)
}

/// The claims of the container whose name or id is `typed`, or else of those whose id begins with it: first those of
/// root's engines. The id of a container of a user's engine has the number of the user before it.
fn of_container<'a>(typed: &str, claims: &[&'a Claim], names: &mut Names) -> Vec<&'a Claim> {
    let (mut exact, mut begins) = (Vec::new(), Vec::new());
    for claim in claims.iter().copied() {
        let Some(container) = claim.holder.any_container() else {
            continue;
        };
        let user = match claim.holder {
            Holder::Rootless { user, .. } => Some(user),
            _ => None,
        };
        let mut name = || claim.holder.container().and_then(|of_root| names.of(of_root));
        if container_id(&container.id, user) == typed || name().as_deref() == Some(typed) {
            exact.push(claim);
        } else if begins_with(&container.id, user, typed) {
            begins.push(claim);
        }
    }
    let found = if exact.is_empty() { begins } else { exact };
    let of_root = |claim: &&Claim| claim.holder.container().is_some();
    match found.iter().any(of_root) {
        true => found.into_iter().filter(of_root).collect(),
        false => found,
    }
}

/// Whether `typed` is the beginning of the container's id, and long enough for one.
fn begins_with(id: &str, user: Option<u32>, typed: &str) -> bool {
    let typed = match user {
        None => Some(typed),
        Some(user) => typed.strip_prefix(&format!("{user}.")),
    };
    typed.is_some_and(|typed| typed.len() >= SHORTEST_ID && id.starts_with(typed))
}

/// What a user holds.
struct UserClaims {
    uid: u32,
    accounts: Accounts,
}

impl UserClaims {
    /// Those of the user `name`, or of a uid.
    fn named(name: &str) -> Result<Self> {
        let accounts = Accounts::new(AccountSources::default());
        let uid = accounts.user(name)?;
        Ok(Self { uid, accounts })
    }

    /// Finds out whose `claim` is, which may take seconds.
    fn ask_about(&self, claim: &Claim) {
        self.accounts.of(claim.uid);
    }

    /// The claims of this uid and of its subordinate ones, without asking NSS any more.
    fn of<'a>(&self, claims: &[&'a Claim]) -> Result<Vec<&'a Claim>> {
        let is_its =
            |claim: &&Claim| claim.uid == self.uid || self.accounts.already_known(claim.uid) == Account::User(self.uid);
        let found: Vec<&Claim> = claims.iter().copied().filter(is_its).collect();
        match found.is_empty() {
            true => Err(nothing_of(&self.uid.to_string()).into()),
            false => Ok(found),
        }
    }
}

fn nothing_of(user: &str) -> Error {
    Error::usage(format!("user {user}"), "holds nothing").hint("tranche status shows who holds what")
}

fn ambiguous(typed: &str, claims: &[&Claim], view: &mut View) -> Error {
    let candidates = view.list(claims.iter().copied());
    Error::usage(typed, "matches more than one").hint(format!("name one of them: {candidates}"))
}

fn not_found(typed: &str, claims: &[&Claim], view: &mut View) -> Error {
    Error::usage(typed, "not found among claims, held devices and containers").hint(match claims {
        [] => "nothing is held".to_owned(),
        held => {
            // A list stops at eight, and root's own are not crowded out of it.
            let (of_root, of_users): (Vec<&Claim>, Vec<&Claim>) = held.iter().partition(|claim| claim.uid == 0);
            format!("these are held: {}", view.list(of_root.into_iter().chain(of_users)))
        }
    })
}
