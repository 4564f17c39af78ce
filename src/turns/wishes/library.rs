//! The host's `libcuda.so.1`, with the places of the functions that are probed.

use super::NoWishes;
use crate::sys::bpf::{ProbeProgram, ProcessProbes};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tranche_core::elf;

/// What a program calls when it works on a GPU: launching, copying, waiting, allocating. Each also has the name that it
/// has for programs with a default stream for each thread. Queries such as `cuCtxGetCurrent` are not among them, since
/// a program that asks for something does not want to work.
///
/// The pointers that `cuGetProcAddress` returns, which CUDA's runtime uses, are the addresses of these exported
/// functions (seen with the libraries of the drivers 535.261.03, 550.163.01 and 555.58.02, without a GPU).
pub const FUNCTIONS: [&str; 12] = [
    "cuLaunchKernel",
    "cuLaunchKernel_ptsz",
    "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz",
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cuMemAlloc_v2",
];

/// The library.
#[derive(Debug)]
pub struct HostLibrary {
    path: CString,
    device: u64,
    inode: u64,
    offsets: Vec<u64>,
}

impl HostLibrary {
    /// Reads the library at `path`, with its links followed.
    ///
    /// # Errors
    /// Returns why it cannot be probed.
    pub fn at(path: &Path) -> Result<Self, NoWishes> {
        let about = |e: &dyn std::fmt::Display| NoWishes::Library(format!("{}: {e}", path.display()));
        let real = path.canonicalize().map_err(|e| about(&e))?;
        let file = File::open(&real).map_err(|e| about(&e))?;
        let data = file.metadata().map_err(|e| about(&e))?;
        let found = elf::functions(file, &FUNCTIONS).map_err(|e| about(&e))?;
        if found.is_empty() {
            return Err(about(&"it exports none of the functions of CUDA's driver API"));
        }
        Ok(Self {
            path: CString::new(real.as_os_str().as_bytes()).map_err(|e| about(&e))?,
            device: data.dev(),
            inode: data.ino(),
            offsets: found.into_values().collect(),
        })
    }

    /// Whether a process has mapped this file, and not another one of the same name.
    pub fn is_mapped_by(&self, pid: i32) -> bool {
        let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else {
            return false;
        };
        let has_number = |line: &&str| line.split_ascii_whitespace().nth(4) == Some(&self.inode.to_string());
        let executable = maps.lines().filter(|line| {
            let access = line.split_ascii_whitespace().nth(1);
            access.is_some_and(|access| access.contains('x')) && has_number(line)
        });
        // The numbers of devices in `maps` are not those of stat(2) on every file system. Each link leads to the file
        // itself, whatever has its path now.
        let mut files = executable.filter_map(|line| line.split_ascii_whitespace().next());
        files.any(|range| self.is_file(pid, range))
    }

    fn is_file(&self, pid: i32, range: &str) -> bool {
        // The kernel writes addresses without leading zeros there.
        let Some((start, end)) = range.split_once('-') else {
            return false;
        };
        let name = |text: &str| text.trim_start_matches('0').to_owned();
        let link = format!("/proc/{pid}/map_files/{}-{}", name(start), name(end));
        fs::metadata(link).is_ok_and(|data| (data.dev(), data.ino()) == (self.device, self.inode))
    }

    /// Probes the functions in one process.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn probe(&self, program: &ProbeProgram, number: u64, process: i32) -> io::Result<ProcessProbes> {
        program.probe(&self.path, &self.offsets, number, process)
    }
}
