//! A GPU in simulated time. An honest one keeps what the plan promises; others cheat in one way each.

use crate::cell::{Cell, Length, Neighbour};
use crate::event::Event;
use crate::measured::Measured;
use crate::results::{Host, Recorded, RecordedWay, Results};
use crate::schedule::{arrivals, mean_gap};
use crate::way::{Allowed, RefusedWay, Setup, Way, setup};
use std::collections::BTreeMap;
use tranche_core::types::MemorySize;
use tranche_driver_protocol::{GpuClocks, Slowed};
use tranche_plan::mig::described;
use tranche_plan::sim;

/// Multiprocessors of the GPU.
const SMS: u32 = 132;

/// How long a request takes alone, in nanoseconds.
const REQUEST: u64 = 3_000_000;

/// How a GPU does not do what it should.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cheats {
    /// Greedy processes get all of the memory.
    pub(super) memory: bool,
    /// A process in its ceiling reaches every multiprocessor.
    pub(super) ceiling: bool,
    /// An instance of MIG has fewer multiprocessors than it says.
    pub(super) small_instance: bool,
    /// Requests take longer beside this neighbour, by this factor, whatever the way.
    pub(super) slow: Option<(Neighbour, f64)>,
    /// A fault ends every process.
    pub(super) faults: bool,
    /// A greedy process takes the memory that the other one needs.
    pub(super) starves: bool,
    /// It reaches its limit of power.
    pub(super) throttled: bool,
}

/// By which factor a request takes longer in a way than alone, on an honest GPU: a ceiling costs.
fn base(way: Way) -> f64 {
    match way {
        Way::Mps(_) | Way::MpsInMig => 1.15,
        _ => 1.0,
    }
}

/// By which factor more it takes beside a neighbour.
fn factor(way: Way, neighbour: Neighbour) -> f64 {
    match (way, neighbour) {
        (_, Neighbour::Idle | Neighbour::Greedy | Neighbour::Fault) => 1.0,
        (Way::TimeSlicing(_), Neighbour::HogSm) => 1.9,
        (Way::TimeSlicing(_), _) => 1.5,
        (Way::MpsFree, Neighbour::HogSm) => 1.95,
        (Way::MigHalves, Neighbour::HogPcie) => 1.3,
        (Way::MigHalves, _) => 1.02,
        (_, Neighbour::HogDram) => 1.6,
        (_, Neighbour::HogL2) => 1.3,
        _ => 1.05,
    }
}

pub(super) fn length() -> Length {
    Length {
        measure_s: 10,
        ..Length::FULL
    }
}

/// The setups of all ways on an H200.
pub(super) fn setups() -> Vec<Setup> {
    let h200 = sim::open("hgx-h200").unwrap();
    let uuid = h200.gpus[0].uuid.to_string();
    let all = Allowed {
        modes: true,
        layout: true,
    };
    let mig = described(&h200).0;
    let ways = ["solo", "ts2", "mps2", "mps-50-50", "mps-80-20", "mig-2", "mig-mps"];
    let one = |way: &str| setup(way.parse().unwrap(), &uuid, &h200, &mig, all).unwrap();
    ways.map(one).to_vec()
}

