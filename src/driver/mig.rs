//! What is asked and changed of MIG.

use crate::convert::{meaning, mig_state, virtualization};
use crate::sys::nvml::{ProcessList, compute_instance, gpu_instance, processes};
use crate::sys::nvml_mig::{
    GpuInstanceHandle, RawProfile, create_gpu_instance, gpu_instance_by_id, gpu_instances, is_resetless, placements,
    profile, set_mig_mode,
};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    nvmlComputeInstancePlacement_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
};
use std::thread::sleep;
use std::time::Duration;
use tranche_core::types::{ComputeInstanceId, GpuIndex, GpuInstanceId, MemorySize, MigProfile};
use tranche_plan::inventory::MigMode;
use tranche_plan::mig::{
    ComputeInstance, ComputeProfile, ComputeProfileId, ComputeProfileIndex, Engines, GpuInstance, InstanceProfile,
    MigChange, MigClient, MigGpu, PciModel, Placement, ProfileId, ProfileIndex,
};

/// More profiles than NVML has numbers for. A library that never says that a number is too large is not asked on.
const MOST_PROFILES: u32 = 64;

/// What NVML reports as the instance of a process that uses none.
const NO_INSTANCE: u32 = u32::MAX;

/// The PCI ids of the GPUs that answer.
pub(crate) fn models(nvml: &Nvml) -> Result<Vec<(GpuIndex, PciModel)>, NvmlError> {
    let of = |index| {
        let pci = nvml.device_by_index(index).and_then(|device| device.pci_info()).ok()?;
        let model = PciModel {
            device: pci.pci_device_id,
            subsystem: pci.pci_sub_system_id,
        };
        Some((GpuIndex(index), model))
    };
    Ok((0..nvml.device_count()?).filter_map(of).collect())
}

/// All GPUs that have MIG, and a line for each that does not say what it has.
pub(crate) fn gpus(nvml: &Nvml) -> Result<(Vec<MigGpu>, Vec<String>), NvmlError> {
    let (mut gpus, mut problems) = (Vec::new(), Vec::new());
    for index in 0..nvml.device_count()? {
        let device = nvml.device_by_index(index);
        let has_mig = device.as_ref().map_err(|_| ()).map(|device| match device.mig_mode() {
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => false,
            Ok(_) | Err(_) => true,
        });
        match (has_mig, device.and_then(|device| gpu(&device))) {
            (Ok(false), _) => {}
            (_, Ok(found)) => gpus.push(found),
            (_, Err(error)) => problems.push(format!("gpu {index}: NVML says: {}", meaning(&error))),
        }
    }
    Ok((gpus, problems))
}

/// How often a GPU is looked at whose instances another process changes meanwhile, so that one that was listed is gone
/// when it is asked about; and how long is waited before the next look.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

/// What `device` has.
pub(crate) fn gpu(device: &Device<'_>) -> Result<MigGpu, NvmlError> {
    for _ in 1..LOOKS {
        match look(device) {
            Err(NvmlError::InvalidArg | NvmlError::NotFound) => sleep(BETWEEN_LOOKS),
            looked => return looked,
        }
    }
    look(device)
}

fn look(device: &Device<'_>) -> Result<MigGpu, NvmlError> {
    let mode = mig_state(device.mig_mode()?).ok_or(NvmlError::Unknown)?;
    let pci = device.pci_info()?;
    let is_on = mode.current == MigMode::Enabled;
    let mut profiles = profiles(device)?;
    let mut instances = Vec::new();
    for profile in profiles.iter_mut().filter(|_| is_on) {
        for handle in gpu_instances(device, profile.id.0)? {
            instances.push(instance(&handle, profile)?);
        }
    }
    name_devices(device, &mut instances)?;
    instances.sort_by_key(|one| one.placement);
    Ok(MigGpu {
        uuid: device.uuid()?.parse().map_err(|_| NvmlError::Unknown)?,
        index: GpuIndex(device.index()?),
        pci: pci.bus_id.parse().map_err(|_| NvmlError::Unknown)?,
        pci_device: pci.pci_device_id,
        pci_subsystem: pci.pci_sub_system_id.unwrap_or(0),
        product: device.name()?,
        mode,
        resetless: is_resetless(device).ok(),
        virtualization: device.virtualization_mode().ok().and_then(virtualization),
        profiles,
        instances,
        clients: clients(device)?,
    })
}

