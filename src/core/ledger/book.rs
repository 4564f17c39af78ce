//! The claims on one GPU and its MIG devices, and the rules by which they change. The rules are
//! pure: they learn about clocks and processes through [`World`].

pub(in crate::ledger) mod record;
mod reserved;
mod times;

use super::calendar::NearTimes;
use super::claim::{self, Claim, ClaimState, InitProcess};
use super::fit::{self, Misfit};
use super::holder::Holder;
use super::out_of_service::{OutOfService, WhyOut};
use super::raw::Unread;
use super::refused::Refused;
use super::waiter::Waiter;
use crate::types::{Bounds, DeviceKey, GpuUuid, HeldPart, HeldShare};
use std::collections::HashSet;

/// The claims on one GPU: on the whole of it, on its shares and on its MIG devices. They are in one book because they
/// exclude one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Book {
    /// The GPU.
    pub gpu: GpuUuid,
    /// The claims, of which no two hold the same. A book from [`super::Locked::change_scanned`] has only those that a
    /// rule has needed; it keeps the lines of the others as text.
    pub claims: Vec<Claim>,
    pub(super) unread: Unread,
    /// Those who wait: a new claim must leave to them what they wait for.
    pub(super) waiters: Vec<Waiter>,
    /// The devices of which nothing new is claimed.
    pub(super) out_of_service: OutOfService,
    /// What is reserved of it now or soon.
    pub(super) times: NearTimes,
}

/// What the rules must know of the world.
pub trait World {
    /// Whether a container is certainly gone: its init has ended and its cgroup has no process. One that cannot be seen
    /// from here (of a foreign pid namespace) is not certainly gone.
    fn is_gone(&self, process: &InitProcess) -> bool;
    /// Whether a container certainly runs: its init or another process of its cgroup. One that cannot be seen from here
    /// is neither certainly gone nor certainly running.
    fn lives(&self, process: &InitProcess) -> bool;
    /// Whether a container that is not certainly gone may run.
    fn may_live(&self, process: &InitProcess) -> bool {
        self.lives(process)
    }
    /// Seconds since 1970.
    fn now(&self) -> u64;
    /// Seconds since boot, without the offset of any time namespace.
    fn uptime(&self) -> u64;
}

/// A claim that is asked for.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The device.
    pub device: DeviceKey,
    /// The part of it, with what is promised.
    pub part: HeldPart,
    /// The most that may be promised of the device to all holders together.
    pub bounds: Bounds,
    /// The name under which an engine was asked for it, for people.
    pub asked_as: Option<String>,
    /// The specification of a claim that is made beforehand.
    pub spec_file: Option<String>,
    /// A claim that was made beforehand, by name.
    pub name: Option<String>,
    /// Who will hold it; a person for a claim that is made beforehand.
    pub holder: Holder,
    /// The init of a container, whose end ends the claim.
    pub process: Option<InitProcess>,
    /// How firm it is to be.
    pub state: ClaimState,
    /// Whether a claim made beforehand is released together with the container that uses it.
    pub once: bool,
    /// Whether containers of engines that run as root may use a claim that is made for another user.
    pub for_root: bool,
    /// Whether its container may hold nothing else of this device.
    pub alone: bool,
    /// Who asks.
    pub uid: u32,
    /// Seconds for which it lasts while no container uses it.
    pub ttl: Option<u64>,
}

impl Book {
    /// A book without claims.
    pub fn new(gpu: GpuUuid) -> Self {
        Self {
            gpu,
            claims: Vec::new(),
            unread: Unread::default(),
            waiters: Vec::new(),
            out_of_service: OutOfService::default(),
            times: NearTimes::default(),
        }
    }

    /// The same book, which gives nothing new of the devices in `out_of_service`.
    #[must_use]
    pub fn without(self, out_of_service: OutOfService) -> Self {
        Self { out_of_service, ..self }
    }

    /// Why nothing new of `device` is claimed; `None` if it is in service.
    pub fn why_out(&self, device: &DeviceKey) -> Option<WhyOut> {
        let unreadable = || self.times.unreadable.clone().map(WhyOut::CalendarUnreadable);
        self.out_of_service.why(device).or_else(unreadable)
    }

    /// Leaves to `waiters` what they wait for: nobody else takes it from now on.
    pub fn leave_to(&mut self, waiters: Vec<Waiter>) {
        self.waiters = waiters;
    }

