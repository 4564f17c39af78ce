//! What is measured: cells of a way, a neighbour and a load; which of them a run has time for, and how long it takes.

use crate::schedule::Window;
use crate::way::Way;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

tranche_core::types::words! {
    /// What the second process of a cell does. The first one always serves.
    pub enum Neighbour: "neighbour" {
        /// Nothing: the share is free.
        Idle = "idle",
        /// Long kernels on all multiprocessors.
        HogSm = "hog-sm",
        /// Copies of more than the L2 cache.
        HogDram = "hog-dram",
        /// Allocates until it is refused.
        Greedy = "greedy",
        /// Copies that fill the L2 cache.
        HogL2 = "hog-l2",
        /// Copies from and to the memory of the host.
        HogPcie = "hog-pcie",
        /// Requests back to back.
        Batch = "batch",
        /// Ends by an illegal instruction or address.
        Fault = "fault",
    }
}
tranche_core::types::serde_as_text!(Neighbour);

/// One thing that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// How the device is shared.
    pub way: Way,
    /// What the second process does. It comes before the load, so that a fault is the last cell of its way: under MPS
    /// the daemon has to be started again afterwards.
    pub neighbour: Neighbour,
    /// How many requests the first process gets: percent of what it can serve when it has the device for itself.
    pub load: u32,
}

/// The loads, in percent.
pub const LOADS: [u32; 3] = [10, 50, 90];

impl Cell {
    /// Every cell of these ways, in the order of their importance. No way alone has a neighbour.
    fn all(ways: &[Way]) -> Vec<Self> {
        let mut cells = Vec::new();
        for way in ways {
            for neighbour in Neighbour::ALL
                .iter()
                .filter(|one| *way != Way::Solo || **one == Neighbour::Idle)
            {
                cells.extend(LOADS.map(|load| Self {
                    way: *way,
                    neighbour: *neighbour,
                    load,
                }));
            }
        }
        cells.sort_by_key(|cell| (cell.importance(), *cell));
        cells
    }

    /// A smaller number is measured before a larger one. What the verdicts need comes first, and a load comes after
    /// what it is compared with: the first process alone.
    fn importance(self) -> usize {
        const ORDER: [(Neighbour, u32); 13] = [
            (Neighbour::Idle, 50),
            (Neighbour::HogSm, 50),
            (Neighbour::HogDram, 50),
            (Neighbour::Greedy, 50),
            (Neighbour::Fault, 50),
            (Neighbour::HogL2, 50),
            (Neighbour::Idle, 90),
            (Neighbour::HogPcie, 50),
            (Neighbour::Batch, 50),
            (Neighbour::HogSm, 90),
            (Neighbour::HogDram, 90),
            (Neighbour::Idle, 10),
            (Neighbour::HogSm, 10),
        ];
        let at = ORDER.iter().position(|one| *one == (self.neighbour, self.load));
        at.unwrap_or(ORDER.len())
    }
}

impl fmt::Display for Cell {
    /// `mps-50-50 beside hog-dram`, with the load if it is not 50 %.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = match self.load {
            50 => String::new(),
            load => format!(" at {load} %"),
        };
        let neighbour = match self.way {
            Way::Solo => String::new(),
            _ => format!(" beside {}", self.neighbour),
        };
        f.pad(&format!("{}{neighbour}{load}", self.way))
    }
}

/// How thoroughly a run measures. All times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Length {
    /// How long a cell is measured each time.
    pub measure_s: u32,
    /// How long its processes run before that.
    pub warm_up_s: u32,
    /// How often it is measured.
    pub repeats: u32,
    /// How long the run may take in all.
    pub most_s: u32,
}

impl Length {
    /// At most five minutes. What it shows is indicative.
    pub const SHORT: Self = Self {
        measure_s: 10,
        warm_up_s: 1,
        repeats: 1,
        most_s: 300,
    };

