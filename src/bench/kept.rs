//! What runs of `tranche bench` on this machine have found, kept beside the machine's other state, and which of it says
//! something of a device as it is shared now: the same device, the same driver, the same way of sharing, and about the
//! same split.

use crate::results::{Results, ShareResult};
use crate::verdict::{Outcome, Verdict};
use crate::way::Way;
use serde::{Deserialize, Serialize};
use std::fmt;
use tranche_core::error::{Context, Error, Result};
use tranche_core::sealed;
use tranche_core::types::{DeviceKey, Interval};
use tranche_plan::share::{Dimension, Grade, Method, Share, SplitDevice};

/// The version of the file's form.
const VERSION: u32 = 1;

/// The most bytes of a file: that of a GPU with all ways has 20,000.
pub const MOST_BYTES: u64 = 1 << 20;

/// How far a split may be from the one that was measured, in percentage points of compute.
const SAME_SPLIT: u32 = 5;

/// What is kept of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    version: u32,
    /// The device.
    pub device: DeviceKey,
    /// Each way of sharing as it was measured last.
    pub ways: Vec<KeptWay>,
}

/// A way of sharing, as it was measured last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptWay {
    /// The day, as 2026-11-28.
    pub date: String,
    /// The product, with the profile of an instance of MIG: another instance may have the same key later.
    pub product: String,
    /// The version of the driver.
    pub driver: String,
    /// Whether the run was too short for others to rely on.
    pub indicative: bool,
    /// The way.
    pub way: Way,
    /// Its shares, and what became of their guarantees.
    pub shares: Vec<ShareResult>,
}

impl Kept {
    /// What is kept of `device` after a run. `before` is what was kept until then: the run may have measured only some
    /// ways.
    pub fn new(device: &DeviceKey, results: &Results, before: Option<Self>) -> Self {
        let before = before.filter(|before| before.device == *device);
        let mut ways = before.map(|before| before.ways).unwrap_or_default();
        for one in &results.ways {
            let mut verdicts = one.shares.iter().flat_map(|share| &share.verdicts);
            // A process alone has nobody to be kept from, and a cell that failed says nothing.
            if verdicts.all(|verdict| verdict.figure.is_empty()) {
                continue;
            }
            ways.retain(|kept| kept.way != one.way);
            ways.push(KeptWay {
                date: results.date.clone(),
                product: results.host.product.clone(),
                driver: results.host.driver.clone(),
                indicative: results.indicative,
                way: one.way,
                shares: one.shares.clone(),
            });
        }
        Self {
            version: VERSION,
            device: device.clone(),
            ways,
        }
    }

    /// The name of the file of a device.
    pub fn file_name(device: &DeviceKey) -> String {
        format!("{}.json", device.to_string().replace('/', "-"))
    }

    /// The text of the file, with a checksum.
    ///
    /// # Errors
    /// Returns an error if it cannot be written as JSON, or if it has more than [`MOST_BYTES`].
    pub fn text(&self) -> Result<String> {
        let text = serde_json::to_string(self).about("results", "cannot be written as JSON")?;
        let text = format!("{}\n", sealed::seal(&text));
        match text.len() as u64 > MOST_BYTES {
            true => Err(Error::failed("results", format!("have more than {MOST_BYTES} bytes"))),
            false => Ok(text),
        }
    }

    /// Reads the content of the file of `device`, which messages call `file`.
    ///
    /// # Errors
    /// Returns an error if it is damaged, or was written by a newer tranche.
    pub fn read(file: &str, device: &DeviceKey, bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let unusable = |what: &str| Error::failed(file, what).hint("remove it; the next tranche bench writes it anew");
        let Versioned { version } = sealed::parse(bytes).map_err(|error| unusable("is damaged").from_source(error))?;
        if version != VERSION {
            return Err(unusable("was written by a newer tranche"));
        }
        let kept: Self = sealed::parse(bytes).map_err(|error| unusable("is damaged").from_source(error))?;
        match kept.device == *device {
            true => Ok(kept),
            false => Err(unusable("is of another device")),
        }
    }
}

/// What was measured on this machine of a device as it is shared now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MeasuredHere {
    /// The device: `gpu 0`.
    pub device: String,
    /// Its key in the ledger.
    pub key: DeviceKey,
    /// What was measured; `None` if nothing was.
    pub measured: Option<Measurement>,
    /// Why what was measured says nothing of the shares of now; `None` if it does, or if nothing was measured.
    pub why_not: Option<String>,
    /// The command that measures shares like these; `None` if tranche bench cannot, or if they were measured.
    pub command: Option<String>,
}

