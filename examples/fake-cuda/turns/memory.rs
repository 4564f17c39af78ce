//! What the exported functions do with memory. Without turns, it has no content.

use super::target::TARGET;
use crate::config::Gpu;
use crate::driver::{Answer, INVALID_VALUE, OUT_OF_MEMORY};

/// Takes a block. Whether it fits was checked before.
pub(crate) fn allocate(gpu: &Gpu, address: u64, bytes: u64) -> Answer {
    let Some(target) = TARGET.get() else { return Ok(()) };
    let total = gpu.memory_mib << 20;
    let mut inner = target.inner();
    let (blocks, _) = inner
        .blocks
        .entry(gpu.uuid.clone())
        .or_insert_with(|| (Default::default(), total));
    let place = target.directory.join(&gpu.uuid);
    blocks
        .allocate(&place, &target.name, address, bytes)
        .map_err(|_| OUT_OF_MEMORY)
}

pub(crate) fn free(address: u64) {
    if let Some(target) = TARGET.get() {
        target
            .inner()
            .blocks
            .values_mut()
            .for_each(|(blocks, _)| blocks.free(address));
    }
}

/// Writes to memory. Without turns, memory has no content.
pub(crate) fn write(address: u64, bytes: &[u8]) -> Answer {
    let Some(target) = TARGET.get() else { return Ok(()) };
    let inner = target.inner();
    let written = inner
        .blocks
        .values()
        .find_map(|(blocks, _)| blocks.write(address, bytes));
    written.ok_or(INVALID_VALUE)
}

/// Reads memory.
pub(crate) fn read(address: u64, bytes: &mut [u8]) -> Answer {
    let Some(target) = TARGET.get() else { return Ok(()) };
    let inner = target.inner();
    let read = inner
        .blocks
        .values()
        .find_map(|(blocks, _)| blocks.read(address, bytes));
    read.ok_or(INVALID_VALUE)
}
