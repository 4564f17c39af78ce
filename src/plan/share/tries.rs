//! A plan with what was tried on this machine.

use super::strategy::{Method, memory_by_turns_at};
use super::{Plan, SplitDevice};
use crate::inventory::Driver;
use crate::turns::tries::TurnTries;

impl Plan {
    /// Takes in what `tranche turns try` has found with `driver`, that of this machine: how fast a change copies, and a
    /// warning for each device whose starts are refused because nothing is known of it.
    pub fn take_in(&mut self, tries: &TurnTries, driver: Option<&Driver>) {
        let refused = self.untried(tries, driver).into_iter();
        self.warnings
            .extend(refused.map(|(what, command)| format!("{what}; run: {command}")));
        for split in &mut self.devices {
            if let (Method::Turns(_), Ok(rate)) = (&split.method, tries.rate(driver, &split.product)) {
                for share in split.shares.distinct_mut() {
                    share.guarantees.memory.by = memory_by_turns_at(rate);
                }
            }
        }
    }

    /// Why starts are refused on each device by turns of which it is not known that `driver` suspends work on it, with
    /// the command that tries it.
    pub fn untried(&self, tries: &TurnTries, driver: Option<&Driver>) -> Vec<(String, String)> {
        let of = |split: &SplitDevice| {
            let Method::Turns(turns) = &split.method else {
                return None;
            };
            let why = tries.rate(driver, &split.product).err()?;
            let (device, name) = (split.device, split.device.cdi_name());
            (!turns.settings.assume_tested).then(|| {
                (
                    format!("{device}: turns: starts are refused: {why}"),
                    format!("tranche turns try {name}"),
                )
            })
        };
        self.devices.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::read::parse;
    use crate::share::plan;
    use crate::turns::tries::{CopyRate, TryOutcome, TurnTry};

    #[test]
    fn what_was_tried_is_quoted_and_what_was_not_is_a_warning() {
        let mut inventory = crate::sim::open("t4x2").unwrap();
        inventory.driver.as_mut().unwrap().version = "580.95.05".parse().unwrap();
        let driver = inventory.driver.as_ref();
        let made = |tries: &TurnTries, assume: bool| {
            let text = format!(
                "version: v1\nsharing:\n  access: enforce\n  turns:\n    assumeTested: {assume}\n    resources: [{{name: \
                 nvidia.com/gpu, devices: [0], holders: 2, hostMemory: 9Gi}}]\n"
            );
            let mut plan = plan(&parse("c.yaml", &text).unwrap().policy, &inventory).unwrap();
            plan.take_in(tries, driver);
            let by = plan.devices[0].shares.first().unwrap().guarantees.memory.by.clone();
            (by, plan.warnings)
        };
        let mut tries = TurnTries::default();
        let (by, warnings) = made(&tries, false);
        assert!(by.contains("not measured here"), "{by}");
        assert!(
            warnings[0].contains("starts are refused: suspended work was never tried with driver")
                && warnings[0].ends_with("; run: tranche turns try 0"),
            "{warnings:?}"
        );
        assert_eq!(made(&tries, true).1, [""; 0]);
        tries.record(TurnTry {
            driver: driver.unwrap().version.to_string(),
            product: inventory.gpus[0].name.clone(),
            date: "2026-11-28".to_owned(),
            outcome: TryOutcome::Passed(CopyRate {
                bytes: 8,
                out_ns: 2,
                back_ns: 1,
            }),
            boot: String::new(),
        });
        let (by, warnings) = made(&tries, false);
        assert!(
            by.contains("at 4.0 GB/s to the memory of the machine and 8.0 GB/s back"),
            "{by}"
        );
        assert_eq!(warnings, [""; 0]);
    }
}