/// What the GPU offers. With MIG mode off, drivers before 550 offer nothing.
fn profiles(device: &Device<'_>) -> Result<Vec<InstanceProfile>, NvmlError> {
    let mut found = Vec::new();
    for index in 0..MOST_PROFILES {
        match profile(device, index) {
            Ok(raw) => {
                let places = placements(device, raw.info.id)?;
                found.extend(offered(index, &raw, places.iter().map(place)));
            }
            Err(NvmlError::NotSupported) => {}
            Err(NvmlError::InvalidArg) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// `None` for a profile whose name says nothing that this version of tranche understands.
fn offered(index: u32, raw: &RawProfile, places: impl Iterator<Item = Placement>) -> Option<InstanceProfile> {
    let RawProfile { info, name } = raw;
    let named = name.as_deref().and_then(|name| std::str::from_utf8(name).ok());
    let named = named.and_then(|name| name.rsplit(' ').next()?.parse().ok());
    let mut places: Vec<Placement> = places.filter(|place| place.size > 0).collect();
    places.sort_unstable();
    places.dedup();
    Some(InstanceProfile {
        index: ProfileIndex(index),
        id: ProfileId(info.id),
        name: named.or_else(|| computed_name(index, info))?,
        slices: info.sliceCount,
        memory: MemorySize::from_mib(info.memorySizeMB),
        sms: info.multiprocessorCount,
        engines: Engines {
            copy: info.copyEngineCount,
            decoders: info.decoderCount,
            encoders: info.encoderCount,
            jpeg: info.jpegCount,
            ofa: info.ofaCount,
        },
        most: info.instanceCount,
        placements: places,
        compute: Vec::new(),
    })
}

/// The name of a profile from a driver before 510, which has no names: slices, memory rounded up to whole GB, and what
/// the profile's number stands for (nvml.h, `NVML_GPU_INSTANCE_PROFILE_*_REV1` has media extensions).
fn computed_name(index: u32, info: &nvmlGpuInstanceProfileInfo_t) -> Option<MigProfile> {
    const WITH_MEDIA: [u32; 2] = [7, 8];
    let memory = info.memorySizeMB.div_ceil(1024);
    let attribute = if WITH_MEDIA.contains(&index) { "+me" } else { "" };
    format!("{}g.{memory}gb{attribute}", info.sliceCount).parse().ok()
}

fn place(place: &nvmlGpuInstancePlacement_t) -> Placement {
    Placement {
        start: place.start,
        size: place.size,
    }
}

/// A GPU instance of `profile`, which gets the profiles of compute instances, because only an instance knows them.
fn instance(handle: &GpuInstanceHandle<'_>, profile: &mut InstanceProfile) -> Result<GpuInstance, NvmlError> {
    let nvmlGpuInstanceInfo_t { id, placement, .. } = handle.info()?;
    if profile.compute.is_empty() {
        profile.compute = compute_profiles(handle)?;
    }
    let mut compute = Vec::new();
    let mut ids: Vec<ComputeProfileId> = profile.compute.iter().map(|profile| profile.id).collect();
    ids.dedup();
    for profile in ids {
        for found in handle.compute_instances(profile.0)? {
            let placed = Placement {
                start: found.placement.start,
                size: found.placement.size,
            };
            compute.push(ComputeInstance {
                id: ComputeInstanceId(found.id),
                profile,
                // The first version of the structure has no place.
                placement: Some(placed).filter(|placed| placed.size > 0),
                uuid: None,
            });
        }
    }
    compute.sort_by_key(|one| (one.placement, one.id));
    compute.dedup_by_key(|one| one.id);
    Ok(GpuInstance {
        id: GpuInstanceId(id),
        profile: profile.id,
        placement: place(&placement),
        compute,
    })
}

fn compute_profiles(handle: &GpuInstanceHandle<'_>) -> Result<Vec<ComputeProfile>, NvmlError> {
    let mut found = Vec::new();
    for index in 0..MOST_PROFILES {
        match handle.compute_profile(index) {
            Ok(info) => found.push(ComputeProfile {
                index: ComputeProfileIndex(index),
                id: ComputeProfileId(info.id),
                slices: info.sliceCount,
                sms: info.multiprocessorCount,
                most: info.instanceCount,
            }),
            Err(NvmlError::NotSupported) => {}
            Err(NvmlError::InvalidArg) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Gives each compute instance the UUID of its MIG device.
fn name_devices(device: &Device<'_>, instances: &mut [GpuInstance]) -> Result<(), NvmlError> {
    if instances.iter().all(|one| one.compute.is_empty()) {
        return Ok(());
    }
    for index in 0..device.mig_device_count()? {
        let mig = match device.mig_device_by_index(index) {
            Ok(mig) => mig,
            Err(NvmlError::NotFound) => continue,
            Err(error) => return Err(error),
        };
        let (instance, compute) = (gpu_instance(&mig)?, compute_instance(&mig)?);
        let found = instances.iter_mut().find(|one| one.id.0 == instance);
        let found = found.and_then(|one| one.compute.iter_mut().find(|one| one.id.0 == compute));
        if let Some(found) = found {
            found.uuid = mig.uuid()?.parse().ok();
        }
    }
    Ok(())
}

/// The processes that NVML lists on the GPU, of every kind.
fn clients(device: &Device<'_>) -> Result<Vec<MigClient>, NvmlError> {
    let known = |id: u32| Some(id).filter(|id| *id != NO_INSTANCE);
    let mut clients = Vec::new();
    for kind in [ProcessList::Compute, ProcessList::Graphics, ProcessList::Mps] {
        let found = match processes(device, kind) {
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Vec::new(),
            found => found?,
        };
        clients.extend(found.into_iter().map(|process| MigClient {
            pid: process.pid,
            gpu_instance: known(process.gpuInstanceId).map(GpuInstanceId),
            compute_instance: known(process.computeInstanceId).map(ComputeInstanceId),
        }));
    }
    clients.sort_by_key(|client| client.pid);
    clients.dedup();
    Ok(clients)
}

/// Makes one change. A change of the mode that is not in effect at once is an error, though it is pending then.
pub(crate) fn change(device: &Device<'_>, change: &MigChange) -> Result<(), NvmlError> {
    match change {
        MigChange::SetMode(mode) => set_mig_mode(device, *mode == MigMode::Enabled)?,
        MigChange::DestroyCompute(instance, compute) => {
            gpu_instance_by_id(device, instance.0)?.destroy_compute(compute.0)
        }
        MigChange::Destroy(instance) => gpu_instance_by_id(device, instance.0)?.destroy(),
        MigChange::Create { profile, placement, .. } => {
            let Placement { start, size } = *placement;
            create_gpu_instance(device, profile.0, nvmlGpuInstancePlacement_t { start, size })
        }
        MigChange::CreateCompute {
            instance,
            profile,
            start,
        } => {
            let size = profile.slices;
            let place = start.map(|start| nvmlComputeInstancePlacement_t { start, size });
            gpu_instance_by_id(device, instance.0)?.create_compute(profile.id.0, place)
        }
    }
}
