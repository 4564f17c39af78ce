//! Finds the free shares that serve a wish best.

use super::free::{Free, FreeReplicas, Holds, Unused};
use super::shares::sums;
use super::{Plan, Share, SplitDevice};
use crate::policy::Placement;
use std::collections::BTreeSet;
use tranche_core::error::{Error, Result};
use tranche_core::text::{candidates, counted, some};
use tranche_core::types::{Device, MemorySize, Percent, Selection, ShareName};

/// What a claim must have. A field that is `None` sets no condition.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// At least this much memory.
    pub memory: Option<MemorySize>,
    /// At least this much compute of a device.
    pub compute: Option<Percent>,
    /// Exactly these shares, all of one device.
    pub names: Vec<ShareName>,
    /// This number of shares, in addition to those in `names`. `None` with `names`: no more than memory and compute
    /// need.
    pub shares: Option<usize>,
    /// Shares of this device.
    pub device: Option<Device>,
    /// A device that is given whole, and no share of one that is split.
    pub is_whole: bool,
    /// Conditions on the device.
    pub select: Selection,
}

impl Wish {
    /// A number of shares of any size, of any one device.
    pub fn shares(number: usize) -> Self {
        Self {
            shares: Some(number),
            ..Self::default()
        }
    }

    /// Any free device, whole.
    pub fn whole(select: Selection) -> Self {
        Self {
            is_whole: true,
            select,
            ..Self::shares(1)
        }
    }

    /// Whether it may be served by shares of `split`.
    pub fn is_about(&self, split: &SplitDevice) -> bool {
        self.device.is_none_or(|device| device == split.device)
            && (!self.is_whole || split.method.is_whole())
            && self.select.matches(&split.product, split.memory)
    }

    /// What is wished for, for messages: `2 shares and 8.0 GiB`.
    pub fn text(&self) -> String {
        let named = (!self.names.is_empty()).then(|| {
            let word = if self.names.len() == 1 { "share" } else { "shares" };
            let names: Vec<&str> = self.names.iter().map(ShareName::as_str).collect();
            format!("{word} {}", some(&names))
        });
        let number = self.shares.map(|n| match self.names.is_empty() {
            true if self.is_whole => "a whole device".to_owned(),
            true => counted(n, "share"),
            false => format!("{n} more"),
        });
        let size = [
            self.memory.map(|m| m.to_string()),
            self.compute.map(|c| format!("{c} compute")),
        ];
        let parts: Vec<String> = [named, number].into_iter().chain(size).flatten().collect();
        let text = match &parts[..] {
            [] => "a share".to_owned(),
            parts => parts.join(" and "),
        };
        match self.select.is_empty() {
            true => text,
            false => format!("{text} with {}", self.select),
        }
    }
}

/// Shares of one device that serve a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// The device.
    pub device: Device,
    /// The shares, sorted.
    pub shares: Vec<ShareName>,
    /// Their memory in sum; `None` where they have no limit.
    pub memory: Option<MemorySize>,
    /// Their compute in sum; `None` where they have no ceiling.
    pub compute: Option<Percent>,
}

/// The shares that serve `wish` with the least left over: first of memory, then of compute, then the fewest shares. Of
/// whole devices, the one with the least memory is taken. Where several devices are equal in this, [`Plan::placement`]
/// decides, and then the first device is taken; with [`Placement::Spread`] it decides before anything is compared.
/// `holds` says which shares are free.
///
/// # Errors
/// Returns an error if no device serves the wish. It says what each device in question has free; if no device could
/// serve the wish even with nothing held, it is a usage error that says what each has.
pub fn fit(plan: &Plan, wish: &Wish, holds: &impl Holds) -> Result<Fit> {
    let asked: Vec<&SplitDevice> = plan.devices.iter().filter(|split| wish.is_about(split)).collect();
    if asked.is_empty() {
        return Err(nothing_asked(plan, wish));
    }
    let unknown = |split: &&SplitDevice| wish.names.iter().any(|name| split.share(name).is_none());
    if asked.iter().all(unknown) {
        return Err(unknown_share(&asked, wish));
    }
    let spare = |found: &Fit, split: &SplitDevice| {
        let mib = |size: Option<MemorySize>| size.map_or(0, MemorySize::mib);
        let given = if wish.is_whole { split.memory } else { found.memory };
        let memory = mib(given).saturating_sub(mib(wish.memory));
        let percent = |compute: Option<Percent>| compute.map_or(0, Percent::get);
        let compute = percent(found.compute).saturating_sub(percent(wish.compute));
        (memory, compute, found.shares.len())
    };
    let found = asked.iter().filter_map(|split| {
        let free = split.free(holds);
        let found = choose(split, &free, wish)?;
        // In thousandths, because devices have different numbers of shares.
        let in_use = 1000 - 1000 * free.len() / split.shares.len().max(1);
        let spare = spare(&found, split);
        let rank = match plan.placement {
            Placement::Packed => (0, spare, 1000 - in_use),
            Placement::Spread => (in_use, spare, 0),
        };
        Some((rank, found))
    });
    let can_ever = |device: &&SplitDevice| choose(device, &device.free(&Unused), wish).is_some();
    let best = found.min_by_key(|(rank, _)| *rank);
    best.map(|(_, found)| found)
        .ok_or_else(|| match asked.iter().any(can_ever) {
            true => refuse(&asked, wish, holds),
            false => never(&asked, wish),
        })
}