/// A run of every way beside every neighbour at half of the load.
pub(super) fn run(cheats: Cheats) -> Recorded {
    let setups = setups();
    let mut cells = Vec::new();
    for setup in &setups {
        for neighbour in Neighbour::ALL
            .iter()
            .filter(|one| setup.way != Way::Solo || **one == Neighbour::Idle)
        {
            let cell = Cell {
                way: setup.way,
                neighbour: *neighbour,
                load: 50,
            };
            cells.push((cell, measured(setup, *neighbour, cheats)));
        }
    }
    let sms = |setup: &Setup| {
        let one = |seat: &crate::way::Seat| {
            let all = seat.instance_sms.unwrap_or(SMS);
            let cap = seat.compute.map_or(100, |cap| cap.get());
            Some(
                match (cheats.ceiling, cheats.small_instance && seat.instance_sms.is_some()) {
                    (_, true) => all - 8,
                    (true, _) => all,
                    // MPS rounds down to pairs.
                    _ => all * cap / 200 * 2,
                },
            )
        };
        setup.seats.iter().map(one).collect()
    };
    let ways = setups.iter().map(|setup| RecordedWay {
        setup: setup.clone(),
        sms: sms(setup),
        context_ns: vec![181_000_000, 176_000_000, 190_000_000],
        mps_server_mib: setup.way.is_mps().then_some(28),
    });
    Recorded {
        program: "0.1.0".into(),
        date: "2026-11-28".into(),
        host: Host {
            machine: "simulated".into(),
            product: "NVIDIA H200".into(),
            driver: "570.124.06".into(),
            cuda: "12.8".into(),
            kernel: "6.12.57".into(),
            memory_mib: 143_771,
            sms: Some(SMS),
            compute_mode: Some("DEFAULT".into()),
            mig: Some(false),
        },
        length: length(),
        seed: 1,
        request_ns: REQUEST,
        alone: BTreeMap::new(),
        ways: ways.collect(),
        cells,
        refused: vec![RefusedWay {
            way: "ts2-short".parse().unwrap(),
            why: "changes the length of turns of the whole GPU, which --change-modes allows".into(),
        }],
        left_out: Vec::new(),
        leftovers: Vec::new(),
    }
}

pub(super) fn results(cheats: Cheats) -> Results {
    Results::new(run(cheats))
}

fn measured(setup: &Setup, neighbour: Neighbour, cheats: Cheats) -> Result<Vec<Measured>, String> {
    let window = length().window();
    let slow = cheats.slow.filter(|(beside, _)| *beside == neighbour);
    let by = base(setup.way) * factor(setup.way, neighbour).max(slow.map_or(1.0, |(_, by)| by));
    let one = |repeat: u64| {
        // Requests of one kind do not all take the same time.
        let time = |began: u64| (REQUEST as f64 * by * (1.0 + (began / 1000 % 40) as f64 / 1000.0)) as u64;
        let arrivals = arrivals(1 + repeat, mean_gap(REQUEST, 50), window.until).unwrap();
        let mut serve = crate::measured::tests::served(&arrivals, window.end, time);
        let beside = match neighbour {
            Neighbour::Idle => Vec::new(),
            Neighbour::Greedy => {
                if cheats.starves {
                    serve = vec![Event::Error {
                        at: 5_000_000_000,
                        call: "cuMemAlloc_v2".into(),
                        code: 2,
                        name: "CUDA_ERROR_OUT_OF_MEMORY".into(),
                    }];
                }
                let limit = setup.seats[1].memory.filter(|_| !cheats.memory);
                let bytes = limit.unwrap_or(MemorySize::from_mib(143_000)).bytes() / (2 << 20) * (2 << 20);
                vec![Event::Allocated { bytes, blocks: 7 }]
            }
            Neighbour::Fault => {
                if setup.way.is_mps() || cheats.faults {
                    serve = vec![Event::Error {
                        at: 5_012_000_000 + repeat * 1_000_000,
                        call: "cuStreamSynchronize".into(),
                        code: 715,
                        name: "CUDA_ERROR_ILLEGAL_INSTRUCTION".into(),
                    }];
                }
                vec![Event::Faulted {
                    at: 5_000_000_000,
                    code: 715,
                    name: "CUDA_ERROR_ILLEGAL_INSTRUCTION".into(),
                }]
            }
            _ => vec![Event::Finished {
                began: 0,
                done: window.end,
                units: 2000,
            }],
        };
        let sample = GpuClocks {
            sm_mhz: Some(1980),
            celsius: Some(61),
            slowed: Some(cheats.throttled.then_some(Slowed::Power).into_iter().collect()),
        };
        Measured::of(window, &arrivals, &serve, &beside, &[sample]).map_err(|error| error.to_string())
    };
    (0..u64::from(length().repeats)).map(one).collect()
}
