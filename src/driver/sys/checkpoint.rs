//! The functions of the driver's `libcuda.so.1` that suspend and resume the work of another process (CUDA's driver API,
//! "CUDA Checkpointing").

#![allow(unsafe_code)]

use nix::libc;
use std::ffi::{CStr, CString, OsStr, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use tranche_driver_protocol::{CudaResult, TurnsFailure};

/// `CUcheckpointLockArgs`, and the arguments of the other calls: each structure has 64 bytes, of which those that a
/// library does not know must be zero.
#[repr(C, align(8))]
struct Arguments {
    timeout_ms: c_uint,
    reserved: [u8; 60],
}

const _: () = assert!(size_of::<Arguments>() == 64);

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
/// `cuCheckpointProcessGetState` and `cuCheckpointProcessGetRestoreThreadId`
type GetNumber = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
/// `cuCheckpointProcessLock`, `…Checkpoint`, `…Restore` and `…Unlock`
type Change = unsafe extern "C" fn(c_int, *mut Arguments) -> c_int;

/// What a change does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessChange {
    /// `cuCheckpointProcessLock`, with a timeout in milliseconds.
    Lock(u32),
    /// `cuCheckpointProcessCheckpoint`
    Checkpoint,
    /// `cuCheckpointProcessRestore`
    Restore,
    /// `cuCheckpointProcessUnlock`
    Unlock,
}

/// What a number says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessNumber {
    /// `cuCheckpointProcessGetState`
    State,
    /// `cuCheckpointProcessGetRestoreThreadId`
    RestoreThread,
}

/// The library, loaded for the rest of the process.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    handle: *mut c_void,
}

impl Checkpoint {
    /// Loads the library at `path`; its constructors run. Then initialises CUDA: a restore needs that, or persistence
    /// mode (CUDA's driver API 13.4; cuda-checkpoint issue 25).
    ///
    /// # Errors
    /// Returns why it cannot be used.
    pub(crate) fn load(path: &OsStr) -> Result<Self, TurnsFailure> {
        let name = CString::new(path.as_bytes())
            .map_err(|_| TurnsFailure::Library("the path of libcuda.so.1 has a zero byte".to_owned()))?;
        // SAFETY: the path is a C string. Running the constructors of the driver's library is what loading it means.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            let why = format!("libcuda.so.1 cannot be loaded: {}", loader_error());
            return Err(TurnsFailure::Library(why));
        }
        let library = Self { handle };
        // SAFETY: the type is that of `cuInit` in cuda.h.
        let init: Init = unsafe { library.function(c"cuInit")? };
        // SAFETY: a call on a number.
        result("cuInit", unsafe { init(0) })?;
        Ok(library)
    }

    /// 1000 × major + 10 × minor.
    ///
    /// # Errors
    /// Returns the library's error, as the functions below.
    pub(crate) fn version(&self) -> Result<i32, TurnsFailure> {
        let mut version = 0;
        // SAFETY: the type is that of `cuDriverGetVersion` in cuda.h.
        let call: GetVersion = unsafe { self.function(c"cuDriverGetVersion")? };
        // SAFETY: the pointer is to a number of this function.
        result("cuDriverGetVersion", unsafe { call(&raw mut version) })?;
        Ok(version)
    }

    /// A number of process `pid`.
    pub(crate) fn number(&self, what: ProcessNumber, pid: i32) -> Result<i32, TurnsFailure> {
        let name = match what {
            ProcessNumber::State => c"cuCheckpointProcessGetState",
            ProcessNumber::RestoreThread => c"cuCheckpointProcessGetRestoreThreadId",
        };
        // SAFETY: the type is that of both functions in cuda.h: a CUprocessState is an int.
        let call: GetNumber = unsafe { self.function(name)? };
        let mut number = -1;
        // SAFETY: the pointer is to a number of this function.
        result(&name.to_string_lossy(), unsafe { call(pid, &raw mut number) })?;
        Ok(number)
    }

    /// Changes the state of process `pid`.
    pub(crate) fn change(&self, change: ProcessChange, pid: i32) -> Result<(), TurnsFailure> {
        let (name, timeout_ms) = match change {
            ProcessChange::Lock(timeout_ms) => (c"cuCheckpointProcessLock", timeout_ms),
            ProcessChange::Checkpoint => (c"cuCheckpointProcessCheckpoint", 0),
            ProcessChange::Restore => (c"cuCheckpointProcessRestore", 0),
            ProcessChange::Unlock => (c"cuCheckpointProcessUnlock", 0),
        };
        // SAFETY: the type is that of the four functions in cuda.h, whose structures have one size.
        let call: Change = unsafe { self.function(name)? };
        let mut arguments = Arguments {
            timeout_ms,
            reserved: [0; 60],
        };
        // SAFETY: the pointer is to a structure of this function, which outlives the call.
        result(&name.to_string_lossy(), unsafe { call(pid, &raw mut arguments) })
    }

    /// The function `name`.
    ///
    /// # Errors
    /// Returns `Missing` if the library lacks it.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to the function.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, TurnsFailure> {
        // SAFETY: the library is loaded, and the name is a C string.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if symbol.is_null() {
            return Err(TurnsFailure::Missing(name.to_string_lossy().into_owned()));
        }
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: by this function's contract, the symbol is a function of type `F`, a pointer.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&symbol) })
    }
}

fn result(call: &str, returned: c_int) -> Result<(), TurnsFailure> {
    match returned {
        0 => Ok(()),
        code => Err(TurnsFailure::Refused {
            call: call.to_owned(),
            result: CudaResult(code),
        }),
    }
}

fn loader_error() -> String {
    // SAFETY: takes nothing.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "for an unknown reason".to_owned();
    }
    // SAFETY: a text that is not null is a C string until the next call of the loader in this thread.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
