//! What a part of a device that somebody names is under a plan; and if it is nothing, what there is instead.

use super::{Plan, SplitDevice, Wish};
use crate::inventory::HostDevice;
use std::fmt::Display;
use tranche_core::error::{Error, Result};
use tranche_core::text::candidates;
use tranche_core::types::Part;

impl Plan {
    /// How `device` is split or dedicated. `object` is what was asked for, for the message.
    ///
    /// # Errors
    /// Returns a usage error that lists the devices which the policy shares, if it does not share this one.
    pub fn shared(&self, device: HostDevice<'_>, object: impl Display) -> Result<&SplitDevice> {
        self.split(device.device()).ok_or_else(|| {
            let shared: Vec<String> = self.devices.iter().map(|split| split.device.cdi_name()).collect();
            Error::usage(object, "the policy does not share this device").hint(match shared.is_empty() {
                true => "tranche plan shows what the policy shares".to_owned(),
                false => format!("the policy shares {}", candidates(&device.device().cdi_name(), &shared)),
            })
        })
    }
}

impl Wish {
    /// Adds `part` of `device`, which was asked for as `object`. A share that is named twice is one share, and any
    /// share twice is two. The whole of a dedicated device is its only share.
    ///
    /// # Errors
    /// Returns a usage error that lists what there is, if the policy does not share the device or has no such share of
    /// it, and for a device other than the one that was added before.
    pub fn add(&mut self, plan: &Plan, device: HostDevice<'_>, part: &Part, object: impl Display) -> Result<()> {
        let split = plan.shared(device, &object)?;
        if self.device.is_some_and(|first| first != split.device) {
            let error = Error::usage(object, "is of another device than the first share");
            return Err(error.hint("name shares of one device"));
        }
        match (part, split.method.is_whole()) {
            (Part::Whole, true) => self.shares = Some(1),
            (Part::Any, false) if split.replica().is_some() => self.shares = Some(self.shares.unwrap_or(0) + 1),
            (Part::Share(name), false) if split.share(name).is_some() => {
                if !self.names.contains(name) {
                    self.names.push(name.clone());
                }
            }
            _ => return Err(Error::usage(object, "not a share of this host").hint(split.instead(device, part))),
        }
        self.device = Some(split.device);
        Ok(())
    }
}

impl SplitDevice {
    /// What may be asked for instead of a part that it does not have: any of its equal replicas first.
    fn instead(&self, device: HostDevice<'_>, asked: &Part) -> String {
        let name = device.name();
        if self.method.is_whole() {
            return format!("{device} is dedicated, so it has no shares; ask for all of it: {name}");
        }
        let any = self.replica().map(|_| Part::Any);
        let named = self.shares.listed().map(Part::Share);
        let names: Vec<String> = any.into_iter().chain(named).map(|part| part.name_of(&name)).collect();
        format!("expected {}", candidates(&asked.name_of(&name), &names))
    }
}
