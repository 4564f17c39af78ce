//! Memory that programs of `fake-cuda` have on a GPU whose configuration names the directory where they meet
//! (`examples/fake-cuda/turns.rs`): the file of each block is there, and its name begins with the number of the
//! process.

use crate::config::Gpu;
use std::collections::BTreeMap;
use std::fs;

/// The bytes of each process that lives.
pub(crate) fn processes(gpu: &Gpu) -> BTreeMap<u32, u64> {
    let mut bytes = BTreeMap::new();
    let Some(directory) = &gpu.turns else {
        return bytes;
    };
    for block in fs::read_dir(directory.join(&gpu.uuid)).into_iter().flatten().flatten() {
        let name = block.file_name();
        let pid = name.to_str().and_then(|name| name.split_once('-')?.0.parse().ok());
        if let (Some(pid), Ok(data)) = (pid, block.metadata())
            && fs::exists(format!("/proc/{pid}")).unwrap_or(false)
        {
            *bytes.entry(pid).or_default() += data.len();
        }
    }
    bytes
}
