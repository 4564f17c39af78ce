//! `status.json`: what every user may know of the shares of this machine.
//!
//! The broker writes it at each change (0644); `tranche status` reads it for users who cannot read the ledger. It has
//! no name, id or user of a holder.

use crate::controlled::{ControlledDevice, DaemonState};
use crate::turns::TurnRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use tranche_core::bounded;
use tranche_core::error::{Context, Result};
use tranche_core::ledger::{Books, Claim, ClaimState, HeldPart};
use tranche_core::sealed;
use tranche_core::types::{DeviceKey, Strategy};
use tranche_plan::reserve::{InBooks, has_own_amounts};
use tranche_plan::share::{Plan, SplitDevice};

/// The name of the file in the state directory.
pub const STATUS_FILE: &str = "status.json";

/// The largest file that is read.
const MOST_BYTES: u64 = 16 << 20;

/// The version of the form of the file. Fields are added without a new version.
pub const STATUS_VERSION: u32 = 1;

/// The content of the file. docs/reference/claims.md documents the fields. A reader skips fields that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicStatus {
    /// [`STATUS_VERSION`] of the program that wrote it.
    pub version: u32,
    /// When it was written, in seconds since 1970.
    pub written: u64,
    /// Whether the broker knew the plan. If not, nothing is known of the shares that the policy makes.
    #[serde(default = "known")]
    pub plan_known: bool,
    /// The devices that are handed out with a claim, in the order of the plan; then those of an earlier plan.
    pub devices: Vec<PublicDevice>,
}

/// Older brokers did not write it.
fn known() -> bool {
    true
}

/// A device that is handed out with a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicDevice {
    /// `nvidia.com/gpu=0`; its key, if the plan does not have it.
    pub device: String,
    /// Its key in the ledger.
    pub key: DeviceKey,
    /// How it is shared; `None` if the plan does not have it.
    pub strategy: Option<Strategy>,
    /// The shares that it has under the present policy, of equal replicas the first thousand; empty for a device that
    /// stays whole.
    pub shares: Vec<String>,
    /// How many those are in all; `None` in the file of an older broker.
    #[serde(default)]
    pub count: Option<usize>,
    /// Those that a container can have now, each of them alone; of equal replicas the first thousand.
    pub free: Vec<String>,
    /// How many of all that are free can be had together; `None` in the file of an older broker.
    #[serde(default)]
    pub free_together: Option<usize>,
    /// Whether its book in the ledger could be read. If not, it is unknown what is held or free.
    pub readable: bool,
    /// What is held of it.
    pub claims: Vec<PublicClaim>,
    /// Its MPS daemon; `None` if it has none.
    pub daemon: Option<PublicDaemon>,
    /// How its holders have it by turns; `None` if none does, and in the file of an older broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<PublicTurns>,
}

/// A device that its holders have by turns, without the holders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicTurns {
    /// Whether one of them has it now.
    pub is_held: bool,
    /// How many are suspended.
    pub suspended: usize,
    /// The memory of the machine that they use, in bytes.
    pub host_memory_bytes: u64,
    /// How often it has changed its holder since somebody has held it.
    pub changes: u64,
    /// How long the last change took, in milliseconds.
    pub last_change_ms: Option<u64>,
}

impl PublicTurns {
    /// What is recorded of the device.
    pub fn of(record: &TurnRecord) -> Self {
        Self {
            is_held: record.resident.is_some(),
            suspended: record.suspended().count(),
            host_memory_bytes: record.suspended().map(|(_, holder)| holder.bytes).sum(),
            changes: record.changes,
            last_change_ms: record.last_change_ms,
        }
    }
}

/// Something that is held, without its holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicClaim {
    /// The shares; empty for the whole device.
    pub shares: Vec<String>,
    /// Whether a container uses it.
    pub state: ClaimState,
    /// When it was claimed, in seconds since 1970.
    pub since: u64,
    /// Whether its shares may have sizes that no policy names; `false` in the file of an older broker.
    #[serde(default)]
    pub has_own_amounts: bool,
}