/// The error for a wish that is about no device of the plan.
fn nothing_asked(plan: &Plan, wish: &Wish) -> Error {
    if let Some(device) = wish.device.filter(|device| plan.split(*device).is_none()) {
        return Error::usage(device, "no device that is split").hint("tranche plan shows which devices are");
    }
    let is_of_kind = |split: &&SplitDevice| {
        wish.device.is_none_or(|device| device == split.device) && (!wish.is_whole || split.method.is_whole())
    };
    let of_kind = || plan.devices.iter().filter(is_of_kind);
    if of_kind().next().is_some() {
        let has = of_kind().take(8).map(|split| {
            let memory = split.memory.map_or(String::new(), |memory| format!(" with {memory}"));
            format!("{} is a {}{memory}", split.device, split.product)
        });
        let what = format!("{} matches no device of the policy", wish.select);
        return Error::usage("selection", what).hint(has.collect::<Vec<_>>().join("; "));
    }
    match wish.is_whole {
        true => Error::usage("policy", "gives no device whole to one container at a time")
            .hint("write sharing: {dedicated: {devices: [...]}} into it"),
        false => Error::usage("policy", "no device that is split").hint("add a sharing section to it"),
    }
}

/// The shares of one device to take: exactly those that are asked for by name or number, or as few as serve.
fn choose(device: &SplitDevice, free: &Free<'_>, wish: &Wish) -> Option<Fit> {
    let found = match free {
        Free::Equal(replicas) => choose_replicas(device, replicas, wish)?,
        Free::Named(shares) => sum(device, &choose_named(shares, wish)?),
    };
    (!device.one_share_a_claim || found.shares.len() <= 1).then_some(found)
}

/// As [`choose`], of equal replicas: their size says how many serve.
fn choose_replicas(device: &SplitDevice, free: &FreeReplicas<'_>, wish: &Wish) -> Option<Fit> {
    let named: BTreeSet<&ShareName> = wish.names.iter().collect();
    if wish
        .names
        .iter()
        .any(|name| device.share(name).is_none() || !free.has(name))
    {
        return None;
    }
    let (memory, compute) = (free.each.memory, free.each.compute);
    // How many have the amount. A share without a limit does not serve a wish for an amount.
    let enough = |wished: Option<u64>, each: Option<u64>| match (wished, each) {
        (None, _) => Some(0),
        (Some(wished), Some(each @ 1..)) => usize::try_from(wished.div_ceil(each)).ok(),
        (Some(_), _) => None,
    };
    let percent = |compute: Option<Percent>| compute.map(|percent| u64::from(percent.get()));
    let by_memory = enough(wish.memory.map(MemorySize::mib), memory.map(MemorySize::mib))?;
    let by_compute = enough(percent(wish.compute), percent(compute))?;
    let enough = by_memory.max(by_compute).max(1);
    let number = match wish.shares {
        Some(more) => Some(named.len().saturating_add(more)).filter(|number| *number >= enough)?,
        None => enough.max(named.len()),
    };
    if number > free.len() {
        return None;
    }
    let others = free.names().filter(|name| !named.contains(name));
    let mut shares: Vec<ShareName> = named.iter().copied().cloned().chain(others).take(number).collect();
    shares.sort();
    let (memory, compute) = sums([free.each], number as u64);
    Some(Fit {
        device: device.device,
        shares,
        memory,
        compute,
    })
}

