//! `claim release`: releases a claim, a share, or everything that a container or a user holds.

use super::Caller;
use super::meant::meant;
use std::path::Path;
use tranche_core::claims::{Claims, explain};
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Books, Claim, ClaimState, LedgerError, Refused, Strategy, utc};
use tranche_state::accounts::{Account, AccountSources, Accounts};
use tranche_state::claim_spec;
use tranche_state::held::names::DeviceNames;
use tranche_state::held::{Held, View};

/// How often a release looks again whether what it was about to release is still held by the same.
const ATTEMPTS: usize = 5;

/// What is to be released.
#[derive(Debug, Clone, Copy)]
pub enum WhatToRelease<'a> {
    /// What a person means by this: a claim, a device or share, or a container.
    Named(&'a str),
    /// All that a user holds. For root alone.
    AllOf(&'a UserClaims),
}

/// What was released.
#[derive(Debug, Default)]
pub struct Released {
    /// What was held.
    pub released: Vec<Held>,
    /// Specifications that could not be removed.
    pub left: Vec<Error>,
}

/// Releases what is meant, and removes its specifications. `force` also releases what a running container uses.
///
/// What is meant is found out before the ledger is locked: how many files engines have, and what is in them, is nothing
/// that anybody else should wait for. Parts of the ledger that cannot be read are added to `unreadable`, also where it
/// fails: what is meant may be in one of them.
///
/// # Errors
/// Returns an error if nothing is meant, if more than one is, or if a container uses it. Nothing was released then.
pub fn release(
    state_dir: &Path,
    caller: Caller,
    names: DeviceNames,
    what: WhatToRelease<'_>,
    force: bool,
    unreadable: &mut Vec<Error>,
) -> Result<Released> {
    let Some(claims) = Claims::existing(state_dir)? else {
        // Nothing is held, and so nothing can be meant.
        find(caller, what, &Books::default(), &mut caller.view(names, 0))?;
        return Ok(Released::default());
    };
    let claims = caller.of(claims);
    let mut view = caller.view(names, claims.uptime());
    for _ in 0..ATTEMPTS {
        let mut books = claims.books()?;
        *unreadable = books.damaged.drain(..).map(|book| book.error).collect();
        let meant = find(caller, what, &books, &mut view)?;
        let held: Vec<Held> = meant.iter().map(|claim| view.held(claim)).collect();
        if force {
            meant
                .iter()
                .try_for_each(|claim| keep_by_turns(claim, &claims, &mut view))?;
        }
        // Locked until the specification is gone: a claim made anew under this name writes its own under the same lock.
        let locked = claims.lock()?;
        let now = locked.books()?;
        let is_as_before = |claim: &&Claim| now.claims().any(|other| other == *claim);
        if !meant.iter().all(is_as_before) {
            continue;
        }
        let done = locked.release_by_hand(&meant, force);
        done.map_err(|error| refusal(caller, error, &mut view))?;
        // After the ledger: a process that is killed in between leaves a specification without a claim, which no
        // container can use and `gc` removes.
        let left = meant
            .iter()
            .filter_map(|claim| claim_spec::remove_of(claim, state_dir).err());
        return Ok(Released {
            left: left.collect(),
            released: held,
        });
    }
    Err(Error::failed("release", "what is meant is taken and given up again and again").hint("try again"))
}

fn find<'b>(caller: Caller, what: WhatToRelease<'_>, books: &'b Books, view: &mut View) -> Result<Vec<&'b Claim>> {
    let seen: Vec<&Claim> = books.claims().filter(|claim| caller.sees(claim)).collect();
    match what {
        WhatToRelease::AllOf(user) => user.of(&seen),
        WhatToRelease::Named(typed) => meant(caller, typed, &seen, view),
    }
}

/// Refuses to take from a process what it has by turns: without its claim, it would stay suspended for ever.
fn keep_by_turns(claim: &Claim, claims: &Claims, view: &mut View) -> Result<()> {
    let process = claim
        .process
        .as_ref()
        .filter(|_| claim.part.strategy() == Strategy::Turns);
    match process.is_some_and(|process| !claims.machine().has_ended(process)) {
        false => Ok(()),
        true => {
            let error = Error::failed(
                view.held(claim).cdi,
                "is used by turns, and could never be resumed without its claim",
            );
            Err(error.hint("stop that container or program; its claim ends with it"))
        }
    }
}

/// The error for a claim that is not released.
fn refusal(caller: Caller, error: LedgerError, view: &mut View) -> Error {
    match error {
        LedgerError::Refused(Refused::NotYours(claim)) => {
            Error::failed(view.devices.name(&claim), format!("belongs to user {}", claim.uid))
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
        other if caller == Caller::Root => other.into(),
        other => explain("claim", other),
    }
}

/// What a user holds, under any of the numbers that belong to the user.
#[derive(Debug)]
pub struct UserClaims {
    uid: u32,
    accounts: Accounts,
}

impl UserClaims {
    /// Those of the user `name`, or of a uid. NSS is asked whose the claims in `state_dir` are, which may take seconds.
    ///
    /// # Errors
    /// Returns an error if there is no such user, or if the ledger cannot be listed.
    pub fn named(name: &str, state_dir: &Path) -> Result<Self> {
        let accounts = Accounts::new(AccountSources::default());
        let uid = accounts.user(name)?;
        if let Some(claims) = Claims::existing(state_dir)? {
            claims.books()?.claims().for_each(|claim| {
                accounts.of(claim.uid);
            });
        }
        Ok(Self { uid, accounts })
    }

    /// The claims of this uid and of its subordinate ones, without asking NSS any more.
    fn of<'a>(&self, claims: &[&'a Claim]) -> Result<Vec<&'a Claim>> {
        let is_its =
            |claim: &&Claim| claim.uid == self.uid || self.accounts.already_known(claim.uid) == Account::User(self.uid);
        let found: Vec<&Claim> = claims.iter().copied().filter(is_its).collect();
        match found.is_empty() {
            true => {
                Err(Error::usage(format!("user {}", self.uid), "holds nothing")
                    .hint("tranche status shows who holds what"))
            }
            false => Ok(found),
        }
    }
}
