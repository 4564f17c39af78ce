//! What the library keeps between calls: whether it is initialised, its configuration, the number of calls on each GPU.

use crate::config::{self, ComputeInstance, Config, Gpu, GpuInstance, Mig};
use nvml_wrapper_sys::bindings::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Seek, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The result of a call: success, or NVML's error.
pub(crate) type Answer<T = ()> = Result<T, nvmlReturn_t>;

pub(crate) const INVALID: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
pub(crate) const UNSUPPORTED: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
pub(crate) const UNKNOWN: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_UNKNOWN;
pub(crate) const NOT_FOUND: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_NOT_FOUND;

/// How many calls of nvmlInit are not yet followed by nvmlShutdown.
static OPEN: AtomicU32 = AtomicU32::new(0);
static WORLD: Mutex<Option<&'static World>> = Mutex::new(None);

pub(crate) struct World {
    pub(crate) config: Config,
    /// The number of calls on each GPU.
    asked: &'static [AtomicU32],
    /// What the files were when they were read.
    stamp: config::Stamp,
}

impl World {
    /// The world as it is now: the real library asks the kernel at each call, and other processes change it too.
    fn now() -> Option<&'static World> {
        let mut world = WORLD.lock().ok()?;
        let known = (*world)?;
        let stamp = config::stamp();
        // A file that is being written now is read at the next call.
        if known.stamp != stamp
            && let Ok(config) = config::read()
            && config.gpus.len() == known.asked.len()
        {
            // A process asks for a moment, and this is a program for tests.
            *world = Some(Box::leak(Box::new(World {
                config,
                asked: known.asked,
                stamp,
            })));
        }
        *world
    }

    /// Appends a change to the record, if there is one.
    pub(crate) fn record(&self, event: &Value) -> Answer {
        let Some(record) = &self.config.record else {
            return Ok(());
        };
        let record = OpenOptions::new().append(true).create(true).open(record);
        record
            .and_then(|mut record| record.write_all(format!("{event}\n").as_bytes()))
            .map_err(|_| UNKNOWN)
    }
}

/// What a handle names. NVML's handles are opaque pointers. The handles of this library contain these numbers, so an
/// invalid handle is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handle {
    Gpu(usize),
    /// Positions of GPU, GPU instance and compute instance.
    Mig(usize, usize, usize),
}

/// The mark of this library's handles, and of the instances in them.
const MARK: usize = 0x7a00_0000;

pub(crate) fn encode(gpu: usize, instance: Option<usize>, compute: Option<usize>) -> usize {
    let part = |p: Option<usize>| p.map_or(0, |n| n + 1);
    MARK | gpu << 16 | part(instance) << 8 | part(compute)
}

pub(crate) fn decode(handle: usize) -> Option<(usize, Option<usize>, Option<usize>)> {
    (handle & 0xff00_0000 == MARK).then(|| {
        (
            (handle >> 16) & 0xff,
            ((handle >> 8) & 0xff).checked_sub(1),
            (handle & 0xff).checked_sub(1),
        )
    })
}

/// One call of a function other than nvmlInit: its name, and the state of the library.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) world: &'static World,
}

impl Call {
    pub(crate) fn handle(self, device: nvmlDevice_t) -> Answer<Handle> {
        match decode(device as usize).ok_or(INVALID)? {
            (gpu, None, None) if gpu < self.world.config.gpus.len() => Ok(Handle::Gpu(gpu)),
            (gpu, Some(instance), Some(compute)) => Ok(Handle::Mig(gpu, instance, compute)),
            _ => Err(INVALID),
        }
    }

