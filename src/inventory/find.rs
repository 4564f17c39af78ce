//! From what a person wrote to the device that it means: the only place that compares the two.

use super::{Gpu, Inventory, MigDevice};
use crate::types::DeviceId;

impl Inventory {
    /// The device that `id` names: its GPU, and the MIG device where it is one. `None` where this host has no such device.
    pub fn device(&self, id: &DeviceId) -> Option<(&Gpu, Option<&MigDevice>)> {
        find(self.gpus.iter(), id)
    }
}

/// The device among `gpus` that `id` names, as [`Inventory::device`]. An index means a device only where the source of the
/// inventory knows it: a name never means another device than it would elsewhere.
pub fn find<'a>(gpus: impl Iterator<Item = &'a Gpu>, id: &DeviceId) -> Option<(&'a Gpu, Option<&'a MigDevice>)> {
    let mut gpus = gpus.into_iter();
    let mig = |gpu: &'a Gpu, is: &dyn Fn(&MigDevice) -> bool| {
        let mig = gpu.mig_devices.iter().find(|mig| is(mig))?;
        Some((gpu, Some(mig)))
    };
    match id {
        DeviceId::Gpu(index) => gpus
            .find(|gpu| gpu.index_is_known && gpu.index == *index)
            .map(|gpu| (gpu, None)),
        DeviceId::GpuUuid(uuid) => gpus.find(|gpu| gpu.uuid == *uuid).map(|gpu| (gpu, None)),
        DeviceId::Mig(index, position) => gpus
            .filter(|gpu| gpu.index_is_known && gpu.index == *index)
            .find_map(|gpu| mig(gpu, &|mig| mig.index == *position)),
        DeviceId::MigUuid(uuid) => gpus.find_map(|gpu| {
            mig(gpu, &|mig| {
                mig.uuid.as_ref() == Some(uuid) || old_form(gpu, mig) == uuid.as_str()
            })
        }),
    }
}

/// The name that drivers before 470 gave a MIG device. People still type it, and NVIDIA's tools accept it.
fn old_form(gpu: &Gpu, mig: &MigDevice) -> String {
    format!("MIG-{}/{}/{}", gpu.uuid, mig.gpu_instance, mig.compute_instance)
}
