//! How much of a device was promised, and whether promises fit a device together.

use super::{MemorySize, Percent, Strategy, decimal};
use std::fmt;

/// How much of a device a holder was promised. Each claim records it, so that no later policy changes it.
///
/// As text, in hooks' arguments and in records: `whole`, `3/10`, `mps:7000:30` (MiB and percent, `-` for no limit),
/// `turns:4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Promise {
    /// All of it, and nobody else has any of it.
    Whole,
    /// So many of the equal slices of time that the device was split into.
    Slices {
        /// How many.
        slices: u32,
        /// Of how many.
        of: u32,
    },
    /// The whole device for a time, again and again.
    Turns {
        /// How many holders there are at most.
        holders: u32,
    },
    /// Limits that an MPS daemon sets.
    Mps {
        /// Memory, in whole MiB; `None` where it has no limit.
        memory: Option<MemorySize>,
        /// The device's compute; `None` where it has no limit.
        compute: Option<Percent>,
    },
}

impl Promise {
    /// The strategy.
    pub fn strategy(&self) -> Strategy {
        match self {
            Promise::Whole => Strategy::Dedicated,
            Promise::Slices { .. } => Strategy::TimeSlicing,
            Promise::Turns { .. } => Strategy::Turns,
            Promise::Mps { .. } => Strategy::Mps,
        }
    }

    /// The memory, where it has a limit.
    pub fn memory(&self) -> Option<MemorySize> {
        match self {
            Promise::Mps { memory, .. } => *memory,
            Promise::Whole | Promise::Slices { .. } | Promise::Turns { .. } => None,
        }
    }

    /// The device's compute, where it has a limit.
    pub fn compute(&self) -> Option<Percent> {
        match self {
            Promise::Mps { compute, .. } => *compute,
            Promise::Whole | Promise::Slices { .. } | Promise::Turns { .. } => None,
        }
    }

    /// So many of it together, where a larger sum than the type holds is as good as the largest.
    pub fn times(self, number: usize) -> Promise {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        match self {
            Promise::Whole => Promise::Whole,
            Promise::Turns { holders } => Promise::Turns { holders },
            Promise::Slices { slices, of } => Promise::Slices {
                slices: slices.saturating_mul(number),
                of,
            },
            Promise::Mps { memory, compute } => Promise::Mps {
                memory: memory.map(|size| MemorySize::from_mib(size.mib().saturating_mul(number.into()))),
                compute: compute.map(|percent| Percent::of_sum(percent.get().saturating_mul(number))),
            },
        }
    }

    /// Both together. `None` where they do not add up: two strategies, slices of two sizes, a limit and none, a sum
    /// that no number holds, the whole device twice.
    pub fn and(self, other: Promise) -> Option<Promise> {
        fn both<T>(a: Option<T>, b: Option<T>, add: fn(T, T) -> Option<T>) -> Option<Option<T>> {
            match (a, b) {
                (Some(a), Some(b)) => add(a, b).map(Some),
                (None, None) => Some(None),
                _ => None,
            }
        }
        match (self, other) {
            (Promise::Slices { slices: a, of }, Promise::Slices { slices: b, of: same }) if of == same => {
                let slices = a.checked_add(b)?;
                Some(Promise::Slices { slices, of })
            }
            (
                Promise::Mps { memory, compute },
                Promise::Mps {
                    memory: more,
                    compute: faster,
                },
            ) => Some(Promise::Mps {
                memory: both(memory, more, MemorySize::checked_add)?,
                compute: both(compute, faster, Percent::checked_add)?,
            }),
            (Promise::Whole | Promise::Slices { .. } | Promise::Turns { .. } | Promise::Mps { .. }, _) => None,
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Promise::Whole => f.write_str("whole"),
            Promise::Slices { slices, of } => write!(f, "{slices}/{of}"),
            Promise::Turns { holders } => write!(f, "turns:{holders}"),
            Promise::Mps { memory, compute } => {
                let (memory, compute) = (memory.map(MemorySize::mib), compute.map(Percent::get));
                write!(f, "mps:{}:{}", or_dash(memory), or_dash(compute))
            }
        }
    }
}

super::parsed_type!(Promise, parse, "not a size of a share like 1/10 or mps:7000:30");

