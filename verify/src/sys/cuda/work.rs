//! What a device does: kernels and copies, in streams.

use super::{Answer, Context, Unanswered, c, transmute, written};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The most parameters that a kernel here has.
const MOST_PARAMETERS: usize = 4;

/// Kernels, as the driver compiled them for its device.
pub struct Module(*mut c_void);

/// A kernel.
#[derive(Clone, Copy)]
pub struct Kernel(*mut c_void);

/// A queue of work: its pieces are done one after another.
#[derive(Clone, Copy)]
pub struct Stream(*mut c_void);

/// Memory of the device, which is never freed: it belongs to the process.
#[derive(Clone, Copy)]
pub struct DeviceMemory {
    /// Where it begins, for a kernel.
    pub address: u64,
    /// Its size.
    pub bytes: usize,
}

/// Memory of the host that the device reads and writes by itself, and that is never freed.
pub struct HostMemory {
    start: *mut u64,
    bytes: usize,
}

impl HostMemory {
    /// What is in it, as numbers of 64 bits. The caller has waited for the end of the copies into it.
    pub fn numbers(&mut self) -> &mut [u64] {
        // SAFETY: the library gave this many bytes, aligned to a page, which `pinned` filled.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.bytes / size_of::<u64>()) }
    }
}

impl Context<'_> {
    /// Gives the driver the text of kernels to compile.
    pub fn module(&self, text: &'static CStr) -> Answer<Module> {
        let none = core::ptr::null_mut::<c_void>();
        // SAFETY: `CUresult cuModuleLoadDataEx(CUmodule *, const void *, unsigned int, CUjit_option *, void **)`;
        // without options, both arrays may be null.
        written(|module| unsafe {
            call!(self.0, c"cuModuleLoadDataEx", module => *mut *mut c_void, text.as_ptr() => *const c_char,
                0 => c_uint, none => *mut c_void, none => *mut c_void)
        })
        .map(Module)
    }

    /// The kernel of this name.
    pub fn kernel(&self, module: &Module, name: &'static CStr) -> Answer<Kernel> {
        // SAFETY: `CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *)`.
        written(|kernel| unsafe {
            call!(self.0, c"cuModuleGetFunction", kernel => *mut *mut c_void, module.0 => *mut c_void,
                name.as_ptr() => *const c_char)
        })
        .map(Kernel)
    }

    /// A new stream.
    pub fn stream(&self) -> Answer<Stream> {
        // `CU_STREAM_NON_BLOCKING`: it does not wait for the context's first stream.
        // SAFETY: `CUresult cuStreamCreate(CUstream *, unsigned int)`.
        written(|stream| unsafe { call!(self.0, c"cuStreamCreate", stream => *mut *mut c_void, 1 => c_uint) })
            .map(Stream)
    }

    /// Memory of the device.
    pub fn allocate(&self, bytes: usize) -> Answer<DeviceMemory> {
        // SAFETY: `CUresult cuMemAlloc_v2(CUdeviceptr *, size_t)`.
        written(|address| unsafe { call!(self.0, c"cuMemAlloc_v2", address => *mut u64, bytes => usize) })
            .map(|address| DeviceMemory { address, bytes })
    }

    /// Memory of the host, full of zeros.
    pub fn pinned(&self, bytes: usize) -> Answer<HostMemory> {
        // SAFETY: `CUresult cuMemHostAlloc(void **, size_t, unsigned int)`, without flags.
        let start = written(|start| unsafe {
            call!(self.0, c"cuMemHostAlloc", start => *mut *mut c_void, bytes => usize, 0 => c_uint)
        })?;
        // SAFETY: the function succeeded, so this is memory of that size.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        let start = start.cast();
        Ok(HostMemory { start, bytes })
    }

    /// Begins `kernel` with this many blocks of this many threads. All its parameters are numbers of 64 bits.
    pub fn launch<const N: usize>(
        &self,
        kernel: Kernel,
        (blocks, threads): (u32, u32),
        stream: Stream,
        mut parameters: [u64; N],
    ) -> Answer<()> {
        const { assert!(N <= MOST_PARAMETERS) };
        let mut places = [core::ptr::null_mut::<c_void>(); MOST_PARAMETERS];
        for (place, parameter) in places.iter_mut().zip(&mut parameters) {
            *place = (&raw mut *parameter).cast();
        }
        let none = core::ptr::null_mut::<c_void>();
        // SAFETY: `CUresult cuLaunchKernel(CUfunction, unsigned int x 6, unsigned int, CUstream, void **, void **)`.
        // The parameters are copied before it returns. What a kernel does to the device's memory does not reach that
        // of this program.
        unsafe {
            call!(self.0, c"cuLaunchKernel", kernel.0 => *mut c_void, blocks => c_uint, 1 => c_uint, 1 => c_uint,
                threads => c_uint, 1 => c_uint, 1 => c_uint, 0 => c_uint, stream.0 => *mut c_void,
                places.as_mut_ptr() => *mut *mut c_void, none => *mut c_void)
        }
    }

    /// Begins a copy of as much of `from` as `to` has room for.
    pub fn copy_in(&self, to: DeviceMemory, from: &mut HostMemory, stream: Stream) -> Answer<()> {
        let bytes = to.bytes.min(from.bytes);
        // SAFETY: `CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream)`. The memory is pinned
        // and never freed.
        unsafe {
            call!(self.0, c"cuMemcpyHtoDAsync_v2", to.address => u64, from.start.cast() => *mut c_void, bytes => usize,
                stream.0 => *mut c_void)
        }
    }

    /// Begins a copy of as much of `from` as `to` has room for.
    pub fn copy_out(&self, to: &mut HostMemory, from: DeviceMemory, stream: Stream) -> Answer<()> {
        let bytes = from.bytes.min(to.bytes);
        // SAFETY: `CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream)`. As above.
        unsafe {
            call!(self.0, c"cuMemcpyDtoHAsync_v2", to.start.cast() => *mut c_void, from.address => u64, bytes => usize,
                stream.0 => *mut c_void)
        }
    }

    /// Waits until all work of the stream is done.
    pub fn synchronize(&self, stream: Stream) -> Answer<()> {
        // SAFETY: `CUresult cuStreamSynchronize(CUstream)`.
        unsafe { call!(self.0, c"cuStreamSynchronize", stream.0 => *mut c_void) }
    }
}
