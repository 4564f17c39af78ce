//! NVML, one safe call per function that we need.
//!
//! The library is not believed: a string is read within its buffer and must end there, a number is what it is, a
//! missing function is an error of that one call. What cannot be caught here (a hang, a crash) is the business of the
//! process in which this runs.
//!
//! Names with the highest `_vN` that every driver since 418 has; drivers before that have no MIG, no caps and no
//! support from their maker.

#![allow(unsafe_code)]

use nvml_wrapper_sys::bindings::{self as ffi, NvmlLib, nvmlDevice_t};
use std::ffi::{OsStr, c_char, c_int, c_uint};
use std::fmt;
use std::mem::MaybeUninit;

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The library does not have this function.
    Missing(&'static str),
    /// `nvmlReturn_t` other than success.
    Code(u32),
    /// A string that does not end within its buffer.
    Unterminated,
}

/// `NVML_ERROR_NOT_SUPPORTED`
pub const NOT_SUPPORTED: u32 = ffi::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
/// `NVML_ERROR_NOT_FOUND`: among others, a MIG device index without an instance.
pub const NOT_FOUND: u32 = ffi::nvmlReturn_enum_NVML_ERROR_NOT_FOUND;
/// `NVML_ERROR_INVALID_ARGUMENT`
pub const INVALID_ARGUMENT: u32 = ffi::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Missing(name) => write!(f, "the library has no {name}"),
            Failure::Unterminated => f.write_str("the library gave a string without an end"),
            Failure::Code(code) => match meaning(*code) {
                Some(text) => f.write_str(text),
                None => write!(f, "NVML error {code}"),
            },
        }
    }
}

/// What the codes that a reader of devices meets mean, and what to do (nvml.h, `nvmlReturn_t`). The library's own
/// `nvmlErrorString` is not asked: it is one more pointer to believe.
fn meaning(code: u32) -> Option<&'static str> {
    Some(match code {
        1 => "not initialised",
        2 => "invalid argument",
        3 => "not supported",
        4 => "no permission; is the device node open to this user?",
        6 => "not found",
        7 => "a string does not fit",
        9 => "the driver is not loaded; load it with modprobe nvidia",
        10 => "timed out",
        11 => "the GPU has an interrupt problem",
        13 => "the library lacks a function of the driver",
        14 => "the GPU's inforom is corrupted",
        15 => "the GPU is lost; it fell off the bus",
        16 => "the GPU needs a reset",
        17 => "the GPU is not reachable for the operating system or a cgroup",
        18 => "library and kernel module have different versions; reboot, or unload and load the module",
        19 => "the GPU is in use",
        20 => "out of memory",
        27 => "the GPU is not ready",
        28 => "no GPU found",
        29 => "the GPU is in an invalid state",
        999 => "unknown error; the kernel's log may say more",
        _ => return None,
    })
}

fn check(code: u32) -> Result<(), Failure> {
    if code == ffi::nvmlReturn_enum_NVML_SUCCESS {
        Ok(())
    } else {
        Err(Failure::Code(code))
    }
}

/// The function of that name in the library, or the failure that says it is missing.
macro_rules! function {
    ($lib:expr, $name:ident) => {
        $lib.$name.as_ref().map_err(|_| Failure::Missing(stringify!($name)))
    };
}

/// The library, initialised; [`Nvml::shutdown`] or the end of the process undoes that.
pub struct Nvml {
    lib: NvmlLib,
}

/// A GPU or a MIG device of an [`Nvml`].
#[derive(Clone, Copy)]
pub struct Device<'a> {
    nvml: &'a Nvml,
    handle: nvmlDevice_t,
}

/// `nvmlDeviceAttributes_t`, as far as we read it.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// Slices of the GPU instance.
    pub gpu_slices: u32,
    /// Slices of the compute instance.
    pub compute_slices: u32,
    /// Memory of the GPU instance in MiB, whatever its name says.
    pub memory_mib: u64,
}

