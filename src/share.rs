//! From a policy and an inventory to a plan: which shares there are, how large, and what each is worth.
//!
//! Pure: equal policies and equal inventories give equal plans, in whatever order they were written. A plan that
//! cannot hold cannot be made: [`plan`] says which device, what was asked and what there is.

mod absent;
mod arithmetic;
mod clients;
#[cfg(feature = "cli")]
mod digest;
mod fit;
mod guarantee;
mod resolve;

pub use absent::AbsentDevice;
pub use fit::{Fit, Wish, fit};
pub use guarantee::{Dimension, Grade, Guarantee, Guarantees};

use crate::error::Result;
use crate::inventory::{Architecture, HostDevice, Inventory, VirtualizationMode};
use crate::policy::{
    Interval, MpsComputeMode, MpsUsers, Parts, Policy, Priority, ReplicaNames, Split, Strategy, WholeDevice,
};
use crate::types::{Bounds, CdiKind, Device, DeviceKey, HostPath, MemorySize, Percent, Promise, ShareName};
use serde::{Deserialize, Serialize};

/// Every share that a policy makes of an inventory, by device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Devices that are split, by index.
    pub devices: Vec<SplitDevice>,
    /// What the names of a split device as a whole mean.
    pub whole_device: WholeDevice,
    /// Under which names equal replicas are offered.
    pub names: ReplicaNames,
    /// Entries of the policy that found no device on this host.
    pub notes: Vec<String>,
    /// Choices that were made between two entries of the policy, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Devices that the policy names and that this host does not have, in the order of the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<AbsentDevice>,
}

/// A device that is split.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitDevice {
    /// Which.
    pub device: Device,
    /// The same in the ledger: a key that stays when indices move, and that is known without NVML.
    pub key: DeviceKey,
    /// Its UUID, where it is known.
    pub uuid: Option<String>,
    /// Its product name or profile.
    pub product: String,
    /// The kind under which its shares are offered.
    pub kind: CdiKind,
    /// How the shares are kept apart.
    pub method: Method,
    /// Its memory; `None` where the driver does not tell.
    pub memory: Option<MemorySize>,
    /// The shares, replicas by number, others by name.
    pub shares: Vec<Share>,
    /// Memory in MiB that no share has.
    pub memory_left_mib: u64,
    /// Percent of compute that no share has.
    pub compute_left: u32,
    /// The most MiB that may be promised to all holders together: its memory times the overcommit that the policy allows.
    /// `None` where the driver does not say how much memory there is.
    pub most_memory_mib: Option<u64>,
    /// The same for compute, in percent: 100 without overcommit.
    pub most_compute: u32,
    /// Memory that the shares have in sum, in percent of the device's; more than 100 under overcommit. `None` where the
    /// shares have no limit of memory, or the device's memory is unknown.
    pub memory_promised: Option<u32>,
    /// Compute that the shares have in sum, in percent of the device's; more than 100 under overcommit. `None` where the
    /// shares have no limit of compute.
    pub compute_promised: Option<u32>,
    /// A claim may ask for one share of this device and no more.
    pub one_share_a_claim: bool,
}

/// How shares are kept apart, with what the machine has to be set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "strategy", deny_unknown_fields)]
pub enum Method {
    /// The driver lets processes run in turn.
    TimeSlicing {
        /// How long a turn is.
        interval: Interval,
    },
    /// MPS.
    Mps {
        /// Whose processes one daemon serves.
        users: MpsUsers,
        /// Whether the device is set to EXCLUSIVE_PROCESS while it is shared.
        exclusive_process: bool,
        /// Seconds without a claim before the device is put back.
        grace: u32,
    },
    /// The device stays whole, for one container at a time. Its one share is called `whole`.
    Dedicated,
}

impl Method {
    /// The strategy behind it.
    pub fn strategy(self) -> Strategy {
        match self {
            Method::TimeSlicing { .. } => Strategy::TimeSlicing,
            Method::Mps { .. } => Strategy::Mps,
            Method::Dedicated => Strategy::Dedicated,
        }
    }
}

