//! What people want of a machine.

use std::fmt;
use tranche_core::error::{Error, Result};
use tranche_core::types::{MemorySize, Percent, Place, ShareName};

tranche_core::types::words! {
    /// What the containers of a wish do.
    pub enum WorkloadKind: "kind" {
        /// They answer requests for as long as the machine runs.
        Service = "service",
        /// A person works with each, with pauses.
        Notebook = "notebook",
        /// They fill a GPU until they end.
        Training = "training",
    }
}
tranche_core::types::serde_as_text!(WorkloadKind);

tranche_core::types::words! {
    /// Whether a busy neighbour may slow a container down.
    pub enum Latency: "latency" {
        /// It may.
        Usual = "usual",
        /// It may not.
        Bounded = "bounded",
    }
}
tranche_core::types::serde_as_text!(Latency);

tranche_core::types::words! {
    /// Whether the users of the containers trust one another.
    pub enum Trust: "trust" {
        /// They do.
        Team = "team",
        /// A tenant may try to break out of its part.
        None = "none",
    }
}
tranche_core::types::serde_as_text!(Trust);

/// Everything that is wanted of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wishes {
    /// The file that they were read from, for messages.
    pub file: String,
    /// Whether the users of the containers trust one another.
    pub trust: Trust,
    /// The wishes, at least one.
    pub workloads: Vec<Workload>,
}

/// A number of equal containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Where it is in the file.
    pub place: Place,
    /// Its name, with which the names of its shares begin.
    pub name: ShareName,
    /// What the containers do.
    pub kind: WorkloadKind,
    /// How many containers.
    pub count: u32,
    /// The memory that each needs; `None` if it is not known.
    pub memory: Option<MemorySize>,
    /// The compute that each needs, in percent of a GPU; `None` if it is not known.
    pub compute: Option<Percent>,
    /// Whether a busy neighbour may slow one down.
    pub latency: Latency,
    /// Whether each wants a GPU of its own while it works.
    pub whole_gpu: bool,
    /// Whose they are, where tenants do not trust one another.
    pub tenant: Option<String>,
}

impl Workload {
    /// A wish for `count` containers of this kind, about which nothing else is known.
    pub fn new(name: ShareName, kind: WorkloadKind, count: u32) -> Self {
        Self {
            place: Place::default(),
            name,
            kind,
            count,
            memory: None,
            compute: None,
            latency: Latency::Usual,
            whole_gpu: false,
            tenant: None,
        }
    }

    /// The name of the share of container `number`, counted from 1; the only one has the name of the wish.
    pub(super) fn share(&self, number: u32) -> Option<ShareName> {
        match self.count {
            1 => Some(self.name.clone()),
            _ => format!("{}-{number}", self.name).parse().ok(),
        }
    }
}

impl Wishes {
    /// The most containers of all wishes together: more than any machine serves at the same time under MPS or MIG.
    pub const MOST: u32 = 512;

    /// How many containers there are in all.
    pub fn containers(&self) -> u32 {
        self.workloads.iter().fold(0, |sum, one| one.count.saturating_add(sum))
    }

    /// Checks that no two of the wishes contradict each other.
    ///
    /// # Errors
    /// Returns a usage error that names the two.
    pub fn check(&self) -> Result<()> {
        let wrong =
            |one: &Workload, what: String| Error::usage(one.place.of(&self.file), format!("{}: {what}", one.name));
        for (at, one) in self.workloads.iter().enumerate() {
            let contradict = |first: &dyn fmt::Display, second: &dyn fmt::Display, hint: &str| {
                Err(wrong(one, format!("{first} and {second} contradict each other")).hint(hint))
            };
            if self.workloads.iter().take(at).any(|other| other.name == one.name) {
                return Err(wrong(one, "two wishes have this name".to_owned()).hint("give each a name of its own"));
            }
            if one.name.as_str() == ShareName::ANY || one.share(Self::MOST).is_none() {
                return Err(wrong(one, "not a name for shares".to_owned()).hint("write at most 36 letters, not any"));
            }
            if one.memory.is_some_and(|memory| memory.mib() == 0) {
                return Err(wrong(one, "memory is less than 1 MiB".to_owned()).hint("write a size like 7Gi"));
            }
            if let Some(compute) = one.compute.filter(|compute| one.whole_gpu && compute.get() < 100) {
                let part = format!("compute: {compute}");
                return contradict(&"wholeGpu: true", &part, "a whole GPU has 100%; remove one of the two");
            }
            if one.kind == WorkloadKind::Training && one.latency == Latency::Bounded {
                let hint = "training answers no requests; remove latency, or write kind: service";
                return contradict(&"kind: training", &"latency: bounded", hint);
            }
            if let Some(tenant) = one.tenant.as_ref().filter(|_| self.trust == Trust::Team) {
                let hint = "write trust: none if the tenants do not trust one another, or remove tenant";
                return contradict(&"trust: team", &format!("tenant: {tenant}"), hint);
            }
        }
        let tenants: Option<Vec<&String>> = self.workloads.iter().map(|one| one.tenant.as_ref()).collect();
        if let Some([first, others @ ..]) = tenants.as_deref()
            && self.trust == Trust::None
            && others.iter().all(|other| other == first)
        {
            let what = format!("trust: none and tenant: {first} in every wish contradict each other");
            let hint = "name at least two tenants, or write trust: team";
            return Err(Error::usage(&self.file, what).hint(hint));
        }
        match self.containers() {
            1..=Self::MOST => Ok(()),
            count => {
                let what = format!("wishes for {count} containers; 1 to {} are possible", Self::MOST);
                Err(Error::usage(&self.file, what))
            }
        }
    }
}