/// A measurement that says something of the shares of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Measurement {
    /// The day, as 2026-11-28.
    pub date: String,
    /// The way that was measured.
    pub way: Way,
    /// Whether the run was too short for others to rely on.
    pub indicative: bool,
    /// What became of each guarantee: of two shares, what is worse.
    pub guarantees: Vec<Verdict>,
}

impl MeasuredHere {
    /// What `kept` says of `split`, a device of the present plan, under the driver of this version. `None` for a device
    /// that stays whole: its holder has nobody to be kept from.
    pub fn new(split: &SplitDevice, driver: &str, kept: Option<&Kept>) -> Option<Self> {
        let ways = match kept {
            _ if split.method.is_whole() => return None,
            Some(kept) if kept.device == split.key => kept.ways.as_slice(),
            _ => &[],
        };
        let pair = pair(split);
        let fits = |way: Way| pair.is_some_and(|pair| is_way(split, pair, way));
        let can_fit = Way::ALL.iter().copied().any(fits);
        let is_measured = |one: &&KeptWay| fits(one.way) && pair.is_some_and(|pair| limits_alike(split, pair, one));
        let found = ways.iter().find(is_measured);
        let why_not = match found {
            None if !can_fit => Some("tranche bench has no such way of sharing".to_owned()),
            None if ways.is_empty() => None,
            None => {
                let names: Vec<String> = ways.iter().map(|one| one.way.to_string()).collect();
                Some(format!("measured as {} only", names.join(", ")))
            }
            Some(one) if one.driver != driver => Some(format!("measured with driver {}", one.driver)),
            Some(one) if !is_same_profile(split, one) => Some(format!("measured as {}", one.product)),
            Some(_) => None,
        };
        let counts = found.filter(|_| why_not.is_none());
        let measured = counts.zip(pair).map(|(one, pair)| Measurement::new(one, pair));
        Some(Self {
            device: split.device.to_string(),
            key: split.key.clone(),
            command: (measured.is_none() && can_fit).then(|| command(split)),
            measured,
            why_not,
        })
    }

    /// The guarantees that did not hold, in one line; `None` if all that was measured did.
    pub fn not_held(&self) -> Option<String> {
        let measured = self.measured.as_ref()?;
        let is_not = |one: &&Verdict| one.outcome == Outcome::NotHeld;
        let broken: Vec<String> = measured.guarantees.iter().filter(is_not).map(said).collect();
        let line = || {
            format!(
                "{}: measured here {}: {}",
                self.device,
                measured.date,
                broken.join(", ")
            )
        };
        (!broken.is_empty()).then(line)
    }
}

impl fmt::Display for MeasuredHere {
    /// `measured here 2026-11-28: memory held (…), faults: ended 5.0 ms after the neighbour's fault`, or `not measured
    /// here: measured with driver 550.1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.measured, &self.why_not) {
            (Some(measured), _) => measured.fmt(f),
            (None, Some(why)) => write!(f, "not measured here: {why}"),
            (None, None) => f.write_str("not measured here"),
        }
    }
}

impl Measurement {
    fn new(kept: &KeptWay, pair: [&Share; 2]) -> Self {
        let guarantees = Dimension::ALL.iter().map(|of| {
            let shares = pair.iter().zip(&kept.shares);
            let verdicts = shares.map(|(share, kept)| verdict(share, kept, *of));
            // Those of the first process come first, and it is the one that is measured.
            let worst = verdicts.rev().max_by_key(weight);
            worst.unwrap_or_else(|| Verdict {
                of: *of,
                promised: pair[0].guarantees.of(*of).grade,
                outcome: Outcome::NotMeasured,
                figure: String::new(),
            })
        });
        Self {
            date: kept.date.clone(),
            way: kept.way,
            indicative: kept.indicative,
            guarantees: guarantees.collect(),
        }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |outcome| move |one: &&Verdict| one.outcome == outcome;
        let is_said = |one: &&Verdict| !of(Outcome::NotMeasured)(one) && !said(one).is_empty();
        let indicative = if self.indicative { " (indicative)" } else { "" };
        let lines: Vec<String> = self.guarantees.iter().filter(is_said).map(said).collect();
        write!(f, "measured here {}{indicative}: {}", self.date, lines.join(", "))?;
        let open = self.guarantees.iter().filter(of(Outcome::NotMeasured));
        let open: Vec<&str> = open.map(|one| one.of.as_str()).collect();
        match open.is_empty() {
            true => Ok(()),
            false => write!(f, "; not measured: {}", open.join(", ")),
        }
    }
}

