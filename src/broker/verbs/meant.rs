//! Which claims a person means by a name.
//!
//! The same rules count for root and for users: the name of a claim, then a device or share that is held, then what an
//! engine was asked for, then a container. A user means only what is the user's own, where the number of the user may
//! be left out.

use super::Caller;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Claim, Holder};
use tranche_core::types::CdiKind;
use tranche_state::held::names::is_named;
use tranche_state::held::{View, container_id};

/// The fewest characters of a container's id that are taken for the beginning of one.
const SHORTEST_ID: usize = 4;

/// The claims among `claims`, which the caller may see, that are meant by `typed`.
///
/// # Errors
/// Returns a usage error if none is, or if several holders are, with what can be named.
pub(super) fn meant<'a>(caller: Caller, typed: &str, claims: &[&'a Claim], view: &mut View) -> Result<Vec<&'a Claim>> {
    let of = |is_meant: &dyn Fn(&Claim) -> bool| -> Vec<&'a Claim> {
        claims.iter().copied().filter(|claim| is_meant(claim)).collect()
    };
    // `0.3` is a share, and has the form of another user's claim.
    let name = caller.own_name(CdiKind::without_claim(typed));
    let by_name = of(&|claim| name.as_ref().is_ok_and(|name| claim.name.as_ref() == Some(name)));
    if !by_name.is_empty() {
        return Ok(by_name);
    }
    let mut by_device = of(&|claim| view.devices.means(typed, claim));
    if by_device.is_empty() {
        by_device = of(&|claim| is_named(&view.devices.name(claim), typed));
    }
    match &by_device[..] {
        [] => {}
        [one] if is_whole_of(one, typed, view) => return Ok(by_device),
        [one] => return Err(one_of_several(typed, one)),
        _ => return Err(ambiguous(typed, &by_device, view)),
    }
    let by_container = of_container(caller, typed, claims, view);
    match by_container.first() {
        None => Err(name.err().unwrap_or_else(|| not_found(caller, typed, claims, view))),
        Some(first) if by_container.iter().all(|other| other.holder == first.holder) => Ok(by_container),
        Some(_) => Err(ambiguous(typed, &by_container, view)),
    }
}

/// Whether `typed` names all that `claim` holds, and not one of several shares.
fn is_whole_of(claim: &Claim, typed: &str, view: &View) -> bool {
    let names = &view.devices;
    claim.part.shares().len() < 2 || is_named(&names.name(claim), typed) || is_named(&names.part_name(claim), typed)
}

/// The number of the user whose own engine has the container of `claim`.
fn user_of(claim: &Claim) -> Option<u32> {
    match claim.holder {
        Holder::Rootless { user, .. } => Some(user),
        _ => None,
    }
}

/// The claims of the container whose name or id is `typed`, or else of those whose id begins with it: first those of
/// root's engines. For root, the id of a container of a user's engine has the number of the user before it.
fn of_container<'a>(caller: Caller, typed: &str, claims: &[&'a Claim], view: &mut View) -> Vec<&'a Claim> {
    let (mut exact, mut begins) = (Vec::new(), Vec::new());
    for claim in claims.iter().copied() {
        let Some(container) = claim.holder.any_container() else {
            continue;
        };
        let user = user_of(claim);
        let is_own = user.is_some() && matches!(caller, Caller::User(_));
        let name = claim.holder.container().and_then(|of_root| view.containers.of(of_root));
        let is_exact = container_id(&container.id, user) == typed
            || is_own && container.id == typed
            || name.as_deref() == Some(typed);
        if is_exact {
            exact.push(claim);
        } else if begins_with(&container.id, user, typed) || is_own && begins_with(&container.id, None, typed) {
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

fn one_of_several(typed: &str, claim: &Claim) -> Error {
    let container = claim.holder.any_container();
    let container = container.map(|container| container_id(&container.id, user_of(claim)));
    let own = claim.given_name().map(str::to_owned).or(container).unwrap_or_default();
    Error::usage(typed, format!("is one of several shares of {}", claim.who()))
        .hint(format!("tranche claim release {own} releases all of them"))
}

fn ambiguous(typed: &str, claims: &[&Claim], view: &mut View) -> Error {
    let candidates = view.list(claims.iter().copied());
    Error::usage(typed, "matches more than one").hint(format!("name one of them: {candidates}"))
}

fn not_found(caller: Caller, typed: &str, claims: &[&Claim], view: &mut View) -> Error {
    // A list stops at eight, and root's own are not crowded out of it.
    let (of_root, of_users): (Vec<&Claim>, Vec<&Claim>) = claims.iter().partition(|claim| claim.uid == 0);
    let held = view.list(of_root.into_iter().chain(of_users));
    let (what, hint) = match (caller, claims) {
        (Caller::Root, []) => (
            "not found among claims, held devices and containers",
            "nothing is held".to_owned(),
        ),
        (Caller::Root, _) => (
            "not found among claims, held devices and containers",
            format!("these are held: {held}"),
        ),
        (Caller::User(_), []) => ("not found among your claims", "you hold nothing".to_owned()),
        (Caller::User(_), _) => ("not found among your claims", format!("you hold {held}")),
    };
    Error::usage(typed, what).hint(hint)
}
