//! The ways of sharing a device that are compared, and what each needs: a policy, from which the planner makes the
//! shares, and perhaps a layout of MIG.

mod setup;

pub use setup::{Allowed, RefusedWay, Seat, Setup, setup, setups};

use std::fmt;
use tranche_core::error::Error;
use tranche_core::types::Interval;

/// A way in which two processes share a device. Its name does not change: files of results have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// One process has the device: what all others are compared with.
    Solo,
    /// Two processes take turns of this length.
    TimeSlicing(Interval),
    /// Two processes under MPS without limits.
    MpsFree,
    /// Two processes under MPS, each with a ceiling of compute and, if the driver can, a limit of memory.
    Mps(Split),
    /// An instance of MIG for each process, both of the same size.
    MigHalves,
    /// Two processes with equal ceilings under MPS, in one of two equal instances of MIG.
    MpsInMig,
}

/// How compute is split between two processes: percent of the first. The second has the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Split(u32);

impl Split {
    /// The split that gives the first process this percentage; `None` unless it is 1 to 99.
    pub fn new(first: u32) -> Option<Self> {
        (1..100).contains(&first).then_some(Self(first))
    }

    /// Percent of the first process.
    pub fn first(self) -> u32 {
        self.0
    }

    /// Percent of the second process.
    pub fn second(self) -> u32 {
        100 - self.0
    }
}

impl fmt::Display for Split {
    /// `80/20`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.first(), self.second()))
    }
}

impl Way {
    /// The ways that `tranche bench` compares, in the order in which it sets them up: MIG comes last, because a change
    /// of the layout takes longest.
    pub const ALL: [Self; 9] = [
        Self::Solo,
        Self::TimeSlicing(Interval::Default),
        Self::TimeSlicing(Interval::Short),
        Self::TimeSlicing(Interval::Long),
        Self::MpsFree,
        Self::Mps(Split(50)),
        Self::Mps(Split(80)),
        Self::MigHalves,
        Self::MpsInMig,
    ];

    /// Whether it needs instances of MIG.
    pub fn is_mig(self) -> bool {
        matches!(self, Self::MigHalves | Self::MpsInMig)
    }

    /// Whether it needs an MPS daemon.
    pub fn is_mps(self) -> bool {
        matches!(self, Self::MpsFree | Self::Mps(_) | Self::MpsInMig)
    }
}

impl fmt::Display for Way {
    /// `solo`, `ts2`, `ts2-short`, `mps2`, `mps-80-20`, `mig-2`, `mig-mps`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Solo => f.pad("solo"),
            Self::TimeSlicing(Interval::Default) => f.pad("ts2"),
            Self::TimeSlicing(interval) => f.pad(&format!("ts2-{interval}")),
            Self::MpsFree => f.pad("mps2"),
            Self::Mps(split) => f.pad(&format!("mps-{}-{}", split.first(), split.second())),
            Self::MigHalves => f.pad("mig-2"),
            Self::MpsInMig => f.pad("mig-mps"),
        }
    }
}

impl std::str::FromStr for Way {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let turns = Interval::ALL.iter().copied().map(Self::TimeSlicing);
        let splits = (1..100).filter_map(Split::new).map(Self::Mps);
        let mut all = Self::ALL.into_iter().chain(turns).chain(splits);
        all.find(|way| way.to_string() == text).ok_or_else(|| {
            let known: Vec<String> = Self::ALL.iter().map(Self::to_string).collect();
            Error::unknown(format!("way of sharing \"{text}\""), text, &known)
        })
    }
}
tranche_core::types::serde_as_text!(Way);

#[cfg(test)]
mod tests;
