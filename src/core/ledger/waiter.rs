//! What a start waits for.

use crate::types::{DeviceKey, HeldPart, ShareName};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a waiter may get of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitedFor {
    /// The device.
    pub device: DeviceKey,
    /// The shares; empty for any part of the device.
    pub shares: Vec<ShareName>,
}

impl WaitedFor {
    /// Whether the waiter may get `part` of `device`, or something that cannot be held at the same time.
    pub fn overlaps(&self, device: &DeviceKey, part: &HeldPart) -> bool {
        let is_any = self.shares.is_empty() || *part == HeldPart::Whole || self.device != *device;
        let has = |name: &ShareName| self.shares.contains(name);
        self.device.overlaps(device) && (is_any || part.shares().iter().any(|share| has(&share.name)))
    }
}

/// A start that waits for a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// Its place in the order.
    pub(super) number: u64,
    /// What may serve it; `None` if another version of tranche wrote its ticket: it may wait for anything.
    pub(super) wants: Option<Arc<[WaitedFor]>>,
}

impl Waiter {
    /// The number of its ticket.
    pub fn ticket(&self) -> u64 {
        self.number
    }

    /// One who waits without a ticket: `wants` may serve it.
    pub fn without_ticket(wants: Arc<[WaitedFor]>) -> Self {
        Self {
            number: u64::MAX,
            wants: Some(wants),
        }
    }

    /// Whether one of `wants` and what it waits for may be the same.
    pub fn competes(&self, wants: &[WaitedFor]) -> bool {
        let may_be_same = |a: &WaitedFor, b: &WaitedFor| {
            let is_any = a.shares.is_empty() || b.shares.is_empty() || a.device != b.device;
            a.device.overlaps(&b.device) && (is_any || a.shares.iter().any(|name| b.shares.contains(name)))
        };
        let own = self.wants.as_ref();
        own.is_none_or(|own| own.iter().any(|a| wants.iter().any(|b| may_be_same(a, b))))
    }

    /// Whether something that serves `other` may serve it, too.
    pub fn competes_with(&self, other: &Self) -> bool {
        other.wants.as_ref().is_none_or(|wants| self.competes(wants))
    }

    /// The shares of `device` that it waits for by name.
    pub fn named<'a>(&'a self, device: &'a DeviceKey) -> impl Iterator<Item = &'a ShareName> + 'a {
        let wants = self.wants.iter().flat_map(|wants| wants.iter());
        wants
            .filter(|wanted| wanted.device == *device)
            .flat_map(|wanted| &wanted.shares)
    }

    /// Whether it may get `part` of `device`, or something that cannot be held at the same time.
    pub fn wants(&self, device: &DeviceKey, part: &HeldPart) -> bool {
        let wants = self.wants.as_ref();
        wants.is_none_or(|wants| wants.iter().any(|wanted| wanted.overlaps(device, part)))
    }
}
