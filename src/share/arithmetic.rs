//! Cutting a device into parts. In whole MiB and whole percent, always rounded down: what is left is told, not lost.

use crate::error::{Error, Result};
use crate::inventory::HostDevice;
use crate::policy::{Amount, Parts, Place, Policy, Priority, ShareAsk, Split, Strategy};
use crate::types::{MemorySize, Overcommit, Percent, ShareName};

/// A device, cut.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) parts: Vec<Part>,
    pub(super) memory_left_mib: u64,
    pub(super) compute_left: u32,
}

/// One part.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: ShareName,
    pub(super) memory: Option<MemorySize>,
    pub(super) compute: Option<Percent>,
    pub(super) priority: Priority,
}

/// Cuts `target` as `split` says.
pub(super) fn cut(policy: &Policy, target: HostDevice<'_>, split: &Split) -> Result<Cut> {
    let mut parts = match &split.parts {
        Parts::Equal(n) => equal(policy, target, split, *n)?,
        Parts::Named(asks) => named(policy, target, asks)?,
        Parts::Whole => vec![whole(target)?],
    };
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    let memory_left_mib = check_memory(policy, target, split, &parts)?;
    let compute_left = check_compute(policy, target, split, &parts)?;
    Ok(Cut {
        parts,
        memory_left_mib,
        compute_left,
    })
}

/// A device that stays whole is one part, with all that the device has.
fn whole(target: HostDevice<'_>) -> Result<Part> {
    Ok(Part {
        name: ShareName::whole(),
        memory: target.memory(),
        compute: Some(Percent::new(100)?),
        priority: Priority::Normal,
    })
}

fn equal(policy: &Policy, target: HostDevice<'_>, split: &Split, n: u32) -> Result<Vec<Part>> {
    let (memory, compute) = match split.strategy {
        // Nothing limits a replica: to give it a number would be to make one up.
        Strategy::TimeSlicing | Strategy::Dedicated => (None, None),
        Strategy::Mps => {
            let whole = memory_of(target)?;
            let memory = (policy.overcommit_memory.of(whole) / u64::from(n)).min(whole);
            let compute = (policy.overcommit_compute.of(100) / u64::from(n)).min(100);
            let compute = Percent::new(u32::try_from(compute).unwrap_or(100)).map_err(|_| {
                too_many(
                    policy,
                    target,
                    split,
                    format!("{n} replicas have less than 1% of compute each"),
                )
            })?;
            if memory == 0 {
                let what = format!("{n} replicas have less than 1 MiB each");
                return Err(too_many(policy, target, split, what));
            }
            (Some(MemorySize::from_mib(memory)), Some(compute))
        }
    };
    let part = |i| Part {
        name: ShareName::replica(i),
        memory,
        compute,
        priority: Priority::Normal,
    };
    Ok((0..n).map(part).collect())
}

fn too_many(policy: &Policy, target: HostDevice<'_>, split: &Split, what: String) -> Error {
    policy.wrong(split.place, target, what).hint("ask for fewer")
}

fn named(policy: &Policy, target: HostDevice<'_>, asks: &[ShareAsk]) -> Result<Vec<Part>> {
    all_or_none(policy, target, asks, "memory", |a| a.memory.is_some())?;
    all_or_none(policy, target, asks, "compute", |a| a.compute.is_some())?;
    asks.iter()
        .map(|ask| {
            let memory = match ask.memory {
                None => None,
                Some(Amount::Size(size)) => Some(size.mib()),
                Some(Amount::Percent(p)) => Some(memory_of(target)? * u64::from(p.get()) / 100),
            };
            Ok(Part {
                name: ask.name.clone(),
                memory: memory.map(MemorySize::from_mib),
                compute: ask.compute,
                priority: ask.priority,
            })
        })
        .collect()
}

/// A share without a limit takes what the others were promised: either all have one, or none.
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
        (Some(with), Some(without)) => Err(policy
            .wrong(
                without.place,
                target,
                format!("share {} has no {what}, and share {} has", without.name, with.name),
            )
            .hint("give it to all shares of a device or to none")),
        _ => Ok(()),
    }
}

fn memory_of(target: HostDevice<'_>) -> Result<u64> {
    target.memory().map(MemorySize::mib).ok_or_else(|| {
        Error::failed(
            target,
            "its memory is unknown, since NVML did not answer, so it cannot be cut by memory",
        )
    })
}

fn check_memory(policy: &Policy, target: HostDevice<'_>, split: &Split, parts: &[Part]) -> Result<u64> {
    let sizes: Vec<u64> = parts.iter().filter_map(|p| p.memory).map(MemorySize::mib).collect();
    let asked: u64 = sizes.iter().fold(0, |sum, size| sum.saturating_add(*size));
    if sizes.is_empty() {
        return Ok(target.memory().map_or(0, MemorySize::mib));
    }
    let whole = memory_of(target)?;
    if let Some(large) = parts.iter().find(|p| p.memory.is_some_and(|m| m.mib() > whole)) {
        let size = large.memory.map(|m| m.to_string()).unwrap_or_default();
        let what = format!(
            "share {} asks for {size} of {}",
            large.name,
            MemorySize::from_mib(whole)
        );
        return Err(policy
            .wrong(place_of(split, &large.name), target, what)
            .hint("lower it: one share never has more than the device, with any overcommit"));
    }
    if asked > policy.overcommit_memory.of(whole) {
        let list = list(parts, |p| p.memory.map(|m| m.to_string()));
        let what = format!(
            "shares ask for {} of {}: {list}",
            MemorySize::from_mib(asked),
            MemorySize::from_mib(policy.overcommit_memory.of(whole)),
        );
        return Err(policy
            .wrong(split.place, target, what)
            .hint(advice("memory", asked, whole)));
    }
    Ok(whole.saturating_sub(asked))
}

fn check_compute(policy: &Policy, target: HostDevice<'_>, split: &Split, parts: &[Part]) -> Result<u32> {
    let asked: u64 = parts.iter().filter_map(|p| p.compute).map(|c| u64::from(c.get())).sum();
    if asked > policy.overcommit_compute.of(100) {
        let list = list(parts, |p| p.compute.map(|c| c.to_string()));
        let what = format!(
            "shares ask for {asked}% of {}% compute: {list}",
            policy.overcommit_compute.of(100)
        );
        return Err(policy
            .wrong(split.place, target, what)
            .hint(advice("compute", asked, 100)));
    }
    Ok(u32::try_from(100u64.saturating_sub(asked)).unwrap_or(0))
}

/// Where the share of that name is asked for; the entry, for replicas.
fn place_of(split: &Split, name: &ShareName) -> Place {
    match &split.parts {
        Parts::Named(asks) => asks
            .iter()
            .find(|ask| ask.name == *name)
            .map_or(split.place, |ask| ask.place),
        Parts::Equal(_) | Parts::Whole => split.place,
    }
}

fn list(parts: &[Part], show: impl Fn(&Part) -> Option<String>) -> String {
    let shown: Vec<String> = parts
        .iter()
        .filter_map(|p| Some(format!("{} {}", p.name, show(p)?)))
        .collect();
    crate::text::some(&shown)
}

/// The least overcommit, in tenths, that would allow it, where one would.
fn advice(what: &str, asked: u64, whole: u64) -> String {
    let tenths = (u128::from(asked) * 10).div_ceil(u128::from(whole.max(1)));
    match format!("{}.{}", tenths / 10, tenths % 10).parse::<Overcommit>() {
        Ok(enough) => format!("lower one, or set overcommit.{what} to {enough}"),
        Err(_) => "lower one".to_owned(),
    }
}
