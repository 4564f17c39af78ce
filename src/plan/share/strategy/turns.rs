//! Turns: each holder has the whole device for a time, while the memory of the others is in host memory.
//! [`crate::turns`] has the rule, and the broker makes the changes.

use super::{GuaranteeRule, InContainer, MostShares, Rules, Size};
use crate::inventory::{HostDevice, Inventory};
use crate::policy::{Policy, Priority, Split, TurnSettings};
use crate::share::guarantee::{Dimension, Grade};
use crate::share::{Need, Share, SplitDevice};
use crate::turns::drivers;
use crate::turns::tries::CopyRate;
use serde::{Deserialize, Serialize};
use tranche_core::error::Result;
use tranche_core::types::{HostPath, Promise};

/// Holders have the whole device one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    /// What the policy says of it.
    pub settings: TurnSettings,
}

impl Turns {
    pub(super) fn new(
        policy: &Policy,
        inventory: &Inventory,
        target: HostDevice<'_>,
        split: &Split,
        settings: TurnSettings,
    ) -> Result<Self> {
        match drivers::unfit(inventory, target) {
            None => Ok(Self { settings }),
            Some(what) => Err(policy
                .wrong(split.place, target, format!("turns: {what}"))
                .hint("share this device by timeSlicing or mps")),
        }
    }
}

/// By what a share has the memory where the rate of a change was measured.
pub(in crate::share) fn memory_by_turns_at(rate: CopyRate) -> String {
    format!("the whole memory while it is the holder's turn; a change copies what is in use, {rate} (experimental)")
}

impl Rules for Turns {
    fn stays_whole(&self) -> bool {
        false
    }

    /// The policy's own bound is lower ([`TurnSettings::MOST_HOLDERS`]).
    fn most_shares(&self, _: &Inventory) -> Option<MostShares> {
        None
    }

    /// A holder has all of it, for a time.
    fn equal_part(&self, _: HostDevice<'_>, _: &Split, _: &Policy, _: u32) -> Result<Size> {
        Ok((None, None))
    }

    fn promise(&self, _: &SplitDevice, _: &Share) -> Promise {
        Promise::Turns {
            holders: self.settings.holders,
        }
    }

    fn guarantee(&self, dimension: Dimension, _: bool) -> GuaranteeRule {
        let by = match dimension {
            Dimension::Memory => {
                "the whole memory while it is the holder's turn; a change copies what is in use, at a rate that was not \
                 measured here (experimental); tranche turns try measures it"
            }
            Dimension::Compute => "the whole GPU while it is the holder's turn, nothing otherwise (experimental)",
            Dimension::Bandwidth => "the whole bandwidth but for a change's copy (experimental)",
            Dimension::Faults => {
                "suspended work is not on the GPU; the driver's own faults in suspending are known ones"
            }
        };
        GuaranteeRule {
            grade: Grade::Hard,
            by,
            source: "CUDA driver API, \"CUDA checkpointing\"; docs/explanation/turns.md",
        }
    }

    /// Root can open any node, and so take memory before a turn begins.
    fn against_root(&self, grade: Grade) -> Grade {
        grade.lower()
    }

    fn not_used(&self, _: bool) -> Vec<&'static str> {
        Vec::new()
    }

    fn in_container(&self, _: &SplitDevice, _: Promise, _: Priority, _: &HostPath) -> Result<InContainer> {
        Ok(InContainer::default())
    }

    fn needs(&self, device: &SplitDevice, _: &HostPath) -> Vec<Need> {
        vec![Need::Turns {
            uuid: device.uuid.clone(),
        }]
    }

    fn is_managed(&self) -> bool {
        true
    }

    /// The driver cannot suspend a client of MPS.
    fn withholds(&self, name: &str) -> bool {
        name.starts_with("nvidia-cuda-mps-")
    }
}