impl Nvml {
    /// Loads the library at `path`, or by a plain name as the loader finds it. Its constructors run.
    ///
    /// # Errors
    /// The loader's message.
    pub fn load(path: &OsStr) -> Result<Self, String> {
        // SAFETY: loading runs the library's constructors, which is what loading the driver's library means; the
        // functions are looked up by the names under which nvml.h declares them with the types of the bindings.
        let lib = unsafe { NvmlLib::new(path) };
        lib.map(|lib| Self { lib }).map_err(|e| e.to_string())
    }

    /// `nvmlInit_v2`. To be called once, before anything else.
    pub fn init(&self) -> Result<(), Failure> {
        let call = function!(self.lib, nvmlInit_v2)?;
        // SAFETY: takes nothing, and we are the only user of the library in this process.
        check(unsafe { call() })
    }

    /// `nvmlShutdown`. No device may be used after it, which the borrow in [`Device`] sees to.
    pub fn shutdown(self) -> Result<(), Failure> {
        let call = function!(self.lib, nvmlShutdown)?;
        // SAFETY: takes nothing; no handle is left, since each borrows `self`.
        check(unsafe { call() })
    }

    /// Version of the driver that the library talks to.
    pub fn driver_version(&self) -> Result<String, Failure> {
        let call = function!(self.lib, nvmlSystemGetDriverVersion)?;
        // SAFETY: the buffer is valid for the length that we pass.
        text::<{ ffi::NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE as usize }>(|buffer, len| unsafe { call(buffer, len) })
    }

    /// The newest CUDA that the driver serves: 1000 × major + 10 × minor.
    pub fn cuda_version(&self) -> Result<i32, Failure> {
        if let Ok(call) = function!(self.lib, nvmlSystemGetCudaDriverVersion_v2) {
            // SAFETY: the pointer is to an int of ours.
            return number(|out: *mut c_int| unsafe { call(out) });
        }
        let call = function!(self.lib, nvmlSystemGetCudaDriverVersion)?;
        // SAFETY: as above.
        number(|out: *mut c_int| unsafe { call(out) })
    }

    /// How many GPUs there are.
    pub fn device_count(&self) -> Result<u32, Failure> {
        let call = function!(self.lib, nvmlDeviceGetCount_v2)?;
        // SAFETY: the pointer is to an unsigned int of ours.
        number(|out: *mut c_uint| unsafe { call(out) })
    }

    /// GPU number `index`.
    pub fn device(&self, index: u32) -> Result<Device<'_>, Failure> {
        let call = function!(self.lib, nvmlDeviceGetHandleByIndex_v2)?;
        // SAFETY: the pointer is to a handle of ours; the handle is opaque and goes back to this library alone.
        let handle = number(|out: *mut nvmlDevice_t| unsafe { call(index, out) })?;
        Ok(Device { nvml: self, handle })
    }
}

