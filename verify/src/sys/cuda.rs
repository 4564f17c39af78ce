//! CUDA's driver API, from `libcuda.so.1`. Each function is looked up when it is called: an older library lacks some.

use super::c;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::{MaybeUninit, transmute};

/// `RTLD_NOW`.
const NOW: c_int = 2;

/// Attributes of a device (`CUdevice_attribute` in cuda.h).
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Attribute {
    /// The number of SMs; in a context of MPS, of those that the process can use.
    Sms = 16,
    /// `CUcomputemode`.
    ComputeMode = 20,
    /// The size of the L2 cache in bytes.
    L2Bytes = 38,
    /// The compute capability before its point.
    Major = 75,
    /// The compute capability after its point.
    Minor = 76,
    /// Whether contexts are shared by MPS.
    Mps = 133,
}

/// Why a question has no answer.
#[derive(Clone, Copy)]
pub enum Unanswered {
    /// The library does not have the function.
    Missing(&'static CStr),
    /// The function returned this error.
    Error(&'static CStr, c_int),
}

/// What a function gave, or why it gave nothing.
pub type Answer<T> = Result<T, Unanswered>;

/// The library.
pub struct Cuda(*mut c_void);

/// A device, by the handle that the library gave for it.
#[derive(Clone, Copy)]
pub struct Device(c_int);

/// The current context of a device, until it is dropped.
pub struct Context<'a>(&'a Cuda, Device);

/// Calls the function of this name, which returns a `CUresult`.
///
/// # Safety
/// The arguments are those that cuda.h declares for the function, in number and type.
macro_rules! call {
    ($cuda:expr, $name:literal, $($argument:expr => $type:ty),*) => {{
        let function = c::dlsym($cuda.0, $name.as_ptr());
        if function.is_null() {
            Err(Unanswered::Missing($name))
        } else {
            let function: unsafe extern "C" fn($($type),*) -> c_int = transmute(function);
            match function($($argument),*) {
                0 => Ok(()),
                error => Err(Unanswered::Error($name, error)),
            }
        }
    }};
}

// After the macro, which it uses.
pub mod work;

impl Cuda {
    /// Loads the library.
    ///
    /// # Errors
    /// Returns the text of the loader.
    pub fn open() -> Result<Self, &'static [u8]> {
        // SAFETY: the name is a C string. The text of dlerror is valid until the next call of the loader in this
        // thread, and the program makes none after a failure.
        unsafe {
            let library = c::dlopen(c"libcuda.so.1".as_ptr(), NOW);
            if !library.is_null() {
                return Ok(Self(library));
            }
            let text = c::dlerror();
            Err(match text.is_null() {
                true => b"libcuda.so.1 cannot be loaded",
                false => CStr::from_ptr(text).to_bytes(),
            })
        }
    }

    /// Initialises CUDA. A client of MPS connects to its daemon here.
    pub fn init(&self) -> Answer<()> {
        // SAFETY: `CUresult cuInit(unsigned int)`.
        unsafe { call!(self, c"cuInit", 0 => c_uint) }
    }

    /// The version of CUDA that the driver supports: 12040 for 12.4.
    pub fn version(&self) -> Answer<c_int> {
        // SAFETY: `CUresult cuDriverGetVersion(int *)`.
        written(|version| unsafe { call!(self, c"cuDriverGetVersion", version => *mut c_int) })
    }

    /// How many devices this process can use.
    pub fn device_count(&self) -> Answer<c_int> {
        // SAFETY: `CUresult cuDeviceGetCount(int *)`.
        written(|count| unsafe { call!(self, c"cuDeviceGetCount", count => *mut c_int) })
    }

    /// The device with this number.
    pub fn device(&self, ordinal: c_int) -> Answer<Device> {
        // SAFETY: `CUresult cuDeviceGet(CUdevice *, int)`, where a CUdevice is an int.
        written(|device| unsafe { call!(self, c"cuDeviceGet", device => *mut c_int, ordinal => c_int) }).map(Device)
    }