/// An MPS daemon, without the containers that lost it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicDaemon {
    /// Whether it serves clients.
    pub state: DaemonState,
    /// When it was started, in seconds since 1970.
    pub since: Option<u64>,
    /// How often it was started again after it had died.
    pub restarts: u32,
    /// Whether an earlier version of tranche started it.
    #[serde(default)]
    pub is_of_earlier_version: bool,
}

impl PublicStatus {
    /// Reads what the broker of `state_dir` wrote; `None` if no broker has written anything.
    ///
    /// # Errors
    /// Returns an error if the file exists and cannot be read, or is damaged.
    pub fn read(state_dir: &Path) -> Result<Option<Self>> {
        let path = state_dir.join(STATUS_FILE);
        let bytes = match File::open(&path).and_then(|file| bounded::read(file, MOST_BYTES)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.about(path.display(), "cannot be read")?,
        };
        sealed::parse(&bytes).map(Some).about(path.display(), "is damaged")
    }

    /// What the ledger has, of the devices of `plan` and of others, `now` (seconds since 1970). `plan` is `None` if it
    /// is not known. `controlled` are the devices that the broker changes.
    pub fn of(plan: Option<&Plan>, books: &Books, controlled: &[ControlledDevice], now: u64) -> Self {
        let split = || plan.into_iter().flat_map(|plan| &plan.devices);
        let planned = split().map(|split| PublicDevice::planned(split, books));
        let is_planned = |key: &DeviceKey| split().any(|split| split.key == *key);
        let others: BTreeMap<&DeviceKey, ()> = books.claims().map(|claim| (&claim.device, ())).collect();
        let others = others.into_keys().filter(|key| !is_planned(key));
        let mut devices: Vec<PublicDevice> = planned
            .chain(others.map(|key| PublicDevice::other(key, books)))
            .collect();
        for device in &mut devices {
            let daemon = controlled.iter().find(|one| one.key == device.key);
            device.daemon = daemon.and_then(|one| one.daemon.as_ref()).map(|daemon| PublicDaemon {
                state: daemon.state,
                since: daemon.since,
                restarts: daemon.restarts,
                is_of_earlier_version: daemon.is_of_earlier_version,
            });
        }
        Self {
            version: STATUS_VERSION,
            written: now,
            plan_known: plan.is_some(),
            devices,
        }
    }
}

impl PublicStatus {
    /// Whether `other` says the same, at another time.
    pub fn is_same_state(&self, other: &Self) -> bool {
        (self.plan_known, &self.devices) == (other.plan_known, &other.devices)
    }
}

impl PublicDevice {
    fn planned(split: &SplitDevice, books: &Books) -> Self {
        let other = Self::of_claims(&split.key, Some(split), books);
        let planned = Self {
            device: format!("{}={}", split.kind, split.device.cdi_name()),
            strategy: Some(split.method.strategy()),
            ..other
        };
        if split.method.is_whole() {
            return planned;
        }
        let planned = Self {
            shares: split.shares.listed().map(|name| name.to_string()).collect(),
            count: Some(split.shares.len()),
            ..planned
        };
        if !planned.readable {
            return planned;
        }
        let books = InBooks::of(books);
        let free = split.free(&books);
        Self {
            free: free.listed().iter().map(ToString::to_string).collect(),
            free_together: Some(books.together(split, &free)),
            ..planned
        }
    }

    /// What is held of the device, of which no plan says anything.
    fn other(key: &DeviceKey, books: &Books) -> Self {
        Self::of_claims(key, None, books)
    }

