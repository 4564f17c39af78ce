//! The identity of a device in the ledger.

use super::{ComputeInstanceId, GpuInstanceId, GpuUuid};
use std::fmt;

/// A device under the one key that every source of information knows: the UUID of the GPU and, for a MIG device, the
/// ids of its GPU instance and compute instance.
///
/// The UUID is in `/proc/driver/nvidia/gpus/*/information` and the ids are in `/proc/driver/nvidia/capabilities`, so
/// the key is the same with NVML and without it. Indices change with the set of GPUs, and only NVML knows the UUID of a
/// MIG device.
///
/// As text: `GPU-8188460b-…` for a whole GPU, `GPU-8188460b-…/7/0` for a MIG device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey {
    gpu: GpuUuid,
    instance: Option<(GpuInstanceId, ComputeInstanceId)>,
}

impl DeviceKey {
    /// A whole GPU.
    pub fn whole(gpu: GpuUuid) -> Self {
        Self { gpu, instance: None }
    }

    /// A compute instance in a GPU instance: a MIG device.
    pub fn mig(gpu: GpuUuid, gpu_instance: GpuInstanceId, compute_instance: ComputeInstanceId) -> Self {
        Self {
            gpu,
            instance: Some((gpu_instance, compute_instance)),
        }
    }

    /// The GPU, or the GPU that the MIG device is on.
    pub fn gpu(&self) -> &GpuUuid {
        &self.gpu
    }

    /// Whether it is a GPU, and not a MIG device.
    pub fn is_whole(&self) -> bool {
        self.instance.is_none()
    }

    /// The ids of the GPU instance and the compute instance; `None` for a whole GPU.
    pub fn instance(&self) -> Option<(GpuInstanceId, ComputeInstanceId)> {
        self.instance
    }

    /// Whether both compute on some of the same hardware: they are equal, or one is the GPU that the other is on.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.gpu == other.gpu
            && (self.instance.is_none() || other.instance.is_none() || self.instance == other.instance)
    }

    /// Whether both use the same memory: they overlap, or they are compute instances of one GPU instance (MIG user
    /// guide, "Compute Instance": the memory belongs to the GPU instance).
    pub fn shares_memory_with(&self, other: &Self) -> bool {
        let (own, other) = (self.domain(), other.domain());
        own.gpu == other.gpu && (own == other || own.gpu_instance.is_none() || other.gpu_instance.is_none())
    }

    /// The domain whose memory, bandwidth and errors the device has a part in.
    pub fn domain(&self) -> CapacityDomain<'_> {
        CapacityDomain {
            gpu: &self.gpu,
            gpu_instance: self.instance.map(|(gpu_instance, _)| gpu_instance),
        }
    }
}

/// Devices that share memory, its bandwidth and errors: a GPU without MIG, or the compute instances of one GPU instance
/// (MIG user guide, "Compute Instance").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapacityDomain<'a> {
    gpu: &'a GpuUuid,
    gpu_instance: Option<GpuInstanceId>,
}

fn parse(text: &str) -> Option<DeviceKey> {
    let Some((gpu, instance)) = text.split_once('/') else {
        return Some(DeviceKey::whole(text.parse().ok()?));
    };
    let (gpu_instance, compute_instance) = instance.split_once('/')?;
    let ids = (gpu_instance.parse().ok()?, compute_instance.parse().ok()?);
    Some(DeviceKey::mig(gpu.parse().ok()?, ids.0, ids.1))
}

super::parsed_type!(
    DeviceKey,
    parse,
    "not a device like GPU-8188460b-… or GPU-8188460b-…/7/0"
);

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instance {
            None => f.pad(self.gpu.as_str()),
            Some((gpu_instance, compute_instance)) => f.pad(&format!("{}/{gpu_instance}/{compute_instance}", self.gpu)),
        }
    }
}

super::serde_as_text!(DeviceKey);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> DeviceKey {
        text.parse().unwrap()
    }

    #[test]
    fn text_and_key_are_one() {
        for text in ["GPU-8188460b-0e3a", "GPU-8188460b-0e3a/7/0"] {
            assert_eq!(key(text).to_string(), text);
        }
        assert_eq!(
            key("GPU-8188460b/7/1").instance(),
            Some((GpuInstanceId(7), ComputeInstanceId(1)))
        );
        for bad in [
            "",
            "0",
            "../x",
            "GPU-8188460b/7",
            "GPU-8188460b/7/",
            "GPU-8188460b//0",
            "GPU-8188460b/7/0/0",
            "GPU-8188460b/../0",
            "MIG-8188460b-0e3a",
        ] {
            assert!(bad.parse::<DeviceKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_gpu_overlaps_its_instances_and_instances_share_memory_within_a_gpu_instance() {
        let (gpu, other) = (key("GPU-8188460b"), key("GPU-99999999"));
        let (a, b, c) = (
            key("GPU-8188460b/7/0"),
            key("GPU-8188460b/7/1"),
            key("GPU-8188460b/8/0"),
        );
        assert!(gpu.overlaps(&gpu) && gpu.overlaps(&a) && a.overlaps(&gpu) && a.overlaps(&a));
        assert!(!a.overlaps(&b) && !a.overlaps(&c) && !gpu.overlaps(&other) && !a.overlaps(&key("GPU-99999999/7/0")));
        assert!(a.shares_memory_with(&b) && gpu.shares_memory_with(&c));
        assert!(a.domain() == b.domain() && a.domain() != c.domain() && gpu.domain() != a.domain());
        assert!(!a.shares_memory_with(&c) && !a.shares_memory_with(&key("GPU-99999999/7/1")));
    }
}
