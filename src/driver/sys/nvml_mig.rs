//! The calls of NVML that divide a GPU by MIG. nvml-wrapper has few of them, and its `possible_placements` always
//! returns an empty list. As in [`super::nvml`], each function is looked up by itself.

#![allow(unsafe_code)]

use super::nvml::list;
use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED as SHARED, NvmlLib, nvmlComputeInstance_t, nvmlComputeInstanceInfo_t,
    nvmlComputeInstancePlacement_t, nvmlComputeInstanceProfileInfo_t, nvmlFieldValue_t, nvmlGpuInstance_t,
    nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t,
    nvmlReturn_t, nvmlValue_t,
};
use std::ffi::c_uint;
use std::ptr::null_mut;

/// A profile of GPU instances, with the name that NVML has for it: drivers since 510 have names.
pub(crate) struct RawProfile {
    /// What both versions of the structure have.
    pub(crate) info: nvmlGpuInstanceProfileInfo_t,
    /// The bytes of the name, up to the first NUL.
    pub(crate) name: Option<Vec<u8>>,
}

/// The profile with NVML's number `index` (`NVML_GPU_INSTANCE_PROFILE_*`).
///
/// # Errors
/// Returns NVML's error: `InvalidArg` for a number beyond those that the library knows, `NotSupported` for a profile
/// that the GPU does not have. `FailedToLoadSymbol` if the library lacks the function; so do the functions below.
pub(crate) fn profile(device: &Device<'_>, index: u32) -> Result<RawProfile, NvmlError> {
    let lib = device.nvml().lib();
    let Ok(named) = nvml_sym(lib.nvmlDeviceGetGpuInstanceProfileInfoV.as_ref()) else {
        let call = nvml_sym(lib.nvmlDeviceGetGpuInstanceProfileInfo.as_ref())?;
        // SAFETY: all fields are numbers, for which zero is a value.
        let mut info: nvmlGpuInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: nvml.h declares the function with these types; the pointer is to a valid structure.
        nvml_try(unsafe { call(device.handle(), index, &raw mut info) })?;
        return Ok(RawProfile { info, name: None });
    };
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut v2: nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    v2.version = size_of::<nvmlGpuInstanceProfileInfo_v2_t>() as u32 | 2 << 24;
    // SAFETY: nvml.h declares the function with these types; the structure says its version and size.
    nvml_try(unsafe { named(device.handle(), index, &raw mut v2) })?;
    let info = nvmlGpuInstanceProfileInfo_t {
        id: v2.id,
        isP2pSupported: v2.isP2pSupported,
        sliceCount: v2.sliceCount,
        instanceCount: v2.instanceCount,
        multiprocessorCount: v2.multiprocessorCount,
        copyEngineCount: v2.copyEngineCount,
        decoderCount: v2.decoderCount,
        encoderCount: v2.encoderCount,
        jpegCount: v2.jpegCount,
        ofaCount: v2.ofaCount,
        memorySizeMB: v2.memorySizeMB,
    };
    let name = v2.name.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
    Ok(RawProfile { info, name: Some(name) })
}

/// Where instances of the profile with the driver's number `id` can lie, occupied or not.
///
/// # Errors
/// As [`profile`].
pub(crate) fn placements(device: &Device<'_>, id: u32) -> Result<Vec<nvmlGpuInstancePlacement_t>, NvmlError> {
    let lib = device.nvml().lib();
    let call = nvml_sym(lib.nvmlDeviceGetGpuInstancePossiblePlacements_v2.as_ref())
        .or_else(|_| nvml_sym(lib.nvmlDeviceGetGpuInstancePossiblePlacements.as_ref()))?;
    let empty = nvmlGpuInstancePlacement_t { start: 0, size: 0 };
    // SAFETY: nvml.h declares both versions with these types: they fill at most `count` structures and set `count`.
    list(empty, |count, to| unsafe { call(device.handle(), id, to, count) })
}

/// A GPU instance. It must not outlive the library.
#[derive(Clone, Copy)]
pub(crate) struct GpuInstanceHandle<'n> {
    lib: &'n NvmlLib,
    handle: nvmlGpuInstance_t,
}