/// A call `get_x(handle, &mut number)`.
macro_rules! number_of_device {
    ($(#[$doc:meta])* $method:ident, $function:ident, $type:ty) => {
        $(#[$doc])*
        pub fn $method(&self) -> Result<$type, Failure> {
            let call = function!(self.nvml.lib, $function)?;
            // SAFETY: the handle is of this library and alive; the pointer is to a number of ours.
            number(|out: *mut $type| unsafe { call(self.handle, out) })
        }
    };
}

impl<'a> Device<'a> {
    number_of_device!(
        /// The N of `/dev/nvidiaN`.
        minor, nvmlDeviceGetMinorNumber, u32
    );
    number_of_device!(
        /// `nvmlDeviceArchitecture_t`
        architecture, nvmlDeviceGetArchitecture, u32
    );
    number_of_device!(
        /// `nvmlComputeMode_t`
        compute_mode, nvmlDeviceGetComputeMode, u32
    );
    number_of_device!(
        /// Persistence mode: 0 or 1.
        persistence, nvmlDeviceGetPersistenceMode, u32
    );
    number_of_device!(
        /// `nvmlGpuVirtualizationMode_t`
        virtualization, nvmlDeviceGetVirtualizationMode, u32
    );
    number_of_device!(
        /// How many MIG devices there can be; indices run below it and have gaps.
        max_mig_devices, nvmlDeviceGetMaxMigDeviceCount, u32
    );
    number_of_device!(
        /// Of a MIG device: its GPU instance.
        gpu_instance, nvmlDeviceGetGpuInstanceId, u32
    );
    number_of_device!(
        /// Of a MIG device: its compute instance within the GPU instance.
        compute_instance, nvmlDeviceGetComputeInstanceId, u32
    );

    /// UUID of a GPU or a MIG device.
    pub fn uuid(&self) -> Result<String, Failure> {
        let call = function!(self.nvml.lib, nvmlDeviceGetUUID)?;
        // SAFETY: the handle is alive; the buffer is valid for the length that we pass.
        text::<{ ffi::NVML_DEVICE_UUID_V2_BUFFER_SIZE as usize }>(|buffer, len| unsafe {
            call(self.handle, buffer, len)
        })
    }

    /// Product name; a MIG device's ends in its profile.
    pub fn name(&self) -> Result<String, Failure> {
        let call = function!(self.nvml.lib, nvmlDeviceGetName)?;
        // SAFETY: the handle is alive; the buffer is valid for the length that we pass.
        text::<{ ffi::NVML_DEVICE_NAME_V2_BUFFER_SIZE as usize }>(|buffer, len| unsafe {
            call(self.handle, buffer, len)
        })
    }

    /// PCI address as NVML writes it.
    pub fn pci(&self) -> Result<String, Failure> {
        let call = function!(self.nvml.lib, nvmlDeviceGetPciInfo_v3)?;
        // SAFETY: the handle is alive; the pointer is to a structure of the size that `_v3` fills.
        let info = number(|out: *mut ffi::nvmlPciInfo_t| unsafe { call(self.handle, out) })?;
        terminated(&info.busId)
    }

    /// Memory in all, in bytes.
    pub fn memory(&self) -> Result<u64, Failure> {
        let call = function!(self.nvml.lib, nvmlDeviceGetMemoryInfo)?;
        // SAFETY: the handle is alive; the pointer is to a structure of the first version, which this name fills.
        number(|out: *mut ffi::nvmlMemory_t| unsafe { call(self.handle, out) }).map(|memory| memory.total)
    }

    /// Compute capability: major, minor.
    pub fn compute_capability(&self) -> Result<(i32, i32), Failure> {
        let call = function!(self.nvml.lib, nvmlDeviceGetCudaComputeCapability)?;
        let mut minor: c_int = 0;
        // SAFETY: the handle is alive; both pointers are to ints of ours.
        let major = number(|out: *mut c_int| unsafe { call(self.handle, out, &raw mut minor) })?;
        Ok((major, minor))
    }

    /// MIG mode: current, pending.
    pub fn mig_mode(&self) -> Result<(u32, u32), Failure> {
        let call = function!(self.nvml.lib, nvmlDeviceGetMigMode)?;
        let mut pending: c_uint = 0;
        // SAFETY: the handle is alive; both pointers are to unsigned ints of ours.
        let current = number(|out: *mut c_uint| unsafe { call(self.handle, out, &raw mut pending) })?;
        Ok((current, pending))
    }

    /// `nvmlDeviceAddressingModeType_t`; drivers since 580.
    pub fn addressing(&self) -> Result<u32, Failure> {
        let call = function!(self.nvml.lib, nvmlDeviceGetAddressingMode)?;
        let mut mode = ffi::nvmlDeviceAddressingMode_t {
            // NVML_STRUCT_VERSION: the size, and the number of the version in the top byte.
            version: size_of::<ffi::nvmlDeviceAddressingMode_t>() as u32 | 1 << 24,
            value: 0,
        };
        // SAFETY: the handle is alive; the pointer is to a structure of the version that it names.
        check(unsafe { call(self.handle, &raw mut mode) })?;
        Ok(mode.value)
    }

    /// MIG device number `index` of this GPU.
    pub fn mig_device(&self, index: u32) -> Result<Device<'a>, Failure> {
        let call = function!(self.nvml.lib, nvmlDeviceGetMigDeviceHandleByIndex)?;
        // SAFETY: the handle is alive; the pointer is to a handle of ours, opaque to us.
        let handle = number(|out: *mut nvmlDevice_t| unsafe { call(self.handle, index, out) })?;
        Ok(Device {
            nvml: self.nvml,
            handle,
        })
    }

    /// Slices and memory of a MIG device.
    pub fn attributes(&self) -> Result<Attributes, Failure> {
        let call = function!(self.nvml.lib, nvmlDeviceGetAttributes_v2)?;
        // SAFETY: the handle is alive; the pointer is to a structure of the size that `_v2` fills.
        let a = number(|out: *mut ffi::nvmlDeviceAttributes_t| unsafe { call(self.handle, out) })?;
        Ok(Attributes {
            gpu_slices: a.gpuInstanceSliceCount,
            compute_slices: a.computeInstanceSliceCount,
            memory_mib: a.memorySizeMB,
        })
    }
}

/// A plain C value that a call fills. All zeroes is one of its values, so a library that reports success and writes
/// nothing gives zero, not what lay in memory.
///
/// # Safety
/// Only for types of which all zeroes is a valid value.
unsafe trait Plain: Copy {}
// SAFETY: numbers, a raw pointer (null), and C structures of numbers.
unsafe impl Plain for c_int {}
// SAFETY: as above.
unsafe impl Plain for c_uint {}
// SAFETY: as above.
unsafe impl Plain for nvmlDevice_t {}
// SAFETY: as above.
unsafe impl Plain for ffi::nvmlPciInfo_t {}
// SAFETY: as above.
unsafe impl Plain for ffi::nvmlMemory_t {}
// SAFETY: as above.
unsafe impl Plain for ffi::nvmlDeviceAttributes_t {}

fn number<T: Plain>(call: impl FnOnce(*mut T) -> u32) -> Result<T, Failure> {
    let mut value = MaybeUninit::<T>::zeroed();
    check(call(value.as_mut_ptr()))?;
    // SAFETY: zeroed, which `Plain` promises to be a value, and perhaps written over by the library.
    Ok(unsafe { value.assume_init() })
}

/// A call that writes a string into a buffer of `N` bytes.
fn text<const N: usize>(call: impl FnOnce(*mut c_char, c_uint) -> u32) -> Result<String, Failure> {
    let mut buffer: [c_char; N] = [0; N];
    check(call(buffer.as_mut_ptr(), N as c_uint))?;
    terminated(&buffer)
}

/// The string in a buffer, which must end within it.
fn terminated(buffer: &[c_char]) -> Result<String, Failure> {
    let end = buffer.iter().position(|c| *c == 0).ok_or(Failure::Unterminated)?;
    let bytes: Vec<u8> = buffer[..end].iter().map(|c| *c as u8).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_in_their_buffer() {
        let c = |s: &[u8]| s.iter().map(|b| *b as c_char).collect::<Vec<_>>();
        assert_eq!(terminated(&c(b"abc\0xyz")).unwrap(), "abc");
        assert_eq!(terminated(&c(b"\0")).unwrap(), "");
        assert_eq!(terminated(&c(b"abc")), Err(Failure::Unterminated));
        assert_eq!(terminated(&[]), Err(Failure::Unterminated));
        assert_eq!(terminated(&c(b"a\xff\0")).unwrap(), "a\u{fffd}");
    }

    #[test]
    fn what_is_no_library_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Nvml::load(file.path().as_os_str()).is_err());
        assert!(Nvml::load(OsStr::new("/nonexistent/libnvidia-ml.so.1")).is_err());
    }
}
