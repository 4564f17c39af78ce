//! Containers of rootless engines, which take and release shares through the broker.
//!
//! Everything that such a hook says was chosen by the user. What a share is and how much may be promised is therefore
//! taken from the plan, and never from the request.

use super::commands::Commands;
use super::peer::BrokerClient;
use super::queue::{UserAttempt, WaitOptions};
use super::quota::ClientQuota;
use super::turns::await_first_turn;
use super::{runs_as, times};
use crate::verbs::refusal::{entry_refused, refuse_mps};
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tranche_core::broker::{EnterRequest, EnterSubject};
use tranche_core::call::ReleaseCall;
use tranche_core::claims::{Attempt, ClaimEntry, Claims, LockedClaims, NotEntered, OfferedClaim};
use tranche_core::error::{Error, Result};
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{
    Books, Claim, ContainerName, HeldPart, Holder, InitProcess, Ledger, LedgerError, WaitedFor, Waiter,
};
use tranche_core::types::{DeviceKey, HostPath, Part, Promise, Subject};
use tranche_plan::policy::WholeDevice;
use tranche_plan::reserve::InBooks;
use tranche_plan::share::{Plan, SplitDevice};

const REFRESH: &str = "the specification is not of the present policy: root writes it again with tranche cdi refresh";

/// Lets a container of `peer` use what `request` says.
///
/// # Errors
/// Returns why it cannot.
pub(super) fn enter(
    commands: &Commands<'_>,
    peer: &BrokerClient,
    client: &UnixStream,
    request: &EnterRequest,
) -> Result<Value> {
    let began = Instant::now();
    let facts = commands.facts()?;
    let plan = &facts.plan;
    let split = plan.devices.iter().find(|split| split.key == request.device);
    let split = split
        .ok_or_else(|| Error::failed(&request.device, "is not shared by the policy of this host").hint(REFRESH))?;
    let subject = subject(peer, request, plan, split)?;
    let object = object(split, &request.subject);
    let process = peer.init(request.pid, &Machine::here()?)?;
    let other_user = runs_as::other_user(commands, peer, &process, request.user)?;
    if let Some(uid) = other_user {
        commands.expect(&process, uid);
    }
    let holder = Holder::Rootless {
        user: peer.uid,
        name: request.container.clone(),
    };
    let claims = commands
        .claims(peer)?
        .ending_within(times::ends_within(commands, &facts, peer));
    let entry = ClaimEntry {
        device: split.key.clone(),
        subject,
        replicas: split.replicas(),
        bounds: split.bounds(),
        // What it is called follows from the share that it gets: the client could say anything.
        asked_as: None,
        alone: split.one_share_a_claim,
    };
    let attempt = UserEntry {
        attempt: claims.entry_attempt(&entry, &holder, Some(process)),
        quota: ClientQuota::of(commands, peer, &claims)?,
        request,
        split,
        subject: &entry.subject,
        holder: &holder,
        uid: peer.uid,
    };
    let taken = |(): &()| held_now(&claims, &holder, &split.key);
    let options = WaitOptions {
        peer,
        rules: commands.accounts.rules(peer.uid, &plan.users),
        about: object.clone(),
        wait: request.wait.get(),
        client,
    };
    let asked = UserAttempt {
        attempt: &attempt,
        taken: &taken,
        renew: &|| attempt.quota.renew(),
        is_over_limit: |error| matches!(error, EntryError::OverLimit(_)),
    };
    let entered = commands.queue.take_turn(commands, &claims, &asked, &options);
    entered.map_err(|error| match error {
        EntryError::OverLimit(error) | EntryError::Other(error) => error,
        EntryError::NotEntered(refused) => {
            let free = claims.books().map(|books| free(&books, split)).unwrap_or_default();
            entry_refused(peer.uid, object, refused.error, &free)
        }
    })?;
    let left = request.wait.get().saturating_sub(began.elapsed());
    let ready = || {
        commands.make_ready(&split.key)?;
        match request.wait.is_zero() {
            true => Ok(()),
            false => await_first_turn(commands, peer, &split.key, request.pid, left),
        }
    };
    if split.method.is_managed()
        && let Err(error) = ready()
    {
        claims.release_failed_start(&holder, &split.key)?;
        return Err(error);
    }
    Ok(json!({}))
}

