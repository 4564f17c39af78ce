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

/// How many places of 8 bytes are filled or compared at once.
const PIECE: u64 = 1 << 17;

/// What the kernel `tranche_fill` writes, in pieces: the address of each, and its bytes.
fn pieces(address: u64, count: u64, seed: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    (0..count).step_by(PIECE as usize).map(move |first| {
        let mut bytes = vec![0; (count.min(first + PIECE) - first) as usize * 8];
        let mut number = first.wrapping_add(seed).wrapping_mul(FACTOR);
        for place in bytes.chunks_exact_mut(8) {
            place.copy_from_slice(&number.to_le_bytes());
            number = number.wrapping_add(FACTOR);
        }
        (address + first * 8, bytes)
    })
}

/// As in the kernel.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Does what the kernel does.
pub(crate) fn fill(address: u64, count: u64, seed: u64) -> Answer {
    pieces(address, count, seed).try_for_each(|(place, bytes)| write(place, &bytes))
}

/// How many places have another number. Without turns, memory has no content, and all of it is right.
pub(crate) fn compare(address: u64, count: u64, seed: u64) -> Answer<u64> {
    let mut wrong = 0;
    for (place, expected) in pieces(address, count, seed) {
        let mut found = expected.clone();
        read(place, &mut found)?;
        if found != expected {
            let (found, expected) = (found.chunks(8), expected.chunks(8));
            wrong += found.zip(expected).filter(|(one, other)| one != other).count() as u64;
        }
    }
    Ok(wrong)
}