/// The GPU instances of the profile with the driver's number `id`.
///
/// # Errors
/// As [`profile`].
pub(crate) fn gpu_instances<'n>(device: &'n Device<'n>, id: u32) -> Result<Vec<GpuInstanceHandle<'n>>, NvmlError> {
    let lib = device.nvml().lib();
    let call = nvml_sym(lib.nvmlDeviceGetGpuInstances.as_ref())?;
    // SAFETY: nvml.h declares the function with these types. It has no way to report that the room is too small, and
    // writes as many handles as the profile has instances: at most 12 units of the largest GPU, and the list has room
    // for more than a hundred.
    let handles = list(null_mut(), |count, to| unsafe { call(device.handle(), id, to, count) })?;
    Ok(handles
        .into_iter()
        .map(|handle| GpuInstanceHandle { lib, handle })
        .collect())
}

/// The GPU instance with the number `id`.
///
/// # Errors
/// As [`profile`]; `NotFound` if it does not exist.
pub(crate) fn gpu_instance_by_id<'n>(device: &'n Device<'n>, id: u32) -> Result<GpuInstanceHandle<'n>, NvmlError> {
    let lib = device.nvml().lib();
    let call = nvml_sym(lib.nvmlDeviceGetGpuInstanceById.as_ref())?;
    let mut handle = null_mut();
    // SAFETY: nvml.h declares the function with these types; the pointer is to a valid place for a handle.
    nvml_try(unsafe { call(device.handle(), id, &raw mut handle) })?;
    Ok(GpuInstanceHandle { lib, handle })
}

/// Creates a GPU instance at this place. Without a place the driver chooses one, and fragments the GPU (NVIDIA's MIG
/// user guide, `nvidia-smi mig -cgi 19,19,14,9`).
///
/// # Errors
/// As [`profile`]; `InsufficientResources` if it is occupied, `InvalidArg` if it is no place of the profile.
pub(crate) fn create_gpu_instance(
    device: &Device<'_>,
    id: u32,
    place: nvmlGpuInstancePlacement_t,
) -> Result<(), NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceCreateGpuInstanceWithPlacement.as_ref())?;
    let mut handle = null_mut();
    // SAFETY: nvml.h declares the function with these types; both pointers are valid until it returns.
    nvml_try(unsafe { call(device.handle(), id, &raw const place, &raw mut handle) })
}

impl<'n> GpuInstanceHandle<'n> {
    /// Its number, its profile and its place.
    ///
    /// # Errors
    /// As [`profile`].
    pub(crate) fn info(&self) -> Result<nvmlGpuInstanceInfo_t, NvmlError> {
        let call = nvml_sym(self.lib.nvmlGpuInstanceGetInfo.as_ref())?;
        let mut info = nvmlGpuInstanceInfo_t {
            device: null_mut(),
            id: 0,
            profileId: 0,
            placement: nvmlGpuInstancePlacement_t { start: 0, size: 0 },
        };
        // SAFETY: nvml.h declares the function with these types; the pointer is to a valid structure.
        nvml_try(unsafe { call(self.handle, &raw mut info) })?;
        Ok(info)
    }

    /// Destroys it.
    ///
    /// # Errors
    /// As [`profile`]; `InUse` if it has compute instances, or if a process uses it.
    pub(crate) fn destroy(self) -> Result<(), NvmlError> {
        let call = nvml_sym(self.lib.nvmlGpuInstanceDestroy.as_ref())?;
        // SAFETY: nvml.h declares the function with this type. The handle is not used again.
        nvml_try(unsafe { call(self.handle) })
    }

    /// The profile of compute instances with NVML's number `index` (`NVML_COMPUTE_INSTANCE_PROFILE_*`).
    ///
    /// # Errors
    /// As [`profile`].
    pub(crate) fn compute_profile(&self, index: u32) -> Result<nvmlComputeInstanceProfileInfo_t, NvmlError> {
        let call = nvml_sym(self.lib.nvmlGpuInstanceGetComputeInstanceProfileInfo.as_ref())?;
        // SAFETY: all fields are numbers, for which zero is a value.
        let mut info: nvmlComputeInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: nvml.h declares the function with these types; the pointer is to a valid structure.
        nvml_try(unsafe { call(self.handle, index, SHARED, &raw mut info) })?;
        Ok(info)
    }

    /// The compute instances of the profile with the driver's number `id`: number, profile, and place.
    ///
    /// # Errors
    /// As [`profile`].
    pub(crate) fn compute_instances(&self, id: u32) -> Result<Vec<nvmlComputeInstanceInfo_t>, NvmlError> {
        let call = nvml_sym(self.lib.nvmlGpuInstanceGetComputeInstances.as_ref())?;
        // SAFETY: nvml.h declares the function with these types, and a GPU instance has at most eight.
        let handles = list(null_mut(), |count, to| unsafe { call(self.handle, id, to, count) })?;
        handles.into_iter().map(|handle| self.compute_info(handle)).collect()
    }