    /// How many wait for `part` of `device`, or for something that cannot be held at the same time.
    fn waiting(&self, device: &DeviceKey, part: &HeldPart) -> usize {
        let waiting = self.waiters.iter().filter(|waiter| waiter.wants(device, part));
        waiting.count()
    }

    /// What is held, of which device: by all claims, whether or not they were read to the end. What several containers
    /// use together is held once.
    pub fn held(&self) -> impl Iterator<Item = (&DeviceKey, &HeldPart)> + Clone {
        let counted = self.claims.iter().filter(|claim| !claim.joined);
        counted
            .map(|claim| (&claim.device, &claim.part))
            .chain(self.unread.parts())
    }

    /// Whether it has no claim.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.unread.claims.is_empty()
    }

    /// Parses the lines of those claims for which `matters` returns true, given their device, part and line. A claim
    /// whose line is damaged keeps its line, and still holds its part.
    ///
    /// # Errors
    /// Returns an error if one of these lines is damaged.
    fn read(&mut self, matters: impl Fn(&DeviceKey, &HeldPart, &str) -> bool) -> Result<(), Refused> {
        let mut result = Ok(());
        let (text, gpu, claims) = (&self.unread.text, &self.gpu, &mut self.claims);
        self.unread.claims.retain(|raw| {
            let line = text.get(raw.line.clone()).unwrap_or_default();
            if !matters(&raw.device, &raw.part, line) {
                return true;
            }
            match record::claim_of(gpu, line) {
                Some(claim) => {
                    claims.push(claim);
                    false
                }
                None => {
                    result = Err(Refused::Unreadable(raw.part.clone()));
                    true
                }
            }
        });
        result
    }

    /// Parses the lines of all claims.
    fn read_all(&mut self) {
        // A damaged line still says what is held. Its claim cannot be collected.
        let _: Result<(), Refused> = self.read(|_, _, _| true);
    }

    /// Collects the claims whose container is certainly gone and those whose time is over. Returns how many.
    pub fn collect(&mut self, world: &impl World) -> usize {
        self.read_all();
        let before = self.claims.len();
        self.collect_those(world, |_| true);
        before - self.claims.len()
    }

    /// Collects what is reserved for starts whose process has ended: they have failed, and a start that comes after
    /// them must not choose another share because of them. Few starts are under way at one time, so this looks at
    /// few processes.
    pub fn collect_failed_starts(&mut self, world: &impl World) {
        // A damaged line still says what is held. Its claim cannot be collected.
        let _: Result<(), Refused> = self.read(|_, _, line| record::may_be_reserved(line));
        self.collect_those(world, |claim| {
            claim.state == ClaimState::Reserved && claim.process.is_some()
        });
    }

    /// As [`Book::collect`], for the claims for which `matters` returns true. Looking at a process takes longer than
    /// everything else here, so a new claim looks only at those claims that could prevent it.
    ///
    /// Each process is looked at once: a process that ended between two looks would leave a claim that is neither held
    /// nor over.
    fn collect_those(&mut self, world: &impl World, matters: impl Fn(&Claim) -> bool) {
        self.claims.retain_mut(|claim| {
            if !matters(claim) {
                return true;
            }
            let Some(process) = &claim.process else {
                return !is_over(claim, world);
            };
            if !world.is_gone(process) {
                return true;
            }
            outlives(claim, world)
        });
        self.end_what_was_given_up();
    }

    /// Takes a claim, or takes it again: by the same container and user it is the same claim.
    ///
    /// # Errors
    /// Returns which claim holds what is asked for, what does not fit in addition to what is held, that others wait
    /// for it or have reserved it, or that the device is out of service.
    pub fn take(&mut self, ask: &Ask, world: &impl World) -> Result<(), Refused> {
        let own = |claim: &Claim| claim.holder.is_same_user(&ask.holder);
        self.read_of(&ask.holder, |device, part| {
            claim::meet((device, part), (&ask.device, &ask.part))
        })?;
        self.collect_those(world, |claim| own(claim) || claim.overlaps(&ask.device, &ask.part));
        if let Some(same) = self.claims.iter_mut().find(|c| is_same(c, ask)) {
            if let (Some(old), Some(new)) = (&same.process, &ask.process)
                && old != new
                && same.state == ClaimState::Held
            {
                // The first init still lives, so this is another container, although it has the same name.
                return Err(taken(same, &ask.device));
            }
            same.process.clone_from(&ask.process);
            (same.state, same.once) = (ask.state, ask.once);
            same.until = None;
            return Ok(());
        }
        if let Some(why) = self.why_out(&ask.device) {
            return Err(Refused::OutOfService(why));
        }
        let ends_within = self.times.asker.and_then(|asker| asker.ends_within);
        self.asked_by(ask.uid, ends_within);
        self.read_users_of_times();
        // What the container itself holds is the better reason, because then no other container has to end first.
        let in_the_way = |claim: &&Claim| claim.overlaps(&ask.device, &ask.part);
        let another = |claim: &&Claim| own(claim) && claim.device == ask.device && (ask.alone || in_the_way(claim));
        if let Some(own) = self.claims.iter().find(another) {
            return Err(Refused::Another { part: own.part.clone() });
        }
        if let Some(other) = self.claims.iter().find(in_the_way) {
            return Err(taken(other, &ask.device));
        }
        if self.misfit(ask).is_some() {
            // Who is gone was counted so far.
            self.collect(world);
        }
        if let Some(misfit) = self.misfit(ask) {
            let beside = self.claims.iter().filter(|c| c.device.shares_memory_with(&ask.device));
            return Err(Refused::Misfit {
                misfit,
                beside: beside.cloned().collect(),
            });
        }
        if let Some(time) = self.why_reserved(&ask.device, &ask.part, ask.bounds) {
            return Err(Refused::Reserved(Box::new(time.clone())));
        }
        match self.waiting(&ask.device, &ask.part) {
            1.. if self.is_own_time(&ask.device, &ask.part) => {}
            0 => {}
            waiting => return Err(Refused::Waiting { waiting }),
        }
        self.note_use(ask.uid, &ask.device, &ask.part);
        self.claims.push(Claim {
            name: ask.name.clone(),
            device: ask.device.clone(),
            part: ask.part.clone(),
            asked_as: ask.asked_as.clone(),
            spec_file: ask.spec_file.clone(),
            state: ask.state,
            holder: ask.holder.clone(),
            process: ask.process.clone(),
            joined: false,
            once: ask.once,
            for_root: ask.for_root,
            uid: ask.uid,
            since: world.now(),
            since_boot: Some(world.uptime()),
            ttl: ask.ttl,
            until: ask
                .ttl
                .filter(|_| ask.process.is_none())
                .map(|ttl| world.uptime().saturating_add(ttl)),
        });
        Ok(())
    }

    fn misfit(&self, ask: &Ask) -> Option<Misfit> {
        fit::fits(&ask.device, &ask.part, ask.bounds, self.held()).err()
    }

    /// Parses the lines of the claims of `holder`, and of those for which `overlaps` returns true.
    fn read_of(&mut self, holder: &Holder, overlaps: impl Fn(&DeviceKey, &HeldPart) -> bool) -> Result<(), Refused> {
        let finder = record::finder_of(holder);
        let is_own = |line: &str| {
            finder
                .as_ref()
                .is_some_and(|finder| finder.find(line.as_bytes()).is_some())
        };
        self.read(|device, part, line| overlaps(device, part) || is_own(line))
    }

    /// Takes the first of `shares` that is free, as [`Book::take`] takes a part; `ask.part` is not looked at. A
    /// container that holds one of them already keeps it. Says which one it is.
    ///
    /// # Errors
    /// As [`Book::take`], and [`Refused::NoneFree`] where each of them is held.
    pub fn take_any(
        &mut self,
        shares: impl Iterator<Item = HeldShare> + Clone,
        ask: &Ask,
        world: &impl World,
    ) -> Result<HeldShare, Refused> {
        let with = |share: HeldShare| Ask {
            part: HeldPart::Shares(vec![share]),
            ..ask.clone()
        };
        self.read_of(&ask.holder, |_, _| false)?;
        self.collect_failed_starts(world);
        self.asked_by(ask.uid, self.times.asker.and_then(|asker| asker.ends_within));
        self.read_users_of_times();
        let own = self.claims.iter().filter(|claim| {
            claim.holder.is_same_user(&ask.holder) && claim.device == ask.device && claim.name.is_none()
        });
        let own: Vec<&HeldShare> = own.flat_map(|claim| claim.part.shares()).collect();
        let kept = (!own.is_empty()).then(|| shares.clone().find(|share| own.contains(&share)));
        if let Some(why) = self.why_out(&ask.device).filter(|_| kept.is_none()) {
            return Err(Refused::OutOfService(why));
        }
        // A share that nobody waits for is preferred. If somebody waits for each of them, the refusal of the first
        // one says how many wait.
        let free_one = |book: &Self| {
            let part = |share: &HeldShare| HeldPart::Shares(vec![share.clone()]);
            let mut free = book.unheld(&ask.device, shares.clone());
            match book.waiters.is_empty() && !book.has_times() {
                true => free.next(),
                false => free.min_by_key(|share| {
                    let part = part(share);
                    let is_own = book.is_own_time(&ask.device, &part);
                    let is_reserved = book.why_reserved(&ask.device, &part, ask.bounds).is_some();
                    (!is_own, is_reserved, book.waiting(&ask.device, &part) > 0)
                }),
            }
        };
        let mut free = kept.flatten().or_else(|| free_one(self));
        if free.is_none() {
            self.collect(world);
            free = free_one(self);
        }
        // If the whole device is held, asking for any share of it gives the refusal that names the holder.
        let first = shares.clone().next();
        let Some(share) = free.or_else(|| first.filter(|_| self.is_closed(&ask.device))) else {
            return Err(Refused::NoneFree);
        };
        self.take(&with(share.clone()), world)?;
        Ok(share)
    }

    /// Those of `shares` of `device` that no claim in this book holds. No process is looked at: a claim that is over
    /// counts until it is [collected](Book::collect).
    pub fn unheld<'a>(
        &'a self,
        device: &'a DeviceKey,
        shares: impl Iterator<Item = HeldShare> + 'a,
    ) -> impl Iterator<Item = HeldShare> + 'a {
        let beside = self.held().filter(move |(other, _)| *other == device);
        let held: HashSet<&HeldShare> = beside.flat_map(|(_, part)| part.shares()).collect();
        let closed = self.is_closed(device);
        shares.filter(move |share| !closed && !held.contains(share))
    }

    /// Whether `part` of `device` can be claimed now: the device is in service, nothing of it is reserved for
    /// others, no claim holds any of it, and it fits in addition to what is held.
    pub fn is_free(&self, device: &DeviceKey, part: &HeldPart, bounds: Bounds) -> bool {
        self.why_out(device).is_none()
            && self.why_reserved(device, part, bounds).is_none()
            && !self.held().any(|held| claim::meet(held, (device, part)))
            && fit::fits(device, part, bounds, self.held()).is_ok()
    }

    /// How many of `shares` of `device`, each of which [is free](Book::is_free), can be claimed together, the smallest
    /// first.
    pub fn fit_together(&self, device: &DeviceKey, mut shares: Vec<HeldShare>, bounds: Bounds) -> usize {
        shares.sort_by_key(|share| (share.promise.memory(), share.promise.compute()));
        let fit = |number: usize| {
            let part = HeldPart::Shares(shares.get(..number).unwrap_or_default().to_vec());
            number == 0 || self.is_free(device, &part, bounds)
        };
        // Usually it is all of them. Else half of the numbers are left by each step: what fits with more fits with
        // fewer.
        let (mut fits, mut too_many) = (0, shares.len() + 1);
        let mut next = shares.len();
        while fits + 1 < too_many {
            match fit(next) {
                true => fits = next,
                false => too_many = next,
            }
            next = fits + (too_many - fits) / 2;
        }
        fits
    }

    /// Whether no share of `device` can be claimed, because a claim holds the whole of it, the GPU that it is on or an
    /// instance on it.
    pub fn is_closed(&self, device: &DeviceKey) -> bool {
        let mut beside = self.held().filter(|(other, _)| other.overlaps(device));
        beside.any(|(other, part)| *part == HeldPart::Whole || other != device)
    }

    /// Releases what a container, pod or resource claim holds: its own claims, and those made beforehand that end with
    /// it. Others wait for their next holder. Returns how many claims that concerned.
    ///
    /// A claim of a container that runs stays: it has the same name and was started since, and the release is late.
    pub fn release(&mut self, holder: &Holder, uid: u32, world: &impl World) -> usize {
        let runs = |claim: &Claim| claim.process.as_ref().is_some_and(|process| world.lives(process));
        self.release_those(holder, uid, world, |claim| !runs(claim))
    }

    /// As [`Book::release`], for what `holder` holds of `device`, although its container lives: its start has failed.
    pub fn release_failed_start(&mut self, holder: &Holder, device: &DeviceKey, uid: u32, world: &impl World) -> usize {
        self.release_those(holder, uid, world, |claim| claim.device == *device)
    }

    fn release_those(
        &mut self,
        holder: &Holder,
        uid: u32,
        world: &impl World,
        meant: impl Fn(&Claim) -> bool,
    ) -> usize {
        self.read_all();
        let mut count = 0;
        self.claims.retain_mut(|claim| {
            let is_its = claim.holder.is_same_user(holder) && (claim.uid == uid || uid == 0);
            if !is_its || !meant(claim) {
                return true;
            }
            count += 1;
            outlives(claim, world)
        });
        self.end_what_was_given_up();
        count
    }

    /// Releases, because a person says so, all claims that `meant` is true of. That is the only way for a claim without
    /// a name whose container cannot be seen from anywhere, because its pid namespace is gone. Returns the claims that
    /// are released. `force` releases also what a container uses.
    ///
    /// # Errors
    /// Returns an error if one of them belongs to another user, or is used by a container that runs or may run. Then
    /// none is released.
    pub fn release_by_hand(
        &mut self,
        meant: impl Fn(&Claim) -> bool,
        uid: u32,
        force: bool,
        world: &impl World,
    ) -> Result<Vec<Claim>, Refused> {
        self.read_all();
        for claim in self.claims.iter().filter(|claim| meant(claim)) {
            if uid != 0 && claim.uid != uid {
                return Err(Refused::NotYours(Box::new(claim.clone())));
            }
            let used = claim
                .process
                .as_ref()
                .filter(|process| !force && world.may_live(process));
            if let Some(process) = used {
                return Err(Refused::InUse {
                    claim: Box::new(claim.clone()),
                    runs: world.lives(process),
                });
            }
        }
        Ok(self.claims.extract_if(.., |claim| meant(claim)).collect())
    }

    /// Whether no two claims meet, which is what the ledger is for.
    pub fn is_sound(&self) -> bool {
        let mut seen = HashSet::new();
        let (mut whole_gpu, mut instances) = (false, false);
        let mut whole = HashSet::new();
        for (device, part) in self.held() {
            if device.gpu() != &self.gpu {
                return false;
            }
            let instance = device.instance();
            whole_gpu |= instance.is_none();
            instances |= instance.is_some();
            if *part == HeldPart::Whole && !whole.insert(instance) {
                return false;
            }
            for share in part.shares() {
                if !seen.insert((instance, share)) {
                    return false;
                }
            }
        }
        let both = seen.iter().any(|(instance, _)| whole.contains(instance));
        let is_lost = |joined: &Claim| !self.claims.iter().any(|claim| joined.has_joined(claim));
        let lost = self.claims.iter().any(|claim| claim.joined && is_lost(claim));
        !(both || whole_gpu && instances || lost)
    }
}