/// The attempt of a user's container to enter, within what the user may hold.
struct UserEntry<'a, A> {
    attempt: A,
    quota: ClientQuota<'a>,
    request: &'a EnterRequest,
    split: &'a SplitDevice,
    subject: &'a Subject,
    holder: &'a Holder,
    uid: u32,
}

impl<A> UserEntry<'_, A> {
    /// How many shares it asks for; none is the whole device.
    fn more(&self) -> usize {
        usize::from(*self.subject != Subject::WHOLE)
    }
}

/// Why a user's container has not entered.
enum EntryError {
    /// The user may not hold as much.
    OverLimit(Error),
    /// The ledger refuses it.
    NotEntered(NotEntered),
    /// Something else, which waiting does not change.
    Other(Error),
}

impl From<LedgerError> for EntryError {
    fn from(error: LedgerError) -> Self {
        Self::NotEntered(error.into())
    }
}

impl<A: Attempt<Got = (), Error = NotEntered>> Attempt for UserEntry<'_, A> {
    type Got = ();
    type Error = EntryError;

    fn make(&self, claims: &LockedClaims<'_>, ahead: Option<Vec<Waiter>>) -> Result<(), EntryError> {
        let books = claims.books()?;
        let own: Vec<&Claim> = books.claims().filter(|claim| claim.uid == self.uid).collect();
        check_claim(self.request, &own, self.subject).map_err(EntryError::Other)?;
        if !is_held_already(&own, self.holder, self.split, self.subject) {
            let allowed = self.quota.allow(&books, &self.split.key, self.more());
            allowed.map_err(EntryError::OverLimit)?;
        }
        self.attempt.make(claims, ahead).map_err(EntryError::NotEntered)
    }

    fn may_pass(error: &EntryError) -> bool {
        match error {
            EntryError::OverLimit(_) => true,
            EntryError::NotEntered(error) => A::may_pass(error),
            EntryError::Other(_) => false,
        }
    }

    fn worth_waiting(&self, refused: EntryError) -> Result<EntryError, EntryError> {
        match refused {
            EntryError::NotEntered(refused) => match self.attempt.worth_waiting(refused) {
                Ok(refused) => Ok(EntryError::NotEntered(refused)),
                Err(refused) => Err(EntryError::NotEntered(refused)),
            },
            EntryError::OverLimit(_) if self.quota.may_allow(&self.split.key, self.more()) => Ok(refused),
            EntryError::OverLimit(_) | EntryError::Other(_) => Err(refused),
        }
    }

    fn would_succeed(&self, ahead: &[Waiter]) -> bool {
        self.attempt.would_succeed(ahead)
    }

    fn wants(&self) -> Vec<WaitedFor> {
        self.attempt.wants()
    }

    fn check_needed(&self) -> Result<(), EntryError> {
        self.attempt.check_needed().map_err(EntryError::NotEntered)
    }

    fn process(&self) -> Option<&InitProcess> {
        self.attempt.process()
    }

    fn timed_out(waited: Duration, last: EntryError) -> EntryError {
        let waited_for = |error: Error| error.and_hint(format!("waited {} s for it", waited.as_secs()));
        match last {
            EntryError::OverLimit(error) => EntryError::OverLimit(waited_for(error)),
            EntryError::NotEntered(error) => EntryError::NotEntered(A::timed_out(waited, error)),
            EntryError::Other(error) => EntryError::Other(waited_for(error)),
        }
    }
}

/// What `holder` holds of `device`.
fn held_now(claims: &Claims, holder: &Holder, device: &DeviceKey) -> Vec<(DeviceKey, HeldPart)> {
    let Ok(books) = claims.books() else { return Vec::new() };
    let own = books
        .claims()
        .filter(|claim| claim.holder == *holder && claim.device == *device);
    own.map(|claim| (claim.device.clone(), claim.part.clone())).collect()
}

