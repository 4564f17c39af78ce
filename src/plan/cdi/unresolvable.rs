//! Why a name is not a CDI device: engines say only "unresolvable CDI devices".

use super::registry::Registry;
use std::path::PathBuf;
use tranche_core::call::ClaimCall;
use tranche_core::error::Error;
use tranche_core::text::{candidates, some};
use tranche_core::types::{MigProfile, QualifiedName, ShareName};

/// The reason why `registry`, which was read from `dirs`, does not have the device `name`, and what it has instead.
pub fn unresolvable(name: &str, registry: &Registry, dirs: &[PathBuf]) -> Error {
    if let Some(problem) = registry.loss_of(name) {
        return Error::usage(name, "is lost").hint(problem);
    }
    let Some((kind, _)) = name.split_once('=') else {
        return incomplete(name, registry);
    };
    if name.strip_suffix("=all") == Some(kind) && is_claimed(registry, kind) {
        let names = names(registry, |name| name.kind.to_string() == kind);
        let what =
            "has no device: it would have those that need no claim, and the policy splits or dedicates every device";
        return Error::usage(name, what).hint(format!("name a device or a share: {}", candidates(name, &names)));
    }
    if let Some(device) = name
        .strip_prefix("nvidia.com/gpu=")
        .filter(|device| is_chosen_late(device))
    {
        let what = "is in no specification, because the device is chosen when a container starts, and an engine needs its nodes \
                    before";
        return Error::usage(name, what).hint(format!(
            "under tranche's runtime, set NVIDIA_VISIBLE_DEVICES={device}; elsewhere make a claim with tranche claim create"
        ));
    }
    let names = names(registry, |name| name.kind.to_string() == kind);
    let dirs: Vec<String> = dirs.iter().map(|d| d.display().to_string()).collect();
    Error::usage(name, "no such CDI device").hint(match names.as_slice() {
        [] if kind == "nvidia.com/gpu" => format!(
            "no file in {} has that kind; tranche cdi refresh writes it",
            some(&dirs)
        ),
        [] => format!("no file in {} has that kind", some(&dirs)),
        names => match nearest(name, names) {
            Some(nearest) => format!("did you mean {nearest}? expected one of {}", candidates(name, names)),
            None => format!("expected one of {}", candidates(name, names)),
        },
    })
}

/// Whether the device with this name is chosen, or made, at the start of a container.
fn is_chosen_late(device: &str) -> bool {
    device == ShareName::ANY || MigProfile::of_on_demand(device).is_some()
}

/// Whether a device of `kind` is given with a claim only.
fn is_claimed(registry: &Registry, kind: &str) -> bool {
    registry.devices().any(|(name, found)| {
        let mut hooks = found.device.edits.hooks.iter();
        name.kind.to_string() == kind && hooks.any(|hook| ClaimCall::of_hook(&hook.args).is_some())
    })
}

/// The number of characters in which a mistyped name may differ from the one that was meant.
const TYPING_MISTAKES: usize = 2;

/// The length in bytes of the longest name that a person types. A longer one is compared with no other: the time of a
/// comparison is the product of both lengths, and an image chooses one of them.
const LONGEST_TYPED: usize = 256;

/// The one of `names` that a person who wrote `name` may have meant.
fn nearest<'a>(name: &str, names: &'a [String]) -> Option<&'a String> {
    if name.len() > LONGEST_TYPED {
        return None;
    }
    let alike = names
        .iter()
        .filter(|known| known.len() <= LONGEST_TYPED)
        .map(|known| (strsim::damerau_levenshtein(name, known), known));
    alike
        .filter(|(edits, _)| *edits <= TYPING_MISTAKES)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, known)| known)
}

/// Suggests the whole name of a device for `name`, which lacks the kind.
fn incomplete(name: &str, registry: &Registry) -> Error {
    let names = names(registry, |whole| whole.device.as_str() == name);
    Error::usage(name, "is not a complete CDI name").hint(match names.as_slice() {
        [] => "write it as KIND=NAME, for example nvidia.com/gpu=0".to_owned(),
        [one] => format!("use {one}"),
        names => format!("expected one of {}", candidates("", names)),
    })
}

/// The devices of which `is_meant` is true.
fn names(registry: &Registry, is_meant: impl Fn(&QualifiedName) -> bool) -> Vec<String> {
    let names = registry.devices().map(|(name, _)| name);
    names.filter(|name| is_meant(name)).map(ToString::to_string).collect()
}