/// A part of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Its name.
    pub name: ShareName,
    /// Its memory; `None` where it has no limit.
    pub memory: Option<MemorySize>,
    /// Its ceiling of compute; `None` where it has none.
    pub compute: Option<Percent>,
    /// MPS's hint about whose work goes first.
    pub priority: Priority,
    /// What that is worth.
    pub guarantees: Guarantees,
}

/// Makes the plan.
///
/// # Errors
/// One device in two entries, a strategy that a device lacks, more than a device has. A device that is not there is no
/// error: it is in [`Plan::absent`].
pub fn plan(policy: &Policy, inventory: &Inventory) -> Result<Plan> {
    let resolved = resolve::targets(policy, inventory)?;
    let mut devices = Vec::with_capacity(resolved.targets.len());
    for (target, split) in resolved.targets {
        devices.push(split_device(policy, inventory, target, split)?);
    }
    devices.sort_by_key(|d| d.device);
    Ok(Plan {
        devices,
        whole_device: policy.whole_device,
        names: policy.names,
        notes: resolved.notes,
        warnings: resolved.warnings,
        absent: resolved.absent,
    })
}

impl Plan {
    /// The plan for one device, if it is split.
    pub fn split(&self, device: Device) -> Option<&SplitDevice> {
        self.devices.iter().find(|d| d.device == device)
    }

    /// The shares of a device that have a name of their own. Where it has equal replicas, there is `any` as well.
    pub fn named_shares<'a>(&self, split: &'a SplitDevice) -> &'a [Share] {
        if split.method == Method::Dedicated {
            &[]
        } else if split.replica().is_none() || self.names.numbered(split.shares.len()) {
            &split.shares
        } else {
            &[]
        }
    }
}

impl SplitDevice {
    /// One of its shares.
    pub fn share(&self, name: &ShareName) -> Option<&Share> {
        self.shares.iter().find(|s| s.name == *name)
    }

    /// What a share of it promises.
    pub fn promise(&self, share: &Share) -> Promise {
        match self.method {
            Method::TimeSlicing { .. } => Promise::Turns {
                turns: 1,
                of: u32::try_from(self.shares.len()).unwrap_or(u32::MAX),
            },
            Method::Mps { .. } => Promise::Mps {
                memory_mib: share.memory.map(MemorySize::mib),
                compute: share.compute.map(Percent::get),
            },
            Method::Dedicated => Promise::Whole,
        }
    }

    /// What the shares with these names promise in sum; `None` where they do not add up, or where it has none of them.
    pub fn promise_of(&self, names: &[ShareName]) -> Option<Promise> {
        let shares = names.iter().filter_map(|name| self.share(name));
        let mut promises = shares.map(|share| self.promise(share));
        let first = promises.next()?;
        promises.try_fold(first, Promise::and)
    }

