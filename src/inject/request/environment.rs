//! The variables of a container's environment that may ask for something.
//!
//! An environment may list a variable more than once, as docker does for a variable of the image that `--gpus` sets.
//! The last one counts: runc and crun set the variables one after the other, so that the process sees the last one, and
//! NVIDIA's tools read it. An entry without `=` is no variable; runtimes pass it on or refuse it.

use std::collections::BTreeMap;

use super::{LEGACY, OWN_VARIABLES, VISIBLE};
use tranche_plan::policy::RuntimeSettings;

const REQUIRE: &str = "NVIDIA_REQUIRE_";

/// What images for Tegra systems require, which is not a condition on the host.
const REQUIRE_JETPACK: &str = "NVIDIA_REQUIRE_JETPACK";

/// Variables with the last value of each. Of a hundred thousand variables, each is compared a few times.
pub(super) struct Environment<'a> {
    variables: BTreeMap<&'a str, Variable<'a>>,
    /// Where docker's own entries begin, if docker has set the devices for `--gpus`.
    of_docker: Option<usize>,
}

#[derive(Clone, Copy)]
struct Variable<'a> {
    /// Its place among the entries.
    at: usize,
    value: &'a str,
}

impl<'a> Environment<'a> {
    /// The variables of `entries` that are looked at. `by_gpus` says that docker has set devices for `--gpus`: it
    /// appends them behind the variables of the user and of the image, and behind them what they are for (moby,
    /// daemon/nvidia_linux.go).
    pub(super) fn of(entries: impl Iterator<Item = &'a str>, settings: &RuntimeSettings, by_gpus: bool) -> Self {
        let is_of_interest = |name: &str| {
            name.starts_with("NVIDIA_")
                || name.starts_with(OWN_VARIABLES)
                || name == LEGACY
                || settings.swarm_resource.iter().any(|swarm| swarm == name)
        };
        let variables = entries.enumerate().filter_map(|(at, entry)| {
            let (name, value) = entry.split_once('=')?;
            is_of_interest(name).then_some((name, Variable { at, value }))
        });
        let variables: BTreeMap<&str, Variable<'_>> = variables.collect();
        let of_docker = variables.get(VISIBLE).filter(|_| by_gpus).map(|last| last.at);
        Self { variables, of_docker }
    }

    /// The value of a variable; `None` if it is not set.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.variables.get(name).map(|variable| variable.value)
    }

    /// Whether docker has set this variable for `--gpus`, and not the image.
    pub(super) fn is_by_gpus(&self, name: &str) -> bool {
        let at = self.variables.get(name).map(|variable| variable.at);
        self.of_docker.is_some_and(|from| at >= Some(from))
    }

    /// Whether a variable has this value and no other character.
    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    /// Whether the image was made before images said in `NVIDIA_REQUIRE_CUDA` what they require, so that it says
    /// nothing about devices either. Such an image gets all.
    pub(super) fn is_legacy(&self) -> bool {
        self.get(LEGACY).is_some_and(|version| !version.is_empty())
            && self.get("NVIDIA_REQUIRE_CUDA").unwrap_or_default().is_empty()
    }

    /// The variables that require something of the host, by name, each once.
    pub(super) fn requirements(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let is_one = |name: &str| name.starts_with(REQUIRE) && !name.starts_with(REQUIRE_JETPACK);
        let all = self.variables.iter().map(|(name, variable)| (*name, variable.value));
        all.filter(move |(name, _)| is_one(name))
    }
}
