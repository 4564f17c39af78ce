//! Finds the free shares that serve a wish best.

use super::{Plan, Share, SplitDevice};
use crate::error::{Error, Result};
use crate::types::{Device, MemorySize, ShareName};

/// What a claim must have. A field that is `None` sets no condition.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// At least this much memory.
    pub memory: Option<MemorySize>,
    /// At least this much compute, in percent of a device. No device has more than 100.
    pub compute: Option<u32>,
    /// This number of shares.
    pub shares: Option<usize>,
    /// Shares of this device.
    pub device: Option<Device>,
}

impl Wish {
    /// A number of shares of any size, of any one device.
    pub fn shares(number: usize) -> Self {
        Self {
            shares: Some(number),
            ..Self::default()
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
    /// Their compute in sum, percent of the device; `None` where they have no ceiling.
    pub compute: Option<u32>,
}

/// The shares that serve `wish` with the least left over: first of memory, then of compute, then the fewest shares,
/// then the first device. `is_free` says whether nobody holds a share.
///
/// # Errors
/// Returns an error if no device serves the wish. It says what each device in question has free.
pub fn fit(plan: &Plan, wish: Wish, is_free: impl Fn(&SplitDevice, &Share) -> bool) -> Result<Fit> {
    let asked: Vec<&SplitDevice> = plan
        .devices
        .iter()
        .filter(|d| wish.device.is_none_or(|w| w == d.device))
        .collect();
    if asked.is_empty() {
        let (object, hint) = match wish.device {
            Some(device) => (device.to_string(), "tranche plan shows which devices are"),
            None => ("policy".to_owned(), "add a sharing section to it"),
        };
        return Err(Error::usage(object, "no device that is split").hint(hint));
    }
    let spare = |found: &Fit| {
        let mib = |size: Option<MemorySize>| size.map_or(0, MemorySize::mib);
        let memory = mib(found.memory).saturating_sub(mib(wish.memory));
        let compute = found.compute.unwrap_or(0).saturating_sub(wish.compute.unwrap_or(0));
        (memory, compute, found.shares.len())
    };
    let found = asked.iter().filter_map(|device| {
        let chosen = choose(device, &free(device, &is_free), wish)?;
        Some(sum(device, &chosen))
    });
    found.min_by_key(spare).ok_or_else(|| refuse(&asked, wish, &is_free))
}

/// The shares of one device to take: exactly as many as asked, or as few as serve.
fn choose<'a>(device: &SplitDevice, free: &[&'a Share], wish: Wish) -> Option<Vec<&'a Share>> {
    // A share without a limit does not serve a wish for an amount: nothing would keep that amount for it.
    let unlimited =
        |s: &&&Share| (wish.memory.is_some() && s.memory.is_none()) || (wish.compute.is_some() && s.compute.is_none());
    if free.iter().any(|s| unlimited(&s)) {
        return None;
    }
    let mut by_size: Vec<&Share> = free.to_vec();
    by_size.sort_by(|a, b| size(a).cmp(&size(b)).then_with(|| a.name.cmp(&b.name)));
    let most = if device.one_share_a_claim { 1 } else { usize::MAX };
    if let Some(n) = wish.shares {
        if n > most || n > by_size.len() {
            return None;
        }
        // The smallest run of n that serves: shares of unequal size are rarely asked for by number.
        return by_size.windows(n).find(|run| serves(run, wish)).map(<[&Share]>::to_vec);
    }
    // Takes the smallest share that completes the wish; if no share does, the largest one, and tries again.
    let mut chosen: Vec<&Share> = Vec::new();
    while !by_size.is_empty() && chosen.len() < most {
        let completes = by_size.iter().position(|s| {
            let mut with = chosen.clone();
            with.push(s);
            serves(&with, wish)
        });
        let largest = by_size.iter().map(|s| size(s)).max();
        let first_largest = by_size.iter().position(|s| Some(size(s)) == largest).unwrap_or(0);
        chosen.push(by_size.remove(completes.unwrap_or(first_largest)));
        if completes.is_some() {
            drop_superfluous(&mut chosen, wish);
            return Some(chosen);
        }
    }
    None
}

/// Takes out what is not needed, largest first, so that the least is left unused.
fn drop_superfluous(chosen: &mut Vec<&Share>, wish: Wish) {
    let mut at = 0;
    while at < chosen.len() {
        let out = chosen.remove(at);
        if !serves(chosen, wish) {
            chosen.insert(at, out);
            at += 1;
        }
    }
}

fn size(share: &Share) -> (u64, u32) {
    (
        share.memory.map_or(0, MemorySize::mib),
        share.compute.map_or(0, |c| c.get()),
    )
}

fn serves(shares: &[&Share], wish: Wish) -> bool {
    let memory: u64 = shares.iter().map(|s| size(s).0).sum();
    let compute: u32 = shares.iter().map(|s| size(s).1).sum();
    !shares.is_empty() && wish.memory.is_none_or(|m| memory >= m.mib()) && wish.compute.is_none_or(|c| compute >= c)
}

fn sum(device: &SplitDevice, shares: &[&Share]) -> Fit {
    let mut names: Vec<ShareName> = shares.iter().map(|s| s.name.clone()).collect();
    names.sort();
    let limited = |has: fn(&Share) -> bool| shares.iter().all(|s| has(s));
    Fit {
        device: device.device,
        shares: names,
        memory: limited(|s| s.memory.is_some()).then(|| MemorySize::from_mib(shares.iter().map(|s| size(s).0).sum())),
        compute: limited(|s| s.compute.is_some()).then(|| shares.iter().map(|s| size(s).1).sum()),
    }
}

fn free<'a>(device: &'a SplitDevice, is_free: &impl Fn(&SplitDevice, &Share) -> bool) -> Vec<&'a Share> {
    device.shares.iter().filter(|share| is_free(device, share)).collect()
}

fn refuse(asked: &[&SplitDevice], wish: Wish, is_free: &impl Fn(&SplitDevice, &Share) -> bool) -> Error {
    let wanted = [
        wish.shares.map(|n| format!("{n} shares")),
        wish.memory.map(|m| m.to_string()),
        wish.compute.map(|c| format!("{c}% compute")),
    ];
    let mut wanted: Vec<String> = wanted.into_iter().flatten().collect();
    if wanted.is_empty() {
        wanted.push("a share".to_owned());
    }
    let has = asked.iter().take(8).map(|device| {
        let free = free(device, is_free);
        let Fit { memory, compute, .. } = sum(device, &free);
        let limits = [memory.map(|m| format!(", {m}")), compute.map(|c| format!(", {c}%"))];
        let limits: String = limits.into_iter().flatten().filter(|_| !free.is_empty()).collect();
        let one = if device.one_share_a_claim { ", one a claim" } else { "" };
        let (name, free, all) = (device.device, free.len(), device.shares.len());
        format!("{name} has {free} of {all} shares free{limits}{one}")
    });
    Error::failed(wanted.join(" and "), "no device can give it now").hint(has.collect::<Vec<_>>().join("; "))
}
