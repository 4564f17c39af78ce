//! The results of a run: one JSON file.

use crate::cell::{Cell, Length, Neighbour};
use crate::measured::{Figures, Measured, Others};
use crate::statistics::Spread;
use crate::verdict::{Seen, Verdict, verdicts};
use crate::way::{RefusedWay, Seat, Setup, Way};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tranche_core::error::{Context, Error, Result};
use tranche_core::text::shown_json;
use tranche_core::types::{MemorySize, ShareName};

/// The version of the file. A reader refuses every other one.
pub const VERSION: u32 = 1;

/// The most bytes of a file: a full run has fewer than a million.
pub const MOST_BYTES: u64 = 16 << 20;

/// Where a run was made. It names no person, machine or GPU, because people share these files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The machine in words that a person chose, such as a model of server; perhaps empty.
    pub machine: String,
    /// The product, with the profile of an instance of MIG.
    pub product: String,
    /// The version of the driver.
    pub driver: String,
    /// The version of CUDA that the driver has.
    pub cuda: String,
    /// The release of the kernel.
    pub kernel: String,
    /// Memory of the device in MiB.
    pub memory_mib: u64,
    /// Its multiprocessors, as a process alone sees them.
    pub sms: Option<u32>,
    /// Its compute mode before the run.
    pub compute_mode: Option<String>,
    /// Whether MIG was on before the run; `None` for a GPU without MIG.
    pub mig: Option<bool>,
}

/// What `tranche bench` saw in a run. [`Results::new`] makes figures of it.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The version of tranche.
    pub program: String,
    /// The day, as 2026-11-28.
    pub date: String,
    /// Where.
    pub host: Host,
    /// How thoroughly.
    pub length: Length,
    /// The seed of the requests.
    pub seed: u64,
    /// How long a request takes alone, in nanoseconds.
    pub request_ns: u64,
    /// The work of each neighbour in a second when it has the device for itself, in its own units, where it was
    /// measured.
    pub alone: BTreeMap<Neighbour, f64>,
    /// The ways, in the order of the run.
    pub ways: Vec<RecordedWay>,
    /// The measurements of each cell, or why there are none.
    pub cells: Vec<(Cell, Result<Vec<Measured>, String>)>,
    /// The ways that were not possible, and why.
    pub refused: Vec<RefusedWay>,
    /// The cells that the run had no time for.
    pub left_out: Vec<Cell>,
    /// What was not as before when the run was over.
    pub leftovers: Vec<String>,
}

/// What was seen of a way once.
#[derive(Debug, Clone)]
pub struct RecordedWay {
    /// How it was set up.
    pub setup: Setup,
    /// The multiprocessors that `probe` reached in each share of [`Setup::seats`].
    pub sms: Vec<Option<u32>>,
    /// How long the first calls of CUDA took, in nanoseconds, for each process that was started.
    pub context_ns: Vec<u64>,
    /// The most memory of the GPU in MiB that NVML reported of its MPS server.
    pub mps_server_mib: Option<u64>,
}

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// [`VERSION`].
    pub version: u32,
    /// The version of tranche that wrote it.
    pub program: String,
    /// The day, as 2026-11-28.
    pub date: String,
    /// Where it was measured.
    pub host: Host,
    /// How thoroughly.
    pub length: Length,
    /// Whether the run was too short for others to rely on.
    pub indicative: bool,
    /// The seed of the requests: each repeat has the next one.
    pub seed: u64,
    /// How long a request takes alone, in milliseconds.
    pub request_ms: f64,
    /// The ways that were measured.
    pub ways: Vec<WayResult>,
    /// The figures.
    pub cells: Vec<Figures>,
    /// The ways that were not possible.
    pub refused: Vec<RefusedWay>,
    /// The cells that the run had no time for.
    pub left_out: Vec<Cell>,
    /// What was not as before when the run was over.
    pub leftovers: Vec<String>,
}

/// A way that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WayResult {
    /// The way.
    pub way: Way,
    /// Its shares.
    pub shares: Vec<ShareResult>,
    /// How long the first calls of CUDA take in it, in milliseconds.
    pub context_ms: Option<Spread>,
    /// The most memory of the GPU in MiB that NVML reported of its MPS server.
    pub mps_server_mib: Option<u64>,
}

/// A share of a way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareResult {
    /// Its name; of an instance of MIG with one holder, that of the instance.
    pub name: String,
    /// Its limit of memory in MiB.
    pub memory_mib: Option<u64>,
    /// Its ceiling of compute in percent.
    pub compute: Option<u32>,
    /// Multiprocessors that a process in it reached.
    pub sms: Option<u32>,
    /// What became of its guarantees; empty for a process that has the device for itself.
    pub verdicts: Vec<Verdict>,
}

