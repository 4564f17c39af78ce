//! The exported functions for modules, streams, kernels and copies, where the GPU has a model.

use crate::config::Cheat;
use crate::driver::{INVALID_VALUE, NOT_SUPPORTED, code, gpu, put, shared, used};
use crate::model::{LAUNCH_FAILED, Work};
use crate::turns;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

const NOT_FOUND: c_int = 500;
const INVALID_PTX: c_int = 218;
const ILLEGAL_ADDRESS: c_int = 700;

/// The kernels of `tranche-load`, by whose names the model knows what they do.
const KERNELS: [&CStr; 8] = [
    c"tranche_fma",
    c"tranche_copy",
    c"tranche_spin",
    c"tranche_probe",
    c"tranche_trap",
    c"tranche_address",
    c"tranche_fill",
    c"tranche_compare",
];

/// Calculations of one SM in a nanosecond: 128 lanes at 1.4 GHz.
const PER_NS: f64 = 128.0 * 1.4;
/// Calculations of a thread for each iteration.
const PER_ITERATION: f64 = 16.0;
/// How long a kernel takes at least.
const SHORT_NS: f64 = 5_000.0;
/// How long it takes until a fault is noticed.
const FAULT_NS: f64 = 50_000.0;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> c_int {
    code(gpu(device).and_then(|(_, gpu)| put(bytes, (gpu.memory_mib << 20) as usize)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut *mut c_void,
    text: *const c_char,
    _: c_uint,
    _: *mut c_void,
    _: *mut c_void,
) -> c_int {
    code(shared().and_then(|(world, _)| {
        if let Some(error) = world.config.module {
            return Err(error);
        }
        // SAFETY: CUDA's contract: a text of PTX ends with a zero byte.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        match KERNELS.iter().all(|name| text.contains(&*name.to_string_lossy())) {
            true => put(module, std::ptr::without_provenance_mut(1)),
            false => Err(INVALID_PTX),
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(kernel: *mut *mut c_void, _: *mut c_void, name: *const c_char) -> c_int {
    // SAFETY: CUDA's contract: the name is a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let at = KERNELS.iter().position(|kernel| *kernel == name);
    code(
        at.ok_or(NOT_FOUND)
            .and_then(|at| put(kernel, std::ptr::without_provenance_mut(at + 1))),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, _: c_uint) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    code(shared().and_then(|_| put(stream, std::ptr::without_provenance_mut(number))))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> c_int {
    code(turns::call().and_then(|_call| match shared() {
        // Without a model nothing takes time, so nothing is waited for.
        Err(NOT_SUPPORTED) if turns::is_target() => Ok(()),
        shared => shared?.1.wait(stream.addr() as u64),
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> c_int {
    cuStreamSynchronize(std::ptr::null_mut())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> c_int {
    code(turns::call().and_then(|_call| {
        // SAFETY: CUDA's contract: the memory has `bytes` bytes.
        turns::memory::write(to, unsafe { std::slice::from_raw_parts(from.cast(), bytes) })
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> c_int {
    code(turns::call().and_then(|_call| {
        // SAFETY: CUDA's contract: the memory has `bytes` bytes.
        turns::memory::read(from, unsafe { std::slice::from_raw_parts_mut(to.cast(), bytes) })
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, _: c_uint) -> c_int {
    code(shared().and_then(|_| {
        // Never freed, as the programs that use it never free it.
        let block = vec![0_u64; bytes.div_ceil(8)].leak();
        put(memory, block.as_mut_ptr().cast())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(_: u64, _: *const c_void, bytes: usize, stream: *mut c_void) -> c_int {
    code(shared().and_then(|(_, shared)| shared.begin(stream.addr() as u64, Work::In, bytes as f64)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) -> c_int {
    code(shared().and_then(|(_, shared)| {
        // The only kernel whose results anybody looks at.
        if let Some(results) = used().results.get(&from) {
            let count = results.len().min(bytes / size_of::<u64>());
            // SAFETY: CUDA's contract: the memory has `bytes` bytes, and `count` numbers are no more.
            unsafe { std::ptr::copy_nonoverlapping(results.as_ptr(), to.cast::<u64>(), count) };
        }
        shared.begin(stream.addr() as u64, Work::Out, bytes as f64)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    kernel: *mut c_void,
    blocks: c_uint,
    _: c_uint,
    _: c_uint,
    threads: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    // SAFETY: CUDA's contract: there is a pointer for each parameter of the kernel, all of which are numbers of 64
    // bits.
    let parameter = |at: usize| unsafe { (*parameters.add(at)).cast::<u64>().read() };
    let of_all = f64::from(blocks) * f64::from(threads);
    let _call = match turns::call() {
        Ok(call) => call,
        Err(error) => return error,
    };
    let shared = shared();
    // Without a model, a kernel does nothing, and one of them does it for ever.
    if matches!(shared, Err(NOT_SUPPORTED)) && turns::is_target() {
        while kernel.addr() == usize::MAX {
            std::thread::park();
        }
        return 0;
    }
    code(shared.and_then(|(world, shared)| {
        let (work, amount) = match kernel.addr() {
            1 => {
                let calculations = of_all * PER_ITERATION * parameter(1) as f64;
                (Work::Calculate, calculations / PER_NS)
            }
            2 => {
                let footprint = parameter(2) * 32;
                (Work::Copy(footprint), (footprint * parameter(3)) as f64)
            }
            3 => (Work::Hold, parameter(1) as f64),
            4 => {
                let cheats = shared.cheats(Cheat::Cap) || !world.is_client();
                let sms = shared.sms(cheats);
                let results = (0..blocks as usize).flat_map(|block| [u64::from(sms[block % sms.len()]), 1]);
                used().results.insert(parameter(0), results.collect());
                let waves = f64::from(blocks) / sms.len() as f64;
                (Work::Short, waves.ceil() * parameter(1) as f64)
            }
            5 => (Work::Fault(LAUNCH_FAILED), FAULT_NS),
            6 => (Work::Fault(ILLEGAL_ADDRESS), FAULT_NS),
            7 => {
                turns::memory::fill(parameter(0), parameter(1), parameter(2))?;
                (Work::Copy(parameter(1) * 8), (parameter(1) * 8) as f64)
            }
            8 => {
                let wrong = turns::memory::compare(parameter(0), parameter(1), parameter(2))?;
                used().results.insert(parameter(3), vec![wrong]);
                (Work::Copy(parameter(1) * 8), (parameter(1) * 8) as f64)
            }
            _ => return Err(INVALID_VALUE),
        };
        shared.begin(stream.addr() as u64, work, amount.max(SHORT_NS))
    }))
}
