//! The configurations of NVIDIA's driver in a resource claim (`resource.nvidia.com/v1beta1`: `GpuConfig`,
//! `MigDeviceConfig`), which are opaque to Kubernetes. They are read as that driver reads them
//! (`api/nvidia.com/resource/v1beta1`): an unknown field is an error, and so is a value that would have no effect.

use super::quantity::thousandths;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use tranche_core::types::{Interval, MemorySize, Percent};
use tranche_protocol::{ClaimSharing, DraKind};

/// The only version that there is.
const VERSION: &str = "resource.nvidia.com/v1beta1";

/// A configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opaque {
    /// What it is for.
    pub kind: DraKind,
    /// How the containers of the claim share the device; `None`: as they do by themselves.
    pub sharing: Option<ClaimSharing>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Document {
    api_version: String,
    kind: String,
    #[serde(default)]
    sharing: Option<Sharing>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Sharing {
    strategy: String,
    #[serde(default)]
    time_slicing_config: Option<TimeSlicing>,
    #[serde(default)]
    mps_config: Option<Mps>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeSlicing {
    #[serde(default)]
    interval: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Mps {
    #[serde(default)]
    default_active_thread_percentage: Option<u32>,
    #[serde(default)]
    default_pinned_device_memory_limit: Option<Value>,
    #[serde(default)]
    default_per_device_pinned_memory_limit: BTreeMap<String, Value>,
    #[serde(default)]
    multi_user: Option<bool>,
}

/// Reads the parameters of a configuration that is addressed to a driver of NVIDIA's GPUs.
///
/// # Errors
/// Returns what is wrong, in one line.
pub fn decode(parameters: &Value) -> Result<Opaque, String> {
    let document: Document = serde_json::from_value(parameters.clone()).map_err(|e| e.to_string())?;
    if document.api_version != VERSION {
        return Err(format!(
            "apiVersion {:?} is unknown; expected {VERSION}",
            document.api_version
        ));
    }
    let kind = match document.kind.as_str() {
        "GpuConfig" => DraKind::Gpu,
        "MigDeviceConfig" => DraKind::Mig,
        other => {
            return Err(format!(
                "kind {other:?} is unknown; expected GpuConfig or MigDeviceConfig"
            ));
        }
    };
    let sharing = document.sharing.map(|sharing| sharing_of(kind, sharing)).transpose()?;
    Ok(Opaque { kind, sharing })
}

fn sharing_of(kind: DraKind, sharing: Sharing) -> Result<ClaimSharing, String> {
    let both = |other: &str| {
        format!(
            "sharing: the strategy is {}, and there is a {other} too",
            sharing.strategy
        )
    };
    match sharing.strategy.as_str() {
        "TimeSlicing" if sharing.mps_config.is_some() => Err(both("mpsConfig")),
        "MPS" if sharing.time_slicing_config.is_some() => Err(both("timeSlicingConfig")),
        // Only a GPU has turns of a length.
        "TimeSlicing" if kind == DraKind::Mig && sharing.time_slicing_config.is_some() => {
            Err("sharing: a MIG device has no timeSlicingConfig".to_owned())
        }
        "TimeSlicing" => Ok(ClaimSharing::TimeSlicing {
            interval: interval(sharing.time_slicing_config)?,
        }),
        "MPS" => mps(sharing.mps_config.unwrap_or_default()),
        other => Err(format!(
            "sharing: strategy {other:?} is unknown; expected TimeSlicing or MPS"
        )),
    }
}

fn interval(config: Option<TimeSlicing>) -> Result<Option<Interval>, String> {
    let Some(interval) = config.and_then(|config| config.interval) else {
        return Ok(None);
    };
    match interval.as_str() {
        "Default" => Ok(Some(Interval::Default)),
        "Short" => Ok(Some(Interval::Short)),
        "Medium" => Ok(Some(Interval::Medium)),
        "Long" => Ok(Some(Interval::Long)),
        other => Err(format!(
            "sharing: interval {other:?} is unknown; expected Default, Short, Medium or Long"
        )),
    }
}

fn mps(config: Mps) -> Result<ClaimSharing, String> {
    let percent = config.default_active_thread_percentage.map(Percent::try_from);
    let active_thread_percentage = percent
        .transpose()
        .map_err(|_| "sharing: defaultActiveThreadPercentage is not between 1 and 100".to_owned())?;
    if !config.default_per_device_pinned_memory_limit.is_empty() {
        return Err(
            "sharing: defaultPerDevicePinnedMemoryLimit is not supported: a container has one device under MPS; write \
             defaultPinnedDeviceMemoryLimit"
                .to_owned(),
        );
    }
    if config.multi_user == Some(false) {
        return Err(
            "sharing: multiUser: false is not supported: the policy of the node says which users a daemon serves"
                .to_owned(),
        );
    }
    let limit = config.default_pinned_device_memory_limit.map(|limit| mebibytes(&limit));
    Ok(ClaimSharing::Mps {
        active_thread_percentage,
        pinned_memory: limit.transpose()?,
    })
}

/// A limit, in whole MiB: a daemon takes no smaller unit, and a limit is never rounded up.
fn mebibytes(limit: &Value) -> Result<MemorySize, String> {
    let text = match limit {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => {
            return Err(format!(
                "sharing: defaultPinnedDeviceMemoryLimit {other} is not a quantity"
            ));
        }
    };
    let bytes = thousandths(&Quantity(text.clone())).map(|thousandths| thousandths / 1000);
    let mib = bytes.and_then(|bytes| u64::try_from(bytes >> 20).ok());
    mib.filter(|mib| *mib > 0)
        .and_then(MemorySize::checked_mib)
        .ok_or_else(|| format!("sharing: defaultPinnedDeviceMemoryLimit {text:?} is not a quantity of at least 1Mi"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(kind: &str, sharing: Value) -> Result<Opaque, String> {
        decode(&json!({"apiVersion": VERSION, "kind": kind, "sharing": sharing}))
    }

    #[test]
    fn the_configurations_of_nvidias_examples_are_read() {
        let turns = of(
            "GpuConfig",
            json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
        );
        let long = ClaimSharing::TimeSlicing {
            interval: Some(Interval::Long),
        };
        assert_eq!(turns.unwrap().sharing, Some(long));
        for kind in ["GpuConfig", "MigDeviceConfig"] {
            let mps = of(
                kind,
                json!({"strategy": "MPS", "mpsConfig":
                    {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}}),
            );
            let half = ClaimSharing::Mps {
                active_thread_percentage: Some(Percent::of_sum(50)),
                pinned_memory: Some(MemorySize::from_mib(10 << 10)),
            };
            assert_eq!(mps.unwrap().sharing, Some(half));
        }
        let none = decode(&json!({"apiVersion": VERSION, "kind": "GpuConfig"})).unwrap();
        assert_eq!((none.kind, none.sharing), (DraKind::Gpu, None));
    }

    #[test]
    fn what_would_have_no_effect_is_an_error() {
        for (document, why) in [
            (json!({"kind": "GpuConfig"}), "missing field `apiVersion`"),
            (
                json!({"apiVersion": "resource.nvidia.com/v2", "kind": "GpuConfig"}),
                "is unknown; expected",
            ),
            (
                json!({"apiVersion": VERSION, "kind": "VfioDeviceConfig"}),
                "kind \"VfioDeviceConfig\" is unknown",
            ),
            (
                json!({"apiVersion": VERSION, "kind": "GpuConfig", "sharng": {}}),
                "unknown field `sharng`",
            ),
            (json!("GpuConfig"), "invalid type"),
        ] {
            let wrong = decode(&document).unwrap_err();
            assert!(wrong.contains(why) && !wrong.contains('\n'), "{wrong}");
        }
        for (sharing, why) in [
            (json!({"strategy": "MIG"}), "strategy \"MIG\" is unknown"),
            (
                json!({"strategy": "MPS", "timeSlicingConfig": {}}),
                "there is a timeSlicingConfig too",
            ),
            (
                json!({"strategy": "TimeSlicing", "mpsConfig": {}}),
                "there is a mpsConfig too",
            ),
            (
                json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "1ms"}}),
                "interval \"1ms\"",
            ),
            (
                json!({"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 0}}),
                "between 1 and 100",
            ),
            (
                json!({"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "1k"}}),
                "at least 1Mi",
            ),
            (
                json!({"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "lots"}}),
                "at least 1Mi",
            ),
            (
                json!({"strategy": "MPS", "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": {"0": "1Gi"}}}),
                "one device",
            ),
            (
                json!({"strategy": "MPS", "mpsConfig": {"multiUser": false}}),
                "multiUser",
            ),
            (
                json!({"strategy": "MPS", "mpsConfig": {"defaultActiveThreads": 1}}),
                "unknown field",
            ),
        ] {
            let wrong = of("GpuConfig", sharing).unwrap_err();
            assert!(wrong.contains(why) && !wrong.contains('\n'), "{wrong}");
        }
        let turns = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}});
        assert!(
            of("MigDeviceConfig", turns)
                .unwrap_err()
                .contains("has no timeSlicingConfig")
        );
    }

    /// docs/reference/nvidia-keys.md says of each field whether it is refused; `tests/cli/nvidia_keys.rs` compares its
    /// fields with a list.
    #[test]
    fn each_field_does_what_the_page_says() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/nvidia-keys.md");
        let page = std::fs::read_to_string(page).unwrap();
        let section = page
            .split_once("\n## The driver for dynamic resource allocation\n")
            .unwrap()
            .1;
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
        assert!(rows.len() > 15, "{}", rows.len());
        for row in rows {
            let cells: Vec<&str> = row.split(" | ").collect();
            let mut example: Value = serde_json::from_str(cells[1].trim_matches('`')).unwrap();
            example["apiVersion"] = VERSION.into();
            match (cells[2], decode(&example)) {
                ("different", Ok(_)) => {}
                ("refused", Err(why)) => assert!(!why.is_empty()),
                (here, outcome) => panic!("{row}: {here}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn a_limit_is_never_rounded_up() {
        for (text, mib) in [
            (json!("10Gi"), 10 << 10),
            (json!("1500k"), 1),
            (json!(1_u64 << 20), 1),
            (json!("1.5Mi"), 1),
        ] {
            assert_eq!(mebibytes(&text).map(MemorySize::mib), Ok(mib), "{text}");
        }
    }
}
