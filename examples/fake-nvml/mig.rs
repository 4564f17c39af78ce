//! The functions that divide a GPU by MIG, for GPUs of the configuration that name a product: `"product": "a100-40"`.
//!
//! The tables of products are those of the built-in inventories (`src/plan/sim/mig`). The rules are written here once
//! more, so that the planner is not judged by itself.

mod files;
mod rules;
mod store;

pub(crate) use store::{overlay, path as changes};

use crate::answer::{fixed, nvml, put, version};
use crate::config::{GpuInstance, Mig};
use crate::state::{Answer, Call, INVALID, NOT_FOUND, UNSUPPORTED, decode, encode};
use nvml_wrapper_sys::bindings::*;
use rules::{Refusal, Table};
use std::ffi::{c_int, c_uint};

/// NVML's largest number of a profile of GPU instances (`NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME` in nvml.h of 580).
const LAST_PROFILE: c_uint = 0x10;
const LAST_COMPUTE_PROFILE: c_uint = NVML_COMPUTE_INSTANCE_PROFILE_COUNT - 1;

fn refused(refusal: Refusal) -> nvmlReturn_t {
    match refusal {
        Refusal::Full => nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES,
        Refusal::Invalid => INVALID,
        Refusal::InUse => nvmlReturn_enum_NVML_ERROR_IN_USE,
        Refusal::NotFound => NOT_FOUND,
    }
}

/// The GPU at this handle as a whole: its position, its MIG state and its product.
fn product(call: Call, device: nvmlDevice_t) -> Answer<(usize, &'static Mig, Table)> {
    let (position, gpu, mig) = call.mig(device)?;
    if gpu.virtualization.as_deref() == Some("vgpu") {
        return Err(UNSUPPORTED);
    }
    Ok((position, mig, Table::of(mig).ok_or(UNSUPPORTED)?))
}

/// As [`product`], with MIG mode on.
fn divided(call: Call, device: nvmlDevice_t) -> Answer<(usize, &'static Mig, Table)> {
    let found = product(call, device)?;
    match found.1.current {
        true => Ok(found),
        false => Err(UNSUPPORTED),
    }
}

/// What a handle of a GPU instance names.
fn instance(call: Call, handle: usize) -> Answer<(usize, usize, &'static GpuInstance, Table)> {
    let Some((gpu, Some(position), _)) = decode(handle) else {
        return Err(INVALID);
    };
    let mig = call.gpu(gpu)?.mig.as_ref().ok_or(INVALID)?;
    let found = mig.instances.get(position).ok_or(INVALID)?;
    Ok((gpu, position, found, Table::of(mig).ok_or(UNSUPPORTED)?))
}

/// Changes the state of a GPU on the disk.
fn change(call: Call, gpu: usize, change: impl FnOnce(&Table, &mut Mig) -> Result<(), Refusal>) -> Answer {
    let gpu = call.world.config.gpus.get(gpu).ok_or(INVALID)?;
    store::change(call.world, gpu, |mig| {
        let table = Table::of(mig).ok_or(Refusal::Invalid)?;
        change(&table, mig)
    })
    .map_err(refused)
}

/// Whether a process of the configuration uses this instance, or this compute instance of it.
fn is_used(call: Call, gpu: usize, instance: u32, compute: Option<u32>) -> bool {
    let processes = call.world.config.gpus.get(gpu).map_or(&[][..], |gpu| &gpu.processes);
    let uses = |process: &&crate::config::Process| {
        process.gpu_instance == Some(instance)
            && (compute.is_none() || process.compute_instance.is_none() || process.compute_instance == compute)
    };
    processes.iter().any(|process| uses(&process))
}

