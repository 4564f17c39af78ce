//! Layouts as a person writes them: which GPUs are to have which instances.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use tranche_core::error::Error;
use tranche_core::types::{DeviceSelector, MigProfile, decimal};

/// What some GPUs are to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Which GPUs.
    pub gpus: GpuSelector,
    /// What each of them is to have.
    pub wish: GpuWish,
}

/// Which GPUs are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuSelector {
    /// Each GPU that has MIG.
    All,
    /// This one.
    One(DeviceSelector),
    /// Those of mig-parted's form.
    MigParted(MigPartedSelector),
}

/// How mig-parted selects GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigPartedSelector {
    /// Positions in the order of PCI addresses; `None`: all.
    pub indices: Option<Vec<i64>>,
    /// PCI device and vendor, and those of the subsystem where they count; empty: any.
    pub models: Vec<PciModel>,
}

/// `0x20B010DE`, `0x20B010DE:0x134F10DE`: a model of GPU, as NVML writes PCI ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciModel {
    /// Device in the upper 16 bits, vendor in the lower.
    pub device: u32,
    /// The same of the subsystem.
    pub subsystem: Option<u32>,
}

/// What a GPU is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuWish {
    /// No MIG mode.
    Off,
    /// MIG mode, and exactly these instances: how many of each.
    Instances(BTreeMap<WishedInstance, u32>),
}

/// An instance in a layout.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WishedInstance {
    /// Its profile, perhaps of a compute instance in it: `1c.3g.20gb`.
    pub profile: MigProfile,
    /// Its first unit of memory; `None`: anywhere.
    pub start: Option<u32>,
}

impl GpuWish {
    /// Whether it is for the same instances, wherever they lie.
    pub fn is_alike(&self, other: &Self) -> bool {
        let counts = |wish: &Self| -> Option<BTreeMap<MigProfile, u32>> {
            let Self::Instances(instances) = wish else {
                return None;
            };
            let mut counts = BTreeMap::new();
            for (one, count) in instances {
                *counts.entry(one.profile.clone()).or_insert(0) += count;
            }
            Some(counts)
        };
        counts(self) == counts(other)
    }

    /// Nothing but MIG mode.
    pub fn empty() -> Self {
        Self::Instances(BTreeMap::new())
    }
}

impl FromStr for Layout {
    type Err = Error;

    /// `0:3g.20gb,2g.10gb,1g.5gb`, `all:7x1g.5gb`, `GPU-…:3g.20gb@4`, `0:2x1c.3g.20gb` (two compute instances in a GPU
    /// instance), `0:0c.3g.20gb` (a GPU instance without one), `0:empty` (MIG mode without instances), `0:off`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = |why: String| {
            Error::usage(format!("layout {text}"), why)
                .hint("expected GPU:PROFILE,…, for example 0:3g.20gb,2g.10gb,2x1g.5gb, or GPU:empty, or GPU:off")
        };
        let (gpus, wish) = text
            .rsplit_once(':')
            .ok_or_else(|| invalid("has no colon after the GPU".to_owned()))?;
        let gpus = match gpus {
            "all" => GpuSelector::All,
            gpu => GpuSelector::One(gpu.parse().map_err(|error: Error| invalid(error.to_string()))?),
        };
        if let GpuSelector::One(DeviceSelector::MigUuid(_)) = gpus {
            return Err(invalid("names a MIG device, and not a GPU".to_owned()));
        }
        let wish = match wish {
            "off" => GpuWish::Off,
            "empty" => GpuWish::empty(),
            list => GpuWish::Instances(instances(list).map_err(invalid)?),
        };
        Ok(Self { gpus, wish })
    }
}

/// `3g.20gb,2x1g.5gb@4`
fn instances(list: &str) -> Result<BTreeMap<WishedInstance, u32>, String> {
    let mut wished = BTreeMap::new();
    for text in list.split(',').map(str::trim) {
        // An `x` may also be in the name of a profile: `4g.24gb+gfx`.
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (count, rest) = match text.split_once('x').filter(|(count, _)| is_number(count)) {
            Some((count, rest)) => (decimal(count).filter(|count| (1..=MOST).contains(count)), rest),
            None => (Some(1), text),
        };
        let count = count.ok_or_else(|| format!("has an invalid number of instances in {text}"))?;
        let (profile, start) = match rest.split_once('@') {
            Some((profile, start)) => {
                let start: u32 = decimal(start).ok_or_else(|| format!("has an invalid place in {text}"))?;
                (profile, Some(start))
            }
            None => (rest, None),
        };
        let profile: MigProfile = profile.parse().map_err(|error: Error| error.to_string())?;
        // Compute instances of one GPU instance have its place.
        if start.is_some() && count > 1 && profile.compute_slices.is_none_or(|slices| slices == 0) {
            return Err(format!("has {count} instances at one place in {text}"));
        }
        *wished.entry(WishedInstance { profile, start }).or_insert(0) += count;
    }
    Ok(wished)
}

/// More instances than any GPU has.
const MOST: u32 = 64;

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.gpus, self.wish)
    }
}

impl fmt::Display for GpuSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::One(one) => one.fmt(f),
            Self::MigParted(MigPartedSelector { indices, .. }) => match indices {
                None => f.write_str("all"),
                Some(indices) => {
                    let indices: Vec<String> = indices.iter().map(ToString::to_string).collect();
                    f.write_str(&indices.join(","))
                }
            },
        }
    }
}

impl fmt::Display for PciModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08X}", self.device)?;
        match self.subsystem {
            Some(subsystem) if subsystem != 0 => write!(f, ":0x{subsystem:08X}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for GpuWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Instances(instances) = self else {
            return f.write_str("off");
        };
        if instances.is_empty() {
            return f.write_str("empty");
        }
        for (number, (one, count)) in instances.iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            if *count > 1 {
                write!(f, "{count}x")?;
            }
            one.profile.fmt(f)?;
            if let Some(start) = one.start {
                write!(f, "@{start}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_read_as_they_are_written() {
        for text in [
            "0:1g.5gb,2g.10gb,3g.20gb",
            "all:7x1g.5gb",
            "0:off",
            "0000:41:00.0:empty",
            "GPU-bb5d1807-35ed-1a19-3c32-147f9952a2da:3g.20gb@4",
            "1:2x1c.3g.20gb",
            "1:0c.2g.10gb@0,1c.3g.20gb@4,2c.3g.20gb@4",
            "0:1g.10gb+me,1g.12gb+me.all",
            "0:2x2g.12gb+gfx,4g.24gb+gfx",
        ] {
            assert_eq!(text.parse::<Layout>().unwrap().to_string(), text);
        }
        let twice: Layout = "0:1g.5gb, 1g.5gb".parse().unwrap();
        assert_eq!(twice.to_string(), "0:2x1g.5gb");
    }

    #[test]
    fn what_is_no_layout_is_refused_in_one_line() {
        for (text, why) in [
            ("", "no colon"),
            ("3g.20gb", "no colon"),
            ("0:", "not a MIG profile"),
            ("x:1g.5gb", "x"),
            ("0:0x1g.5gb", "invalid number"),
            ("0:65x1g.5gb", "invalid number"),
            ("0:2x1g.5gb@4", "2 instances at one place"),
            ("0:1g.5gb@four", "invalid place"),
            ("0:1g.5gb,,", "not a MIG profile"),
            ("MIG-6f1d3c2a-0000-4000-8000-000000000001:1g.5gb", "not a GPU"),
        ] {
            let error = text.parse::<Layout>().unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