    /// The most that may be promised of it to all holders together.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            memory_mib: self.most_memory_mib,
            compute: self.most_compute,
        }
    }

    /// One of its replicas, where it has equal ones: they differ in nothing but their number. `None` where its shares have
    /// names that a person gave.
    pub fn replica(&self) -> Option<&Share> {
        self.shares.first().filter(|share| share.name.number().is_some())
    }

    /// The commands that make what must be running or set before a share of it is worth what the plan says; none where
    /// nothing must.
    pub fn needs(&self, state_dir: &HostPath) -> Vec<String> {
        match self.method {
            Method::Mps {
                exclusive_process,
                users,
                ..
            } => self.needs_daemon(state_dir, exclusive_process, users),
            Method::TimeSlicing {
                interval: Interval::Default,
            }
            | Method::Dedicated => Vec::new(),
            Method::TimeSlicing { interval } => {
                let number = match interval {
                    Interval::Default => 0,
                    Interval::Short => 1,
                    Interval::Medium => 2,
                    Interval::Long => 3,
                };
                vec![format!(
                    "nvidia-smi compute-policy -i {} --set-timeslice={number}",
                    self.device.gpu
                )]
            }
        }
    }

    /// The largest claim that may be made of it, in MiB and percent; `None` where its shares have no such limit. Several
    /// shares can be claimed as one, up to all of them, unless the policy allows one share a claim.
    fn largest_claim(&self) -> (Option<u64>, Option<u32>) {
        let all = |sizes: Vec<u64>, whole: Option<u64>| {
            let most = if self.one_share_a_claim {
                sizes.into_iter().max()
            } else {
                sizes.into_iter().reduce(u64::saturating_add)
            };
            // With overcommit the sum is more than there is.
            most.map(|most| whole.map_or(most, |whole| most.min(whole)))
        };
        let memory = self.shares.iter().filter_map(|share| share.memory).map(MemorySize::mib);
        let compute = self.shares.iter().filter_map(|share| share.compute);
        let compute = compute.map(|compute| u64::from(compute.get()));
        (
            all(memory.collect(), self.memory.map(MemorySize::mib)),
            all(compute.collect(), Some(100)).and_then(|percent| u32::try_from(percent).ok()),
        )
    }

    /// What the daemon's defaults cost, in one sentence; `None` where no share is larger or smaller than they are.
    ///
    /// A process that an engine starts by `exec` gets no environment from CDI, so its limits are the daemon's defaults.
    pub fn cost_of_defaults(&self) -> Option<String> {
        if !matches!(self.method, Method::Mps { .. }) {
            return None;
        }
        let (memory, compute) = self.largest_claim();
        let smaller = |share: &Share| {
            share.memory.map(MemorySize::mib) < memory || share.compute.map(|compute| compute.get()) < compute
        };
        if !self.shares.iter().any(smaller) {
            return None;
        }
        let mut limits = Vec::new();
        limits.extend(memory.map(|mib| MemorySize::from_mib(mib).to_string()));
        limits.extend(compute.map(|percent| format!("{percent}% of compute")));
        Some(format!(
            "a process that is started by exec has these defaults as its limits, and not those of its share: {}",
            limits.join(" and ")
        ))
    }

    /// The daemon's defaults allow the largest claim that may be made, because a client can only go below them.
    fn needs_daemon(&self, state_dir: &HostPath, exclusive_process: bool, users: MpsUsers) -> Vec<String> {
        let what = self.uuid.as_deref().unwrap_or("this device");
        let pipe = format!("CUDA_MPS_PIPE_DIRECTORY={}", self.pipe_directory(state_dir));
        let mut commands = Vec::new();
        if exclusive_process {
            commands.push(format!("nvidia-smi -i {what} -c EXCLUSIVE_PROCESS"));
        }
        let many = if users == MpsUsers::Many {
            " -multiuser-server"
        } else {
            ""
        };
        commands.push(format!(
            "CUDA_VISIBLE_DEVICES={what} {pipe} nvidia-cuda-mps-control -d{many}"
        ));
        let (memory, compute) = self.largest_claim();
        if let Some(mib) = memory {
            commands.push(format!(
                "echo set_default_device_pinned_mem_limit {what} {mib}M | {pipe} nvidia-cuda-mps-control"
            ));
        }
        if let Some(percent) = compute {
            commands.push(format!(
                "echo set_default_active_thread_percentage {percent} | {pipe} nvidia-cuda-mps-control"
            ));
        }
        commands
    }

    /// The pipe directory of this device's MPS daemon on the host: short, because a socket's path has 108 bytes.
    pub fn pipe_directory(&self, state_dir: &HostPath) -> HostPath {
        state_dir.join("mps").join(&self.device.cdi_name().replace(':', "-"))
    }
}

