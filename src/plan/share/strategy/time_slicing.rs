//! Time-slicing: the driver lets the processes of all containers run in turn. Nothing limits one of them.

use super::{GuaranteeRule, InContainer, MostShares, Rules, Size};
use crate::inventory::{HostDevice, Inventory, VirtualizationMode};
use crate::policy::{Policy, Priority, Split};
use crate::share::guarantee::{Dimension, Grade};
use crate::share::{Need, Share, SplitDevice};
use serde::{Deserialize, Serialize};
use tranche_core::error::Result;
use tranche_core::types::{HostPath, Interval, Promise};

/// The driver lets processes run in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeSlicing {
    /// How long a turn is.
    pub interval: Interval,
}

impl TimeSlicing {
    pub(super) fn new(policy: &Policy, target: HostDevice<'_>, split: &Split) -> Result<Self> {
        let interval = policy.interval;
        if interval != Interval::Default && target.gpu.virtualization == Some(VirtualizationMode::Vgpu) {
            return Err(policy
                .wrong(split.place, target, "a vGPU guest cannot set the length of a turn")
                .hint("leave timeSlicing.interval at default"));
        }
        Ok(Self {
            // The length of a turn is a setting of a whole GPU.
            interval: target.mig.map_or(interval, |_| Interval::Default),
        })
    }
}

impl Rules for TimeSlicing {
    fn stays_whole(&self) -> bool {
        false
    }

    fn most_shares(&self, _: &Inventory) -> Option<MostShares> {
        None
    }

    /// Nothing limits a replica, so that any number would be invented.
    fn equal_part(&self, _: HostDevice<'_>, _: &Split, _: &Policy, _: u32) -> Result<Size> {
        Ok((None, None))
    }

    fn promise(&self, device: &SplitDevice, _: &Share) -> Promise {
        Promise::Slices {
            slices: 1,
            of: u32::try_from(device.shares.len()).unwrap_or(u32::MAX),
        }
    }

    fn guarantee(&self, dimension: Dimension, _: bool) -> GuaranteeRule {
        let by = match dimension {
            Dimension::Memory => "nothing limits memory under time-slicing; a size is counted in the ledger only",
            Dimension::Compute => "turns are fair in time between busy processes; there is no ceiling",
            Dimension::Bandwidth => "only MIG divides bandwidth",
            Dimension::Faults => "a fault ends its own process; a GPU that hangs does so for all",
        };
        let grade = match dimension {
            Dimension::Faults => Grade::Soft,
            Dimension::Memory | Dimension::Compute | Dimension::Bandwidth => Grade::None,
        };
        GuaranteeRule {
            grade,
            by,
            source: "NVIDIA k8s-device-plugin documentation, \"Time-slicing\"; \
                     GPU Operator documentation, \"Limitations\"",
        }
    }

    fn against_root(&self, grade: Grade) -> Grade {
        grade
    }

    fn not_used(&self, _: bool) -> Vec<&'static str> {
        Vec::new()
    }

    fn in_container(&self, _: &SplitDevice, _: Promise, _: Priority, _: &HostPath) -> Result<InContainer> {
        Ok(InContainer::default())
    }

    fn needs(&self, device: &SplitDevice, _: &HostPath) -> Vec<Need> {
        match self.interval {
            Interval::Default => Vec::new(),
            interval => vec![Need::TimeSlice {
                gpu: device.device.gpu,
                interval,
            }],
        }
    }

    fn is_managed(&self) -> bool {
        self.interval != Interval::Default
    }

    fn withholds(&self, _: &str) -> bool {
        false
    }
}
