//! What nvml-wrapper returns, as tranche's own types and as text for people.

use nvml_wrapper::enum_wrappers::device as wrapper;
use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device as structs;
use nvml_wrapper_sys::bindings as ffi;
use tranche_plan::inventory::{AddressingMode, Architecture, ComputeMode, MigMode, MigState, VirtualizationMode};

/// Refuses a string that does not end within the `room` bytes of its buffer.
///
/// nvml-wrapper reads up to the first NUL byte, wherever that is, so a library that writes none makes it read beyond
/// the buffer. That is one reason why NVML is asked in a process of its own: it may crash there. A string that ends in
/// its buffer is shorter than the buffer, so a longer one is known to be wrong and is never passed on.
pub(crate) fn bounded(text: Result<String, NvmlError>, room: u32) -> Result<String, NvmlError> {
    let max_len = room as usize - 1;
    let text = text?;
    match text.len() {
        actual_len if actual_len > max_len => Err(NvmlError::StringTooLong { max_len, actual_len }),
        _ => Ok(text),
    }
}

/// Returns `None` for a value that nvml-wrapper does not know: the driver is newer than this program, which is not an
/// error. nvml-wrapper uses the same variant for NVML's newer error codes, which stay errors.
pub(crate) fn or_unknown<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match answer {
        // The last error code that nvml-wrapper has a name for.
        Err(NvmlError::UnexpectedVariant(value)) if value <= ffi::nvmlReturn_enum_NVML_ERROR_VGPU_ECC_NOT_SUPPORTED => {
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

/// Whether this error means that the GPU is gone, and not that it does not answer one question.
pub(crate) fn is_lost(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::GpuLost
            | NvmlError::OperatingSystem
            | NvmlError::UnexpectedVariant(ffi::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND)
    )
}

/// The function that the library lacks, if this is the error. The loader's message ends with the name.
pub(crate) fn missing_function(error: &NvmlError) -> Option<&str> {
    match error {
        NvmlError::FailedToLoadSymbol(message) => message.rsplit(' ').next(),
        _ => None,
    }
}

/// What an error means, and what to do about it (nvml.h, `nvmlReturn_t`). The library's own `nvmlErrorString` is not
/// called: it returns a pointer that would have to be trusted.
pub(crate) fn meaning(error: &NvmlError) -> String {
    let text = match error {
        NvmlError::NoPermission => "no permission; is the device node open to this user?",
        NvmlError::DriverNotLoaded => {
            "the driver is not loaded, or its device nodes are missing; load it with modprobe nvidia, or run tranche system \
             create-device-nodes"
        }
        NvmlError::FunctionNotFound => "the library lacks a function of the driver",
        NvmlError::GpuLost => "the GPU is lost; it fell off the bus",
        NvmlError::ResetRequired => "the GPU needs a reset",
        NvmlError::OperatingSystem => "the operating system or a cgroup blocks access to the GPU",
        NvmlError::LibRmVersionMismatch => {
            "library and kernel module have different versions; reboot, or unload and load the module"
        }
        NvmlError::Unknown => "unknown error; the kernel's log may say more",
        NvmlError::UnexpectedVariant(ffi::nvmlReturn_enum_NVML_ERROR_NOT_READY) => "the GPU is not ready",
        NvmlError::UnexpectedVariant(ffi::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND) => "GPU not found",
        NvmlError::UnexpectedVariant(ffi::nvmlReturn_enum_NVML_ERROR_INVALID_STATE) => "the GPU is in an invalid state",
        NvmlError::UnexpectedVariant(code) => return format!("NVML error {code}"),
        NvmlError::Utf8Error(_) => "the string is not valid UTF-8",
        NvmlError::StringTooLong { .. } => "the string does not end within its buffer",
        NvmlError::FailedToLoadSymbol(_) => {
            return format!("the library has no {}", missing_function(error).unwrap_or_default());
        }
        other => return other.to_string(),
    };
    text.to_owned()
}

pub(crate) fn architecture(value: DeviceArchitecture) -> Option<Architecture> {
    Some(match value {
        DeviceArchitecture::Kepler => Architecture::Kepler,
        DeviceArchitecture::Maxwell => Architecture::Maxwell,
        DeviceArchitecture::Pascal => Architecture::Pascal,
        DeviceArchitecture::Volta => Architecture::Volta,
        DeviceArchitecture::Turing => Architecture::Turing,
        DeviceArchitecture::Ampere => Architecture::Ampere,
        DeviceArchitecture::Ada => Architecture::Ada,
        DeviceArchitecture::Hopper => Architecture::Hopper,
        DeviceArchitecture::Blackwell => Architecture::Blackwell,
        DeviceArchitecture::Unknown => return None,
    })
}

/// MIG mode as the inventory has it; `None` for one that this version does not know.
pub(crate) fn mig_state(mode: structs::MigMode) -> Option<MigState> {
    let mode_of = |code| match code {
        ffi::NVML_DEVICE_MIG_DISABLE => Some(MigMode::Disabled),
        ffi::NVML_DEVICE_MIG_ENABLE => Some(MigMode::Enabled),
        _ => None,
    };
    Some(MigState {
        current: mode_of(mode.current)?,
        pending: mode_of(mode.pending)?,
    })
}

/// The compute mode as the inventory has it; `None` for one that this version does not know.
pub(crate) fn compute_mode(mode: wrapper::ComputeMode) -> Option<ComputeMode> {
    Some(match mode {
        wrapper::ComputeMode::Default => ComputeMode::Default,
        wrapper::ComputeMode::ExclusiveThread => ComputeMode::ExclusiveThread,
        wrapper::ComputeMode::Prohibited => ComputeMode::Prohibited,
        wrapper::ComputeMode::ExclusiveProcess => ComputeMode::ExclusiveProcess,
    })
}

/// The brand as NVIDIA's programs for Kubernetes write it (go-nvlib, `GetBrandAsString`); `None` if it is not known.
pub(crate) fn brand(brand: wrapper::Brand) -> Option<&'static str> {
    Some(match brand {
        wrapper::Brand::Unknown => return None,
        wrapper::Brand::Quadro => "Quadro",
        wrapper::Brand::Tesla => "Tesla",
        wrapper::Brand::NVS => "NVS",
        wrapper::Brand::GRID => "Grid",
        wrapper::Brand::GeForce => "GeForce",
        wrapper::Brand::Titan => "Titan",
        wrapper::Brand::VApps => "NvidiaVApps",
        wrapper::Brand::VPC => "NvidiaVPC",
        wrapper::Brand::VCS => "NvidiaVCS",
        wrapper::Brand::VWS => "NvidiaVWS",
        wrapper::Brand::CloudGaming | wrapper::Brand::VGaming => "NvidiaCloudGaming",
        wrapper::Brand::QuadroRTX => "QuadroRTX",
        wrapper::Brand::NvidiaRTX => "NvidiaRTX",
        wrapper::Brand::Nvidia => "Nvidia",
        wrapper::Brand::GeForceRTX => "GeForceRTX",
        wrapper::Brand::TitanRTX => "TitanRTX",
    })
}

