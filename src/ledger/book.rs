//! The claims on one device, and the rules by which they change. No disk, no clock, no process: those are told.

use super::ContainerName;
use super::claim::{Claim, DeviceKey, Holder, Part, Process, State};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The claims on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Book {
    /// The version of this form.
    pub format: u32,
    /// The device.
    pub device: DeviceKey,
    /// Its claims, oldest first. No two meet.
    pub claims: Vec<Claim>,
}

/// The version of the form that this program writes.
pub(super) const FORMAT: u32 = 1;

/// What the rules must know of the world.
pub trait World {
    /// Whether a process is gone for certain. One that cannot be seen from here (of a foreign pid namespace) is not.
    fn is_gone(&self, process: &Process) -> bool;
    /// Whether a process runs for certain. One that cannot be seen from here is neither gone nor seen to live.
    fn lives(&self, process: &Process) -> bool;
    /// Seconds since 1970.
    fn now(&self) -> u64;
    /// Seconds since boot.
    fn uptime(&self) -> u64;
    /// This boot.
    fn boot(&self) -> &str;
}

/// What somebody wants.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The part of the device.
    pub part: Part,
    /// A claim that was made beforehand, by name.
    pub name: Option<String>,
    /// The container that will use it; `None` for a claim made beforehand.
    pub container: Option<ContainerName>,
    /// The process whose end ends the claim.
    pub process: Option<Process>,
    /// How firm it is to be.
    pub state: State,
    /// Whether it outlives the container that uses it.
    pub keep: bool,
    /// Whether its container may hold nothing else of this device.
    pub alone: bool,
    /// Who asks.
    pub uid: u32,
    /// Seconds after which it ends unless it is held.
    pub ttl: Option<u64>,
}

/// Why a claim was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Somebody holds a part that meets the one asked for.
    Taken {
        /// Who.
        who: String,
        /// What they hold.
        part: Part,
        /// Since when, in seconds since 1970.
        since: u64,
    },
    /// The container holds another part of this device, and may hold one.
    Another {
        /// What it holds.
        part: Part,
    },
    /// There is no claim of that name.
    NoSuchClaim(String),
    /// It belongs to another user.
    NotYours(String),
    /// There is one of that name already.
    NameTaken(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Taken { who, part, since } => {
                write!(f, "{who} holds {part} since {}", super::utc(*since))
            }
            Refused::Another { part } => write!(f, "the container has {part} of this device already, and can have one"),
            Refused::NoSuchClaim(name) => write!(f, "there is no claim {name}"),
            Refused::NotYours(name) => write!(f, "claim {name} belongs to another user"),
            Refused::NameTaken(name) => write!(f, "there is a claim {name} already"),
        }
    }
}

impl Book {
    /// A book without claims.
    pub fn new(device: DeviceKey) -> Self {
        Self {
            format: FORMAT,
            device,
            claims: Vec::new(),
        }
    }

    /// Gives back what nobody can hold any more; says how many.
    ///
    /// Each process is looked at once: one that ends between two looks would leave a claim that is neither held nor over.
    pub fn reconcile(&mut self, world: &impl World) -> usize {
        let before = self.claims.len();
        self.claims.retain_mut(|claim| {
            let Some(process) = &claim.holder.process else {
                return !is_over(claim, world);
            };
            if !world.is_gone(process) {
                return true;
            }
            // One that is kept waits for its next container.
            claim.wait();
            claim.keep
        });
        before - self.claims.len()
    }

    /// Takes a claim, or takes it again: by the same container and user it is the same claim.
    ///
    /// # Errors
    /// Who holds what is asked for.
    pub fn take(&mut self, ask: &Ask, world: &impl World) -> Result<(), Refused> {
        self.reconcile(world);
        if let Some(same) = self.claims.iter_mut().find(|c| is_same(c, ask)) {
            if let (Some(old), Some(new)) = (&same.holder.process, &ask.process)
                && old != new
                && same.state == State::Held
            {
                // A second init under the name of one that lives: not the same container, whatever it says.
                return Err(taken(same));
            }
            same.holder.process.clone_from(&ask.process);
            same.state = ask.state;
            same.until = None;
            return Ok(());
        }
        if let Some(name) = &ask.name
            && self.claims.iter().any(|c| c.name.as_ref() == Some(name))
        {
            return Err(Refused::NameTaken(name.clone()));
        }
        let own = |c: &&Claim| ask.container.is_some() && c.holder.container == ask.container;
        if let Some(own) = self.claims.iter().find(own).filter(|_| ask.alone) {
            return Err(Refused::Another { part: own.part.clone() });
        }
        if let Some(other) = self.claims.iter().find(|c| c.part.meets(&ask.part)) {
            return Err(taken(other));
        }
        self.claims.push(Claim {
            name: ask.name.clone(),
            part: ask.part.clone(),
            state: ask.state,
            holder: Holder {
                container: ask.container.clone(),
                process: ask.process.clone(),
            },
            keep: ask.keep,
            uid: ask.uid,
            since: world.now(),
            until: ask.ttl.map(|ttl| world.uptime().saturating_add(ttl)),
            boot: world.boot().to_owned(),
        });
        Ok(())
    }