    /// The GPU at a position, or the error that the configuration has for this call. Counts as one call on the GPU.
    pub(crate) fn gpu(self, position: usize) -> Answer<&'static Gpu> {
        let gpu = self.world.config.gpus.get(position).ok_or(INVALID)?;
        let before = self.world.asked[position].fetch_add(1, Ordering::Relaxed);
        if gpu.lost_after.is_some_and(|n| before >= n) {
            return Err(nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST);
        }
        self.told(&gpu.errors)?;
        Ok(gpu)
    }

    /// The GPU of a handle; for a MIG device, its parent.
    pub(crate) fn parent(self, device: nvmlDevice_t) -> Answer<(usize, &'static Gpu)> {
        let (Handle::Gpu(position) | Handle::Mig(position, ..)) = self.handle(device)?;
        Ok((position, self.gpu(position)?))
    }

    /// The GPU of a handle. A handle of a MIG device is an error.
    pub(crate) fn whole(self, device: nvmlDevice_t) -> Answer<(usize, &'static Gpu)> {
        match self.handle(device)? {
            Handle::Gpu(position) => Ok((position, self.gpu(position)?)),
            Handle::Mig(..) => Err(UNSUPPORTED),
        }
    }

    /// The GPU of a handle and its MIG part; `NOT_SUPPORTED` on a card without MIG.
    pub(crate) fn mig(self, device: nvmlDevice_t) -> Answer<(usize, &'static Gpu, &'static Mig)> {
        let (position, gpu) = self.whole(device)?;
        Ok((position, gpu, gpu.mig.as_ref().ok_or(UNSUPPORTED)?))
    }

    /// Both instances of a MIG device's handle.
    pub(crate) fn device(
        self,
        device: nvmlDevice_t,
    ) -> Answer<(&'static Gpu, &'static GpuInstance, &'static ComputeInstance)> {
        let Handle::Mig(position, instance, compute) = self.handle(device)? else {
            return Err(INVALID);
        };
        let gpu = self.gpu(position)?;
        let instance = gpu
            .mig
            .as_ref()
            .and_then(|m| m.instances.get(instance))
            .ok_or(INVALID)?;
        Ok((gpu, instance, instance.compute.get(compute).ok_or(INVALID)?))
    }

    fn told(self, errors: &BTreeMap<String, String>) -> Answer {
        match errors.get(self.name).map(String::as_str) {
            None => Ok(()),
            Some("HANG") => hang(),
            Some(error) => Err(number(error)),
        }
    }
}

/// Runs one function of the library after the delay. It fails before nvmlInit, or if the configuration says so.
pub(crate) fn call(name: &'static str, body: impl FnOnce(Call) -> Answer) -> nvmlReturn_t {
    let Some(world) = World::now().filter(|_| OPEN.load(Ordering::SeqCst) > 0) else {
        return nvmlReturn_enum_NVML_ERROR_UNINITIALIZED;
    };
    let call = Call { name, world };
    std::thread::sleep(std::time::Duration::from_millis(world.config.faults.delay_ms));
    let kill = world
        .config
        .faults
        .kills_parent
        .as_ref()
        .filter(|kill| kill.is_at(name));
    if let Some(kill) = kill.filter(|kill| !kill.after) {
        kill.kill_parent();
    }
    let answer = call.told(&world.config.faults.errors).and_then(|()| body(call));
    if let Some(kill) = kill {
        kill.kill_parent();
    }
    match answer {
        Ok(()) => nvmlReturn_enum_NVML_SUCCESS,
        Err(error) => error,
    }
}

impl config::Kill {
    /// Counts this call of the function `name`. Returns whether it is the one.
    fn is_at(&self, name: &str) -> bool {
        if self.function.as_ref().is_some_and(|function| function != name) {
            return false;
        }
        let is_it = || {
            let end = usize::try_from(self.append(name)?).map_err(std::io::Error::other)?;
            // Other processes call at the same time.
            let all = std::fs::read(&self.calls)?;
            let lines = all.iter().take(end).filter(|byte| **byte == b'\n').count();
            Ok::<_, std::io::Error>(lines == self.spared + 1)
        };
        is_it().unwrap_or(false)
    }

    /// Appends a line. Returns where it ends.
    fn append(&self, line: &str) -> std::io::Result<u64> {
        let mut calls = OpenOptions::new().append(true).create(true).open(&self.calls)?;
        calls.write_all(format!("{line}\n").as_bytes())?;
        calls.stream_position()
    }

    /// Kills the process that started this one, and ends this one. It is said before, because this one may end with it.
    fn kill_parent(&self) -> ! {
        // SAFETY: it takes nothing of this process's memory.
        let parent = unsafe { libc::getppid() };
        let said = self.append(&format!("killed {parent}"));
        // SAFETY: as above.
        unsafe {
            libc::kill(parent, libc::SIGKILL);
            libc::_exit(if said.is_ok() { 1 } else { 2 })
        }
    }
}

