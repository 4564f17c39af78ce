//! Limits as the daemon keeps and prints them.

use crate::scan;
use std::collections::BTreeMap;
use tranche_core::mps::version::MemoryLimits;

/// How many devices the daemon has places for. A limit of one beyond them is ignored.
const DEVICES: usize = 32;

/// The limits that a server gives to clients without limits of their own.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) percentage: f64,
    pub(crate) priority: i32,
    /// Bytes by the device's number; 0 is no limit.
    by_index: [u64; DEVICES],
    by_uuid: BTreeMap<String, u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            percentage: 100.0,
            priority: 0,
            by_index: [0; DEVICES],
            by_uuid: BTreeMap::new(),
        }
    }
}

impl Limits {
    /// Sets the percentage that `text` begins with; `false` if it is not valid.
    pub(crate) fn set_percentage(&mut self, text: &str) -> bool {
        let valid = scan::float(text).filter(|percentage| *percentage > 0.0 && *percentage <= 100.0);
        if let Some(percentage) = valid {
            self.percentage = percentage;
        }
        valid.is_some()
    }

    pub(crate) fn percentage(&self) -> String {
        format!("{:.1}", self.percentage)
    }

    /// Sets the memory of a device: `DEVICE SIZE`. Of a version that knows no UUID, a word that is not a number counts
    /// as device 0 without a size, which clears its limit.
    pub(crate) fn set_memory(&mut self, form: MemoryLimits, text: &str) {
        if let Some(uuid) = uuid(form, text) {
            let size = text.split_whitespace().nth(1).map_or(0, scan::size);
            self.by_uuid.insert(uuid.to_owned(), size);
            return;
        }
        // `%d %s`: the size is the next word, and it is empty if no number was read.
        let (index, rest) = scan::int(text).unwrap_or((0, ""));
        let size = rest.split_whitespace().next().map_or(0, scan::size);
        if let Some(place) = usize::try_from(index).ok().and_then(|at| self.by_index.get_mut(at)) {
            *place = size;
        }
    }

    /// The memory of a device, in whole GiB from 1 GiB on; `None` if it has no limit.
    pub(crate) fn memory(&self, form: MemoryLimits, text: &str) -> Option<String> {
        let bytes = match uuid(form, text) {
            Some(uuid) => self.by_uuid.get(uuid).copied(),
            None => {
                let index = scan::int(text).map_or(0, |(index, _)| index);
                usize::try_from(index)
                    .ok()
                    .and_then(|at| self.by_index.get(at))
                    .copied()
            }
        };
        match bytes.unwrap_or(0) {
            0 => None,
            bytes if bytes >> 30 > 0 => Some(format!("{}G", bytes >> 30)),
            bytes => Some(format!("{}M", bytes >> 20)),
        }
    }

    /// What a client is given: `DEVICE=SIZE`, in MiB.
    pub(crate) fn of_client(&self) -> String {
        let by_index = self.by_index.iter().enumerate();
        let by_index = by_index.map(|(index, bytes)| (index.to_string(), *bytes));
        let by_uuid = self.by_uuid.iter().map(|(uuid, bytes)| (uuid.clone(), *bytes));
        let given = by_index.chain(by_uuid).filter(|(_, bytes)| *bytes > 0);
        let given = given.map(|(device, bytes)| format!("{device}={}M", bytes >> 20));
        given.collect::<Vec<_>>().join(" ")
    }
}

/// The UUID that `text` begins with, for a version that takes one.
fn uuid(form: MemoryLimits, text: &str) -> Option<&str> {
    let word = text.split_whitespace().next()?;
    let is_uuid = form == MemoryLimits::ByIndexOrUuid && (word.starts_with("GPU-") || word.starts_with("MIG-"));
    is_uuid.then_some(word)
}