    /// Puts a container into a claim that was made beforehand. `alone`: it may hold nothing else of this device.
    ///
    /// # Errors
    /// No such claim, another user's, one in which another container runs, or a second one where it may have one.
    pub fn enter(
        &mut self,
        name: &str,
        container: ContainerName,
        process: Process,
        uid: u32,
        alone: bool,
        world: &impl World,
    ) -> Result<(), Refused> {
        self.reconcile(world);
        let other = |c: &&Claim| c.name.as_deref() != Some(name) && c.holder.container.as_ref() == Some(&container);
        if let Some(other) = self.claims.iter().find(other).filter(|_| alone) {
            return Err(Refused::Another {
                part: other.part.clone(),
            });
        }
        let claim = self
            .claims
            .iter_mut()
            .find(|c| c.name.as_deref() == Some(name))
            .ok_or_else(|| Refused::NoSuchClaim(name.to_owned()))?;
        if claim.uid != uid && uid != 0 {
            return Err(Refused::NotYours(name.to_owned()));
        }
        if let Some(there) = &claim.holder.process
            && *there != process
        {
            return Err(taken(claim));
        }
        claim.holder = Holder {
            container: Some(container),
            process: Some(process),
        };
        claim.state = State::Held;
        claim.until = None;
        Ok(())
    }

    /// Gives back what a container holds: its own claims, and those made beforehand that it used. Says how many.
    ///
    /// A claim whose process lives stays: that is a container of the same name which has been started since, and the
    /// release is late.
    pub fn release_container(&mut self, container: &ContainerName, uid: u32, world: &impl World) -> usize {
        let mine = |c: &Claim| {
            c.holder.container.as_ref() == Some(container)
                && (c.uid == uid || uid == 0)
                && !c.holder.process.as_ref().is_some_and(|p| world.lives(p))
        };
        let mut released = 0;
        self.claims.retain_mut(|claim| {
            if !mine(claim) {
                return true;
            }
            released += 1;
            claim.wait();
            claim.keep
        });
        released
    }

    /// Gives back the claim of that name. Says whether there was one.
    ///
    /// # Errors
    /// Another user's.
    pub fn release_name(&mut self, name: &str, uid: u32) -> Result<bool, Refused> {
        let Some(at) = self.claims.iter().position(|c| c.name.as_deref() == Some(name)) else {
            return Ok(false);
        };
        if uid != 0 && self.claims[at].uid != uid {
            return Err(Refused::NotYours(name.to_owned()));
        }
        self.claims.remove(at);
        Ok(true)
    }

    /// Whether no two claims meet, which is what the ledger is for.
    pub fn is_sound(&self) -> bool {
        self.claims
            .iter()
            .enumerate()
            .all(|(i, a)| self.claims[i + 1..].iter().all(|b| !a.part.meets(&b.part)))
    }
}

/// Whether a claim without a process is over: one that nobody used in time; one that a container's start reserved in an
/// earlier boot; one that is nobody's.
fn is_over(claim: &Claim, world: &impl World) -> bool {
    let another_boot = claim.boot != world.boot();
    match claim.name {
        None => another_boot || claim.holder.container.is_none(),
        Some(_) => claim.until.is_some_and(|until| another_boot || world.uptime() >= until),
    }
}

fn is_same(claim: &Claim, ask: &Ask) -> bool {
    claim.uid == ask.uid
        && claim.part == ask.part
        && claim.name == ask.name
        && ask.container.is_some()
        && claim.holder.container == ask.container
}

fn taken(claim: &Claim) -> Refused {
    Refused::Taken {
        who: claim.who(),
        part: claim.part.clone(),
        since: claim.since,
    }
}

#[cfg(test)]
mod tests;