/// Releases what a container of `peer` holds.
///
/// # Errors
/// Returns an error if the ledger cannot be changed.
pub(super) fn leave(commands: &Commands<'_>, peer: &BrokerClient, name: ContainerName) -> Result<Value> {
    let Some(ledger) = Ledger::existing(commands.state_dir())? else {
        return Ok(json!({}));
    };
    let holder = Holder::Rootless { user: peer.uid, name };
    // As they are on disk: the process of a container that has ended is gone, and its claims are still to be released.
    let books = ledger.books()?;
    let own: Vec<&Claim> = books
        .claims()
        .filter(|claim| claim.uid == peer.uid && claim.holder == holder)
        .collect();
    if own.is_empty() {
        return Ok(json!({}));
    }
    let claims = commands.claims(peer)?;
    let mut left = Vec::new();
    // Those that end with the container take their specifications with them.
    for claim in own {
        if let (Some(name), Some(file)) = (&claim.name, &claim.spec_file) {
            let call = ReleaseCall {
                device: Some(claim.device.clone()),
                claim: Some(name.clone()),
                spec_file: Some(HostPath::new(file)?),
                state_dir: HostPath::new(commands.state_dir())?,
            };
            let offered = OfferedClaim {
                name,
                file: Path::new(file),
                is_own: &|text| call.is_in(text),
            };
            left.extend(claims.release(&holder, Some(&claim.device), Some(&offered))?);
        }
    }
    left.extend(claims.release(&holder, None, None)?);
    match left.into_iter().next() {
        None => Ok(json!({})),
        Some(error) => Err(error.into()),
    }
}

/// What `request` means in the ledger.
fn subject(peer: &BrokerClient, request: &EnterRequest, plan: &Plan, split: &SplitDevice) -> Result<Subject> {
    let about = || object(split, &request.subject);
    let sized = |part: Part, promise: Promise| match request.size {
        Some(size) if size != promise => {
            Err(Error::failed(about(), format!("its size is {promise}, and not {size}")).hint(REFRESH))
        }
        _ => refuse_mps(about(), promise.strategy()).map(|()| Subject::Part(part, promise)),
    };
    match &request.subject {
        EnterSubject::Part(part @ Part::Share(name)) => {
            let share = split.share(name).filter(|_| !split.method.is_whole());
            let share = share.ok_or_else(|| Error::failed(about(), "not found").hint(REFRESH))?;
            sized(part.clone(), split.promise(share))
        }
        EnterSubject::Part(Part::Any) => {
            let share = split.replica().filter(|_| !split.method.is_whole());
            let share = share.ok_or_else(|| Error::failed(about(), "it has no equal shares").hint(REFRESH))?;
            sized(Part::Any, split.promise(share))
        }
        EnterSubject::Part(Part::Whole) if plan.whole_device == WholeDevice::Hide && !split.method.is_whole() => {
            Err(Error::failed(about(), "the policy gives out shares of it alone"))
        }
        EnterSubject::Part(Part::Whole) => Ok(Subject::WHOLE),
        EnterSubject::Claim(name) => Ok(Subject::Claim(peer.caller().own_name(name)?, request.size)),
    }
}

/// Refuses a claim that does not exist, that is of another device than the request says, or that is under MPS.
fn check_claim(request: &EnterRequest, own: &[&Claim], subject: &Subject) -> Result<()> {
    let Subject::Claim(name, _) = subject else {
        return Ok(());
    };
    let object = subject.to_string();
    let claim = own.iter().find(|claim| claim.name.as_ref() == Some(name));
    let claim = claim.filter(|claim| claim.device == request.device);
    let claim = claim.ok_or_else(|| Error::failed(&object, "not found").hint("tranche claim list shows yours"))?;
    refuse_mps(object, claim.part.strategy())
}

/// Whether `holder` has what it wants already, or has a claim that counts, so that nothing is added.
fn is_held_already(own: &[&Claim], holder: &Holder, split: &SplitDevice, subject: &Subject) -> bool {
    let mut of_it = own
        .iter()
        .filter(|claim| claim.holder == *holder && claim.device == split.key);
    match (subject, subject.held()) {
        (Subject::Claim(..), _) => true,
        (Subject::Part(..), Some(part)) => of_it.any(|claim| claim.part == part),
        (Subject::Part(..), None) => of_it.any(|claim| claim.name.is_none() && claim.part != HeldPart::Whole),
    }
}

fn object(split: &SplitDevice, subject: &EnterSubject) -> String {
    match subject {
        EnterSubject::Part(part) => format!("{} {part}", split.device),
        EnterSubject::Claim(name) => format!("claim {name}"),
    }
}

/// The names of the shares of `split` that can be claimed now.
fn free(books: &Books, split: &SplitDevice) -> Vec<String> {
    if split.method.is_whole() {
        return Vec::new();
    }
    let free = split.free(&InBooks::of(books)).listed();
    free.iter().map(ToString::to_string).collect()
}
