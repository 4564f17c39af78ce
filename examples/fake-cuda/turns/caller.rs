//! The exported functions, for a process that suspends another one.

use super::{SOCKET, hold, lives};
use crate::config;
use crate::driver::{Answer, INVALID_VALUE, NOT_SUPPORTED, UNKNOWN, code, put};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::ffi::{c_int, c_uint};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

/// `CUcheckpointLockArgs`; of the others, nothing is read.
#[repr(C)]
pub struct Arguments {
    timeout_ms: c_uint,
    reserved: [u8; 60],
}

/// Asks the target with this number, and returns the number that it says.
fn ask(pid: c_int, words: &str) -> Answer<c_int> {
    let turns = config::read().ok_or(UNKNOWN)?.turns.ok_or(NOT_SUPPORTED)?;
    let mut target = find(&turns.directory, pid).ok_or(INVALID_VALUE)?;
    writeln!(target, "{words}").map_err(|_| UNKNOWN)?;
    let mut line = String::new();
    BufReader::new(target).read_line(&mut line).map_err(|_| UNKNOWN)?;
    let (result, number) = line.trim().split_once(' ').ok_or(UNKNOWN)?;
    match result.parse().map_err(|_| UNKNOWN)? {
        0 => number.parse().map_err(|_| UNKNOWN),
        error => Err(error),
    }
}

/// The target with this number in the pid namespace of this process. Looks at all of them, to find those that died.
fn find(directory: &std::path::Path, pid: c_int) -> Option<UnixStream> {
    let mut found = None;
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != SOCKET) {
            continue;
        }
        let Ok(stream) = UnixStream::connect(&path) else {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let _held = hold(directory);
            lives(directory, &name);
            continue;
        };
        if getsockopt(&stream, PeerCredentials).is_ok_and(|peer| peer.pid() == pid) {
            found = Some(stream);
        }
    }
    found
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessGetState(pid: c_int, state: *mut c_int) -> c_int {
    code(ask(pid, "state").and_then(|number| put(state, number)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessGetRestoreThreadId(pid: c_int, thread: *mut c_int) -> c_int {
    code(ask(pid, "thread").and_then(|number| put(thread, number)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessLock(pid: c_int, arguments: *const Arguments) -> c_int {
    // SAFETY: CUDA's contract: the pointer is null or to the structure.
    let timeout = unsafe { arguments.as_ref() }.map_or(0, |arguments| arguments.timeout_ms);
    code(zeros(arguments).and_then(|()| ask(pid, &format!("lock {timeout}")).map(drop)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessCheckpoint(pid: c_int, arguments: *const Arguments) -> c_int {
    code(zeros(arguments).and_then(|()| ask(pid, "checkpoint").map(drop)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessRestore(pid: c_int, arguments: *const Arguments) -> c_int {
    code(zeros(arguments).and_then(|()| ask(pid, "restore").map(drop)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCheckpointProcessUnlock(pid: c_int, arguments: *const Arguments) -> c_int {
    code(zeros(arguments).and_then(|()| ask(pid, "unlock").map(drop)))
}

/// Refuses reserved bytes that are not zero, as the header of CUDA demands it.
unsafe fn zeros(arguments: *const Arguments) -> Answer {
    // SAFETY: as above.
    match unsafe { arguments.as_ref() }.is_none_or(|arguments| arguments.reserved == [0; 60]) {
        true => Ok(()),
        false => Err(INVALID_VALUE),
    }
}