pub(crate) fn addressing(code: u32) -> Option<AddressingMode> {
    Some(match code {
        ffi::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_NONE => AddressingMode::None,
        ffi::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_HMM => AddressingMode::Hmm,
        ffi::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_ATS => AddressingMode::Ats,
        _ => return None,
    })
}

/// The virtualization mode as the inventory has it; `None` for one that this version does not know.
pub(crate) fn virtualization(mode: wrapper::GpuVirtualizationMode) -> Option<VirtualizationMode> {
    Some(match mode {
        wrapper::GpuVirtualizationMode::Bare => VirtualizationMode::None,
        wrapper::GpuVirtualizationMode::PassThrough => VirtualizationMode::Passthrough,
        wrapper::GpuVirtualizationMode::Vgpu => VirtualizationMode::Vgpu,
        wrapper::GpuVirtualizationMode::HostVgpu => VirtualizationMode::HostVgpu,
        wrapper::GpuVirtualizationMode::HostVsga => VirtualizationMode::HostVsga,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_that_fills_its_buffer_has_no_end() {
        let text = |len: usize| bounded(Ok("x".repeat(len)), 8);
        assert_eq!(text(7).unwrap(), "xxxxxxx");
        assert!(matches!(
            text(8),
            Err(NvmlError::StringTooLong {
                max_len: 7,
                actual_len: 8
            })
        ));
        assert!(matches!(bounded(Err(NvmlError::GpuLost), 8), Err(NvmlError::GpuLost)));
    }

    #[test]
    fn a_value_of_a_newer_driver_is_unknown_and_a_newer_error_is_an_error() {
        assert_eq!(or_unknown(Ok(1)).unwrap(), Some(1));
        assert!(
            or_unknown::<u32>(Err(NvmlError::UnexpectedVariant(11)))
                .unwrap()
                .is_none()
        );
        for error in [27, 28, 999] {
            assert!(or_unknown::<u32>(Err(NvmlError::from(error))).is_err(), "{error}");
        }
    }

    #[test]
    fn a_missing_function_is_named() {
        let error =
            NvmlError::FailedToLoadSymbol("/lib/libnvidia-ml.so.1: undefined symbol: nvmlDeviceGetName".to_owned());
        assert_eq!(missing_function(&error), Some("nvmlDeviceGetName"));
        assert_eq!(meaning(&error), "the library has no nvmlDeviceGetName");
        assert_eq!(missing_function(&NvmlError::GpuLost), None);
    }
}
