//! Compute instances of one GPU instance: one capacity domain. They have multiprocessors of their own, and share the
//! memory, its bandwidth and the errors of the GPU instance (MIG user guide, "Compute Instance").

use super::SplitDevice;
use super::arithmetic::advice;
use super::guarantee::Grade;
use crate::inventory::HostDevice;
use crate::policy::{Policy, Split};
use tranche_core::error::Result;
use tranche_core::text::some;
use tranche_core::types::MemorySize;

/// The other compute instances of the GPU instance that `target` is in. A whole GPU has none.
pub(super) fn neighbours(target: HostDevice<'_>) -> impl Iterator<Item = HostDevice<'_>> {
    let all = target.gpu.mig_devices.iter();
    let devices = all.map(move |mig| HostDevice {
        gpu: target.gpu,
        mig: Some(mig),
    });
    let key = target.key();
    devices.filter(move |other| target.mig.is_some() && other.key() != key && other.key().domain() == key.domain())
}

/// Checks that what is promised of the devices of each domain holds for all of them together, and lowers what does not.
///
/// # Errors
/// Returns an error if a compute instance is to be dedicated and its GPU instance has others, or if the shares of the
/// compute instances of a GPU instance have more memory than the GPU instance.
pub(super) fn check(policy: &Policy, targets: &[(HostDevice<'_>, &Split)], devices: &mut [SplitDevice]) -> Result<()> {
    for (target, split) in targets {
        let around: Vec<HostDevice<'_>> = neighbours(*target).collect();
        let Some(mig) = target.mig.filter(|_| !around.is_empty()) else {
            continue;
        };
        let instance = format!("GPU instance {} of gpu {}", mig.gpu_instance.0, target.gpu.index);
        let names: Vec<String> = around.iter().map(|device| device.name()).collect();
        let key = target.key();
        if devices
            .iter()
            .any(|device| device.key == key && device.method.is_whole())
        {
            let what = format!(
                "cannot be dedicated: it shares the memory and the errors of {instance} with {}",
                some(&names)
            );
            let hint = format!("share it by mps or timeSlicing, or make one compute instance of {instance}");
            return Err(policy.wrong(split.place, target, what).hint(hint));
        }
        let in_domain = |device: &&SplitDevice| device.key.domain() == key.domain();
        let promised: Vec<(String, u64)> = devices
            .iter()
            .filter(in_domain)
            .filter_map(|device| Some((device.device.to_string(), memory_of(device)?)))
            .collect();
        let asked = promised.iter().fold(0, |sum: u64, (_, mib)| sum.saturating_add(*mib));
        let Some(whole) = target.memory().map(MemorySize::mib) else {
            continue;
        };
        let most = policy.overcommit_memory.of(whole);
        if asked > most {
            let shown = MemorySize::from_mib;
            let list = promised.iter().map(|(name, mib)| format!("{name} {}", shown(*mib)));
            let what = format!(
                "shares of the compute instances of {instance} ask for {} of {}: {}",
                shown(asked),
                shown(most),
                some(&list.collect::<Vec<_>>())
            );
            return Err(policy
                .wrong(split.place, target, what)
                .hint(advice("memory", asked, whole)));
        }
        let is_limited = |other: &HostDevice<'_>| {
            let mut planned = devices.iter().filter(|device| device.key == other.key());
            planned.any(|device| memory_of(device).is_some())
        };
        let unlimited: Vec<String> = around
            .iter()
            .filter(|other| !is_limited(other))
            .map(|d| d.name())
            .collect();
        if let Some(device) = devices.iter_mut().find(|device| device.key == key) {
            if memory_of(device).is_some() {
                device.memory_left = MemorySize::from_mib(whole.saturating_sub(asked));
            }
            if !unlimited.is_empty() {
                lower(
                    device,
                    &format!("{} of {instance} has no limit of memory", some(&unlimited)),
                );
            }
        }
    }
    Ok(())
}

/// The memory of its shares in sum, in MiB; `None` if they have no limit.
fn memory_of(device: &SplitDevice) -> Option<u64> {
    device.shares.memory().map(MemorySize::mib)
}

/// Takes back what the shares were promised of memory: `why`.
fn lower(device: &mut SplitDevice, why: &str) {
    let limited = device
        .shares
        .distinct_mut()
        .iter_mut()
        .filter(|share| share.memory.is_some());
    for memory in limited.map(|share| &mut share.guarantees.memory) {
        (memory.grade, memory.root) = (Grade::None, Grade::None);
        memory.by = format!("{why}; against other GPU instances: hard");
    }
}
