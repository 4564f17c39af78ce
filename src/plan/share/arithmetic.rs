//! Cuts a device into shares, in whole MiB and whole percent, always rounded down. The plan says what is left.

use super::shares::{Equal, Shares};
use super::strategy::Rules;
use super::{Share, guarantee};
use crate::inventory::HostDevice;
use crate::policy::{Amount, Parts, Place, Policy, Priority, ShareAsk, Split, TurnSettings};
use tranche_core::error::{Error, Result};
use tranche_core::types::{MemorySize, Overcommit, Percent, ShareName};

/// A device, cut.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) shares: Shares,
    pub(super) memory_left: MemorySize,
    pub(super) compute_left: u32,
    /// Memory of the shares in sum, in percent of the device's; `None` if they have no limit.
    pub(super) memory_promised: Option<u32>,
    /// The same for compute.
    pub(super) compute_promised: Option<u32>,
}

/// Cuts `target` as `split` says, under `rules`.
pub(super) fn cut(policy: &Policy, target: HostDevice<'_>, split: &Split, rules: &dyn Rules) -> Result<Cut> {
    let share = |name, memory: Option<MemorySize>, compute: Option<Percent>, priority| Share {
        name,
        memory,
        compute,
        priority,
        guarantees: guarantee::of(rules, target, memory.is_some(), compute.is_some()),
    };
    let shares = match &split.parts {
        Parts::Equal(count) | Parts::Turns(TurnSettings { holders: count, .. }) => {
            let (memory, compute) = rules.equal_part(target, split, policy, *count)?;
            Shares::Equal(Equal {
                count: *count,
                each: share(ShareName::replica(0), memory, compute, Priority::Normal),
            })
        }
        Parts::Named(asks) => {
            all_or_none(policy, target, asks, "memory", |ask| ask.memory.is_some())?;
            all_or_none(policy, target, asks, "compute", |ask| ask.compute.is_some())?;
            let named = |ask: &ShareAsk| {
                let memory = ask.memory.map(|amount| size(amount, target)).transpose()?;
                Ok(share(ask.name.clone(), memory, ask.compute, ask.priority))
            };
            let mut named: Vec<Share> = asks.iter().map(named).collect::<Result<_>>()?;
            named.sort_by(|a, b| a.name.cmp(&b.name));
            Shares::Named(named)
        }
        Parts::Whole => {
            let all = Some(Percent::ALL);
            Shares::Named(vec![share(ShareName::whole(), target.memory(), all, Priority::Normal)])
        }
    };
    let (memory_left, memory_promised) = check_memory(policy, target, split, &shares)?;
    let (compute_left, compute_promised) = check_compute(policy, target, split, &shares)?;
    Ok(Cut {
        shares,
        memory_left,
        compute_left,
        memory_promised,
        compute_promised,
    })
}

fn size(amount: Amount, target: HostDevice<'_>) -> Result<MemorySize> {
    Ok(MemorySize::from_mib(match amount {
        Amount::Size(size) => size.mib(),
        Amount::Percent(percent) => memory_of(target)? * u64::from(percent.get()) / 100,
    }))
}

/// A share without a limit could take what the others were promised, so either all shares have a limit or none.
fn all_or_none(
    policy: &Policy,
    target: HostDevice<'_>,
    asks: &[ShareAsk],
    what: &str,
    has: impl Fn(&ShareAsk) -> bool,
) -> Result<()> {
    let with = asks.iter().find(|a| has(a));
    let without = asks.iter().find(|a| !has(a));
    match (with, without) {
        (Some(with), Some(without)) => {
            let what = format!("share {} has no {what}, and share {} has", without.name, with.name);
            let error = policy.wrong(without.place, target, what);
            Err(error.hint("give it to all shares of a device or to none"))
        }
        _ => Ok(()),
    }
}

