//! What the ledger keeps.

use super::holder::Holder;
use crate::types::{DeviceKey, Promise, ShareName, Strategy};
use std::fmt;
use std::hash::{Hash, Hasher};

/// A share as it was when it was taken. A later policy may give its name to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldShare {
    /// Its name.
    pub name: ShareName,
    /// How much of the device it is.
    pub promise: Promise,
}

/// The name alone: shares of one name and two sizes are few, and each start of a container hashes all that are held.
impl Hash for HeldShare {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// What of a device a claim holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldPart {
    /// All of it, against every share.
    Whole,
    /// These shares, sorted; at least one.
    Shares(Vec<HeldShare>),
}

impl HeldPart {
    /// One share.
    pub fn share(name: ShareName, promise: Promise) -> Self {
        HeldPart::Shares(vec![HeldShare { name, promise }])
    }

    /// The shares; empty for the whole device.
    pub fn shares(&self) -> &[HeldShare] {
        match self {
            HeldPart::Whole => &[],
            HeldPart::Shares(shares) => shares,
        }
    }

    /// What was promised with each share, or with the whole device.
    pub fn promises(&self) -> impl Iterator<Item = Promise> + '_ {
        let whole = (*self == HeldPart::Whole).then_some(Promise::Whole);
        whole.into_iter().chain(self.shares().iter().map(|share| share.promise))
    }

    /// What was promised in sum; `None` where shares do not add up, which no claim that was granted has.
    pub fn promise(&self) -> Option<Promise> {
        let mut promises = self.promises();
        let first = promises.next()?;
        promises.try_fold(first, Promise::and)
    }

    /// The strategy under which the device is used.
    pub fn strategy(&self) -> Strategy {
        match self {
            HeldPart::Whole => Strategy::Dedicated,
            HeldPart::Shares(shares) => shares.first().map_or(Strategy::Dedicated, |s| s.promise.strategy()),
        }
    }

    /// Whether both are of one device and cannot be held at once, because one is the whole device or because a share is in
    /// both. A share of the same name and another size is another share, of a policy that is in force no more.
    pub fn meets(&self, other: &HeldPart) -> bool {
        match (self, other) {
            (HeldPart::Shares(a), HeldPart::Shares(b)) => a.iter().any(|share| b.contains(share)),
            _ => true,
        }
    }
}

impl fmt::Display for HeldPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldPart::Whole => f.pad("the whole device"),
            HeldPart::Shares(shares) => {
                let names: Vec<&str> = shares.iter().map(|share| share.name.as_str()).collect();
                let word = if names.len() == 1 { "share" } else { "shares" };
                f.pad(&format!("{word} {}", crate::text::some(&names)))
            }
        }
    }
}

crate::types::words! {
    /// How firm a claim is.
    pub enum ClaimState: "state of a claim" {
        /// Set aside: for a container that is being made, or by a person for one to come.
        Reserved = "reserved",
        /// In use by a process.
        Held = "held",
    }
}
crate::types::serde_as_text!(ClaimState);

/// The init of a container, recorded in such a way that no later process with its number is taken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitProcess {
    /// Its number in the namespace below.
    pub pid: u32,
    /// When it was started, in the kernel's ticks since boot, without the offset of the time namespace from which it was
    /// seen (`/proc/PID/stat`, field 22; time_namespaces(7)).
    pub start: u64,
    /// The inode of the pid namespace in which the number means something.
    pub namespace: u64,
    /// The container's cgroup, where it has one of its own: its other processes may outlive the init.
    pub cgroup: Option<Cgroup>,
}

/// A cgroup that belongs to one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its directory.
    pub path: String,
    /// The inode of that directory: a later cgroup of the same name has another.
    pub inode: u64,
}

/// A hold on a part of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The name that a person gave it; `None` for one that a container's start made.
    pub name: Option<String>,
    /// The device.
    pub device: DeviceKey,
    /// What it holds, with what was promised.
    pub part: HeldPart,
    /// The name under which an engine was asked for it: `nvidia.com/gpu=0.big`. For people; `None` where it is unknown.
    pub asked_as: Option<String>,
    /// The specification of a claim that was made beforehand, so that it can be removed together with the claim.
    pub spec_file: Option<String>,
    /// How firm it is.
    pub state: ClaimState,
    /// Who holds it. A claim with a name was made beforehand, and waits where that is a person.
    pub holder: Holder,
    /// The init of the container that holds it; `None` for every other holder.
    pub process: Option<InitProcess>,
    /// Whether a claim that was made beforehand is given back together with the container that used it.
    pub once: bool,
    /// Whose it is.
    pub uid: u32,
    /// When it was made, in seconds since 1970: for people.
    pub since: u64,
    /// Seconds for which it lasts while no container uses it; `None`: until it is released.
    pub ttl: Option<u64>,
    /// When it ends if no container uses it by then, in seconds since boot: no clock that jumps can end it. `None` while it
    /// is in use, and for one without a ttl.
    pub until: Option<u64>,
}

/// Whether two parts of devices cannot be held at once, whatever their size.
pub(super) fn meet(a: (&DeviceKey, &HeldPart), b: (&DeviceKey, &HeldPart)) -> bool {
    a.0.overlaps(b.0) && (a.0 != b.0 || a.1.meets(b.1))
}

impl Claim {
    /// Takes it away from its container. It waits for the next one, and its time to live begins anew at `uptime`.
    pub(super) fn wait(&mut self, uptime: u64) {
        (self.holder, self.process) = (Holder::Person, None);
        self.state = ClaimState::Reserved;
        self.until = self.ttl.map(|ttl| uptime.saturating_add(ttl));
    }

    /// Whether it and `part` of `device` cannot be held at once, whatever their size.
    pub fn meets(&self, device: &DeviceKey, part: &HeldPart) -> bool {
        meet((&self.device, &self.part), (device, part))
    }

    /// Who holds it, for a message.
    pub fn who(&self) -> String {
        match (&self.name, &self.holder) {
            (Some(name), Holder::Person) => format!("claim {name}"),
            (Some(name), holder) => format!("claim {name} ({holder})"),
            (None, Holder::Person) => format!("uid {}", self.uid),
            (None, holder) => holder.to_string(),
        }
    }
}
