//! The thread that acts on what users hold for longer than the policy lets them (`maxHold`), without using it
//! (`idle`), or although it is reserved for another user.

mod blockers;
mod busy;
mod ending;
mod engine;
mod frozen;
mod members;
mod reserved;
mod rest;
mod terminals;
mod work;

pub(super) use frozen::thaw_left;

use super::commands::Commands;
use super::turns::suspended_first;
use blockers::Blockers;
use busy::Busy;
use ending::{Ending, Place};
use reserved::ReservedFromOthers;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, UNIX_EPOCH};
use terminals::TERMINALS;
use tranche_core::claims::Claims;
use tranche_core::error::{Result, line};
use tranche_core::ledger::events::EventKind;
use tranche_core::ledger::{Books, Claim};
use tranche_plan::hold::{self, Due, Exceeded, Overdue};
use tranche_plan::idle::{Idleness, Moment};
use tranche_state::claim_spec;
use tranche_state::held::not_ended::NotEnded;
use tranche_state::held::{idleness, not_ended};
use tranche_state::hold::TimeLimits;

/// How often it looks while the policy has a limit of time.
const OFTEN: Duration = Duration::from_secs(5);

/// How often it looks whether the policy has one.
const SELDOM: Duration = Duration::from_secs(30);

/// A claim, as [`hold::key`] makes it.
type ClaimKey = String;

/// What was done about the claims that are still held, or idle, for too long.
#[derive(Default)]
struct Acted {
    told: BTreeSet<(ClaimKey, Exceeded)>,
    ending: BTreeMap<ClaimKey, Ending>,
    /// `None` until it was written: that of an earlier broker is not true any more.
    not_ended: Option<NotEnded>,
    /// `None` until it was read: that of an earlier broker counts on.
    idleness: Option<Idleness>,
    /// Of which claims it was said that their idle time is unknown.
    unknown: BTreeSet<ClaimKey>,
    busy: Busy,
}