/// As [`choose`], of shares with names.
fn choose_named<'a>(free: &[&'a Share], wish: &Wish) -> Option<Vec<&'a Share>> {
    // A share without a limit does not serve a wish for an amount: nothing would keep that amount for it.
    let unlimited =
        |s: &&&Share| (wish.memory.is_some() && s.memory.is_none()) || (wish.compute.is_some() && s.compute.is_none());
    if free.iter().any(|s| unlimited(&s)) {
        return None;
    }
    let (named, mut by_size): (Vec<&Share>, Vec<&Share>) = free.iter().partition(|s| wish.names.contains(&s.name));
    if wish.names.iter().any(|name| named.iter().all(|s| s.name != *name)) {
        return None;
    }
    by_size.sort_by(|a, b| size(a).cmp(&size(b)).then_with(|| a.name.cmp(&b.name)));
    let with_named = |more: &[&'a Share]| [&named[..], more].concat();
    let serves = |more: &[&'a Share]| serves(&with_named(more), wish);
    let found = match wish.shares {
        Some(0) => serves(&[]).then(Vec::new),
        // The smallest run of n that serves: shares of unequal size are rarely asked for by number.
        Some(n) => by_size.windows(n).find(|run| serves(run)).map(<[&Share]>::to_vec),
        None if !named.is_empty() && serves(&[]) => Some(Vec::new()),
        None => fewest(by_size, serves),
    };
    found.map(|more| with_named(&more))
}

/// As few of `by_size`, which is sorted, as serve: the smallest share that completes the wish; if no share does, the
/// largest one, and so on.
fn fewest<'a>(mut by_size: Vec<&'a Share>, serves: impl Fn(&[&'a Share]) -> bool) -> Option<Vec<&'a Share>> {
    let mut chosen: Vec<&Share> = Vec::new();
    while !by_size.is_empty() {
        let completes = by_size.iter().position(|s| {
            let mut with = chosen.clone();
            with.push(s);
            serves(&with)
        });
        let largest = by_size.iter().map(|s| size(s)).max();
        let first_largest = by_size.iter().position(|s| Some(size(s)) == largest).unwrap_or(0);
        chosen.push(by_size.remove(completes.unwrap_or(first_largest)));
        if completes.is_some() {
            drop_superfluous(&mut chosen, serves);
            return Some(chosen);
        }
    }
    None
}

/// Takes out what is not needed, largest first, so that the least is left unused.
fn drop_superfluous<'a>(chosen: &mut Vec<&'a Share>, serves: impl Fn(&[&'a Share]) -> bool) {
    let mut at = 0;
    while at < chosen.len() {
        let out = chosen.remove(at);
        if !serves(chosen) {
            chosen.insert(at, out);
            at += 1;
        }
    }
}

fn size(share: &Share) -> (u64, u32) {
    (
        share.memory.map_or(0, MemorySize::mib),
        share.compute.map_or(0, Percent::get),
    )
}

fn serves(shares: &[&Share], wish: &Wish) -> bool {
    let memory: u64 = shares.iter().map(|s| size(s).0).sum();
    let compute: u32 = shares.iter().map(|s| size(s).1).sum();
    !shares.is_empty()
        && wish.memory.is_none_or(|m| memory >= m.mib())
        && wish.compute.is_none_or(|c| compute >= c.get())
}

fn sum(device: &SplitDevice, shares: &[&Share]) -> Fit {
    let mut names: Vec<ShareName> = shares.iter().map(|s| s.name.clone()).collect();
    names.sort();
    let (memory, compute) = sums(shares.iter().copied(), 1);
    Fit {
        device: device.device,
        shares: names,
        memory,
        compute,
    }
}

/// The error for a wish for a share that no device in question has.
fn unknown_share(asked: &[&SplitDevice], wish: &Wish) -> Error {
    let names = |split: &SplitDevice| split.shares.listed().map(|name| name.to_string()).collect::<Vec<_>>();
    let asked_for = wish.names.first().map_or("", ShareName::as_str);
    let hint = match asked {
        [split] => format!("{} has {}", split.device, candidates(asked_for, &names(split))),
        several => {
            let all: BTreeSet<String> = several.iter().flat_map(|split| names(split)).collect();
            format!(
                "these devices have {}",
                candidates(asked_for, &all.into_iter().collect::<Vec<_>>())
            )
        }
    };
    Error::usage(wish.text(), "not found").hint(hint)
}

/// The error for a wish that no device in question serves, whatever is released.
fn never(asked: &[&SplitDevice], wish: &Wish) -> Error {
    let has = asked.iter().take(8).map(|device| {
        if device.method.is_whole() {
            return format!("{} is given whole, without a size", device.device);
        }
        let (memory, compute) = (device.shares.memory(), device.shares.compute());
        let unlimited = |what| format!(", without a limit of {what}");
        let memory = match memory {
            Some(memory) => format!(", {memory}"),
            None if wish.memory.is_some() => unlimited("memory"),
            None => String::new(),
        };
        let compute = match compute {
            Some(compute) => format!(", {compute}"),
            None if wish.compute.is_some() => unlimited("compute"),
            None => String::new(),
        };
        let one = if device.one_share_a_claim { ", one a claim" } else { "" };
        format!(
            "{} has {}{memory}{compute}{one}",
            device.device,
            counted(device.shares.len(), "share")
        )
    });
    let what = "no device of the policy can give it, even if nothing is held";
    Error::usage(wish.text(), what).hint(has.collect::<Vec<_>>().join("; "))
}

fn refuse(asked: &[&SplitDevice], wish: &Wish, holds: &impl Holds) -> Error {
    let has = asked.iter().take(8).map(|device| {
        let free = device.free(holds);
        if device.method.is_whole() {
            let state = if free.is_empty() { "held" } else { "free" };
            return format!("{} is {state}", device.device);
        }
        let (memory, compute) = free.sums();
        let limits = [memory.map(|m| format!(", {m}")), compute.map(|c| format!(", {c}"))];
        let limits: String = limits.into_iter().flatten().filter(|_| !free.is_empty()).collect();
        let one = if device.one_share_a_claim { ", one a claim" } else { "" };
        let (name, free, all) = (device.device, free.len(), device.shares.len());
        format!("{name} has {free} of {all} shares free{limits}{one}")
    });
    Error::failed(wish.text(), "no device can give it now").hint(has.collect::<Vec<_>>().join("; "))
}