    fn compute_info(&self, handle: nvmlComputeInstance_t) -> Result<nvmlComputeInstanceInfo_t, NvmlError> {
        let call = nvml_sym(self.lib.nvmlComputeInstanceGetInfo_v2.as_ref())
            .or_else(|_| nvml_sym(self.lib.nvmlComputeInstanceGetInfo.as_ref()))?;
        let mut info = nvmlComputeInstanceInfo_t {
            device: null_mut(),
            gpuInstance: null_mut(),
            id: 0,
            profileId: 0,
            placement: nvmlComputeInstancePlacement_t { start: 0, size: 0 },
        };
        // SAFETY: nvml.h declares both versions with these types; the pointer is to a structure of the larger one.
        nvml_try(unsafe { call(handle, &raw mut info) })?;
        Ok(info)
    }

    /// Creates a compute instance of the profile with the driver's number `id`, at `place` where the library can take
    /// one.
    ///
    /// # Errors
    /// As [`create_gpu_instance`].
    pub(crate) fn create_compute(
        &self,
        id: u32,
        place: Option<nvmlComputeInstancePlacement_t>,
    ) -> Result<(), NvmlError> {
        let mut handle = null_mut();
        let placed = self.lib.nvmlGpuInstanceCreateComputeInstanceWithPlacement.as_ref();
        if let (Some(place), Ok(call)) = (place, placed) {
            // SAFETY: nvml.h declares the function with these types; both pointers are valid until it returns.
            return nvml_try(unsafe { call(self.handle, id, &raw const place, &raw mut handle) });
        }
        let call = nvml_sym(self.lib.nvmlGpuInstanceCreateComputeInstance.as_ref())?;
        // SAFETY: as above.
        nvml_try(unsafe { call(self.handle, id, &raw mut handle) })
    }

    /// Destroys the compute instance with the number `id`.
    ///
    /// # Errors
    /// As [`profile`]; `InUse` if a process uses it, `NotFound` if it does not exist.
    pub(crate) fn destroy_compute(&self, id: u32) -> Result<(), NvmlError> {
        let find = nvml_sym(self.lib.nvmlGpuInstanceGetComputeInstanceById.as_ref())?;
        let destroy = nvml_sym(self.lib.nvmlComputeInstanceDestroy.as_ref())?;
        let mut handle = null_mut();
        // SAFETY: nvml.h declares the function with these types; the pointer is to a valid place for a handle.
        nvml_try(unsafe { find(self.handle, id, &raw mut handle) })?;
        // SAFETY: nvml.h declares the function with this type. The handle is not used again.
        nvml_try(unsafe { destroy(handle) })
    }
}

/// Asks for MIG mode on or off. Success says that the mode is pending; the second value says why it is not in effect
/// yet (`NVML_SUCCESS` if it is).
///
/// # Errors
/// As [`profile`].
pub(crate) fn set_mig_mode(device: &Device<'_>, is_on: bool) -> Result<Result<(), NvmlError>, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceSetMigMode.as_ref())?;
    let mut activation: nvmlReturn_t = 0;
    // SAFETY: nvml.h declares the function with these types; the pointer is to a valid number.
    nvml_try(unsafe { call(device.handle(), c_uint::from(is_on), &raw mut activation) })?;
    Ok(nvml_try(activation))
}

/// Whether the mode can change without a reset of the GPU: field 184, `NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED`, of
/// drivers since 530.
///
/// # Errors
/// As [`profile`]; `NotSupported` or `InvalidArg` from drivers that do not know the field.
pub(crate) fn is_resetless(device: &Device<'_>) -> Result<bool, NvmlError> {
    const FIELD: u32 = 184;
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let mut value = nvmlFieldValue_t {
        fieldId: FIELD,
        scopeId: 0,
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: 0,
        value: nvmlValue_t { ullVal: 0 },
    };
    // SAFETY: nvml.h declares the function with these types; it fills the one structure that it is given.
    nvml_try(unsafe { call(device.handle(), 1, &raw mut value) })?;
    nvml_try(value.nvmlReturn)?;
    // SAFETY: the union was zero before, so the widest member is initialised whichever one the library has written.
    Ok(unsafe { value.value.ullVal } != 0)
}