/// Looks again and again until the other end of `until` is gone. What was done is not kept: a later broker tells it
/// again, and gives a holder its time to end again.
pub(super) fn run(commands: &Commands<'_>, until: &Receiver<()>) {
    let mut acted = Acted::default();
    let mut blockers = Blockers::default();
    let mut reserved = ReservedFromOthers::default();
    loop {
        let seldom = |error| {
            tracing::warn!("{}", line(&error));
            SELDOM
        };
        let next = acted.look(commands).unwrap_or_else(seldom);
        let next = next.min(blockers.look(commands).unwrap_or_else(seldom));
        let next = next.min(reserved.look(commands).unwrap_or_else(seldom));
        if until.recv_timeout(next) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

impl Acted {
    /// Does what is due. Returns when it is to be looked again.
    fn look(&mut self, commands: &Commands<'_>) -> Result<Duration> {
        // Without a plan no limit is known, and each request is answered with the reason.
        let facts = commands.facts().ok();
        let policy = facts.as_ref().map(|facts| &facts.plan.users);
        let Some(policy) = policy.filter(|policy| policy.limits_time()) else {
            let idleness = Idleness::default();
            idleness::write(&idleness, commands.state_dir())?;
            not_ended::write(&NotEnded::new(), commands.state_dir())?;
            *self = Self::default();
            return Ok(SELDOM);
        };
        let Some(claims) = Claims::existing(commands.state_dir())? else {
            return Ok(OFTEN);
        };
        let (books, uptime) = (claims.books()?, claims.uptime());
        let limits = TimeLimits {
            accounts: commands.accounts,
            policy,
            uptime,
        };
        let idleness = self.watch(commands, &limits, &claims, &books)?;
        let found = books.claims().flat_map(|claim| limits.exceeded(claim, &idleness));
        let found: Vec<(ClaimKey, Overdue<'_>)> = found.map(|one| (hold::key(one.claim), one)).collect();
        self.told
            .retain(|(key, exceeded)| found.iter().any(|(of, one)| of == key && one.exceeded == *exceeded));
        let is_due = |key: &ClaimKey| found.iter().any(|(of, one)| of == key && one.due == Due::End);
        self.ending.retain(|key, _| is_due(key));
        let mut ended = BTreeSet::new();
        for (key, one) in &found {
            let who = one.claim.who();
            if self.told.insert((key.clone(), one.exceeded)) {
                if one.due != Due::Tell {
                    claims.lock()?.ledger().note(EventKind::Overdue, 0, one.claim);
                }
                let limit = &one.limit;
                let (state, rule) = match one.exceeded {
                    Exceeded::MaxHold => ("held", "maxHold"),
                    Exceeded::Idle => ("idle", "idle"),
                };
                let line = format!(
                    "{who}: {state} for longer than {}, which is {rule} in {}",
                    limit.value.most, limit.from
                );
                tracing::warn!("{line}");
                let follows = match one.due {
                    Due::Tell => "",
                    Due::Release => "; it is released",
                    Due::End => "; it is ended",
                };
                terminals::tell(one.claim.uid, &format!("{line}{follows}"), Path::new(TERMINALS));
            }
            match one.due {
                Due::Tell => {}
                Due::Release => {
                    if release(commands, &claims, one.claim)? {
                        tracing::warn!("{who}: released");
                    }
                }
                // Once in a look, also for a claim that exceeds both limits.
                Due::End if ended.insert(key) => {
                    let grace = one.limit.value.grace.get();
                    end(&mut self.ending, key, one.claim, grace, &claims, commands);
                }
                Due::End => {}
            }
        }
        self.write_not_ended(commands)?;
        Ok(OFTEN)
    }

    /// Writes down which claims cannot be ended, if that has changed.
    fn write_not_ended(&mut self, commands: &Commands<'_>) -> Result<()> {
        let stuck = |(key, ending): (&ClaimKey, &Ending)| Some((key.clone(), ending.stuck()?.to_owned()));
        let now: NotEnded = self.ending.iter().filter_map(stuck).collect();
        if self.not_ended.as_ref() != Some(&now) {
            not_ended::write(&now, commands.state_dir())?;
            self.not_ended = Some(now);
        }
        Ok(())
    }

    /// Finds out which claims have worked, and writes down since when the others have not.
    fn watch(
        &mut self,
        commands: &Commands<'_>,
        limits: &TimeLimits<'_>,
        claims: &Claims,
        books: &Books,
    ) -> Result<Idleness> {
        let mut idleness = match self.idleness.take() {
            Some(known) => known,
            // What cannot be read is written anew.
            None => idleness::read(commands.state_dir()).unwrap_or_else(|error| {
                tracing::warn!("{}", line(&error));
                Idleness::default()
            }),
        };
        let watched: Vec<&Claim> = books.claims().filter(|claim| limits.idle(claim).is_some()).collect();
        // Before NVML is asked, which may take long: the samples are at least as new.
        let now = Moment {
            uptime: claims.uptime(),
            clock: UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
        };
        let found = work::of(&watched, books, commands.control, claims.machine());
        self.busy.look(now.uptime, &found, claims)?;
        idleness.look(now, found.into_iter().map(|(claim, work)| (hold::key(claim), work)));
        let mut unknown = BTreeSet::new();
        for claim in watched {
            let key = hold::key(claim);
            let Some(Err(why)) = idleness.of(&key, now.uptime) else {
                continue;
            };
            if !self.unknown.contains(&key) {
                tracing::warn!("{}: its idle time is unknown, and not limited: {why}", claim.who());
            }
            unknown.insert(key);
        }
        self.unknown = unknown;
        self.idleness = Some(idleness.clone());
        idleness::write(&idleness, commands.state_dir())?;
        Ok(idleness)
    }
}

/// Begins to end the holder of a claim, or goes on with it: it is asked to, and killed when `grace` is over. One that
/// cannot be ended is tried again at each look, as is one whose work has to be suspended first.
fn end(
    known: &mut BTreeMap<ClaimKey, Ending>,
    key: &str,
    claim: &Claim,
    grace: Duration,
    claims: &Claims,
    commands: &Commands<'_>,
) {
    let Some(process) = &claim.process else { return };
    let place = Place {
        machine: claims.machine(),
        state_dir: commands.state_dir(),
        uptime: claims.uptime(),
    };
    // A claim that was made beforehand may have another container by now.
    let begun = known.remove(key).filter(|ending| ending.is_of(process));
    let was_stuck = begun.as_ref().and_then(|ending| ending.stuck().map(str::to_owned));
    let (ending, done) = match (
        begun.filter(Ending::was_asked),
        suspended_first(commands, claims, claim),
    ) {
        (_, Err(why)) => (Ending::not_yet(claim, process, why), None),
        (None, Ok(())) => Ending::ask(claim, process, grace, place),
        (Some(mut ending), Ok(())) => {
            let done = ending.go_on(grace, place);
            (ending, done)
        }
    };
    let stuck = ending.stuck().map(str::to_owned);
    known.insert(key.to_owned(), ending);
    let who = claim.who();
    if let Some(what) = done {
        tracing::warn!("{who}: process {}: {what}", process.pid);
    }
    if let Some(why) = stuck.filter(|why| was_stuck.as_ref() != Some(why)) {
        tracing::warn!("{who}: process {}: cannot be ended: {why}", process.pid);
    }
}

/// Releases `meant` with its specification, unless something of it has changed. Returns whether it was released.
fn release(commands: &Commands<'_>, claims: &Claims, meant: &Claim) -> Result<bool> {
    let locked = claims.lock()?;
    let books = locked.books()?;
    let Some(claim) = books.claims().find(|claim| *claim == meant) else {
        return Ok(false);
    };
    locked.release_by_hand(&[claim], false)?;
    if let Err(error) = claim_spec::remove_of(claim, commands.state_dir()) {
        // `gc` removes it, and no container can use it.
        tracing::warn!("{}: its specification: {}", claim.who(), line(&error));
    }
    Ok(true)
}
