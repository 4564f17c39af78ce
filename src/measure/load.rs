//! Which processes of `tranche-load` a cell has.

use tranche_bench::cell::Neighbour;
use tranche_bench::event::Ready;

/// Seconds after which a process ends whatever it does, beyond the time for which it is measured.
const BEYOND: u32 = 90;

/// The words of `tranche-load` for the process that serves, whose requests have so many iterations.
pub(crate) fn serve(fma: u64, seconds: u32) -> Vec<String> {
    words("serve", seconds, &[("--fma", fma)])
}

/// The words for a neighbour on the device of `ready`; `None`: nothing runs there.
pub(crate) fn neighbour(neighbour: Neighbour, fma: u64, ready: &Ready, seconds: u32) -> Option<Vec<String>> {
    // Half of the bytes of a copy are read, and half are written.
    let l2 = ready.l2_bytes.max(1 << 20);
    // An eighth of the memory at the most, so that it fits into the smallest share.
    let dram = (4 * l2).max(64 << 20).min((ready.memory_bytes / 8).max(1 << 20));
    Some(match neighbour {
        Neighbour::Idle => return None,
        Neighbour::Batch => words("batch", seconds, &[("--fma", fma)]),
        Neighbour::HogDram => words("hog-dram", seconds, &[("--bytes", dram)]),
        Neighbour::HogL2 => words("hog-l2", seconds, &[("--bytes", l2)]),
        Neighbour::HogSm | Neighbour::HogPcie | Neighbour::Greedy | Neighbour::Fault => {
            words(&neighbour.to_string(), seconds, &[])
        }
    })
}

/// The words for a process that does this role once.
pub(crate) fn once(role: &str) -> Vec<String> {
    words(role, 0, &[])
}

/// The words for a process that fills so much memory and compares it later. It has no deadline: one that was suspended
/// and resumed must not end in the middle of anything.
pub(crate) fn keep(bytes: u64) -> Vec<String> {
    ["keep", "--bytes", &bytes.to_string()].map(str::to_owned).to_vec()
}

fn words(role: &str, seconds: u32, options: &[(&str, u64)]) -> Vec<String> {
    let deadline = [("--deadline", u64::from(seconds + BEYOND))];
    let options = deadline.iter().chain(options);
    let options = options.flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]);
    std::iter::once(role.to_owned()).chain(options).collect()
}
