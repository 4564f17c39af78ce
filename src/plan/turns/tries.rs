//! What `tranche turns try` has found on this machine: whether a driver suspends work on a GPU and resumes it, and how
//! fast. A try counts for its version of the driver and its product, and for no other.

use crate::inventory::Driver;
use serde::{Deserialize, Serialize};
use std::fmt;
use tranche_core::process_identity::ProcessIdentity;

/// The last try of each driver on each product.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnTries(Vec<TurnTry>);

/// A try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnTry {
    /// The version of the driver.
    pub driver: String,
    /// The product, as NVML names it.
    pub product: String,
    /// The day, as 2026-11-28.
    pub date: String,
    /// How it went.
    pub outcome: TryOutcome,
    /// The boot in which it was made (`/proc/sys/kernel/random/boot_id`).
    #[serde(default)]
    pub boot: String,
}

/// How a try went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TryOutcome {
    /// All memory came back, at this rate.
    Passed(CopyRate),
    /// Why it failed.
    Failed(String),
    /// It was begun, with this program on the device, and nothing says that it has ended.
    Begun(ProcessIdentity),
    /// It was begun, and the machine was started again before it had ended.
    Interrupted,
}

/// How long copies took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRate {
    /// Bytes of GPU memory.
    pub bytes: u64,
    /// The nanoseconds of the copy to the memory of the machine.
    pub out_ns: u64,
    /// The nanoseconds of the copy back.
    pub back_ns: u64,
}

impl CopyRate {
    /// To the memory of the machine, in 10^9 bytes per second.
    pub fn out_gb_s(&self) -> f64 {
        self.bytes as f64 / self.out_ns.max(1) as f64
    }

    /// From the memory of the machine, in 10^9 bytes per second.
    pub fn back_gb_s(&self) -> f64 {
        self.bytes as f64 / self.back_ns.max(1) as f64
    }
}

impl fmt::Display for CopyRate {
    /// `at 11.3 GB/s to the memory of the machine and 9.8 GB/s back`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (out, back) = (self.out_gb_s(), self.back_gb_s());
        write!(
            f,
            "at {out:.1} GB/s to the memory of the machine and {back:.1} GB/s back"
        )
    }
}

impl TurnTries {
    /// Records a try in place of an earlier one of the same driver and product.
    pub fn record(&mut self, one: TurnTry) {
        self.0.retain(|other| !other.is_of(&one.driver, &one.product));
        self.0.push(one);
    }

    /// The programs of tries of this boot of which nothing says that they have ended.
    pub fn begun(&self, boot: &str) -> impl Iterator<Item = ProcessIdentity> {
        let of_boot = self.0.iter().filter(move |one| one.boot == boot);
        of_boot.filter_map(|one| match one.outcome {
            TryOutcome::Begun(process) => Some(process),
            TryOutcome::Passed(_) | TryOutcome::Failed(_) | TryOutcome::Interrupted => None,
        })
    }

    /// Takes in that this is another boot than that of tries of which nothing says that they have ended.
    pub fn take_in_boot(&mut self, boot: &str) {
        let begun = |one: &&mut TurnTry| one.boot != boot && matches!(one.outcome, TryOutcome::Begun(_));
        for one in self.0.iter_mut().filter(begun) {
            one.outcome = TryOutcome::Interrupted;
        }
    }

    /// How fast this driver copies on this product; an error that says why nobody may rely on it.
    ///
    /// # Errors
    /// Returns why the driver is not known to suspend work on the product and to resume it.
    pub fn rate(&self, driver: Option<&Driver>, product: &str) -> Result<CopyRate, String> {
        let version = driver.map_or("", |driver| driver.version.as_str());
        let of = format!("with driver {version} on {product}");
        let Some(found) = self.0.iter().find(|one| one.is_of(version, product)) else {
            return Err(format!("suspended work was never tried {of}"));
        };
        let TurnTry { date, outcome, .. } = found;
        match outcome {
            TryOutcome::Passed(rate) => Ok(*rate),
            TryOutcome::Failed(why) => Err(format!("suspended work was tried on {date} {of}, and failed: {why}")),
            TryOutcome::Begun(_) => Err(format!("the try of {date} {of} was not brought to its end")),
            TryOutcome::Interrupted => Err(format!(
                "the try of {date} {of} was not brought to its end before the machine was started again, which may have hung"
            )),
        }
    }
}

impl TurnTry {
    fn is_of(&self, driver: &str, product: &str) -> bool {
        self.driver == driver && self.product == product
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: CopyRate = CopyRate {
        bytes: 40_000_000_000,
        out_ns: 4_000_000_000,
        back_ns: 3_200_000_000,
    };

    fn driver(version: &str) -> Driver {
        Driver {
            version: version.parse().unwrap(),
            cuda: None,
            limits_cgroups: false,
            library_dirs: Vec::new(),
            files: Vec::new(),
        }
    }

    #[test]
    fn the_last_try_of_the_same_driver_and_product_counts() {
        let mut tries = TurnTries::default();
        let mut record = |version: &str, outcome| {
            tries.record(TurnTry {
                driver: version.to_owned(),
                product: "NVIDIA H200".to_owned(),
                date: "2026-11-28".to_owned(),
                outcome,
                boot: "this".to_owned(),
            });
            tries.clone()
        };
        let of = |tries: &TurnTries, version: &str, product: &str| tries.rate(Some(&driver(version)), product);
        let passed = record("580.1", TryOutcome::Passed(RATE));
        assert_eq!(of(&passed, "580.1", "NVIDIA H200"), Ok(RATE));
        assert_eq!(
            RATE.to_string(),
            "at 10.0 GB/s to the memory of the machine and 12.5 GB/s back"
        );
        for (version, product) in [("580.2", "NVIDIA H200"), ("580.1", "NVIDIA H100")] {
            let why = of(&passed, version, product).unwrap_err();
            let expected = format!("suspended work was never tried with driver {version} on {product}");
            assert_eq!(why, expected);
        }
        let failed = record("580.1", TryOutcome::Failed("a byte".to_owned()));
        let why = of(&failed, "580.1", "NVIDIA H200").unwrap_err();
        assert!(why.ends_with("NVIDIA H200, and failed: a byte"), "{why}");
        let process = ProcessIdentity { pid: 7, began: 8 };
        let begun = record("580.1", TryOutcome::Begun(process));
        assert!(of(&begun, "580.1", "NVIDIA H200").is_err());
        assert_eq!(begun.begun("this").collect::<Vec<_>>(), [process]);
        assert_eq!(begun.begun("next").count(), 0, "its number may be another program's");
        let mut next = begun.clone();
        next.take_in_boot("this");
        assert_eq!(next, begun);
        next.take_in_boot("next");
        let why = of(&next, "580.1", "NVIDIA H200").unwrap_err();
        assert!(
            why.ends_with("before the machine was started again, which may have hung"),
            "{why}"
        );
        let text = serde_json::to_string(&begun).unwrap();
        assert_eq!(serde_json::from_str::<TurnTries>(&text).unwrap(), begun);
    }
}
