//! What the checks look at.

use crate::cdi::Problem;
use crate::cdi::registry::Registry;
use crate::engines::FoundEngine;
use crate::host_file::{HostFile, HostFileError};
use crate::inventory::Inventory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Everything that the checks look at, gathered once.
#[derive(Debug)]
pub struct DoctorSubject {
    /// The host.
    pub inventory: Inventory,
    /// The directory that is `/` for files which belong to no driver. A test host has another one than the machine.
    pub root: PathBuf,
    /// The specifications that engines read.
    pub registry: Registry,
    /// The directories that were read for them.
    pub spec_dirs: Vec<PathBuf>,
    /// Specifications that are older than the host or the policy.
    pub stale: Vec<Problem>,
    /// Why specifications could not be compared with the host.
    pub not_compared: Vec<String>,
    /// What the runtime knows of the host.
    pub host_file: Result<HostFile, HostFileError>,
    /// The ledger; `None` if this user cannot read it.
    pub ledger: Option<LedgerFacts>,
    /// What uses the devices that are shared; `None` if no device is, or if nobody can be asked.
    pub shared_use: Option<SharedUse>,
    /// The engines and low-level runtimes that are installed.
    pub engines: Vec<FoundEngine>,
    /// The processes that are daemons of NVIDIA's ([`super::DAEMONS`]).
    pub daemons: Vec<FoundDaemon>,
    /// The MPS daemons that tranche manages.
    pub mps: MpsFacts,
    /// The SELinux contexts of device nodes and of the directories of MPS sockets, by their paths on the host. A file that
    /// does not exist or has no context is left out.
    pub labels: BTreeMap<PathBuf, String>,
}

/// A daemon of NVIDIA's that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDaemon {
    /// The name of its program.
    pub program: &'static str,
    /// Its number.
    pub pid: u32,
}

/// What is known of MPS daemons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MpsFacts {
    /// The devices for which the broker has a daemon (`nvidia.com/gpu=0`), and how that is.
    pub managed: Vec<(String, DaemonCondition)>,
    /// Whether the policy leaves the daemons to the operator.
    pub is_external: bool,
    /// The directories of sockets that the policy's shares under MPS need.
    pub pipes: Vec<PathBuf>,
}

/// How a daemon of the broker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonCondition {
    /// It runs, or is being started or stopped.
    Working,
    /// It could not be started again.
    Failed,
    /// Another program runs one for the device.
    Foreign,
}

/// The processes on devices that are handed out with a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedUse {
    /// How many there are, as NVML reports them; `None` if it does not for one of the devices.
    pub processes: Option<usize>,
    /// A line for each process without a claim on its device.
    pub without_claim: Vec<String>,
    /// A line for each claim whose processes use more memory than it was promised.
    pub beyond_promise: Vec<String>,
}

/// What the ledger has.
#[derive(Debug, Default)]
pub struct LedgerFacts {
    /// How many claims there are.
    pub claims: usize,
    /// A line for each claim that the policy does not provide for, and for each part that cannot be read.
    pub wrong: Vec<String>,
    /// Devices whose compute mode tranche may have changed, because it runs their MPS daemon: their UUIDs.
    pub exclusive: Vec<String>,
}

impl DoctorSubject {
    /// The path of a file of the host.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether the host has a driver.
    pub(super) fn has_driver(&self) -> bool {
        self.inventory.driver.is_some()
    }

    /// The processes of this program.
    pub(super) fn daemons_of(&self, program: &str) -> impl Iterator<Item = u32> {
        let of_program = self.daemons.iter().filter(move |daemon| daemon.program == program);
        of_program.map(|daemon| daemon.pid)
    }

    /// Whether systemd runs on the host (sd_booted(3)).
    pub(super) fn has_systemd(&self) -> bool {
        self.at("/run/systemd/system").is_dir()
    }
}

/// Whether a file of the host exists.
pub(super) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
