//! What the plan promised of a share, beside what was measured.

use crate::cell::Neighbour;
use crate::measured::Figures;
use crate::statistics::Spread;
use crate::way::Seat;
use serde::{Deserialize, Serialize};
use std::fmt;
use tranche_core::types::MemorySize;
use tranche_plan::share::{Dimension, Grade};

tranche_core::types::words! {
    /// What became of a guarantee.
    pub enum Outcome: "outcome" {
        /// It held.
        Held = "held",
        /// It did not.
        NotHeld = "not held",
        /// The cells that would show it were not measured.
        NotMeasured = "not measured",
        /// The plan promises nothing. What was measured is said nevertheless.
        NotPromised = "nothing promised",
    }
}
tranche_core::types::serde_as_text!(Outcome);

/// One guarantee of a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// What it is about.
    pub of: Dimension,
    /// How well it holds against a container whose user is not root on the host, as the plan says.
    pub promised: Grade,
    /// What became of it.
    pub outcome: Outcome,
    /// What was seen; empty if nothing was.
    pub figure: String,
}

impl fmt::Display for Verdict {
    /// `compute: soft, held: cap 50 %, seen 66 of 132 SMs, p99 1.30x beside hog-sm`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.of, self.promised, self.outcome)?;
        match self.figure.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.figure),
        }
    }
}

/// The most by which a figure of a process may grow beside a neighbour whose guarantee against it is hard. Clocks
/// fall a little when more of the GPU works.
const MOST_OF_HARD: f64 = 1.25;

/// The same where it is soft or advisory: a ceiling is no reservation.
const MOST_OF_SOFT: f64 = 2.0;

/// Multiprocessors above its ceiling that a process may see: MPS rounds to pairs.
const ROUNDED: u32 = 2;

/// What was seen of a share.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The share.
    pub seat: &'a Seat,
    /// That of the neighbour.
    pub neighbour: &'a Seat,
    /// Whether the share is that of the process that serves: the latencies are of its requests.
    pub is_first: bool,
    /// Multiprocessors of the whole device, if they are known.
    pub device_sms: Option<u32>,
    /// Multiprocessors that a process in the share reached.
    pub sms: Option<u32>,
    /// The cells of its way.
    pub cells: &'a [Figures],
}

/// What became of the four guarantees of a share.
pub fn verdicts(seen: Seen<'_>) -> Vec<Verdict> {
    Dimension::ALL
        .iter()
        .map(|dimension| seen.verdict(*dimension))
        .collect()
}

/// One thing that was seen: whether the guarantee allows it, and the figure.
type Sign = (bool, String);

impl<'s> Seen<'s> {
    fn verdict(self, of: Dimension) -> Verdict {
        let promised = self.seat.guarantees.of(of).grade;
        // A guarantee holds if each of its signs was seen, and is good.
        let signs = match of {
            Dimension::Memory => vec![self.memory()],
            Dimension::Compute if self.is_first => {
                let growth = self.growth(promised, "p99", &[Neighbour::HogSm], |cell| cell.growth_p99);
                vec![self.multiprocessors(), growth]
            }
            Dimension::Compute => vec![self.multiprocessors()],
            // The neighbour of the second process does not copy, and has no fault.
            Dimension::Bandwidth | Dimension::Faults if !self.is_first => vec![None],
            Dimension::Bandwidth => {
                let neighbours = [Neighbour::HogDram, Neighbour::HogL2];
                vec![self.growth(promised, "requests", &neighbours, |cell| cell.growth_service)]
            }
            Dimension::Faults => vec![self.faults()],
        };
        let outcome = match promised {
            Grade::None => Outcome::NotPromised,
            _ if signs.iter().flatten().any(|(is_good, _)| !is_good) => Outcome::NotHeld,
            _ if signs.iter().any(Option::is_none) => Outcome::NotMeasured,
            _ => Outcome::Held,
        };
        let figures: Vec<String> = signs.into_iter().flatten().map(|(_, figure)| figure).collect();
        Verdict {
            of,
            promised,
            outcome,
            figure: figures.join(", "),
        }
    }

    /// The cell beside this neighbour. Verdicts are about half of the load.
    fn beside(self, neighbour: Neighbour) -> Option<&'s Figures> {
        let mut cells = self.cells.iter();
        cells.find(|one| one.cell.neighbour == neighbour && one.cell.load == 50)
    }

    /// A greedy process gets no more than its limit, and the other one goes on. It ran in the neighbour's share, so the
    /// limit is that of the neighbour for both.
    fn memory(self) -> Option<Sign> {
        let cell = self.beside(Neighbour::Greedy)?;
        if let Some(error) = &cell.error {
            return Some((false, format!("ended beside greedy: {error}")));
        }
        let got = MemorySize::from_bytes(cell.allocated?);
        let greedy = match self.is_first {
            true => self.neighbour,
            false => self.seat,
        };
        Some(match greedy.memory {
            Some(limit) => (got <= limit, format!("greedy got {got} of {limit}{}", marks(cell))),
            None => (true, format!("no limit, greedy got {got}{}", marks(cell))),
        })
    }

    /// A process reaches the multiprocessors of its ceiling, or exactly those of its instance.
    fn multiprocessors(self) -> Option<Sign> {
        let (seen, all) = (self.sms?, self.seat.instance_sms.or(self.device_sms)?);
        let of = format!("seen {seen} of {all} SMs");
        Some(match self.seat.compute.map_or(100, |compute| compute.get()) {
            100 if self.seat.instance_sms.is_some() => (seen == all, of),
            100 => (true, of),
            cap => (
                (seen <= (all * cap).div_ceil(100) + ROUNDED),
                format!("cap {cap} %, {of}"),
            ),
        })
    }

    /// How much a figure of the first process grows beside the worst of some neighbours. The first of them has to be
    /// measured.
    fn growth(
        self,
        promised: Grade,
        name: &str,
        neighbours: &[Neighbour],
        of: fn(&Figures) -> Option<Spread>,
    ) -> Option<Sign> {
        let growth = |neighbour: &Neighbour| {
            let cell = self.beside(*neighbour)?;
            Some((of(cell)?, cell))
        };
        growth(neighbours.first()?)?;
        let measured = neighbours.iter().filter_map(growth);
        let (factor, cell) = measured.max_by(|(a, _), (b, _)| a.median.total_cmp(&b.median))?;
        let most = match promised {
            Grade::Hard => MOST_OF_HARD,
            _ => MOST_OF_SOFT,
        };
        let [least, median, greatest] = [factor.least, factor.median, factor.most].map(|one| format!("{one:.2}"));
        let spread = match least == greatest {
            true => String::new(),
            false => format!(" ({least}-{greatest})"),
        };
        let (beside, marks) = (cell.cell.neighbour, marks(cell));
        let figure = format!("{name} {median}x{spread} beside {beside}{marks}");
        Some((factor.median <= most, figure))
    }

    /// A process goes on after the fault of its neighbour.
    fn faults(self) -> Option<Sign> {
        let cell = self.beside(Neighbour::Fault).filter(|cell| cell.has_faulted)?;
        Some(match cell.died_after_ms {
            Some(after) => (
                false,
                format!("ended {:.1} ms after the neighbour's fault", after.median),
            ),
            None => (cell.error.is_none(), "went on after the neighbour's fault".to_owned()),
        })
    }
}

/// What to know about the cell of a figure.
fn marks(cell: &Figures) -> &'static str {
    match cell.clocks.throttled.is_empty() {
        true => "",
        false => ", throttled",
    }
}