    /// Writes the device's name into `name`, and returns the part of it that was written.
    pub fn name<'n>(&self, device: Device, name: &'n mut [u8; 128]) -> Answer<&'n [u8]> {
        *name = [0; 128];
        let (pointer, size) = (name.as_mut_ptr().cast(), name.len() as c_int - 1);
        // SAFETY: `CUresult cuDeviceGetName(char *, int, CUdevice)`; the buffer has the size that is given.
        unsafe { call!(self, c"cuDeviceGetName", pointer => *mut c_char, size => c_int, device.0 => c_int) }?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
        Ok(name.get(..end).unwrap_or_default())
    }

    /// The 16 bytes of the device's UUID. Only the second version of the function gives that of a MIG instance.
    pub fn uuid(&self, device: Device) -> Answer<[u8; 16]> {
        // SAFETY: `CUresult cuDeviceGetUuid_v2(CUuuid *, CUdevice)`, where a CUuuid is 16 chars.
        let second =
            written(|uuid| unsafe { call!(self, c"cuDeviceGetUuid_v2", uuid => *mut [u8; 16], device.0 => c_int) });
        let Err(Unanswered::Missing(_)) = second else {
            return second;
        };
        // SAFETY: the first version has the same parameters.
        written(|uuid| unsafe { call!(self, c"cuDeviceGetUuid", uuid => *mut [u8; 16], device.0 => c_int) })
    }

    /// An attribute of a device.
    pub fn attribute(&self, attribute: Attribute, device: Device) -> Answer<c_int> {
        // SAFETY: `CUresult cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice)`, where the enum is an int.
        written(|value| unsafe {
            call!(self, c"cuDeviceGetAttribute", value => *mut c_int, attribute as c_int => c_int, device.0 => c_int)
        })
    }

    /// The bytes of the device's memory.
    pub fn memory(&self, device: Device) -> Answer<usize> {
        // SAFETY: `CUresult cuDeviceTotalMem_v2(size_t *, CUdevice)`.
        written(|bytes| unsafe { call!(self, c"cuDeviceTotalMem_v2", bytes => *mut usize, device.0 => c_int) })
    }

    /// The device's primary context, which programs that use CUDA's runtime have.
    pub fn context(&self, device: Device) -> Answer<Context<'_>> {
        // SAFETY: `CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice)`, where a CUcontext is a pointer.
        let handle = written(|context| unsafe {
            call!(self, c"cuDevicePrimaryCtxRetain", context => *mut *mut c_void, device.0 => c_int)
        })?;
        let context = Context(self, device);
        // SAFETY: `CUresult cuCtxSetCurrent(CUcontext)`.
        unsafe { call!(self, c"cuCtxSetCurrent", handle => *mut c_void) }?;
        Ok(context)
    }

    /// The name of an error; `None` if the library does not have one.
    pub fn error_name(&self, error: c_int) -> Option<&'static [u8]> {
        // SAFETY: `CUresult cuGetErrorName(CUresult, const char **)`.
        let name =
            written(|name| unsafe { call!(self, c"cuGetErrorName", error => c_int, name => *mut *const c_char) });
        let name = name.ok().filter(|name| !name.is_null())?;
        // SAFETY: the function succeeded, and its strings belong to the library, which is never closed.
        Some(unsafe { CStr::from_ptr(name) }.to_bytes())
    }
}

impl Context<'_> {
    /// Bytes that are free, and bytes that the device has, as CUDA says it to this process.
    pub fn memory(&self) -> Answer<(usize, usize)> {
        let mut total = 0;
        // SAFETY: `CUresult cuMemGetInfo_v2(size_t *, size_t *)`.
        let free = written(|free| unsafe {
            call!(self.0, c"cuMemGetInfo_v2", free => *mut usize, &raw mut total => *mut usize)
        })?;
        Ok((free, total))
    }

    /// Whether `bytes` can be allocated. They are freed at once.
    pub fn allocates(&self, bytes: usize) -> Answer<()> {
        // SAFETY: `CUresult cuMemAlloc_v2(CUdeviceptr *, size_t)`, where a CUdeviceptr is a number of 64 bits.
        let memory = written(|memory| unsafe { call!(self.0, c"cuMemAlloc_v2", memory => *mut u64, bytes => usize) })?;
        // SAFETY: `CUresult cuMemFree_v2(CUdeviceptr)`, of memory that was just allocated.
        unsafe { call!(self.0, c"cuMemFree_v2", memory => u64) }
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: `CUresult cuDevicePrimaryCtxRelease_v2(CUdevice)`, of a context that was retained. If it fails, the
        // end of the process releases the context.
        let _ = unsafe { call!(self.0, c"cuDevicePrimaryCtxRelease_v2", self.1.0 => c_int) };
    }
}

/// What `ask` wrote.
fn written<T: Zeroed>(ask: impl FnOnce(*mut T) -> Answer<()>) -> Answer<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    ask(value.as_mut_ptr())?;
    // SAFETY: zeros are a value of the type, whether or not the function wrote another.
    Ok(unsafe { value.assume_init() })
}

/// Types of which zeros are a value.
///
/// # Safety
/// All bytes may be 0.
unsafe trait Zeroed {}
// SAFETY: a number.
unsafe impl Zeroed for c_int {}
// SAFETY: a number.
unsafe impl Zeroed for u64 {}
// SAFETY: a number.
unsafe impl Zeroed for usize {}
// SAFETY: numbers.
unsafe impl Zeroed for [u8; 16] {}
// SAFETY: a pointer, which may be null.
unsafe impl Zeroed for *mut c_void {}
// SAFETY: a pointer, which may be null.
unsafe impl Zeroed for *const c_char {}