/// `compute held (p99 1.10x beside hog-sm)`; empty for what is not promised and was not measured.
fn said(verdict: &Verdict) -> String {
    let Verdict {
        of, outcome, figure, ..
    } = verdict;
    match (outcome, figure.is_empty()) {
        (Outcome::NotPromised, true) => String::new(),
        (Outcome::NotPromised, false) => format!("{of}: {figure}"),
        (_, true) => format!("{of} {outcome}"),
        (_, false) => format!("{of} {outcome} ({figure})"),
    }
}

/// How much a verdict counts beside that of the other share.
fn weight(verdict: &Verdict) -> u32 {
    match verdict.outcome {
        Outcome::NotHeld => 4,
        Outcome::Held => 3,
        Outcome::NotMeasured => 2,
        Outcome::NotPromised if !verdict.figure.is_empty() => 1,
        Outcome::NotPromised => 0,
    }
}

/// What was measured of one guarantee of a share. A promise of another kind, such as that of another limit of memory,
/// was not measured.
fn verdict(share: &Share, kept: &ShareResult, of: Dimension) -> Verdict {
    let promised = share.guarantees.of(of).grade;
    let found = kept.verdicts.iter().find(|one| one.of == of);
    let found = found.filter(|one| is_like(one.promised, promised));
    Verdict {
        of,
        promised,
        outcome: found.map_or(Outcome::NotMeasured, |one| one.outcome),
        figure: found.map(|one| one.figure.clone()).unwrap_or_default(),
    }
}

/// Whether the same was measured for both grades. A limit of MPS is soft in EXCLUSIVE_PROCESS and advisory without that
/// mode, which only keeps a program from leaving MPS: no program of a run does.
fn is_like(one: Grade, other: Grade) -> bool {
    let has_ceiling = |grade| matches!(grade, Grade::Soft | Grade::Advisory);
    one == other || has_ceiling(one) && has_ceiling(other)
}

/// The two shares of a device, the larger one first; `None` if it has another number of them.
fn pair(split: &SplitDevice) -> Option<[&Share; 2]> {
    let mut shares = split.shares.names().take(3).map(|name| split.share(&name));
    let pair = [shares.next()??, shares.next()??];
    if shares.next().is_some() {
        return None;
    }
    let [first, second] = pair;
    Some(match first.compute < second.compute {
        true => [second, first],
        false => pair,
    })
}

/// Whether an instance of MIG has the profile of the one that was measured. Both products end with it.
fn is_same_profile(split: &SplitDevice, kept: &KeptWay) -> bool {
    let profile = |product: &str| product.split(' ').next_back().map(str::to_owned);
    split.key.is_whole() || profile(&split.product) == profile(&kept.product)
}

/// The command that measures a device.
fn command(split: &SplitDevice) -> String {
    let options = match split.method {
        Method::TimeSlicing(turns) if turns.interval != Interval::Default => " --change-modes",
        _ => "",
    };
    format!("tranche bench {}{options}", split.device.cdi_name())
}

/// Whether two shares are shared in this way, with about its split.
fn is_way(split: &SplitDevice, pair: [&Share; 2], way: Way) -> bool {
    let compute = pair.map(|share| share.compute.map(|percent| percent.get()));
    match (split.method, way, compute) {
        (Method::TimeSlicing(turns), Way::TimeSlicing(measured), _) => turns.interval == measured,
        (Method::Mps(_), Way::MpsFree, [None, None]) => true,
        (Method::Mps(_), Way::Mps(measured), [Some(first), Some(second)]) => {
            let off = [first.abs_diff(measured.first()), second.abs_diff(measured.second())];
            off.iter().all(|points| *points <= SAME_SPLIT)
        }
        _ => false,
    }
}

/// Whether two shares have a limit of memory where those that were measured had one.
fn limits_alike(split: &SplitDevice, pair: [&Share; 2], kept: &KeptWay) -> bool {
    // A size under time-slicing is counted in the ledger only. An instance of MIG is a limit itself.
    let is_limited = |share: &Share| share.memory.is_some() || !split.key.is_whole();
    let mut both = pair.iter().zip(&kept.shares);
    matches!(split.method, Method::TimeSlicing(_))
        || both.all(|(share, kept)| is_limited(share) == kept.memory_mib.is_some())
}
