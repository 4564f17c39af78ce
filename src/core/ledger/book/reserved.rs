//! What is reserved under a name: for a container that comes later, for a pod, or for a resource claim.

use super::claim::{Claim, ClaimState};
use super::{Ask, Book, World, taken};
use crate::ledger::holder::Holder;
use crate::ledger::pod::PodName;
use crate::ledger::refused::Refused;
use crate::types::{DeviceKey, HeldPart, Promise};

impl Book {
    /// The claim of that name, and not one that has joined it.
    pub fn named(&self, name: &str) -> Option<&Claim> {
        let is_it = |claim: &&Claim| claim.name.as_deref() == Some(name) && !claim.joined;
        self.claims.iter().find(is_it)
    }

    /// Lets `ask.holder` hold a claim that was made beforehand. The device, the part and its bounds are those of the
    /// claim, whatever `ask` says of them.
    ///
    /// `promise` is what the specification that names the claim says it was promised; `None` if it does not say it. The
    /// specification of an earlier claim of that name must not set the limits of this one.
    ///
    /// # Errors
    /// Returns an error if there is no such claim, if it belongs to another user, who has not allowed root to use it,
    /// if another holder uses it, and if the holder may hold nothing else of the device and does.
    pub fn enter(
        &mut self,
        name: &str,
        ask: &Ask,
        promise: Option<Promise>,
        world: &impl World,
    ) -> Result<(), Refused> {
        let Ask { holder, process, .. } = ask;
        let named = |claim: &Claim| claim.name.as_deref() == Some(name);
        let own = |claim: &Claim| claim.holder.is_same_user(holder);
        self.read_all();
        self.collect_those(world, |claim| named(claim) || own(claim));
        let claim = self.named(name).ok_or_else(|| Refused::NoSuchClaim(name.to_owned()))?;
        if claim.once && claim.resource_claim().is_some() {
            // Its containers that run are the last ones.
            return Err(Refused::NoSuchClaim(name.to_owned()));
        }
        let other = |c: &&Claim| !named(c) && own(c) && c.device == claim.device;
        if let Some(other) = self.claims.iter().find(other).filter(|_| ask.alone) {
            return Err(Refused::Another {
                part: other.part.clone(),
            });
        }
        if claim.uid != ask.uid {
            let claim = Box::new(claim.clone());
            match ask.uid {
                0 if claim.for_root => {}
                0 => return Err(Refused::NotForRoot(claim)),
                _ => return Err(Refused::NotYours(claim)),
            }
        }
        if promise.is_some() && claim.part.promise() != promise {
            return Err(Refused::OtherPromise(name.to_owned()));
        }
        if claim.resource_claim().is_some() {
            let claim = claim.clone();
            return self.join(claim, ask, world);
        }
        let is_anothers = claim.holder != Holder::Person && claim.holder != *holder;
        let is_used_by_another = match (&claim.process, process) {
            // Reserved for a container: the process in the claim created it, or asked an engine to create it.
            _ if claim.state == ClaimState::Reserved => is_anothers,
            (None, None) => is_anothers,
            (there, comes) => there.is_some() && there != comes,
        };
        if is_used_by_another {
            return Err(taken(claim, &claim.device));
        }
        if let Some(claim) = self.claims.iter_mut().find(|c| named(c)) {
            (claim.holder, claim.process) = (holder.clone(), process.clone());
            claim.state = ClaimState::Held;
            claim.until = None;
        }
        Ok(())
    }

    /// The name of the claim on `device` that is reserved for `pod` and holds one of `parts`: preferably one that no
    /// process uses.
    pub fn reserved_for(
        &mut self,
        pod: &PodName,
        device: &DeviceKey,
        parts: impl Fn(&HeldPart) -> bool,
        world: &impl World,
    ) -> Option<String> {
        // A damaged line still says what is held. Its claim cannot be entered.
        let _: Result<(), Refused> = self.read(|of, part, _| of == device && parts(part));
        let is_its = |claim: &Claim| claim.device == *device && parts(&claim.part) && claim.pod().as_ref() == Some(pod);
        self.collect_those(world, is_its);
        let its = self.claims.iter().filter(|claim| is_its(claim));
        its.min_by_key(|claim| claim.process.is_some())?.name.clone()
    }

    /// Gives up the claims `names`, which were reserved for a pod that does not have them any more. One that a process
    /// uses is released together with that process.
    pub fn give_up(&mut self, names: &[String], world: &impl World) {
        self.read_all();
        self.claims.retain_mut(|claim| {
            if !claim.name.as_ref().is_some_and(|name| names.contains(name)) {
                return true;
            }
            claim.once = true;
            let is_used = claim.process.as_ref().is_some_and(|process| !world.is_gone(process));
            // What others have joined ends with the last of them.
            is_used || claim.resource_claim().is_some() && !claim.joined
        });
        self.end_what_was_given_up();
    }

    /// Withdraws those of the claims `names` that no container has entered, because the start that they were made for
    /// has failed. Returns how many.
    pub fn withdraw(&mut self, names: &[&str], uid: u32) -> usize {
        self.read_all();
        let meant = |claim: &Claim| {
            let is_named = claim.name.as_deref().is_some_and(|name| names.contains(&name));
            is_named && claim.state == ClaimState::Reserved && (claim.uid == uid || uid == 0)
        };
        self.claims.extract_if(.., |claim| meant(claim)).count()
    }

    /// Lets the holder of `ask` use what `reserved` holds for a resource claim, together with the other containers of
    /// the claim. A container whose hook runs twice joins once.
    fn join(&mut self, reserved: Claim, ask: &Ask, world: &impl World) -> Result<(), Refused> {
        let is_its = |claim: &&mut Claim| claim.has_joined(&reserved) && claim.holder.is_same_user(&ask.holder);
        if let Some(own) = self.claims.iter_mut().find(is_its) {
            let is_another = own.process != ask.process && own.process.as_ref().is_some_and(|old| world.may_live(old));
            if is_another {
                return Err(taken(own, &reserved.device));
            }
            own.process.clone_from(&ask.process);
            return Ok(());
        }
        self.claims.push(Claim {
            holder: ask.holder.clone(),
            process: ask.process.clone(),
            state: ClaimState::Held,
            joined: true,
            spec_file: None,
            since: world.now(),
            since_boot: Some(world.uptime()),
            ..reserved
        });
        Ok(())
    }

    /// Removes what is reserved for resource claims that were given up, where no container uses it any more.
    pub(super) fn end_what_was_given_up(&mut self) {
        let is_over = |claim: &Claim| claim.once && !claim.joined && claim.resource_claim().is_some();
        if !self.claims.iter().any(is_over) {
            return;
        }
        let joined: Vec<(DeviceKey, HeldPart)> = {
            let read = self.claims.iter().filter(|claim| claim.joined);
            let read = read.map(|claim| (&claim.device, &claim.part));
            let all = read.chain(self.unread.joined());
            all.map(|(device, part)| (device.clone(), part.clone())).collect()
        };
        let is_used = |claim: &Claim| {
            joined
                .iter()
                .any(|(device, part)| *device == claim.device && *part == claim.part)
        };
        self.claims.retain(|claim| !is_over(claim) || is_used(claim));
    }
}
