//! The exported functions.

use crate::config::{self, Gpu};
use crate::limits::World;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// `CUresult`.
type Answer<T = ()> = Result<T, c_int>;

const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const NOT_INITIALIZED: c_int = 3;
const DEVICE_UNAVAILABLE: c_int = 46;
const NO_DEVICE: c_int = 100;
const INVALID_DEVICE: c_int = 101;
const INVALID_CONTEXT: c_int = 201;
const UNKNOWN: c_int = 999;

static WORLD: OnceLock<World> = OnceLock::new();
static USE: Mutex<Use> = Mutex::new(Use {
    current: None,
    blocks: BTreeMap::new(),
    next: 1 << 32,
});

/// What this process uses.
struct Use {
    /// The device of the current context.
    current: Option<c_int>,
    /// The size of each block of memory, by its address.
    blocks: BTreeMap<u64, u64>,
    next: u64,
}

impl Use {
    /// Bytes that are free for this process, and bytes of its device.
    fn memory(&self) -> Answer<(u64, u64)> {
        let ordinal = self.current.ok_or(INVALID_CONTEXT)?;
        let (world, gpu) = gpu(ordinal)?;
        Ok(world.memory(ordinal, gpu, self.blocks.values().sum()))
    }
}

fn code(answer: Answer) -> c_int {
    answer.err().unwrap_or(0)
}

fn used() -> std::sync::MutexGuard<'static, Use> {
    USE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn world() -> Answer<&'static World> {
    WORLD.get().ok_or(NOT_INITIALIZED)
}

fn gpu(ordinal: c_int) -> Answer<(&'static World, &'static Gpu)> {
    let world = world()?;
    Ok((world, world.gpu(ordinal).ok_or(INVALID_DEVICE)?))
}

/// Writes a value for the caller.
unsafe fn put<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: CUDA's contract: a pointer that is not null points to room for the answer.
    unsafe { to.write(value) };
    Ok(())
}

fn init() -> Answer {
    let config = config::read().ok_or(UNKNOWN)?;
    match config.init.as_deref() {
        None => {}
        Some("hang") => loop {
            std::thread::park();
        },
        Some(error) => return Err(error.parse().unwrap_or(UNKNOWN)),
    }
    match WORLD.get_or_init(|| World::new(config)).visible.is_empty() {
        true => Err(NO_DEVICE),
        false => Ok(()),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_: c_uint) -> c_int {
    code(init())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    code(
        config::read()
            .ok_or(UNKNOWN)
            .and_then(|config| put(version, config.version)),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    code(world().and_then(|world| put(count, world.visible.len() as c_int)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    code(gpu(ordinal).and_then(|_| put(device, ordinal)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, size: c_int, device: c_int) -> c_int {
    code(gpu(device).and_then(|(_, gpu)| {
        let size = usize::try_from(size).map_err(|_| INVALID_VALUE)?;
        let bytes: Vec<u8> = gpu.name.bytes().take(size.saturating_sub(1)).chain([0]).collect();
        // SAFETY: CUDA's contract: the buffer has `size` bytes, and `bytes` has no more.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), name.cast::<u8>(), bytes.len()) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> c_int {
    code(gpu(device).and_then(|(_, gpu)| {
        let digits = gpu.uuid.split_once('-').map(|(_, digits)| digits.replace('-', ""));
        let number = u128::from_str_radix(&digits.ok_or(UNKNOWN)?, 16).map_err(|_| UNKNOWN)?;
        put(uuid, number.to_be_bytes())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    code(gpu(device).and_then(|(world, gpu)| match attribute {
        // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        16 => put(value, world.sms(gpu) as c_int),
        // CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
        20 => put(value, if gpu.exclusive { 3 } else { 0 }),
        // CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which older libraries do not know
        133 if world.config.version >= 12040 => put(value, c_int::from(world.is_client())),
        _ => Err(INVALID_VALUE),
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> c_int {
    code(gpu(device).and_then(|(world, gpu)| {
        if gpu.exclusive && !world.is_client() {
            return Err(DEVICE_UNAVAILABLE);
        }
        put(context, (device as usize + 1) as *mut c_void)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    code(gpu(device).map(|_| used().current = None))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    let device = (context as usize).checked_sub(1);
    used().current = device.and_then(|device| c_int::try_from(device).ok());
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    let memory = used().memory();
    code(memory.and_then(|(of_process, of_device)| {
        put(free, of_process as usize)?;
        put(total, of_device as usize)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    let mut used = used();
    let memory = used.memory();
    code(memory.and_then(|(free, _)| {
        if bytes as u64 > free {
            return Err(OUT_OF_MEMORY);
        }
        let new = used.next;
        used.next += bytes as u64;
        used.blocks.insert(new, bytes as u64);
        put(address, new)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    let freed = used().blocks.remove(&address);
    code(freed.map(drop).ok_or(INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: c_int, name: *mut *const c_char) -> c_int {
    let text = match error {
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        NOT_INITIALIZED => c"CUDA_ERROR_NOT_INITIALIZED",
        DEVICE_UNAVAILABLE => c"CUDA_ERROR_DEVICE_UNAVAILABLE",
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
        INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        800 => c"CUDA_ERROR_NOT_PERMITTED",
        805 => c"CUDA_ERROR_MPS_CONNECTION_FAILED",
        UNKNOWN => c"CUDA_ERROR_UNKNOWN",
        _ => return INVALID_VALUE,
    };
    code(put(name, text.as_ptr()))
}
