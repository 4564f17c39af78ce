//! Reading a policy: strict in `sharing`, and every error has file, line and column.

mod config_map;
mod document;
mod entry;
mod fill;
mod flags;
mod mig;
mod misplaced;
mod peer;
mod runtime;
mod sections;
mod sharing;
mod source;
mod turns;

pub use runtime::{is_runtime, is_variable};
pub use source::text;

use super::{Door, KubernetesEntry, KubernetesSection, Placed, Policy, RuntimeMode, RuntimeSettings};
use crate::yaml::{Node, TextOrigin, Value};
pub(crate) use document::Document;
pub(crate) use fill::Filler;
use fill::nearest;
use flags::Flags;
use sections::{KubernetesDevices, KubernetesFields, Top};
use std::path::Path;
use tranche_core::error::{Error, Result};
use tranche_protocol::PodPlacement;

/// Where a policy is looked for if nobody names one.
pub const DEFAULT_FILE: &str = "/etc/tranche/config.yaml";

/// The name of the policy that a Kubernetes cluster has given this node, in the directory that outlives a boot. It
/// counts where nobody names a policy and [`DEFAULT_FILE`] does not exist: what the node's owner has decided comes
/// first.
pub const CLUSTER_FILE: &str = "kubernetes.yaml";

/// A policy, and what in its file has no effect here.
#[derive(Debug)]
pub struct Read {
    /// The policy.
    pub policy: Policy,
    /// The settings of the runtime shim; `None` if the file has no section `runtime`.
    pub runtime: Option<RuntimeSettings>,
    /// One line each: keys that have no meaning on a machine without Kubernetes, and choices that were made.
    pub warnings: Vec<String>,
}

/// Reads the file at `path`, which may be a policy or a ConfigMap that holds one under `key`.
///
/// # Errors
/// Returns an error if the file cannot be read, and the errors of [`parse_key`].
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
/// Returns a usage error with line and column for text that is not valid YAML, an unknown key in `sharing` or
/// `runtime`, a section at a place where nothing reads it, or an impossible value.
pub fn parse_key(file: &str, text: &str, key: Option<&str>) -> Result<Read> {
    let mut warnings = Vec::new();
    let mut document = Document {
        file,
        origin: TextOrigin::File,
    };
    let mut root = document.parse(text)?;
    if let Some((inner, origin)) = config_map::policy_in(&document, text, &root, key, &mut warnings)? {
        document.origin = origin;
        root = document.parse(inner)?;
    }
    let top: Top = Filler::of(&document, &root, "the policy").fill()?;
    // The plugin reads a file without a version as v1 too.
    if let Some(version) = top.version.filter(|version| version.value != "v1") {
        let what = format!("version: \"{}\" is unknown", version.value);
        return Err(Error::usage(version.place.of(file), what).hint("write version: v1"));
    }
    misplaced::check(&document, &root)?;
    let flags = without_effect(&document, &root, &mut warnings)?;
    let mut policy = match top.sharing {
        Some(sharing) => sharing::read(file, sharing, flags.mig_too, &mut warnings)?,
        None => Policy {
            file: file.to_owned(),
            ..Policy::default()
        },
    };
    let section = top.kubernetes.map(kubernetes).unwrap_or_default();
    // The plugin's word, or its default in a file of the plugin. Where nothing is shared, it says nothing.
    let default = || peer::is_of_the_plugin(&root).then_some(PodPlacement::Distributed);
    let of_plugin = match policy.splits.is_empty() {
        true => None,
        false => flags.placement.or_else(default),
    };
    policy.kubernetes = KubernetesSection {
        mig_as_gpus: flags.mig_too,
        placement: section.placement.or(of_plugin),
        ..section
    };
    if let Some(section) = top.mig {
        policy.mig_layouts = mig::layouts(file, section.layout)?;
        policy.mig_on_demand = section.on_demand.map(|on_demand| on_demand.devices);
    }
    let runtime = top.runtime.map(|section| runtime::read(file, section)).transpose()?;
    warnings.extend(
        runtime
            .as_ref()
            .and_then(|settings| mode_without_effect(file, settings.mode)),
    );
    Ok(Read {
        policy,
        runtime,
        warnings,
    })
}

