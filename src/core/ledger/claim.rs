//! What the ledger keeps.

use super::holder::Holder;
use super::is_start_name;
use super::pod::PodName;
use super::resource_claim::KubernetesObject;
use crate::types::{DeviceKey, HeldPart};

crate::types::words! {
    /// How firm a claim is.
    pub enum ClaimState: "state of a claim" {
        /// Set aside: for a container that is being created, or by a person for a later one.
        Reserved = "reserved",
        /// In use by a process.
        Held = "held",
    }
}
crate::types::serde_as_text!(ClaimState);

/// The init of a container, or a process that holds a claim without one, recorded in such a way that no later process
/// with its number is taken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitProcess {
    /// Its number in the namespace below.
    pub pid: u32,
    /// When it was started, in the kernel's ticks since boot, without the offset of the time namespace from which it
    /// was seen (`/proc/PID/stat`, field 22; time_namespaces(7)).
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
    /// The inode of the top of its hierarchy, as it was mounted where the claim was made: where another directory is
    /// on top, the path means another cgroup. `None` if an earlier version of tranche recorded it.
    pub top: Option<u64>,
}

/// A hold on a part of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The name by which a container enters it. A person gave it, or it was made for the start of one container
    /// ([`super::is_start_name`]), for a pod ([`PodName::claim_on`]) or for a resource claim
    /// ([`KubernetesObject::claim_on`]). `None` for a claim that a container's hook made without a name.
    pub name: Option<String>,
    /// The device.
    pub device: DeviceKey,
    /// What it holds, with what was promised.
    pub part: HeldPart,
    /// The name under which an engine was asked for it: `nvidia.com/gpu=0.big`. For people; `None` if it is unknown.
    pub asked_as: Option<String>,
    /// The specification of a claim that was made beforehand, so that it can be removed together with the claim.
    pub spec_file: Option<String>,
    /// How firm it is.
    pub state: ClaimState,
    /// Who holds it. A claim that was made beforehand has a name, and waits while its holder is a person.
    pub holder: Holder,
    /// The init of the container that holds it, or the process that does. While it is reserved for a container's
    /// start: the process that creates the container. `None` for every other holder.
    pub process: Option<InitProcess>,
    /// Whether it uses what the claim of the same name holds, together with the other containers of a resource claim
    /// of Kubernetes. What it uses is counted once, for that claim, which lasts as long as it does.
    pub joined: bool,
    /// Whether a claim that was made beforehand is released together with the container that used it.
    pub once: bool,
    /// Whether containers of engines that run as root may use it, although it belongs to another user.
    pub for_root: bool,
    /// The id of the user to whom it belongs.
    pub uid: u32,
    /// When it was made, in seconds since 1970: for people.
    pub since: u64,
    /// When it was made, in seconds since boot: no clock that jumps makes it older. `None` if an earlier version of
    /// tranche recorded it.
    pub since_boot: Option<u64>,
    /// Seconds for which it lasts while no container uses it; `None`: until it is released.
    pub ttl: Option<u64>,
    /// When it ends if no container uses it by then, in seconds since boot: no clock that jumps can end it. `None`
    /// while it is in use, and for one without a ttl.
    pub until: Option<u64>,
}

/// Whether two parts of devices cannot be held at once, whatever their size.
pub(super) fn meet(a: (&DeviceKey, &HeldPart), b: (&DeviceKey, &HeldPart)) -> bool {
    a.0.overlaps(b.0) && (a.0 != b.0 || a.1.overlaps(b.1))
}

impl Claim {
    /// Takes it away from its container. It waits for the next container, and its time to live begins again at
    /// `uptime`.
    pub(super) fn wait(&mut self, uptime: u64) {
        (self.holder, self.process) = (Holder::Person, None);
        self.state = ClaimState::Reserved;
        self.until = self.ttl.map(|ttl| uptime.saturating_add(ttl));
    }

    /// Whether it and `part` of `device` cannot be held at once, whatever their size.
    pub fn overlaps(&self, device: &DeviceKey, part: &HeldPart) -> bool {
        meet((&self.device, &self.part), (device, part))
    }

    /// The name that a person gave it; `None` for one that a container's start made, or that is of Kubernetes.
    pub fn given_name(&self) -> Option<&str> {
        let is_of_kubernetes =
            |name: &str| PodName::of_claim(name).is_some() || KubernetesObject::of_claim(name).is_some();
        let is_given = |name: &&str| !is_start_name(name) && !is_of_kubernetes(name);
        self.name.as_deref().filter(is_given)
    }

    /// The resource claim of Kubernetes that it is reserved for, or that its container uses; `None` for every other
    /// claim.
    pub fn resource_claim(&self) -> Option<KubernetesObject> {
        KubernetesObject::of_claim(self.name.as_deref()?).map(|(claim, _)| claim)
    }

    /// Whether it has joined `other`.
    pub(super) fn has_joined(&self, other: &Claim) -> bool {
        self.joined
            && !other.joined
            && (&self.name, &self.device, &self.part) == (&other.name, &other.device, &other.part)
    }

    /// The pod that it is reserved for, whether or not a container of the pod uses it now; `None` for every other
    /// claim.
    pub fn pod(&self) -> Option<PodName> {
        PodName::of_claim(self.name.as_deref()?).map(|(pod, _)| pod)
    }

    /// [`Claim::who`], and what it holds: `claim train1 on share 3`.
    pub fn with_part(&self) -> String {
        format!("{} on {}", self.who(), self.part)
    }

    /// Who holds it, for a message.
    pub fn who(&self) -> String {
        if let Some(pod) = self.pod() {
            return pod.to_string();
        }
        if let Some(claim) = self.resource_claim() {
            return claim.to_string();
        }
        match (self.given_name(), &self.holder) {
            (Some(name), Holder::Person) => format!("claim {name}"),
            (Some(name), holder) => format!("claim {name} ({holder})"),
            (None, Holder::Person) => format!("uid {}", self.uid),
            (None, holder) => holder.to_string(),
        }
    }
}
