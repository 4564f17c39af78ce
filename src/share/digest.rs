//! The digest of a policy on one host.

use super::Plan;
use crate::digest::Digest;
use crate::error::Result;

impl Plan {
    /// The digest of all that specifications take from this plan: the shares, their names, and how long a start waits
    /// for one. Messages, and where a policy was read from, do not count: a policy that is only written in another way
    /// has the same digest, and one that shares nothing has that of no policy.
    ///
    /// # Errors
    /// Returns an error if the plan cannot be written as JSON.
    pub fn digest(&self) -> Result<Digest> {
        let Plan {
            devices,
            whole_device,
            names,
            wait,
            quota: _,
            notes: _,
            warnings: _,
            absent: _,
        } = self;
        Digest::of(&(!devices.is_empty()).then_some((devices, whole_device, names, wait)))
    }
}