    /// What is held of the device, which `split` shares if the plan has it.
    fn of_claims(key: &DeviceKey, split: Option<&SplitDevice>, books: &Books) -> Self {
        let claims = books.claims().filter(|claim| claim.device.overlaps(key));
        Self {
            device: key.to_string(),
            key: key.clone(),
            strategy: None,
            shares: Vec::new(),
            count: Some(0),
            free: Vec::new(),
            free_together: Some(0),
            readable: !books.damaged.iter().any(|book| book.may_be_of(key.gpu())),
            claims: claims.map(|claim| PublicClaim::of(claim, key, split)).collect(),
            daemon: None,
            turns: None,
        }
    }
}

impl PublicClaim {
    /// `claim` as something that is held of the device `key`, which `split` shares if the plan has it: a GPU and its
    /// MIG devices exclude one another.
    fn of(claim: &Claim, key: &DeviceKey, split: Option<&SplitDevice>) -> Self {
        let shares = match &claim.part {
            HeldPart::Shares(shares) if claim.device == *key => shares.as_slice(),
            _ => &[],
        };
        Self {
            shares: shares.iter().map(|share| share.name.to_string()).collect(),
            state: claim.state,
            since: claim.since,
            has_own_amounts: split.is_some_and(|split| has_own_amounts(split, claim)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlled::{CgroupMemory, DaemonStatus, LostClients};
    use tranche_core::claims::{ClaimEntry, Claims};
    use tranche_core::ledger::{ContainerName, Holder};
    use tranche_core::types::{Bounds, Part, ShareName, Subject};

    const POLICY: &str = "sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 3}\n";

    fn plan() -> Plan {
        let policy = tranche_plan::policy::read::parse("c.yaml", POLICY).unwrap().policy;
        tranche_plan::share::plan(&policy, &tranche_plan::sim::open("t4x2").unwrap()).unwrap()
    }

    /// Lets a container of this process hold a share of the first device of `plan`, or the whole of `elsewhere`.
    fn books(plan: &Plan, elsewhere: &DeviceKey) -> (tempfile::TempDir, Books) {
        let top = tempfile::tempdir().unwrap();
        let claims = Claims::open(top.path()).unwrap();
        let split = &plan.devices[0];
        let parts = [
            (
                split.key.clone(),
                Subject::Part(
                    Part::Share(ShareName::replica(1)),
                    split.promise(split.shares.first().unwrap()),
                ),
                split.bounds(),
            ),
            (elsewhere.clone(), Subject::WHOLE, Bounds::default()),
        ];
        for (device, subject, bounds) in parts {
            let entry = ClaimEntry {
                device,
                subject,
                replicas: 3,
                bounds,
                asked_as: None,
                alone: false,
            };
            let holder = Holder::Container(ContainerName {
                bundle: "/secret/bundle".into(),
                id: "secret-id".into(),
            });
            claims.enter(&entry, holder, Some(std::process::id())).unwrap();
        }
        let books = claims.books().unwrap();
        (top, books)
    }

    #[test]
    fn everybody_sees_what_is_held_and_free_and_nobody_by_whom() {
        let plan = plan();
        let elsewhere: DeviceKey = "GPU-11111111-2222-3333-4444-555555555555".parse().unwrap();
        let (_top, books) = books(&plan, &elsewhere);
        let controlled = ControlledDevice {
            device: "nvidia.com/gpu=0".into(),
            key: plan.devices[0].key.clone(),
            daemon: Some(DaemonStatus {
                state: DaemonState::Running,
                pid: Some(4711),
                since: Some(1_000),
                restarts: 2,
                is_of_earlier_version: false,
                memory_mib: None,
                compute_percent: None,
                lost: vec![LostClients {
                    container: "secret-id".into(),
                    at: 5,
                }],
            }),
            compute_mode_before: None,
            time_slice: None,
            cgroup_limits: vec![CgroupMemory {
                holder: "container secret-id".into(),
                memory_mib: 4711,
                is_set: true,
            }],
            idle_since: None,
            problems: vec!["secret-id has lost its daemon".into()],
        };
        let status = PublicStatus::of(Some(&plan), &books, &[controlled], 77);
        let [first, other] = &status.devices[..] else {
            panic!("{status:?}");
        };
        assert_eq!(
            (first.device.as_str(), first.strategy),
            ("nvidia.com/gpu=0", Some(Strategy::Mps))
        );
        assert_eq!(
            (&first.shares[..], &first.free[..]),
            (
                &["0", "1", "2"].map(String::from)[..],
                &["0", "2"].map(String::from)[..]
            )
        );
        assert_eq!(first.claims.len(), 1);
        assert_eq!(
            (&first.claims[0].shares[..], first.claims[0].state),
            (&["1".to_owned()][..], ClaimState::Held)
        );
        let daemon = first.daemon.as_ref().unwrap();
        assert_eq!(
            (daemon.state, daemon.since, daemon.restarts),
            (DaemonState::Running, Some(1_000), 2)
        );
        assert_eq!(
            (other.device.as_str(), other.strategy),
            (elsewhere.to_string().as_str(), None)
        );
        assert!(other.claims[0].shares.is_empty() && other.free.is_empty() && other.daemon.is_none());
        let json = serde_json::to_string(&status).unwrap();
        assert!(!json.contains("secret") && !json.contains("4711"), "{json}");
        assert!(json.contains("\"written\":77"), "{json}");
        assert_eq!(serde_json::from_str::<PublicStatus>(&json).unwrap(), status);
        let later = json.replacen('{', "{\"later\":{},", 1);
        assert_eq!(
            serde_json::from_str::<PublicStatus>(&later).unwrap(),
            status,
            "a newer broker's field"
        );
    }

    #[test]
    fn without_a_plan_that_is_what_the_file_says() {
        let plan = plan();
        let elsewhere = DeviceKey::whole("GPU-00000000-0000-0000-0000-000000000000".parse().unwrap());
        let (_top, books) = books(&plan, &elsewhere);
        let unknown = PublicStatus::of(None, &books, &[], 1);
        assert!(!unknown.plan_known && unknown.devices.len() == 2);
        let none = PublicStatus::of(Some(&Plan::default()), &books, &[], 1);
        assert!(none.plan_known && !none.is_same_state(&unknown) && none.devices == unknown.devices);
        let json = serde_json::to_string(&none).unwrap();
        let old = json.replace("\"plan_known\":true,", "");
        assert_eq!(
            serde_json::from_str::<PublicStatus>(&old).unwrap(),
            none,
            "an older broker's file"
        );
    }

    #[test]
    fn a_book_that_cannot_be_read_leaves_nothing_free() {
        let plan = plan();
        let top = tempfile::tempdir().unwrap();
        let claims = Claims::open(top.path()).unwrap();
        let book = format!("ledger/{}.claims", plan.devices[0].key.gpu());
        std::fs::write(top.path().join(book), "{").unwrap();
        let status = PublicStatus::of(Some(&plan), &claims.books().unwrap(), &[], 1);
        let device = &status.devices[0];
        assert!(
            !device.readable && device.free.is_empty() && device.shares.len() == 3,
            "{device:?}"
        );
    }

    /// The lists have the first thousand of many replicas, and the numbers all of them.
    #[test]
    fn many_replicas_are_counted() {
        let text = POLICY
            .replace("mps", "timeSlicing")
            .replace("replicas: 3", "replicas: 4000000");
        let policy = tranche_plan::policy::read::parse("c.yaml", &text).unwrap().policy;
        let plan = tranche_plan::share::plan(&policy, &tranche_plan::sim::open("t4x2").unwrap()).unwrap();
        let (_state, books) = books(&plan, &"GPU-99999999-0000".parse().unwrap());
        let device = PublicDevice::planned(&plan.devices[0], &books);
        assert_eq!((device.shares.len(), device.count), (1024, Some(4_000_000)));
        assert_eq!((device.free.len(), device.free_together), (1024, Some(3_999_999)));
        assert_eq!(device.free[..2], ["0", "2"]);
    }
}