fn profile_info(call: Call, device: nvmlDevice_t, index: c_uint) -> Answer<(nvmlGpuInstanceProfileInfo_t, String)> {
    let (_, mig, table) = product(call, device)?;
    if index > LAST_PROFILE {
        return Err(INVALID);
    }
    // Drivers before 550 list profiles only while MIG mode is on.
    let major = call
        .world
        .config
        .driver
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    if !mig.current && major.is_some_and(|major| major < 550) {
        return Err(UNSUPPORTED);
    }
    let profile = table.by_index(index).ok_or(UNSUPPORTED)?;
    let info = nvmlGpuInstanceProfileInfo_t {
        id: profile.id.0,
        isP2pSupported: 0,
        sliceCount: profile.slices,
        instanceCount: profile.most,
        multiprocessorCount: profile.sms,
        copyEngineCount: profile.engines.copy,
        decoderCount: profile.engines.decoders,
        encoderCount: profile.engines.encoders,
        jpegCount: profile.engines.jpeg,
        ofaCount: profile.engines.ofa,
        memorySizeMB: profile.memory.mib(),
    };
    Ok((info, format!("MIG {}", profile.name)))
}

fn possible_placements(
    call: Call,
    device: nvmlDevice_t,
    id: c_uint,
    to: *mut nvmlGpuInstancePlacement_t,
    count: *mut c_uint,
) -> Answer {
    let (_, _, table) = product(call, device)?;
    let profile = table.by_id(id).ok_or(INVALID)?;
    let places = profile.placements.iter().map(|place| nvmlGpuInstancePlacement_t {
        start: place.start,
        size: place.size,
    });
    // SAFETY: NVML's contract.
    unsafe { crate::usage::put_list(count, to, &places.collect::<Vec<_>>()) }
}

/// Whether the functions of this module answer for the GPU of this handle.
pub(crate) fn has_product(call: Call, device: nvmlDevice_t) -> bool {
    product(call, device).is_ok()
}

/// `nvmlDeviceGetGpuInstanceProfileInfo` of a GPU with a product.
pub(crate) fn put_profile(
    call: Call,
    device: nvmlDevice_t,
    index: c_uint,
    to: *mut nvmlGpuInstanceProfileInfo_t,
) -> Answer {
    put(to, profile_info(call, device, index)?.0)
}

/// `nvmlDeviceGetGpuInstanceProfileInfoV` of a GPU with a product.
pub(crate) fn put_named_profile(
    call: Call,
    device: nvmlDevice_t,
    index: c_uint,
    to: *mut nvmlGpuInstanceProfileInfo_v2_t,
) -> Answer {
    // SAFETY: NVML's contract: the caller has set the version of the structure.
    unsafe { version(to, 2)? };
    let (info, name) = profile_info(call, device, index)?;
    put(
        to,
        nvmlGpuInstanceProfileInfo_v2_t {
            version: size_of::<nvmlGpuInstanceProfileInfo_v2_t>() as u32 | 2 << 24,
            id: info.id,
            isP2pSupported: info.isP2pSupported,
            sliceCount: info.sliceCount,
            instanceCount: info.instanceCount,
            multiprocessorCount: info.multiprocessorCount,
            copyEngineCount: info.copyEngineCount,
            decoderCount: info.decoderCount,
            encoderCount: info.encoderCount,
            jpegCount: info.jpegCount,
            ofaCount: info.ofaCount,
            memorySizeMB: info.memorySizeMB,
            name: fixed(&name),
        },
    )
}

/// The driver's number of an instance's profile, and its place, of a GPU with a product.
pub(crate) fn placed(call: Call, gpu: usize, found: &GpuInstance) -> Option<(u32, nvmlGpuInstancePlacement_t)> {
    let table = Table::of(call.world.config.gpus.get(gpu)?.mig.as_ref()?)?;
    let profile = table.by_name(&found.profile)?;
    let size = profile.placements.first()?.size;
    Some((
        profile.id.0,
        nvmlGpuInstancePlacement_t {
            start: found.start,
            size,
        },
    ))
}