fn split_device(policy: &Policy, inventory: &Inventory, target: HostDevice<'_>, split: &Split) -> Result<SplitDevice> {
    let method = method(policy, target, split)?;
    let limit = clients::limit(split.strategy, inventory);
    let asked = match &split.parts {
        Parts::Equal(n) => *n as usize,
        Parts::Named(shares) => shares.len(),
        Parts::Whole => 1,
    };
    if let Some(limit) = limit
        && asked > limit.shares
    {
        let what = format!(
            "{asked} shares, and MPS serves {} clients here ({})",
            limit.shares, limit.why
        );
        return Err(policy
            .wrong(split.place, target, what)
            .hint(format!("ask for at most {}", limit.shares)));
    }
    let cut = arithmetic::cut(policy, target, split)?;
    let facts = guarantee::Facts {
        strategy: split.strategy,
        on_mig: target.mig.is_some(),
        exclusive_process: matches!(
            method,
            Method::Mps {
                exclusive_process: true,
                ..
            }
        ),
    };
    let memory_sum = cut
        .parts
        .iter()
        .map(|part| part.memory.map(MemorySize::mib))
        .sum::<Option<u64>>();
    let compute_sum = cut
        .parts
        .iter()
        .map(|part| part.compute.map(|c| u64::from(c.get())))
        .sum::<Option<u64>>();
    let memory_promised = memory_sum
        .zip(target.memory())
        .map(|(sum, whole)| percent(sum, whole.mib()));
    let compute_promised = compute_sum.map(|sum| percent(sum, 100));
    let shares = cut
        .parts
        .into_iter()
        .map(|part| Share {
            guarantees: guarantee::of(facts, part.memory.is_some(), part.compute.is_some()),
            name: part.name,
            memory: part.memory,
            compute: part.compute,
            priority: part.priority,
        })
        .collect();
    Ok(SplitDevice {
        device: target.device(),
        key: target.key(),
        uuid: target.uuid(),
        product: target.product(),
        kind: split.kind.clone(),
        method,
        memory: target.memory(),
        shares,
        memory_left_mib: cut.memory_left_mib,
        compute_left: cut.compute_left,
        most_memory_mib: target.memory().map(|memory| policy.overcommit_memory.of(memory.mib())),
        most_compute: u32::try_from(policy.overcommit_compute.of(100)).unwrap_or(u32::MAX),
        memory_promised,
        compute_promised,
        one_share_a_claim: split.fail_requests_greater_than_one,
    })
}

/// `part` in percent of `whole`, to the nearest.
fn percent(part: u64, whole: u64) -> u32 {
    let whole = u128::from(whole.max(1));
    u32::try_from((u128::from(part) * 100 + whole / 2) / whole).unwrap_or(u32::MAX)
}

fn method(policy: &Policy, target: HostDevice<'_>, split: &Split) -> Result<Method> {
    let vgpu = target.gpu.virtualization == Some(VirtualizationMode::Vgpu);
    let before_volta = target.gpu.architecture.is_some_and(|a| a < Architecture::Volta);
    match split.strategy {
        Strategy::Mps => {
            if before_volta {
                return Err(policy
                    .wrong(
                        split.place,
                        target,
                        "MPS has no limits before Volta, so a share would promise nothing",
                    )
                    .hint("use timeSlicing for this device"));
            }
            // MIG has no exclusive mode (MIG user guide, "CUDA MPS"), and a vGPU guest cannot set one.
            let exclusive_process =
                policy.mps.compute_mode == MpsComputeMode::Exclusive && target.mig.is_none() && !vgpu;
            Ok(Method::Mps {
                users: policy.mps.users,
                exclusive_process,
                grace: policy.mps.grace,
            })
        }
        Strategy::TimeSlicing => {
            let interval = policy.time_slicing.interval;
            if interval != Interval::Default && vgpu {
                return Err(policy
                    .wrong(split.place, target, "a vGPU guest cannot set the length of a turn")
                    .hint("leave timeSlicing.interval at default"));
            }
            // The length of a turn is a setting of a whole GPU.
            let interval = if target.mig.is_some() {
                Interval::Default
            } else {
                interval
            };
            Ok(Method::TimeSlicing { interval })
        }
        Strategy::Dedicated => Ok(Method::Dedicated),
    }
}

// Policies are written in YAML, which only the command line reads.
#[cfg(test)]
#[cfg(feature = "cli")]
mod tests;