fn parse(text: &str) -> Option<Promise> {
    if text == "whole" {
        return Some(Promise::Whole);
    }
    if let Some(limits) = text.strip_prefix("mps:") {
        let (memory, compute) = limits.split_once(':')?;
        return Some(Promise::Mps {
            memory: or_none(memory, mib)?,
            compute: or_none(compute, percent)?,
        });
    }
    if let Some(holders) = text.strip_prefix("turns:") {
        let holders = decimal(holders).filter(|holders| *holders > 0)?;
        return Some(Promise::Turns { holders });
    }
    let (slices, of) = text.split_once('/')?;
    let (slices, of) = (decimal(slices)?, decimal(of)?);
    (1 <= slices && slices <= of).then_some(Promise::Slices { slices, of })
}

/// The text of a limit: a number, or `-` for no limit.
fn or_dash(limit: Option<impl fmt::Display>) -> String {
    limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string())
}

/// The reverse of [`or_dash`].
fn or_none<T>(text: &str, read: fn(&str) -> Option<T>) -> Option<Option<T>> {
    match text {
        "-" => Some(None),
        text => read(text).map(Some),
    }
}

fn mib(text: &str) -> Option<MemorySize> {
    decimal(text).and_then(MemorySize::checked_mib)
}

fn percent(text: &str) -> Option<Percent> {
    decimal(text).map(Percent::of_sum)
}

/// The most that may be promised of a device to all holders together: its capacity times the overcommit that the
/// asking policy allows.
///
/// As text, in hooks' arguments: `81559:100` (MiB and percent, `-` where the capacity is unknown).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Memory, in whole MiB; `None` where the driver does not say how much there is.
    pub memory: Option<MemorySize>,
    /// The device's compute: 100 %, or more with overcommit.
    pub compute: Percent,
}

impl Default for Bounds {
    /// A device of unknown memory, without overcommit.
    fn default() -> Self {
        Self {
            memory: None,
            compute: Percent::ALL,
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}",
            or_dash(self.memory.map(MemorySize::mib)),
            self.compute.get()
        )
    }
}

fn parse_bounds(text: &str) -> Option<Bounds> {
    let (memory, compute) = text.split_once(':')?;
    Some(Bounds {
        memory: or_none(memory, mib)?,
        compute: percent(compute)?,
    })
}

super::parsed_type!(Bounds, parse_bounds, "not a capacity like 81559:100");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_promise_are_one() {
        for text in [
            "whole",
            "1/10",
            "10/10",
            "mps:7000:30",
            "mps:-:30",
            "mps:1:-",
            "mps:-:-",
            "turns:4",
        ] {
            assert_eq!(text.parse::<Promise>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "0/10",
            "11/10",
            "1/",
            "/1",
            "-/1",
            "mps:",
            "mps:1",
            "mps:1:2:3",
            "mps:+1:2",
            "mps:1:4294967296",
            "mps:17592186044416:1",
            "turns:0",
            "turns:",
        ] {
            assert!(bad.parse::<Promise>().is_err(), "{bad}");
        }
        for text in ["81559:100", "-:150"] {
            assert_eq!(text.parse::<Bounds>().unwrap().to_string(), text);
        }
        for bad in ["", "1", "1:", "1:-", ":1", "1:2:3"] {
            assert!(bad.parse::<Bounds>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_limit_of_mps_is_an_amount_of_memory() {
        let memory = |text: &str| text.parse::<Promise>().unwrap().memory();
        assert_eq!(memory("mps:7000:30"), Some(MemorySize::from_mib(7000)));
        assert_eq!(memory("mps:-:30"), None);
        assert_eq!(memory("whole"), None);
    }

    #[test]
    fn sums() {
        let sum = |a: &str, b: &str| {
            let sum = a.parse::<Promise>().unwrap().and(b.parse().unwrap());
            sum.map_or_else(|| "none".to_owned(), |sum| sum.to_string())
        };
        assert_eq!(sum("1/10", "2/10"), "3/10");
        assert_eq!(sum("1/10", "1/4"), "none");
        assert_eq!(sum("mps:7000:10", "mps:3:20"), "mps:7003:30");
        assert_eq!(sum("mps:-:10", "mps:-:20"), "mps:-:30");
        assert_eq!(sum("mps:1:10", "mps:-:20"), "none");
        assert_eq!(sum("mps:17592186044415:1", "mps:1:1"), "none");
        assert_eq!(sum("mps:1:4294967295", "mps:1:1"), "none");
        assert_eq!(sum("mps:1:1", "1/10"), "none");
        assert_eq!(sum("whole", "whole"), "none");
        assert_eq!(sum("turns:4", "turns:4"), "none");
    }
}