/// The memory of a device in MiB.
///
/// # Errors
/// Returns an error if it is unknown.
pub(super) fn memory_of(target: HostDevice<'_>) -> Result<u64> {
    let what = "its memory is unknown, since NVML did not answer, so it cannot be cut by memory";
    let memory = target.memory().map(MemorySize::mib);
    memory.ok_or_else(|| Error::failed(target, what))
}

/// Checks what the shares have in sum. Returns the memory that is left, and the sum in percent of the device's memory.
fn check_memory(
    policy: &Policy,
    target: HostDevice<'_>,
    split: &Split,
    shares: &Shares,
) -> Result<(MemorySize, Option<u32>)> {
    let Some(asked) = shares.memory().map(MemorySize::mib) else {
        return Ok((target.memory().unwrap_or(MemorySize::from_bytes(0)), None));
    };
    let whole = memory_of(target)?;
    let shown = MemorySize::from_mib;
    let mut distinct = shares.distinct().iter();
    if let Some(large) = distinct.find(|p| p.memory.is_some_and(|m| m.mib() > whole)) {
        let size = large.memory.map(|m| m.to_string()).unwrap_or_default();
        let what = format!("share {} asks for {size} of {}", large.name, shown(whole));
        return Err(policy
            .wrong(place_of(split, &large.name), target, what)
            .hint("lower it: one share never has more than the device, with any overcommit"));
    }
    let most = policy.overcommit_memory.of(whole);
    if asked > most {
        let list = list(shares.distinct(), |p| p.memory.map(|m| m.to_string()));
        let what = format!("shares ask for {} of {}: {list}", shown(asked), shown(most));
        let hint = advice("memory", asked, whole);
        return Err(policy.wrong(split.place, target, what).hint(hint));
    }
    Ok((shown(whole.saturating_sub(asked)), Some(percent(asked, whole))))
}

/// The same for compute, of which a device has 100 percent.
fn check_compute(
    policy: &Policy,
    target: HostDevice<'_>,
    split: &Split,
    shares: &Shares,
) -> Result<(u32, Option<u32>)> {
    let Some(asked) = shares.compute().map(Percent::get) else {
        return Ok((100, None));
    };
    let most = policy.overcommit_compute.of(100);
    if u64::from(asked) > most {
        let list = list(shares.distinct(), |p| p.compute.map(|c| c.to_string()));
        let what = format!("shares ask for {asked}% of {most}% compute: {list}");
        let hint = advice("compute", u64::from(asked), 100);
        return Err(policy.wrong(split.place, target, what).hint(hint));
    }
    Ok((100u32.saturating_sub(asked), Some(asked)))
}

/// `part` in percent of `whole`, to the nearest.
fn percent(part: u64, whole: u64) -> u32 {
    let whole = u128::from(whole.max(1));
    u32::try_from((u128::from(part) * 100 + whole / 2) / whole).unwrap_or(u32::MAX)
}

/// Where the share of that name is asked for; the entry, for replicas.
fn place_of(split: &Split, name: &ShareName) -> Place {
    let asks: &[ShareAsk] = match &split.parts {
        Parts::Named(asks) => asks,
        Parts::Equal(_) | Parts::Turns(_) | Parts::Whole => &[],
    };
    asks.iter()
        .find(|ask| ask.name == *name)
        .map_or(split.place, |ask| ask.place)
}

fn list(shares: &[Share], show: impl Fn(&Share) -> Option<String>) -> String {
    let shown = shares.iter().filter_map(|p| Some(format!("{} {}", p.name, show(p)?)));
    tranche_core::text::some(&shown.collect::<Vec<_>>())
}

/// What to change so that `asked` fits `whole`: the smallest overcommit that allows it, in tenths, if one does.
pub(super) fn advice(what: &str, asked: u64, whole: u64) -> String {
    let tenths = (u128::from(asked) * 10).div_ceil(u128::from(whole.max(1)));
    match format!("{}.{}", tenths / 10, tenths % 10).parse::<Overcommit>() {
        Ok(enough) => format!("lower one, or set overcommit.{what} to {enough}"),
        Err(_) => "lower one".to_owned(),
    }
}
