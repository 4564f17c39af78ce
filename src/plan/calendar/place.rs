//! Which device and share is reserved for a wish.

use super::{NotFree, Period, check_period, is_free};
use crate::policy::CalendarSettings;
use crate::share::{Fit, Holds, Plan, SplitDevice, Wish, fit};
use tranche_core::error::{Error, Kind, Result};
use tranche_core::ledger::{OutOfService, ReservedTime};
use tranche_core::types::{DeviceKey, HeldPart, ShareName};

/// A reservation that is asked for.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// What: a device, any device, or shares of one.
    pub wish: &'a Wish,
    /// For whom.
    pub uid: u32,
    /// When.
    pub period: Period,
}

/// The part of a device that serves what is `wanted` at its time best, and what people call it. It is chosen now: a
/// start that looks at one GPU knows by it what is reserved. `now` is the time in seconds since 1970.
///
/// # Errors
/// Returns the limit that is exceeded, or what is in the way on each device in question.
pub fn place(
    plan: &Plan,
    settings: &CalendarSettings,
    times: &[ReservedTime],
    out: &OutOfService,
    wanted: &Wanted<'_>,
    now: u64,
) -> Result<(DeviceKey, HeldPart, String)> {
    check_period(times, settings, wanted.uid, wanted.period, now)?;
    let then = Then {
        settings,
        times,
        out,
        period: wanted.period,
    };
    let Fit { device, shares, .. } = fit(plan, wanted.wish, &then).map_err(|error| match error.kind() {
        Kind::Usage => error,
        _ => then.refusal(plan, wanted.wish),
    })?;
    let split = plan.split(device);
    let split = split.ok_or_else(|| Error::failed(device, "is not shared by the policy of this host"))?;
    let part = split.part(&shares);
    // Each of several shares is free, and together they may be too much.
    then.of_part(split, &part).map_err(|why| Error::failed(device, why))?;
    let label = match &part {
        HeldPart::Whole => device.to_string(),
        HeldPart::Shares(_) => format!("{device} {part}"),
    };
    Ok((split.key.clone(), part, label))
}

/// What is reserved at a time.
struct Then<'a> {
    settings: &'a CalendarSettings,
    times: &'a [ReservedTime],
    out: &'a OutOfService,
    period: Period,
}

impl Then<'_> {
    fn of_part(&self, split: &SplitDevice, part: &HeldPart) -> Result<(), NotFree> {
        is_free(
            self.times,
            self.settings,
            (&split.key, part, split.bounds()),
            self.period,
        )
    }

    /// What is in the way on each device in question.
    fn refusal(&self, plan: &Plan, wish: &Wish) -> Error {
        let asked = plan.devices.iter().filter(|split| wish.is_about(split));
        let why = asked.filter_map(|split| {
            let names: Vec<ShareName> = match wish.names.is_empty() {
                true => split.shares.names().take(1).collect(),
                false => wish.names.clone(),
            };
            let reserved = || {
                self.of_part(split, &split.part(&names))
                    .err()
                    .map(|why| why.to_string())
            };
            let why = self.out.why(&split.key).map(|why| why.to_string()).or_else(reserved)?;
            Some((split.device, why))
        });
        let mut why = why.take(8);
        let error = match why.next() {
            Some((device, why)) => Error::failed(device, why),
            None => Error::failed(wish.text(), "is not free at that time"),
        };
        let error = why.fold(error, |error, (device, why)| {
            error.and_hint(format_args!("{device}: {why}"))
        });
        error.and_hint("tranche calendar shows what is reserved")
    }
}

impl Holds for Then<'_> {
    fn is_free(&self, split: &SplitDevice, name: &ShareName) -> bool {
        let part = split.part(std::slice::from_ref(name));
        self.out.why(&split.key).is_none() && self.of_part(split, &part).is_ok()
    }

    fn named(&self, split: &SplitDevice) -> Vec<ShareName> {
        let times = self.times.iter().filter(|time| time.device == split.key);
        let shares = times.flat_map(|time| time.part.shares());
        shares.map(|share| share.name.clone()).collect()
    }
}
