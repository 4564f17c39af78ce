//! Reading a policy: strict in `sharing`, and every error has file, line and column.

mod config_map;
mod devices;
mod entry;
mod field;
mod shares;
mod sharing;
mod source;

pub use entry::MOST_PARTS;
pub use source::text;

use super::Policy;
use super::yaml::{self, Node, Origin, Value};
use crate::error::Result;
use field::Fields;
use std::path::Path;

/// Where a policy is looked for when nobody names one.
pub const DEFAULT_FILE: &str = "/etc/tranche/config.yaml";

/// A policy, and what in its file has no effect here.
#[derive(Debug)]
pub struct Read {
    /// The policy.
    pub policy: Policy,
    /// One line each: keys that have no meaning on a machine without Kubernetes, and choices that were made.
    pub warnings: Vec<String>,
}

/// Reads the file at `path`, which may be a policy or a ConfigMap that holds one under `key`.
///
/// # Errors
/// A file that cannot be read, or what [`parse_key`] says.
pub fn file(path: &Path, key: Option<&str>) -> Result<Read> {
    parse_key(&path.display().to_string(), &text(path)?, key)
}

/// Reads a policy from text; `file` is its name in messages.
///
/// # Errors
/// As [`parse_key`].
pub fn parse(file: &str, text: &str) -> Result<Read> {
    parse_key(file, text, None)
}

/// Reads a policy from text, or from the ConfigMap that the text is. `key` names one of the ConfigMap's configurations.
///
/// # Errors
/// Text that is not YAML, an unknown key in `sharing`, an impossible value: `file:line:column: what is wrong; what to do`.
pub fn parse_key(file: &str, text: &str, key: Option<&str>) -> Result<Read> {
    let mut warnings = Vec::new();
    let document = yaml::parse(file, text, Origin::File)?;
    let document = config_map::policy_in(file, text, &document, key, &mut warnings)?.unwrap_or(document);
    let mut top = Fields::of(file, "the policy", &document)?;
    match top.text("version")? {
        // The plugin reads a file without a version as v1 too.
        None => {}
        Some(version) if version.value == "v1" => {}
        Some(version) => {
            return Err(top
                .wrong(version.place, format!("version: \"{}\" is unknown", version.value))
                .hint("write version: v1"));
        }
    }
    let mut mig_too = false;
    if let Some(place) = top.place_of_key("flags") {
        warnings.push(format!(
            "{}: flags is for NVIDIA's device plugin in Kubernetes; migStrategy alone has an effect here",
            place.of(file)
        ));
        if let Some(flags) = top.take("flags") {
            mig_too = mig_strategy_is_single(file, flags, &mut warnings)?;
        }
    }
    for (key, why) in [
        (
            "resources",
            "names resources of Kubernetes, and NVIDIA's plugin ignores it too",
        ),
        ("imex", "is for NVIDIA's device plugin in Kubernetes"),
    ] {
        if let Some(place) = top.place_of_key(key) {
            warnings.push(format!("{}: {key} {why}; it has no effect here", place.of(file)));
            top.take(key);
        }
    }
    let policy = match top.take("sharing") {
        Some(node) => sharing::read(file, node, mig_too, &mut warnings)?,
        None => Policy::default(),
    };
    for (place, name) in top.rest() {
        let near = top
            .near(name)
            .map_or_else(String::new, |near| format!("; did you mean {near}?"));
        warnings.push(format!(
            "{}: \"{name}\" is unknown and has no effect{near}",
            place.of(file)
        ));
    }
    Ok(Read { policy, warnings })
}

/// Whether `nvidia.com/gpu` means MIG devices too. The plugin wants all GPUs of a machine to be alike then; here it means
/// every device on which work can run.
fn mig_strategy_is_single(file: &str, flags: &Node, warnings: &mut Vec<String>) -> Result<bool> {
    if !matches!(flags.value, Value::Map(_)) {
        return Ok(false);
    }
    let mut fields = Fields::of(file, "flags", flags)?;
    let Some(strategy) = fields.text("migStrategy")? else {
        return Ok(false);
    };
    if !matches!(strategy.value, "none" | "single" | "mixed" | "") {
        warnings.push(format!(
            "{}: migStrategy: \"{}\" is unknown and has no effect; write none, single or mixed",
            strategy.place.of(file),
            strategy.value
        ));
    }
    Ok(strategy.value == "single")
}

#[cfg(test)]
mod tests {
    use super::super::{Amount, DeviceSet, MpsComputeMode, Parts, Strategy, WholeDevice};
    use super::*;

