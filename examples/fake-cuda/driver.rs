//! The exported functions.

use crate::config::{self, Cheat, Gpu};
use crate::limits::{Memory, World};
use crate::shared::Shared;
use crate::turns;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// `CUresult`.
pub(crate) type Answer<T = ()> = Result<T, c_int>;

pub(crate) const INVALID_VALUE: c_int = 1;
pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const NOT_INITIALIZED: c_int = 3;
const DEVICE_UNAVAILABLE: c_int = 46;
const NO_DEVICE: c_int = 100;
const INVALID_DEVICE: c_int = 101;
pub(crate) const INVALID_CONTEXT: c_int = 201;
pub(crate) const NOT_SUPPORTED: c_int = 801;
pub(crate) const UNKNOWN: c_int = 999;

static WORLD: OnceLock<World> = OnceLock::new();
static USE: Mutex<Use> = Mutex::new(Use {
    current: None,
    blocks: BTreeMap::new(),
    next: 1 << 32,
    shared: BTreeMap::new(),
    results: BTreeMap::new(),
});

/// What this process uses.
pub(crate) struct Use {
    /// The device of the current context.
    current: Option<c_int>,
    /// The size of each block of memory, by its address.
    blocks: BTreeMap<u64, u64>,
    next: u64,
    /// The part in each GPU with a model, by the device's number.
    shared: BTreeMap<c_int, &'static Shared>,
    /// What a kernel wrote, by its address.
    pub(crate) results: BTreeMap<u64, Vec<u64>>,
}

impl Use {
    fn memory(&self) -> Answer<Memory> {
        let ordinal = self.current.ok_or(INVALID_CONTEXT)?;
        let (world, gpu) = gpu(ordinal)?;
        let others = self
            .shared
            .get(&ordinal)
            .map_or(Ok(0), |shared| shared.used_by_others())?;
        let others = others + turns::used_by_others(gpu);
        Ok(world.memory(ordinal, gpu, self.blocks.values().sum(), others))
    }

    /// The part of the current context in a GPU with a model.
    fn part(&self) -> Option<&'static Shared> {
        self.shared.get(&self.current?).copied()
    }

    /// Tells the others how much memory this process has.
    fn tell(&self) {
        if let Some(shared) = self.part() {
            shared.use_memory(self.blocks.values().sum());
        }
    }
}

pub(crate) fn code(answer: Answer) -> c_int {
    answer.err().unwrap_or(0)
}

pub(crate) fn used() -> std::sync::MutexGuard<'static, Use> {
    USE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn world() -> Answer<&'static World> {
    WORLD.get().ok_or(NOT_INITIALIZED)
}

pub(crate) fn gpu(ordinal: c_int) -> Answer<(&'static World, &'static Gpu)> {
    let world = world()?;
    Ok((world, world.gpu(ordinal).ok_or(INVALID_DEVICE)?))
}

/// The part of the current context in a GPU with a model.
pub(crate) fn shared() -> Answer<(&'static World, &'static Shared)> {
    let used = used();
    used.current.ok_or(INVALID_CONTEXT)?;
    Ok((world()?, used.part().ok_or(NOT_SUPPORTED)?))
}

/// Joins those who use a GPU with a model, once.
fn join(device: c_int, world: &World, gpu: &'static Gpu) -> Answer {
    let Some(model) = &gpu.model else {
        return Ok(());
    };
    if let Entry::Vacant(place) = used().shared.entry(device) {
        let shared = Shared::join(&model.state, model, gpu.sms, world.server(), world.sms(gpu)).ok_or(UNKNOWN)?;
        place.insert(Box::leak(Box::new(shared)));
    }
    Ok(())
}

/// Writes a value for the caller.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Answer {
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
        // CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
        38 => put(value, gpu.model.as_ref().map_or(0, |model| model.l2_mib << 20) as c_int),
        // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        75 => put(value, gpu.capability[0]),
        76 => put(value, gpu.capability[1]),
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
        join(device, world, gpu)?;
        world.config.turns.as_ref().map_or(Ok(()), turns::begin)?;
        put(context, (device as usize + 1) as *mut c_void)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    let _call = match turns::call() {
        Ok(call) => call,
        Err(error) => return error,
    };
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
    let memory = turns::call().and_then(|_call| used().memory());
    code(memory.and_then(|memory| {
        put(free, memory.limited as usize)?;
        put(total, memory.total as usize)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    let _call = match turns::call() {
        Ok(call) => call,
        Err(error) => return error,
    };
    let mut used = used();
    let memory = used.memory();
    code(memory.and_then(|memory| {
        let cheats = used.part().is_some_and(|shared| shared.cheats(Cheat::Memory));
        if bytes as u64 > if cheats { memory.free } else { memory.limited } {
            return Err(OUT_OF_MEMORY);
        }
        let new = used.next;
        let (_, gpu) = gpu(used.current.ok_or(INVALID_CONTEXT)?)?;
        turns::memory::allocate(gpu, new, bytes as u64)?;
        used.next += bytes as u64;
        used.blocks.insert(new, bytes as u64);
        used.tell();
        put(address, new)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    let _call = match turns::call() {
        Ok(call) => call,
        Err(error) => return error,
    };
    let mut used = used();
    let freed = used.blocks.remove(&address);
    turns::memory::free(address);
    used.tell();
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
        222 => c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        800 => c"CUDA_ERROR_NOT_PERMITTED",
        NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
        805 => c"CUDA_ERROR_MPS_CONNECTION_FAILED",
        UNKNOWN => c"CUDA_ERROR_UNKNOWN",
        _ => return INVALID_VALUE,
    };
    code(put(name, text.as_ptr()))
}
