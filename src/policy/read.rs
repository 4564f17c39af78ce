//! Reading a policy: strict, and every complaint with file, line and column.

mod field;
mod sharing;

use super::Policy;
use super::yaml;
use crate::error::{Context, Error, Result};
use field::Fields;
use std::path::Path;

/// Where a policy is looked for when nobody says.
pub const DEFAULT_FILE: &str = "/etc/tranche/config.yaml";

/// A policy, and what in its file means nothing here.
#[derive(Debug)]
pub struct Read {
    /// The policy.
    pub policy: Policy,
    /// Keys of NVIDIA's that have no meaning on a machine without Kubernetes; one line each.
    pub warnings: Vec<String>,
}

/// A policy file larger than this is none: the longest that a person writes is a few hundred lines.
const MOST_BYTES: u64 = 1 << 20;

/// Reads the file at `path`.
///
/// # Errors
/// A file that cannot be read, or what [`parse`] says.
pub fn file(path: &Path) -> Result<Read> {
    let size = std::fs::metadata(path).about(path.display(), "cannot be read")?.len();
    if size > MOST_BYTES {
        return Err(Error::usage(
            path.display(),
            format!("{size} bytes is no policy; the most is {MOST_BYTES}"),
        ));
    }
    let text = std::fs::read_to_string(path).about(path.display(), "cannot be read")?;
    parse(&path.display().to_string(), &text)
}

/// Reads a policy from text; `file` is its name in messages.
///
/// # Errors
/// What is not YAML, a key that nobody knows, a value that cannot be: `file:line:column: what`.
pub fn parse(file: &str, text: &str) -> Result<Read> {
    let document = yaml::parse(file, text)?;
    let mut warnings = Vec::new();
    let mut top = Fields::of(file, "the policy", &document)?;
    match top.text("version")? {
        // The plugin reads a file without a version as v1 too.
        None => {}
        Some(version) if version.value == "v1" => {}
        Some(version) => {
            return Err(version
                .wrong(format!("version {} is not known", version.value))
                .hint("this program reads v1"));
        }
    }
    for (key, why) in [
        ("flags", "is for NVIDIA's device plugin in Kubernetes"),
        (
            "resources",
            "names resources of Kubernetes; NVIDIA's plugin ignores it too",
        ),
        ("imex", "is for NVIDIA's device plugin in Kubernetes"),
    ] {
        if let Some(place) = top.place_of_key(key) {
            warnings.push(format!("{place}: {key} {why}; it means nothing here"));
            top.take(key);
        }
    }
    let policy = match top.take("sharing") {
        Some(node) => sharing::read(file, node, &mut warnings)?,
        None => Policy::default(),
    };
    top.finish()?;
    Ok(Read { policy, warnings })
}

#[cfg(test)]
mod tests {
    use super::super::{Amount, DeviceSelector, MpsComputeMode, Parts, Strategy, WholeDevice};
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
        assert_eq!(split.devices, DeviceSelector::All);
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
        assert_eq!(ts.devices, DeviceSelector::Count(2));
        assert_eq!(ts.kind.to_string(), "nvidia.com/slice");
    }

    #[test]
    fn complaints_say_where_and_what_is_near() {
        let e = complaint("version: v1\nsharing:\n  timeslicing:\n    resources: []\n");
        assert!(e.starts_with("c.yaml:3:3: ") && e.contains("timeSlicing"), "{e}");
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