    fn policy(text: &str) -> Policy {
        parse("c.yaml", text).unwrap().policy
    }

    fn complaint(text: &str) -> String {
        parse("c.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn a_device_plugin_file_works_unchanged() {
        let read = parse(
            "c.yaml",
            "version: v1\nflags:\n  migStrategy: none\nsharing:\n  timeSlicing:\n    renameByDefault: true\n    \
             failRequestsGreaterThanOne: true\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 10\n",
        )
        .unwrap();
        let split = &read.policy.splits[0];
        assert_eq!(split.strategy, Strategy::TimeSlicing);
        assert_eq!(split.parts, Parts::Equal(10));
        assert_eq!(split.devices, DeviceSet::All);
        assert_eq!(split.kind.to_string(), "nvidia.com/gpu.shared");
        assert!(split.fail_requests_greater_than_one);
        assert_eq!(read.warnings.len(), 1);
        assert!(read.warnings[0].starts_with("c.yaml:2:"), "{:?}", read.warnings);
    }

    #[test]
    fn everything_of_ours() {
        let p = policy(
            "version: v1\nsharing:\n  mps:\n    users: one\n    computeMode: keep\n    grace: 5\n    resources:\n    \
             - name: nvidia.com/gpu\n      devices: [0, \"1:0\"]\n      shares:\n      \
             - {name: big, compute: 80%, memory: 64Gi}\n      - {name: small, compute: 20, memory: 10%, priority: below-normal}\n  \
             timeSlicing:\n    interval: short\n    resources:\n    - {name: nvidia.com/gpu, devices: 2, replicas: 4, rename: slice}\n  \
             wholeDevice: hide\n  overcommit: {memory: 1.5}\n",
        );
        assert_eq!(p.mps.compute_mode, MpsComputeMode::Keep);
        assert_eq!(p.mps.grace, 5);
        assert_eq!(p.whole_device, WholeDevice::Hide);
        assert_eq!(p.overcommit_memory.to_string(), "1.5");
        let mps = p.splits.iter().find(|s| s.strategy == Strategy::Mps).unwrap();
        let Parts::Named(shares) = &mps.parts else { panic!() };
        assert_eq!(shares[1].memory, Some(Amount::Percent("10%".parse().unwrap())));
        assert!(!mps.fail_requests_greater_than_one);
        let ts = p.splits.iter().find(|s| s.strategy == Strategy::TimeSlicing).unwrap();
        assert_eq!(ts.devices, DeviceSet::Count(2));
        assert_eq!(ts.kind.to_string(), "nvidia.com/slice");
    }

    #[test]
    fn complaints_say_where_and_what_is_near() {
        let e = complaint("version: v1\nsharing:\n  timeSlice:\n    resources: []\n");
        assert!(
            e.starts_with("c.yaml:3:3: ") && e.ends_with("did you mean timeSlicing?"),
            "{e}"
        );
        let e = complaint("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 1}\n");
        assert!(e.starts_with("c.yaml:4:") && e.contains('2'), "{e}");
        let e = complaint(
            "sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, shares: [{name: a, compute: 120%}]}\n",
        );
        assert!(e.starts_with("c.yaml:4:") && e.contains("120%"), "{e}");
        let e = complaint("version: v2\n");
        assert!(e.starts_with("c.yaml:1:10: "), "{e}");
        assert!(complaint("[1]\n").starts_with("c.yaml:1:1: "));
        assert!(complaint("sharing:\n  timeSlicing:\n    resources: []\n").contains("resources"));
        assert!(complaint("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu}\n").contains("replicas"));
        assert!(
            complaint("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2, shares: []}\n")
                .contains("replicas")
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_harms_the_reader(text in "[a-zA-Z0-9:,\\-\\[\\]{}\"#&*!|>%@ \n]{0,200}") {
            if let Err(e) = parse("p.yaml", &text) {
                let e = e.to_string();
                proptest::prop_assert!(e.starts_with("p.yaml") && !e.contains('\n'), "{e}");
            }
        }

        #[test]
        fn nor_does_a_broken_policy(at in 0usize..2000, byte in 32u8..127, cut: bool) {
            let mut text = include_str!("../../docs/examples/config.yaml").to_owned();
            let at = at % text.len();
            if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                if cut { text.truncate(at) } else { text.replace_range(at..=at, char::from(byte).encode_utf8(&mut [0; 4])) }
            }
            if let Err(e) = parse("p.yaml", &text) {
                proptest::prop_assert!(e.to_string().starts_with("p.yaml:"), "{e}");
            }
        }
    }
}