/// The section `kubernetes`.
fn kubernetes(fields: KubernetesFields) -> KubernetesSection {
    let entry = |Placed { place, value }: Placed<KubernetesDevices>| KubernetesEntry {
        devices: value.devices,
        door: value.door,
        resource: value.resource,
        place,
    };
    KubernetesSection {
        door: fields.door.unwrap_or(Door::DevicePlugin),
        placement: fields.placement,
        entries: fields.devices.into_iter().map(entry).collect(),
        ..KubernetesSection::default()
    }
}

/// A warning about a mode of NVIDIA's runtime that tranche does not have.
pub fn mode_without_effect(file: &str, mode: RuntimeMode) -> Option<String> {
    let word = match mode {
        RuntimeMode::Auto | RuntimeMode::Cdi | RuntimeMode::JitCdi => return None,
        RuntimeMode::Legacy => "legacy",
        RuntimeMode::Csv => "csv",
    };
    Some(format!(
        "{file}: the runtime's mode {word} is not supported; the mode auto is used in its place"
    ))
}

/// Warns of the keys at the top that have no effect. Returns what `flags` says.
fn without_effect(document: &Document<'_>, root: &Node, warnings: &mut Vec<String>) -> Result<Flags> {
    let mut flags = Flags::default();
    let Value::Map(entries) = &root.value else {
        return Ok(flags);
    };
    for (key, value) in entries {
        let name = key.value.text().unwrap_or_default();
        let mut warn = |what: String| warnings.push(format!("{}: {what}", document.place(key).of(document.file)));
        match name.to_ascii_lowercase().as_str() {
            "version" | "sharing" | "runtime" | "kubernetes" | "mig" => {}
            "flags" => flags = flags::read(document, value, warnings)?,
            "resources" => warn(
                "resources names resources of Kubernetes, and NVIDIA's plugin ignores it too; it has no effect here"
                    .into(),
            ),
            "imex" => warn("imex is for NVIDIA's device plugin in Kubernetes; it has no effect here".into()),
            _ => {
                let near =
                    nearest(name, &misplaced::TOP).map_or_else(String::new, |near| format!("; did you mean {near}?"));
                warn(format!("\"{name}\" is unknown and has no effect{near}"));
            }
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::super::{
        Amount, DeviceSet, MpsBlocked, MpsComputeMode, MpsDaemonOwner, MpsEnforcement, MpsSettings, MpsUsers, Parts,
        Strategy, WholeDevice,
    };
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
        assert_eq!(read.warnings, [""; 0]);
    }

    /// Which device a container of a pod gets: NVIDIA's default in a file of NVIDIA's plugin, and the word of either.
    #[test]
    fn a_file_of_the_plugin_distributes_as_the_plugin_does() {
        let sharing =
            "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 4}\n";
        let flag = |policy: &str| format!("flags: {{plugin: {{sharedDevicesAllocationPolicy: {policy}}}}}\n{sharing}");
        let own = |more: &str| format!("{sharing}{more}");
        for (text, expected) in [
            // Whole GPUs are not placed.
            ("version: v1\n".to_owned(), None),
            (sharing.to_owned(), Some(PodPlacement::Distributed)),
            (
                sharing.replace("timeSlicing", "TIMESLICING"),
                Some(PodPlacement::Distributed),
            ),
            (flag("packed"), Some(PodPlacement::Packed)),
            (flag("distributed"), Some(PodPlacement::Distributed)),
            // Keys of tranche: its own default, which the kubelet's plugin has.
            (own("  placement: packed\n"), None),
            (own("kubernetes: {door: dra}\n"), None),
            (own("  mps:\n"), Some(PodPlacement::Distributed)),
            (own("  dedicated: {devices: [1]}\n"), None),
            (sharing.replace("resources:", "interval: short\n    resources:"), None),
            (sharing.replace("replicas: 4", "shares: [{name: a}]"), None),
            (flag("packed") + "  wait: 1s\n", Some(PodPlacement::Packed)),
            (own("kubernetes: {placement: spread}\n"), Some(PodPlacement::Spread)),
            (
                flag("packed") + "kubernetes: {placement: distributed}\n",
                Some(PodPlacement::Distributed),
            ),
        ] {
            let read = parse("c.yaml", &text).unwrap();
            assert_eq!(
                (read.policy.kubernetes.placement, read.warnings),
                (expected, Vec::new()),
                "{text}"
            );
        }
        assert_eq!(
            complaint(&flag("best")),
            "c.yaml:1:49: sharedDevicesAllocationPolicy: \"best\" is unknown; write distributed or packed"
        );
    }

    #[test]
    fn a_flag_without_an_effect_is_named_with_what_would_have_one() {
        let warned = |flags: &str| {
            parse("c.yaml", &format!("version: v1\nflags: {flags}\n"))
                .unwrap()
                .warnings
        };
        assert_eq!(
            warned("{migStrategy: mixed, failOnInitError: true, plugin: {passDeviceSpecs: true}}"),
            [
                "c.yaml:2:8: flags: without an effect here: failOnInitError, plugin.passDeviceSpecs; they are for NVIDIA's \
              device plugin and feature discovery"
            ]
        );
        for (flags, says) in [
            (
                "{renameByDefault: true}",
                "c.yaml:2:9: renameByDefault has no effect below flags: it belongs to sharing.timeSlicing or sharing.mps; \
                 write it there, on a line of its own beside resources",
            ),
            (
                "{plugin: {FailRequestsGreaterThanOne: true}}",
                "failRequestsGreaterThanOne has no effect below flags: it belongs to sharing.timeSlicing",
            ),
            (
                "{migStrateg: none}",
                "flags: \"migStrateg\" is unknown and has no effect; did you mean migStrategy?",
            ),
            ("{zzz: 1}", "flags: \"zzz\" is unknown and has no effect"),
        ] {
            let all = warned(flags);
            assert!(all.len() == 1 && all[0].contains(says), "{all:?}");
        }
    }

    /// A number that NVIDIA's plugin takes is taken, and MPS alone has a limit: that of its clients.
    #[test]
    fn equal_replicas_have_no_limit_of_their_own() {
        let text = |n: u64, names: &str| {
            format!(
                "sharing:\n  names: {names}\n  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, replicas: {n}}}\n"
            )
        };
        for n in [2, 1025, 16_384, 4_294_967_294] {
            let read = parse("c.yaml", &text(n, "any")).unwrap();
            assert_eq!(read.policy.splits[0].parts, Parts::Equal(u32::try_from(n).unwrap()));
            assert_eq!(read.warnings, [""; 0]);
        }
        assert!(complaint(&text(1, "any")).contains("at least 2; for one holder at a time, write it below dedicated"));
        assert!(complaint(&text(4_294_967_296, "any")).contains("replicas: too many"));
        assert_eq!(parse("c.yaml", &text(1024, "each")).unwrap().warnings, [""; 0]);
        assert_eq!(
            parse("c.yaml", &text(16_384, "each")).unwrap().warnings,
            ["c.yaml: names: each has no effect on devices with more than 1024 replicas: they have the name any"]
        );
    }

    #[test]
    fn everything_of_ours() {
        let p = policy(
            "version: v1\nsharing:\n  mps:\n    daemon: external\n    users: one\n    computeMode: keep\n    pipe: read-only\n    \
             enforcement: v2\n    blocked: end\n    grace: 5\n    resources:\n    \
             - name: nvidia.com/gpu\n      devices: [0, \"1:0\"]\n      shares:\n      \
             - {name: big, compute: 80%, memory: 64Gi}\n      - {name: small, compute: 20, memory: 10%, priority: below-normal}\n  \
             timeSlicing:\n    interval: short\n    resources:\n    - {name: nvidia.com/gpu, devices: 2, replicas: 4, rename: slice}\n  \
             wholeDevice: hide\n  overcommit: {memory: 1.5}\n  wait: 1m30s\n  quota: {shares: 9}\n",
        );
        let mps = MpsSettings {
            daemon: MpsDaemonOwner::External,
            users: MpsUsers::One,
            compute_mode: MpsComputeMode::Keep,
            enforcement: MpsEnforcement::V2,
            blocked: MpsBlocked::End,
            grace: Some(5),
        };
        assert_eq!(p.mps, mps);
        assert_eq!((p.wait.to_string().as_str(), p.quota.shares), ("1m30s", 9));
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
    fn without_a_word_the_broker_runs_the_daemon_and_nobody_waits() {
        let p = policy("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n");
        assert_eq!(p.mps.daemon, MpsDaemonOwner::Managed);
        assert_eq!((p.mps.users, p.mps.blocked), (MpsUsers::Auto, MpsBlocked::Report));
        assert_eq!(p.mps.enforcement, MpsEnforcement::Auto);
        assert_eq!((p.wait.to_string().as_str(), p.quota.shares), ("0s", 4));
        let nothing = policy("sharing:\n  quota: {shares: 0}\n  wait: 45\n");
        assert_eq!((nothing.quota.shares, nothing.wait.to_string().as_str()), (0, "45s"));
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

    /// Files that tools of Kubernetes read, and what people write who remember the keys and not their places.
    #[test]
    fn a_section_that_nothing_reads_is_refused_with_where_it_belongs() {
        let sharing = "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n";
        let indented = |by: usize| {
            sharing
                .lines()
                .map(|line| format!("{:by$}{line}\n", ""))
                .collect::<String>()
        };
        for (text, says) in [
            // The values of NVIDIA's charts: of the device plugin, and of the GPU Operator.
            (
                format!("config:\n  map:\n    default: |-\n{}", indented(6)),
                "c.yaml:4:7: config.map.default: holds a configuration as text, as a values file of Helm does; write that text \
                 to a file of its own",
            ),
            (
                format!(
                    "version: v1\ndevicePlugin:\n  config:\n    data:\n      any: |-\n{}",
                    indented(8)
                ),
                "devicePlugin.config.data.any: holds a configuration as text",
            ),
            (
                format!("devicePlugin:\n  config:\n{}", indented(4)),
                "c.yaml:3:5: sharing: is below devicePlugin.config, where nothing reads it; write it at the top of the file, \
                 without indentation",
            ),
            (
                format!("flags:\n{}", indented(2)),
                "c.yaml:2:3: sharing: is below flags, where nothing reads it",
            ),
            (
                format!(
                    "apiVersion: v1\nkind: List\nitems:\n- kind: ConfigMap\n  data:\n    a: |\n{}",
                    indented(6)
                ),
                "c.yaml:2:7: kind: List holds several objects of Kubernetes, and a policy is one; write the ConfigMap among its \
                 items to a file of its own, or the configuration in it",
            ),
            (
                sharing
                    .replace("sharing:\n", "version: v1\n")
                    .replace("  timeSlicing", "timeSlicing"),
                "c.yaml:2:1: timeSlicing: is at the top of the file and belongs to sharing; write sharing: on the line before \
                 it, and indent what belongs to it",
            ),
            (
                "version: v1\nMPS: {}\n".to_owned(),
                "c.yaml:2:1: MPS: is at the top of the file and belongs to sharing",
            ),
            (
                "acceptEnvironment: never\n".to_owned(),
                "acceptEnvironment: is at the top of the file and belongs to runtime",
            ),
            (
                "version: v1\nresources:\n- {name: nvidia.com/gpu, replicas: 4}\n".to_owned(),
                "c.yaml:2:1: resources: a list of resources to share is at the top of the file; write it below sharing",
            ),
            (
                sharing.replace("sharing", "sharings"),
                "c.yaml:1:1: \"sharings\" is unknown; did you mean sharing?",
            ),
            (
                "image: x\nreplicas: 3\n".to_owned(),
                "c.yaml:1:1: no key of this file belongs to a policy; expected version, sharing, runtime, kubernetes or mig at the top",
            ),
        ] {
            let said = complaint(&text);
            assert!(said.contains(says), "{text}\n{said}");
        }
        // What belongs to NVIDIA's plugin alone is accepted, and so is a word that is not known yet.
        for text in [
            "version: v1\nresources: {gpus: [{pattern: '*', name: nvidia.com/gpu}]}\n".to_owned(),
            format!("{sharing}sharding: {{a: b}}\nnodes: [c]\n"),
            "flags: {migStrategy: none}\n".to_owned(),
            String::new(),
        ] {
            assert!(parse("c.yaml", &text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_value_of_another_kind_is_refused_with_its_place_and_what_was_expected() {
        for (text, says) in [
            (
                "sharing: 5",
                "c.yaml:1:10: sharing: expected keys with values (KEY: VALUE, one on each line), found 5",
            ),
            (
                "sharing:\n  mps: {resources: x}",
                "c.yaml:2:20: resources: expected a list (a hyphen before each item), found \"x\"",
            ),
            (
                "sharing:\n  mps: {renameByDefault: 'true'}",
                "c.yaml:2:26: renameByDefault: expected true or false, found \"true\"",
            ),
            (
                "sharing:\n  wholeDevice: {}",
                "c.yaml:2:16: wholeDevice: expected one value, found a map",
            ),
            (
                "sharing:\n  wholeDevice: x",
                "c.yaml:2:16: wholeDevice: \"x\" is unknown; write claim or open or hide",
            ),
            (
                "sharing:\n  mps: {daemon: broker}",
                "c.yaml:2:17: daemon: \"broker\" is unknown; write managed or external",
            ),
            (
                "sharing:\n  mps: {pipe: ro}",
                "c.yaml:2:15: pipe: \"ro\" is unknown; write writable or read-only",
            ),
            (
                "sharing:\n  mps: {enforcement: v3}",
                "c.yaml:2:22: enforcement: \"v3\" is unknown; write auto or v2",
            ),
            (
                "sharing:\n  access: closed",
                "c.yaml:2:11: access: \"closed\" is unknown; write open or enforce",
            ),
            (
                "sharing:\n  monitors: {user: [101]}",
                "c.yaml:2:14: \"user\" is unknown in sharing.monitors; did you mean users?",
            ),
            (
                "sharing:\n  wait: soon",
                "c.yaml:2:9: wait: \"soon\": not a time to wait like 30s, 5m or 1h30m, of at most 7 days",
            ),
            (
                "sharing:\n  quota: 4",
                "c.yaml:2:10: quota: expected keys with values (KEY: VALUE, one on each line), found 4",
            ),
            (
                "sharing:\n  quota: {share: 4}",
                "c.yaml:2:11: \"share\" is unknown in sharing.quota; did you mean shares?",
            ),
            (
                "sharing:\n  quota: {shares: many}",
                "c.yaml:2:19: shares: \"many\" is not a whole number; write digits only, like 4",
            ),
            (
                "sharing:\n  overcommit: {memory: 0.5}",
                "c.yaml:2:24: memory: \"0.5\": overcommit is a number from 1 to 100, like 1.2",
            ),
            (
                "sharing:\n  dedicated: {devices: []}",
                "c.yaml:2:24: devices: the list is empty; write all, or at least one device",
            ),
            (
                "sharing:\n  dedicated: {devices: ~}",
                "c.yaml:2:14: dedicated: devices is missing",
            ),
            (
                "sharing:\n  dedicated: {devices: [0, 1, 0]}",
                "c.yaml:2:31: devices: 0 is in the list twice; remove one of them",
            ),
            (
                "sharing:\n  dedicated: {devices: &all [0, x]}\n",
                "c.yaml:2:33: devices: \"x\": not a valid device; ",
            ),
        ] {
            let said = complaint(text);
            assert!(said.starts_with(says), "{text}: {said}");
        }
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
            let mut text = include_str!("../../../docs/examples/config.yaml").to_owned();
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
