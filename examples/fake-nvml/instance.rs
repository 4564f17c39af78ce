//! MIG: the mode of a GPU, its GPU instances and compute instances, and their profiles.

use crate::answer::{fixed, nvml, put, version};
use crate::config::{ComputeInstance, GpuInstance};
use crate::mig;
use crate::state::{Answer, Call, Handle, INVALID, NOT_FOUND, UNSUPPORTED, decode, encode};
use nvml_wrapper_sys::bindings::*;
use std::ffi::c_uint;

/// The `3` of `3g.20gb`.
fn slices(instance: &GpuInstance) -> u32 {
    instance
        .profile
        .split('g')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

fn compute_slices(instance: &GpuInstance, compute: &ComputeInstance) -> u32 {
    compute.slices.unwrap_or(slices(instance))
}

/// `MIG 3g.20gb`, or `MIG 1c.3g.20gb` for a compute instance that does not have all slices.
pub(crate) fn title(instance: &GpuInstance, compute: &ComputeInstance) -> String {
    match compute.slices {
        Some(n) if n != slices(instance) => format!("MIG {n}c.{}", instance.profile),
        _ => format!("MIG {}", instance.profile),
    }
}

/// NVML_GPU_INSTANCE_PROFILE_* of a profile's name.
fn profile(instance: &GpuInstance) -> u32 {
    let index = match (
        slices(instance),
        instance.profile.split_once('+').map(|(_, attribute)| attribute),
    ) {
        (1, None) => NVML_GPU_INSTANCE_PROFILE_1_SLICE,
        (2, None) => NVML_GPU_INSTANCE_PROFILE_2_SLICE,
        (3, _) => NVML_GPU_INSTANCE_PROFILE_3_SLICE,
        (4, None) => NVML_GPU_INSTANCE_PROFILE_4_SLICE,
        (6, _) => NVML_GPU_INSTANCE_PROFILE_6_SLICE,
        (8, _) => NVML_GPU_INSTANCE_PROFILE_8_SLICE,
        (1, Some("me")) => NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1,
        (2, Some("me")) => NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1,
        (1, Some("gfx")) => NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX,
        (2, Some("gfx")) => NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX,
        (4, Some("gfx")) => NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX,
        _ => NVML_GPU_INSTANCE_PROFILE_7_SLICE,
    };
    instance.nvml_profile.unwrap_or(index)
}

/// The driver's own number of a profile, which differs from NVML's. Any one-to-one rule works here.
fn profile_id(instance: &GpuInstance) -> u32 {
    match profile(instance) {
        NVML_GPU_INSTANCE_PROFILE_1_SLICE => 19,
        NVML_GPU_INSTANCE_PROFILE_2_SLICE => 14,
        NVML_GPU_INSTANCE_PROFILE_3_SLICE => 9,
        NVML_GPU_INSTANCE_PROFILE_4_SLICE => 5,
        NVML_GPU_INSTANCE_PROFILE_7_SLICE => 0,
        other => 32 + other,
    }
}

/// NVML_COMPUTE_INSTANCE_PROFILE_* of a number of slices. The driver's numbers are the same here.
fn compute_profile(slices: u32) -> u32 {
    match slices {
        1 => NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE,
        2 => NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE,
        3 => NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE,
        4 => NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE,
        6 => NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE,
        8 => NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE,
        _ => NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE,
    }
}

fn instance(call: Call, handle: usize) -> Answer<(usize, usize, &'static GpuInstance)> {
    let Some((gpu, Some(position), _)) = decode(handle) else {
        return Err(INVALID);
    };
    let mig = call.gpu(gpu)?.mig.as_ref().ok_or(INVALID)?;
    Ok((gpu, position, mig.instances.get(position).ok_or(INVALID)?))
}

/// A GPU instance of this profile, if the GPU has one. Only profiles that are in use are known here.
fn of_profile(call: Call, device: nvmlDevice_t, index: c_uint) -> Answer<(&'static GpuInstance, u32)> {
    let (_, _, mig) = call.mig(device)?;
    let same = || mig.instances.iter().filter(|i| profile(i) == index);
    Ok((same().next().ok_or(UNSUPPORTED)?, same().count() as u32))
}

fn compute_info(call: Call, handle: nvmlComputeInstance_t, info: *mut nvmlComputeInstanceInfo_t) -> Answer {
    let (gpu, position, found) = instance(call, handle as usize)?;
    let Some((_, _, Some(c))) = decode(handle as usize) else {
        return Err(INVALID);
    };
    let compute = found.compute.get(c).ok_or(INVALID)?;
    let size = compute_slices(found, compute);
    put(
        info,
        nvmlComputeInstanceInfo_t {
            device: encode(gpu, None, None) as nvmlDevice_t,
            gpuInstance: encode(gpu, Some(position), None) as nvmlGpuInstance_t,
            id: compute.id,
            profileId: compute_profile(size),
            placement: nvmlComputeInstancePlacement_t {
                start: compute.start.unwrap_or(compute.id),
                size,
            },
        },
    )
}

nvml! {
    fn nvmlDeviceGetMigMode(device: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint) |call| {
        let (_, _, mig) = call.mig(device)?;
        put(current, mig.current.into())?;
        put(pending, mig.pending.unwrap_or(mig.current).into())
    }
    fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, to: *mut c_uint) |call| {
        let (_, gpu) = call.whole(device)?;
        put(to, gpu.mig.as_ref().map_or(0, |m| m.max))
    }
    fn nvmlDeviceGetMigDeviceHandleByIndex(device: nvmlDevice_t, index: c_uint, to: *mut nvmlDevice_t) |call| {
        let (gpu, _, mig) = call.mig(device)?;
        if index >= mig.max {
            return Err(INVALID);
        }
        for (i, instance) in mig.instances.iter().enumerate() {
            if let Some(c) = instance.compute.iter().position(|c| c.index == index) {
                return put(to, encode(gpu, Some(i), Some(c)) as nvmlDevice_t);
            }
        }
        Err(NOT_FOUND)
    }
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device: nvmlDevice_t, to: *mut nvmlDevice_t) |call| {
        let Handle::Mig(gpu, ..) = call.handle(device)? else { return Err(INVALID) };
        call.gpu(gpu)?;
        put(to, encode(gpu, None, None) as nvmlDevice_t)
    }
    fn nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, to: *mut c_uint) |call| {
        put(to, matches!(call.handle(device)?, Handle::Mig(..)).into())
    }
    fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, to: *mut c_uint) |call| { put(to, call.device(device)?.1.id) }
    fn nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, to: *mut c_uint) |call| {
        put(to, call.device(device)?.2.id)
    }
    fn nvmlDeviceGetAttributes_v2(device: nvmlDevice_t, to: *mut nvmlDeviceAttributes_t) |call| {
        let (_, instance, compute) = call.device(device)?;
        let (all, own) = (slices(instance), compute_slices(instance, compute));
        put(to, nvmlDeviceAttributes_t {
            multiprocessorCount: instance.sms * own / all.max(1),
            sharedCopyEngineCount: all,
            sharedDecoderCount: all / 2,
            sharedEncoderCount: 0,
            sharedJpegCount: instance.profile.ends_with("+me").into(),
            sharedOfaCount: instance.profile.ends_with("+me").into(),
            gpuInstanceSliceCount: all,
            computeInstanceSliceCount: own,
            memorySizeMB: instance.memory_mib,
        })
    }
    fn nvmlDeviceGetGpuInstanceById(device: nvmlDevice_t, id: c_uint, to: *mut nvmlGpuInstance_t) |call| {
        let (gpu, _, mig) = call.mig(device)?;
        let position = mig.instances.iter().position(|i| i.id == id).ok_or(NOT_FOUND)?;
        put(to, encode(gpu, Some(position), None) as nvmlGpuInstance_t)
    }
    fn nvmlGpuInstanceGetInfo(handle: nvmlGpuInstance_t, to: *mut nvmlGpuInstanceInfo_t) |call| {
        let (gpu, _, found) = instance(call, handle as usize)?;
        let (profileId, placement) = mig::placed(call, gpu, found).unwrap_or_else(|| {
            (profile_id(found), nvmlGpuInstancePlacement_t { start: found.start, size: slices(found) })
        });
        put(to, nvmlGpuInstanceInfo_t {
            device: encode(gpu, None, None) as nvmlDevice_t,
            id: found.id,
            profileId,
            placement,
        })
    }
    fn nvmlGpuInstanceGetComputeInstanceById(
        handle: nvmlGpuInstance_t, id: c_uint, to: *mut nvmlComputeInstance_t
    ) |call| {
        let (gpu, position, found) = instance(call, handle as usize)?;
        let compute = found.compute.iter().position(|c| c.id == id).ok_or(NOT_FOUND)?;
        put(to, encode(gpu, Some(position), Some(compute)) as nvmlComputeInstance_t)
    }
    fn nvmlComputeInstanceGetInfo(handle: nvmlComputeInstance_t, to: *mut nvmlComputeInstanceInfo_t) |call| {
        compute_info(call, handle, to)
    }
    fn nvmlComputeInstanceGetInfo_v2(handle: nvmlComputeInstance_t, to: *mut nvmlComputeInstanceInfo_t) |call| {
        compute_info(call, handle, to)
    }
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        device: nvmlDevice_t, index: c_uint, to: *mut nvmlGpuInstanceProfileInfo_t
    ) |call| {
        if mig::has_product(call, device) {
            return mig::put_profile(call, device, index, to);
        }
        let (found, count) = of_profile(call, device, index)?;
        put(to, nvmlGpuInstanceProfileInfo_t {
            id: profile_id(found),
            isP2pSupported: 0,
            sliceCount: slices(found),
            instanceCount: count,
            multiprocessorCount: found.sms,
            copyEngineCount: slices(found),
            decoderCount: slices(found) / 2,
            encoderCount: 0,
            jpegCount: 0,
            ofaCount: 0,
            memorySizeMB: found.memory_mib,
        })
    }
    fn nvmlDeviceGetGpuInstanceProfileInfoV(
        device: nvmlDevice_t, index: c_uint, to: *mut nvmlGpuInstanceProfileInfo_v2_t
    ) |call| {
        if mig::has_product(call, device) {
            return mig::put_named_profile(call, device, index, to);
        }
        // SAFETY: NVML's contract: the caller has set the version of the structure.
        unsafe { version(to, 2)? };
        let (found, count) = of_profile(call, device, index)?;
        put(to, nvmlGpuInstanceProfileInfo_v2_t {
            version: size_of::<nvmlGpuInstanceProfileInfo_v2_t>() as u32 | 2 << 24,
            id: profile_id(found),
            isP2pSupported: 0,
            sliceCount: slices(found),
            instanceCount: count,
            multiprocessorCount: found.sms,
            copyEngineCount: slices(found),
            decoderCount: slices(found) / 2,
            encoderCount: 0,
            jpegCount: 0,
            ofaCount: 0,
            memorySizeMB: found.memory_mib,
            name: fixed(&format!("MIG {}", found.profile)),
        })
    }
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        handle: nvmlGpuInstance_t, index: c_uint, engine: c_uint, to: *mut nvmlComputeInstanceProfileInfo_t
    ) |call| {
        let (gpu, _, found) = instance(call, handle as usize)?;
        if mig::placed(call, gpu, found).is_some() {
            return mig::put_compute_profile(call, handle, index, to);
        }
        let all = slices(found);
        let own = found.compute.iter().map(|c| compute_slices(found, c)).find(|s| compute_profile(*s) == index);
        let (Some(own), NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED) = (own, engine) else { return Err(UNSUPPORTED) };
        put(to, nvmlComputeInstanceProfileInfo_t {
            id: compute_profile(own),
            sliceCount: own,
            instanceCount: all / own.max(1),
            multiprocessorCount: found.sms * own / all.max(1),
            sharedCopyEngineCount: all,
            sharedDecoderCount: all / 2,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
        })
    }
}