/// `nvmlGpuInstanceGetComputeInstanceProfileInfo` of a GPU with a product.
pub(crate) fn put_compute_profile(
    call: Call,
    handle: nvmlGpuInstance_t,
    index: c_uint,
    to: *mut nvmlComputeInstanceProfileInfo_t,
) -> Answer {
    let (_, _, found, table) = instance(call, handle as usize)?;
    if index > LAST_COMPUTE_PROFILE {
        return Err(INVALID);
    }
    let profile = table.by_name(&found.profile).ok_or(UNSUPPORTED)?;
    let compute = profile
        .compute
        .iter()
        .find(|compute| compute.index.0 == index)
        .ok_or(UNSUPPORTED)?;
    put(
        to,
        nvmlComputeInstanceProfileInfo_t {
            id: compute.id.0,
            sliceCount: compute.slices,
            instanceCount: compute.most,
            multiprocessorCount: compute.sms,
            sharedCopyEngineCount: profile.engines.copy,
            sharedDecoderCount: profile.engines.decoders,
            sharedEncoderCount: profile.engines.encoders,
            sharedJpegCount: profile.engines.jpeg,
            sharedOfaCount: profile.engines.ofa,
        },
    )
}

nvml! {
    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        device: nvmlDevice_t, id: c_uint, to: *mut nvmlGpuInstancePlacement_t, count: *mut c_uint
    ) |call| { possible_placements(call, device, id, to, count) }
    fn nvmlDeviceGetGpuInstancePossiblePlacements(
        device: nvmlDevice_t, id: c_uint, to: *mut nvmlGpuInstancePlacement_t, count: *mut c_uint
    ) |call| { possible_placements(call, device, id, to, count) }
    fn nvmlDeviceGetGpuInstanceRemainingCapacity(device: nvmlDevice_t, id: c_uint, to: *mut c_uint) |call| {
        let (_, mig, table) = divided(call, device)?;
        put(to, table.remaining(mig, id).map_err(refused)?)
    }
    fn nvmlDeviceGetGpuInstances(
        device: nvmlDevice_t, id: c_uint, to: *mut nvmlGpuInstance_t, count: *mut c_uint
    ) |call| {
        let (gpu, mig, table) = divided(call, device)?;
        let name = table.by_id(id).ok_or(INVALID)?.name.to_string();
        let found = mig.instances.iter().enumerate().filter(|(_, one)| one.profile == name);
        let handles: Vec<_> = found.map(|(at, _)| encode(gpu, Some(at), None) as nvmlGpuInstance_t).collect();
        // SAFETY: NVML's contract.
        unsafe { crate::usage::put_list(count, to, &handles) }
    }
    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        device: nvmlDevice_t, id: c_uint, place: *const nvmlGpuInstancePlacement_t, to: *mut nvmlGpuInstance_t
    ) |call| {
        let (gpu, mig, _) = divided(call, device)?;
        if place.is_null() {
            return Err(INVALID);
        }
        // SAFETY: NVML's contract: a pointer that is not null points to a structure.
        let (start, size) = unsafe { ((*place).start, (*place).size) };
        change(call, gpu, |table, mig| table.create(mig, id, Some((start, size))))?;
        put(to, encode(gpu, Some(mig.instances.len()), None) as nvmlGpuInstance_t)
    }
    fn nvmlDeviceCreateGpuInstance(device: nvmlDevice_t, id: c_uint, to: *mut nvmlGpuInstance_t) |call| {
        let (gpu, mig, _) = divided(call, device)?;
        change(call, gpu, |table, mig| table.create(mig, id, None))?;
        put(to, encode(gpu, Some(mig.instances.len()), None) as nvmlGpuInstance_t)
    }
    fn nvmlGpuInstanceDestroy(handle: nvmlGpuInstance_t) |call| {
        let (gpu, _, found, _) = instance(call, handle as usize)?;
        if is_used(call, gpu, found.id, None) {
            return Err(refused(Refusal::InUse));
        }
        change(call, gpu, |_, mig| rules::destroy(mig, found.id))
    }
    fn nvmlGpuInstanceGetComputeInstances(
        handle: nvmlGpuInstance_t, id: c_uint, to: *mut nvmlComputeInstance_t, count: *mut c_uint
    ) |call| {
        let (gpu, position, found, table) = instance(call, handle as usize)?;
        let slices = table.compute_slices(&found.profile, id).ok_or(INVALID)?;
        let all = table.slices(&found.profile);
        let same = found.compute.iter().enumerate().filter(|(_, one)| one.slices.unwrap_or(all) == slices);
        let handles: Vec<_> =
            same.map(|(at, _)| encode(gpu, Some(position), Some(at)) as nvmlComputeInstance_t).collect();
        // SAFETY: NVML's contract.
        unsafe { crate::usage::put_list(count, to, &handles) }
    }
    fn nvmlGpuInstanceCreateComputeInstance(
        handle: nvmlGpuInstance_t, id: c_uint, to: *mut nvmlComputeInstance_t
    ) |call| {
        let (gpu, position, found, _) = instance(call, handle as usize)?;
        change(call, gpu, |table, mig| table.create_compute(mig, found.id, id, None))?;
        put(to, encode(gpu, Some(position), Some(found.compute.len())) as nvmlComputeInstance_t)
    }
    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        handle: nvmlGpuInstance_t, id: c_uint, place: *const nvmlComputeInstancePlacement_t,
        to: *mut nvmlComputeInstance_t
    ) |call| {
        let (gpu, position, found, _) = instance(call, handle as usize)?;
        if place.is_null() {
            return Err(INVALID);
        }
        // SAFETY: NVML's contract: a pointer that is not null points to a structure.
        let start = unsafe { (*place).start };
        change(call, gpu, |table, mig| table.create_compute(mig, found.id, id, Some(start)))?;
        put(to, encode(gpu, Some(position), Some(found.compute.len())) as nvmlComputeInstance_t)
    }
    fn nvmlComputeInstanceDestroy(handle: nvmlComputeInstance_t) |call| {
        let (gpu, _, found, _) = instance(call, handle as usize)?;
        let Some((_, _, Some(at))) = decode(handle as usize) else { return Err(INVALID) };
        let compute = found.compute.get(at).ok_or(INVALID)?.id;
        if is_used(call, gpu, found.id, Some(compute)) {
            return Err(refused(Refusal::InUse));
        }
        change(call, gpu, |_, mig| rules::destroy_compute(mig, found.id, compute))
    }
    fn nvmlDeviceSetMigMode(device: nvmlDevice_t, mode: c_uint, activation: *mut nvmlReturn_t) |call| {
        let (position, gpu, mig) = call.mig(device)?;
        let table = Table::of(mig).ok_or(UNSUPPORTED)?;
        if gpu.virtualization.as_deref() == Some("vgpu") {
            return Err(UNSUPPORTED);
        }
        let is_busy = !gpu.processes.is_empty();
        let in_effect = table.is_resetless() && !is_busy;
        change(call, position, |_, mig| {
            mig.pending = Some(mode != 0);
            if in_effect && mig.current != (mode != 0) {
                mig.current = mode != 0;
                mig.instances.clear();
            }
            Ok(())
        })?;
        put(activation, match (in_effect || mig.current == (mode != 0), is_busy) {
            (true, _) => nvmlReturn_enum_NVML_SUCCESS,
            (false, true) => nvmlReturn_enum_NVML_ERROR_IN_USE,
            (false, false) => nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED,
        })
    }
    fn nvmlDeviceGetFieldValues(device: nvmlDevice_t, count: c_int, values: *mut nvmlFieldValue_t) |call| {
        let (_, _, mig) = call.mig(device)?;
        let table = Table::of(mig).ok_or(UNSUPPORTED)?;
        for at in 0..usize::try_from(count).map_err(|_| INVALID)? {
            // SAFETY: NVML's contract: `values` points to `count` structures.
            let value = unsafe { &mut *values.add(at) };
            match value.fieldId {
                184 => {
                    value.nvmlReturn = nvmlReturn_enum_NVML_SUCCESS;
                    value.value.uiVal = table.is_resetless().into();
                }
                _ => value.nvmlReturn = UNSUPPORTED,
            }
        }
        Ok(())
    }
}