/// Whether a claim stays when its container is gone. It then waits for its next one.
fn outlives(claim: &mut Claim, world: &impl World) -> bool {
    if claim.joined {
        return false;
    }
    claim.wait(world.uptime());
    claim.name.is_some() && !claim.once
}

/// Whether a claim without a process is over: its time to live has passed, or it has neither a name nor a holder.
///
/// A claim whose time ends later than its time to live from now is of an earlier boot: seconds since boot do not go
/// back otherwise.
fn is_over(claim: &Claim, world: &impl World) -> bool {
    let has_passed = |until: u64| {
        let now = world.uptime();
        now >= until || claim.ttl.is_some_and(|ttl| until > now.saturating_add(ttl))
    };
    match claim.name {
        None => claim.holder == Holder::Person,
        Some(_) => claim.until.is_some_and(has_passed),
    }
}

fn is_same(claim: &Claim, ask: &Ask) -> bool {
    claim.uid == ask.uid
        && claim.device == ask.device
        && claim.part == ask.part
        && claim.name == ask.name
        && claim.holder.is_same_user(&ask.holder)
}

fn taken(claim: &Claim, asked: &DeviceKey) -> Refused {
    Refused::Taken {
        by: Box::new(claim.clone()),
        elsewhere: claim.device != *asked,
    }
}

#[cfg(test)]
mod tests;