    /// An hour; each cell is the median of three.
    pub const FULL: Self = Self {
        measure_s: 30,
        warm_up_s: 5,
        repeats: 3,
        most_s: 3600,
    };

    /// Whether its results are too few for others to rely on: a cell that is measured once has no spread.
    pub fn is_indicative(self) -> bool {
        self.repeats < Self::FULL.repeats || self.measure_s < Self::FULL.measure_s
    }

    /// Seconds for the start of two processes, and for requests that are served late, each time.
    const AROUND: u32 = 2;

    /// When a cell is measured.
    pub fn window(self) -> Window {
        Window::new(self.warm_up_s, self.measure_s)
    }

    fn seconds_of_cell(self) -> u32 {
        (self.measure_s + self.warm_up_s + Self::AROUND) * self.repeats
    }
}

/// Seconds for the calibration of the load, before the first way.
const CALIBRATION: u32 = 5;

/// Seconds until a way is set up, and its multiprocessors are counted.
fn seconds_of_setup(way: Way) -> u32 {
    match (way.is_mig(), way.is_mps()) {
        (true, _) => 20,
        (false, true) => 5,
        (false, false) => 2,
    }
}

/// The cells of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agenda {
    /// What is measured, in this order: the cells of a way follow each other.
    pub cells: Vec<Cell>,
    /// What is not, because the run would take too long.
    pub left_out: Vec<Cell>,
    /// How thoroughly.
    pub length: Length,
}

impl Agenda {
    /// The most important cells of `ways` that a run of this length has time for.
    pub fn new(ways: &[Way], length: Length) -> Self {
        let mut agenda = Self {
            cells: Vec::new(),
            left_out: Vec::new(),
            length,
        };
        for cell in Cell::all(ways) {
            agenda.cells.push(cell);
            // What is less important is not measured in place of it.
            if agenda.seconds() > length.most_s || !agenda.left_out.is_empty() {
                agenda.cells.pop();
                agenda.left_out.push(cell);
            }
        }
        agenda.cells.sort();
        agenda
    }

    /// How long the run takes, in seconds.
    pub fn seconds(&self) -> u32 {
        CALIBRATION + self.seconds_from(0)
    }

    /// How long the cells from this number on take, in seconds, with the setup of their ways.
    pub fn seconds_from(&self, cell: usize) -> u32 {
        let rest = self.cells.get(cell..).unwrap_or_default();
        let mut ways: Vec<Way> = rest.iter().map(|cell| cell.way).collect();
        // The first cell of the rest may be in the middle of its way.
        let before = cell.checked_sub(1).and_then(|at| self.cells.get(at));
        ways.sort();
        ways.dedup();
        ways.retain(|way| before.is_none_or(|before| before.way != *way));
        let cells = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let cells = cells.saturating_mul(self.length.seconds_of_cell());
        cells.saturating_add(ways.into_iter().map(seconds_of_setup).sum())
    }

    /// What a person reads before the run: how long it takes, and what it leaves out.
    pub fn text(&self) -> String {
        let Length { measure_s, repeats, .. } = self.length;
        let times = match repeats {
            1 => "once".to_owned(),
            repeats => format!("{repeats} times"),
        };
        let kind = match self.length.is_indicative() {
            true => "; the results are indicative",
            false => "",
        };
        let count = tranche_core::text::counted(self.cells.len(), "cell");
        let time = clock(u64::from(self.seconds()));
        let mut text = format!("{count} of {measure_s} s each, {times}: about {time}{kind}\n");
        let mut left_out: BTreeMap<(usize, Neighbour, u32), Vec<String>> = BTreeMap::new();
        for cell in &self.left_out {
            let ways = left_out.entry((cell.importance(), cell.neighbour, cell.load));
            ways.or_default().push(cell.way.to_string());
        }
        for ((_, neighbour, load), ways) in left_out {
            let ways = tranche_core::text::some(&ways);
            text.push_str(&format!("not measured: beside {neighbour} at {load} %: {ways}\n"));
        }
        text
    }
}

