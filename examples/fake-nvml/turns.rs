//! Memory that programs of `fake-cuda` have on a GPU whose configuration names the directory where they meet
//! (`examples/fake-cuda/turns.rs`): the file of each block is there, and its name begins with that of the process's
//! socket. The number of the process in it is the one in its own pid namespace; NVML knows it by the one here.

use crate::config::Gpu;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The bytes of each process that lives.
pub(crate) fn processes(gpu: &Gpu) -> BTreeMap<u32, u64> {
    let mut bytes = BTreeMap::new();
    let Some(directory) = &gpu.turns else {
        return bytes;
    };
    for block in fs::read_dir(directory.join(&gpu.uuid)).into_iter().flatten().flatten() {
        let name = block.file_name();
        let pid = name.to_str().and_then(|name| owner(directory, name));
        if let (Some(pid), Ok(data)) = (pid, block.metadata()) {
            *bytes.entry(pid).or_default() += data.len();
        }
    }
    bytes
}

/// Who has the block of this name, `PID-SINCE.ADDRESS`; `None` if that process has ended.
fn owner(directory: &Path, block: &str) -> Option<u32> {
    let (process, _) = block.split_once('.')?;
    let socket = UnixStream::connect(directory.join(format!("{process}.sock"))).ok()?;
    let peer = getsockopt(&socket, PeerCredentials).ok()?;
    u32::try_from(peer.pid()).ok()
}