/// nvmlInit: reads the configuration at the first call, and fails as the configuration says.
#[allow(
    clippy::print_stderr,
    reason = "a test that set the library up wrongly must learn why"
)]
pub(crate) fn init() -> nvmlReturn_t {
    if World::now().is_none() {
        let stamp = config::stamp();
        match config::read() {
            Ok(config) => {
                let asked: Vec<_> = config.gpus.iter().map(|_| AtomicU32::new(0)).collect();
                let asked: &'static [AtomicU32] = asked.leak();
                if let Ok(mut world) = WORLD.lock() {
                    *world = Some(Box::leak(Box::new(World { config, asked, stamp })));
                }
            }
            Err(why) => {
                eprintln!("fake NVML: {why}");
                return nvmlReturn_enum_NVML_ERROR_UNKNOWN;
            }
        }
    }
    if let Some(world) = World::now() {
        if let Some(path) = &world.config.faults.fork {
            leave_a_process_behind(path);
        }
        if let Some(path) = &world.config.faults.node
            && !path.exists()
        {
            let mut mknod = std::process::Command::new("/usr/bin/mknod");
            let made = mknod.arg(path).args(["c", "195", "255"]).status();
            if !made.is_ok_and(|status| status.success()) {
                return nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(world.config.faults.init_ms));
    }
    match World::now().and_then(|world| world.config.faults.init.as_deref()) {
        None => {
            OPEN.fetch_add(1, Ordering::SeqCst);
            nvmlReturn_enum_NVML_SUCCESS
        }
        Some("hang") => hang(),
        Some("crash") => crash(),
        Some(error) => number(error),
    }
}

fn hang() -> ! {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}

/// Starts a process that detaches itself as a daemon does: it has a session of its own, and its parent ends. It ignores
/// signals, and holds a lock on the file at `path` as long as it lives.
fn leave_a_process_behind(path: &std::path::Path) {
    use std::os::fd::IntoRawFd;
    let Ok(file) = std::fs::File::create(path) else { return };
    let lock = file.into_raw_fd();
    // SAFETY: system calls on local numbers. Between fork and _exit, the children do nothing else.
    unsafe {
        // The lock belongs to the open file, which all children share.
        if libc::flock(lock, libc::LOCK_EX) != 0 {
            return;
        }
        let child = libc::fork();
        if child == 0 {
            libc::setsid();
            if libc::fork() == 0 {
                libc::signal(libc::SIGTERM, libc::SIG_IGN);
                libc::signal(libc::SIGHUP, libc::SIG_IGN);
                loop {
                    libc::pause();
                }
            }
            libc::_exit(0);
        }
        libc::waitpid(child, std::ptr::null_mut(), 0);
        libc::close(lock);
    }
}

/// nvmlShutdown: once for each nvmlInit.
pub(crate) fn shutdown() -> nvmlReturn_t {
    match OPEN.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) {
        Ok(_) => nvmlReturn_enum_NVML_SUCCESS,
        Err(_) => nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
    }
}

/// Dies of SIGSEGV, as a library with a bug does. Not with `raise`, because the handler of Rust programs returns from
/// that.
fn crash() -> ! {
    let nowhere = std::hint::black_box(8_usize) as *mut u64;
    // SAFETY: this is unsafe on purpose. The first page is never mapped, so the process ends here.
    unsafe { nowhere.write_volatile(1) };
    std::process::abort()
}

/// NVML's number of an error, from its name without `NVML_ERROR_`, or from the number itself.
fn number(error: &str) -> nvmlReturn_t {
    match error {
        "UNINITIALIZED" => nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
        "INVALID_ARGUMENT" => INVALID,
        "NOT_SUPPORTED" => UNSUPPORTED,
        "NO_PERMISSION" => nvmlReturn_enum_NVML_ERROR_NO_PERMISSION,
        "NOT_FOUND" => NOT_FOUND,
        "DRIVER_NOT_LOADED" => nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED,
        "TIMEOUT" => nvmlReturn_enum_NVML_ERROR_TIMEOUT,
        "FUNCTION_NOT_FOUND" => nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND,
        "GPU_IS_LOST" => nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST,
        "RESET_REQUIRED" => nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED,
        "LIB_RM_VERSION_MISMATCH" => nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        other => other.parse().unwrap_or(nvmlReturn_enum_NVML_ERROR_UNKNOWN),
    }
}