/// `0:41`, `12:05`, `1:02:03`
pub(crate) fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_mig() -> Vec<Way> {
        Way::ALL.into_iter().filter(|way| !way.is_mig()).collect()
    }

    #[test]
    fn a_short_run_takes_five_minutes_and_measures_what_verdicts_need() {
        let usual: Vec<Way> = ["solo", "ts2", "mps2", "mps-50-50", "mps-80-20"]
            .map(|way| way.parse().unwrap())
            .to_vec();
        let agenda = Agenda::new(&usual, Length::SHORT);
        assert!(agenda.seconds() <= 300 && agenda.length.is_indicative());
        for neighbour in ["idle", "hog-sm", "hog-dram", "greedy", "fault"] {
            for way in &usual[1..] {
                let neighbour = neighbour.parse().unwrap();
                let cell = Cell {
                    way: *way,
                    neighbour,
                    load: 50,
                };
                assert!(agenda.cells.contains(&cell), "{cell}");
            }
        }
        let text = agenda.text();
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(
            first,
            "21 cells of 10 s each, once: about 4:57; the results are indicative"
        );
        assert!(
            rest.starts_with("not measured: beside hog-l2 at 50 %: ts2, mps2, mps-50-50, mps-80-20\n"),
            "{rest}"
        );
        assert!(
            rest.contains("not measured: beside idle at 90 %: solo, ts2, mps2, mps-50-50, mps-80-20\n"),
            "{rest}"
        );
    }

    #[test]
    fn nothing_is_measured_twice_or_forgotten() {
        for ways in [Way::ALL.to_vec(), without_mig(), vec![Way::Solo], Vec::new()] {
            for length in [
                Length::SHORT,
                Length::FULL,
                Length {
                    most_s: u32::MAX,
                    ..Length::FULL
                },
            ] {
                let agenda = Agenda::new(&ways, length);
                assert!(agenda.seconds() <= length.most_s);
                let mut all = [agenda.cells.clone(), agenda.left_out.clone()].concat();
                all.sort();
                all.dedup();
                assert_eq!(all.len(), Cell::all(&ways).len());
                assert!(agenda.cells.is_sorted(), "the cells of a way follow each other");
                // What a cell is compared with is measured.
                for cell in &agenda.cells {
                    let alone = Cell {
                        way: Way::Solo,
                        neighbour: Neighbour::Idle,
                        load: cell.load,
                    };
                    assert!(!ways.contains(&Way::Solo) || agenda.cells.contains(&alone), "{cell}");
                }
                if length.most_s == u32::MAX {
                    assert_eq!(agenda.left_out, []);
                }
            }
        }
    }

    #[test]
    fn an_hour_is_enough_for_the_first_matrix() {
        let ways: Vec<Way> = ["solo", "ts2", "mps2", "mps-50-50", "mps-80-20", "mig-2", "mig-mps"]
            .map(|way| way.parse().unwrap())
            .to_vec();
        let agenda = Agenda::new(&ways, Length::FULL);
        for neighbour in [Neighbour::Idle, Neighbour::HogSm, Neighbour::HogDram, Neighbour::Greedy] {
            for way in &ways[1..] {
                assert!(
                    agenda.cells.contains(&Cell {
                        way: *way,
                        neighbour,
                        load: 50
                    }),
                    "{way} {neighbour}"
                );
            }
        }
        assert!(!agenda.length.is_indicative());
    }

    #[test]
    fn the_time_that_is_left_only_falls() {
        let agenda = Agenda::new(&Way::ALL, Length::FULL);
        let left: Vec<u32> = (0..=agenda.cells.len()).map(|at| agenda.seconds_from(at)).collect();
        assert!(left.windows(2).all(|two| two[0] > two[1]), "{left:?}");
        assert_eq!(left.last(), Some(&0));
        assert_eq!(agenda.seconds(), left[0] + CALIBRATION);
    }
}
