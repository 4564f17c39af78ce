//! The variables of a container's environment that may ask for something.
//!
//! An environment may list a variable more than once, as docker does for a variable of the image that `--gpus` sets. The
//! last one counts: runc and crun set the variables one after the other, so that the process sees the last one, and
//! NVIDIA's tools read it. An entry without `=` is no variable; runtimes pass it on or refuse it.

use std::collections::BTreeMap;

use super::{LEGACY, OWN_VARIABLES};
use crate::policy::RuntimeSettings;

const REQUIRE: &str = "NVIDIA_REQUIRE_";

/// What images for Tegra systems require, which is not a condition on the host.
const REQUIRE_JETPACK: &str = "NVIDIA_REQUIRE_JETPACK";

/// Variables and their values, in their order.
pub(super) struct Environment<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Environment<'a> {
    /// The variables of `entries` that are looked at.
    pub(super) fn of(entries: impl Iterator<Item = &'a str>, settings: &RuntimeSettings) -> Self {
        let is_of_interest = |name: &str| {
            name.starts_with("NVIDIA_")
                || name.starts_with(OWN_VARIABLES)
                || name == LEGACY
                || settings.swarm_resource.iter().any(|swarm| swarm == name)
        };
        let variables = entries.filter_map(|entry| entry.split_once('='));
        Self(variables.filter(|(name, _)| is_of_interest(name)).collect())
    }

    /// The value of a variable; `None` if it is not set.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .rev()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| *value)
    }

    /// Whether a variable has this value and no other character.
    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    /// Whether the image was made before images said in `NVIDIA_REQUIRE_CUDA` what they require, so that it says nothing
    /// about devices either. Such an image gets all.
    pub(super) fn is_legacy(&self) -> bool {
        self.get(LEGACY).is_some_and(|version| !version.is_empty())
            && self.get("NVIDIA_REQUIRE_CUDA").unwrap_or_default().is_empty()
    }

    /// The variables that require something of the host, by name, each once.
    pub(super) fn requirements(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let is_one = |name: &str| name.starts_with(REQUIRE) && !name.starts_with(REQUIRE_JETPACK);
        // The last one of a name stays. An environment may have tens of thousands of them.
        let named: BTreeMap<&str, &str> = self.0.iter().copied().filter(|(name, _)| is_one(name)).collect();
        named.into_iter()
    }
}
