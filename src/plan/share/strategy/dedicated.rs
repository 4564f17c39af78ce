//! A device for one container at a time. It is not divided: the ledger alone keeps others from it.

use super::{GuaranteeRule, InContainer, MostShares, Rules, Size};
use crate::inventory::{HostDevice, Inventory};
use crate::policy::{Policy, Priority, Split};
use crate::share::guarantee::{Dimension, Grade};
use crate::share::{Need, Share, SplitDevice};
use serde::{Deserialize, Serialize};
use tranche_core::error::Result;
use tranche_core::types::{HostPath, Promise};

/// One container has the whole device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dedicated {}

impl Rules for Dedicated {
    fn stays_whole(&self) -> bool {
        true
    }

    fn most_shares(&self, _: &Inventory) -> Option<MostShares> {
        None
    }

    fn equal_part(&self, _: HostDevice<'_>, _: &Split, _: &Policy, _: u32) -> Result<Size> {
        Ok((None, None))
    }

    fn promise(&self, _: &SplitDevice, _: &Share) -> Promise {
        Promise::Whole
    }

    fn guarantee(&self, _: Dimension, _: bool) -> GuaranteeRule {
        GuaranteeRule {
            grade: Grade::Hard,
            by: "no other container that asks the ledger has the device",
            source: "The ledger gives the device to one container at a time (docs/reference/claims.md, \"Who holds what\")",
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

    fn needs(&self, _: &SplitDevice, _: &HostPath) -> Vec<Need> {
        Vec::new()
    }

    fn is_managed(&self) -> bool {
        false
    }

    fn withholds(&self, _: &str) -> bool {
        false
    }
}