impl Results {
    /// The figures and verdicts of a run.
    pub fn new(run: Recorded) -> Self {
        let measured = |way, load| {
            let cell = Cell {
                way,
                neighbour: Neighbour::Idle,
                load,
            };
            let found = run.cells.iter().find(|(one, _)| *one == cell);
            found.and_then(|(_, all)| all.as_deref().ok()).unwrap_or_default()
        };
        // The requests of batch are those of the first process.
        let of_batch = 1e9 / run.request_ns.max(1) as f64;
        let figures = |(cell, all): &(Cell, _)| {
            let rate = run.alone.get(&cell.neighbour).copied();
            let others = Others {
                alone: measured(Way::Solo, cell.load),
                idle: measured(cell.way, cell.load),
                rate: rate.or((cell.neighbour == Neighbour::Batch).then_some(of_batch)),
            };
            Figures::new(*cell, all, others)
        };
        let cells: Vec<Figures> = run.cells.iter().map(figures).collect();
        let ways = run
            .ways
            .iter()
            .map(|way| WayResult::new(way, &cells, run.host.sms))
            .collect();
        Self {
            version: VERSION,
            program: run.program,
            date: run.date,
            host: run.host,
            length: run.length,
            indicative: run.length.is_indicative(),
            seed: run.seed,
            request_ms: run.request_ns as f64 / 1e6,
            ways,
            cells,
            refused: run.refused,
            left_out: run.left_out,
            leftovers: run.leftovers,
        }
    }

    /// Reads a file. `file` is its name in messages.
    ///
    /// # Errors
    /// Returns an error if it is not a file of results, or one of another version.
    pub fn read(file: &str, text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if text.len() as u64 > MOST_BYTES {
            return Err(Error::usage(file, format!("has more than {MOST_BYTES} bytes")));
        }
        let Versioned { version } = serde_json::from_str(text).about(file, "not a file of results of tranche bench")?;
        if version != VERSION {
            let what = format!("results of version {version}, expected {VERSION}");
            return Err(Error::usage(file, what).hint("measure again, or read it with the tranche that wrote it"));
        }
        serde_json::from_str(text).about(file, "not a file of results of tranche bench")
    }

    /// The text of the file. Nothing in it acts on a terminal.
    ///
    /// # Errors
    /// Returns an error if a value cannot be written as JSON, which no value of a run is.
    pub fn text(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).about("results", "cannot be written as JSON")?;
        Ok(format!("{}\n", shown_json(&text)))
    }

    /// The name under which people share the file: `NVIDIA-H200-570.124.06.json`.
    pub fn file_name(&self) -> String {
        let mut name = String::new();
        for c in format!("{}-{}", self.host.product, self.host.driver).chars().take(100) {
            match c.is_ascii_alphanumeric() || c == '.' && !name.is_empty() && !name.ends_with('.') {
                true => name.push(c),
                false if name.is_empty() || name.ends_with('-') => {}
                false => name.push('-'),
            }
        }
        let name = name.trim_end_matches(['-', '.']);
        format!("{}.json", if name.is_empty() { "unknown" } else { name })
    }

    /// The figures of a cell.
    pub fn cell(&self, cell: Cell) -> Option<&Figures> {
        self.cells.iter().find(|one| one.cell == cell)
    }
}

impl WayResult {
    fn new(recorded: &RecordedWay, cells: &[Figures], device_sms: Option<u32>) -> Self {
        let RecordedWay {
            setup,
            sms,
            context_ns,
            mps_server_mib,
        } = recorded;
        let cells: Vec<Figures> = cells.iter().filter(|one| one.cell.way == setup.way).cloned().collect();
        let sms = |at: usize| sms.get(at).copied().flatten();
        let share = |(at, seat): (usize, &Seat)| {
            let neighbour = setup.seats.get(1 - at.min(1));
            let seen = neighbour.map(|neighbour| Seen {
                seat,
                neighbour,
                is_first: at == 0,
                device_sms,
                sms: sms(at),
                cells: &cells,
            });
            ShareResult {
                name: match seat.share == ShareName::whole() {
                    true => seat.device.cdi_name(),
                    false => seat.share.to_string(),
                },
                memory_mib: seat.memory.map(MemorySize::mib),
                compute: seat.compute.map(|compute| compute.get()),
                sms: sms(at),
                verdicts: seen.map(verdicts).unwrap_or_default(),
            }
        };
        Self {
            way: setup.way,
            shares: setup.seats.iter().enumerate().map(share).collect(),
            context_ms: Spread::of(context_ns.iter().map(|ns| *ns as f64 / 1e6)),
            mps_server_mib: *mps_server_mib,
        }
    }
}
