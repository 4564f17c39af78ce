//! The environment of a program in a share.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use tranche_core::error::{Error, Result};
use tranche_plan::share::{InContainer, SplitDevice};

/// A variable and its value.
type Variable = (OsString, OsString);

/// The variable that leads a process to its MPS daemon.
const PIPE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// `inherited` without the variables that choose a device or limit it.
pub(super) fn without_shares(inherited: impl Iterator<Item = Variable>) -> Vec<Variable> {
    inherited.filter(|(name, _)| !is_of_a_share(name)).collect()
}

/// The variables of a share.
///
/// # Errors
/// Returns an error if the UUID of the device is unknown: another name of it could mean another device tomorrow.
pub(super) fn of_share(split: &SplitDevice, inside: InContainer) -> Result<Vec<(String, String)>> {
    let uuid = split.uuid.as_ref();
    let uuid = uuid.ok_or_else(|| Error::failed(split.device, "has no UUID, by which a program finds it"))?;
    let mut environment = Vec::new();
    if inside
        .environment
        .iter()
        .all(|(name, _)| *name != "CUDA_VISIBLE_DEVICES")
    {
        environment.push(("CUDA_VISIBLE_DEVICES".to_owned(), uuid.clone()));
    }
    for (name, value) in inside.environment {
        let value = match &inside.daemon {
            // In a container, the directory is mounted at another place.
            Some(pipe) if name == PIPE => pipe.to_string(),
            _ => value,
        };
        environment.push((name.to_owned(), value));
    }
    Ok(environment)
}

/// Whether a share sets this variable, or must not be changed by it.
fn is_of_a_share(name: &OsString) -> bool {
    let name = name.as_bytes();
    name.starts_with(b"CUDA_MPS_") || name.starts_with(b"NVIDIA_GPU_MEMORY_") || name == b"CUDA_VISIBLE_DEVICES"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tranche_core::types::HostPath;

    /// The environment of a program in the first share of GPU 0.
    fn environment(sharing: &str, inherited: &[(&str, &str)]) -> BTreeMap<String, String> {
        let text = format!("version: v1\nsharing:\n  {sharing}\n");
        let policy = tranche_plan::policy::read::parse("c.yaml", &text).unwrap().policy;
        let plan = tranche_plan::share::plan(&policy, &tranche_plan::sim::open("t4x2").unwrap()).unwrap();
        let split = &plan.devices[0];
        let promise = split.promise(split.shares.first().unwrap());
        let state_dir = HostPath::new("/run/tranche").unwrap();
        let inside = split
            .in_container(promise, split.shares.first().unwrap().priority, &state_dir)
            .unwrap();
        let inherited = inherited.iter().map(|(name, value)| (name.into(), value.into()));
        let text = |text: OsString| text.into_string().unwrap();
        let kept = without_shares(inherited).into_iter();
        let mut all: Vec<(String, String)> = kept.map(|(name, value)| (text(name), text(value))).collect();
        all.extend(of_share(split, inside).unwrap());
        let count = all.len();
        let map: BTreeMap<String, String> = all.into_iter().collect();
        assert_eq!(map.len(), count, "no variable is set twice");
        map
    }

    const INHERITED: [(&str, &str); 5] = [
        ("PATH", "/bin"),
        ("CUDA_VISIBLE_DEVICES", "1"),
        ("CUDA_MPS_SM_PARTITION", "x"),
        ("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "1"),
    ];

    #[test]
    fn a_share_under_mps_sets_its_limits_and_the_directory_on_the_host() {
        let mps =
            "mps: {resources: [{name: nvidia.com/gpu, devices: [0], shares: [{name: a, compute: 50%, memory: 4Gi}]}]}";
        let environment = environment(mps, &INHERITED);
        assert_eq!(environment["CUDA_MPS_PIPE_DIRECTORY"], "/run/tranche/mps/0");
        assert_eq!(environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "50");
        assert_eq!(environment["NVIDIA_GPU_MEMORY_LIMIT"], "4096");
        assert!(environment["CUDA_VISIBLE_DEVICES"].starts_with("GPU-"));
        assert_eq!(environment["PATH"], "/bin");
        assert!(!environment.contains_key("CUDA_MPS_SM_PARTITION"));
    }

    #[test]
    fn a_share_by_turns_sets_the_device_alone() {
        let turns = "timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0], replicas: 2}]}";
        let environment = environment(turns, &INHERITED);
        assert_eq!(environment.keys().collect::<Vec<_>>(), ["CUDA_VISIBLE_DEVICES", "PATH"]);
        assert!(environment["CUDA_VISIBLE_DEVICES"].starts_with("GPU-"));
    }
}
