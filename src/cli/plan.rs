//! `tranche plan`: which shares the policy makes of this host, and what each is worth.

use super::out;
use super::sharing::{self, SharingArgs};
use super::table::Table;
use crate::derive::Sharing;
use crate::error::Result;
use crate::inventory::Inventory;
use crate::share::{Guarantee, Share, SplitDevice};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Show which shares the policy makes of this host, and what each is worth
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    at: SharingArgs,
    /// For programs
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let (inventory, sharing) = sharing::required(&args.at)?;
    if args.json {
        out::json(&sharing.plan)?;
    } else {
        out::result(&text(&inventory, &sharing))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(inventory: &Inventory, sharing: &Sharing) -> String {
    let header = [
        "SHARE",
        "DEVICE",
        "STRATEGY",
        "MEMORY",
        "COMPUTE",
        "MEMORY IS",
        "COMPUTE IS",
        "BANDWIDTH IS",
        "FAULTS ARE",
    ];
    let mut table = Table::with_header(&header);
    for split in &sharing.plan.devices {
        for (names, share) in grouped(split) {
            table.row(row(split, &names, share));
        }
    }
    let mut text = table.text();
    text.push('\n');
    for split in &sharing.plan.devices {
        text.push_str(&left(split));
        let needs = split.needs(&sharing.state_dir);
        if !needs.is_empty() {
            text.push_str(&format!("  {} (as root):\n", sharing::NEEDS));
        }
        for command in needs {
            text.push_str(&format!("    {command}\n"));
        }
        if let Some(cost) = split.cost_of_defaults() {
            text.push_str(&format!("  {cost}\n"));
        }
    }
    let whole: Vec<String> = not_split(inventory, sharing);
    if !whole.is_empty() {
        text.push_str(&format!("not split, given to as many as ask: {}\n", whole.join(", ")));
    }
    text.push_str(&why(sharing));
    text
}

/// Shares that differ in nothing but their number are one line: `nvidia.com/gpu=0.0 … 9`.
fn grouped(split: &SplitDevice) -> Vec<(String, &Share)> {
    let base = format!("{}={}", split.kind, split.device.cdi_name());
    let mut groups: Vec<(&Share, &Share, usize)> = Vec::new();
    for share in &split.shares {
        match groups.last_mut() {
            Some((first, last, count)) if alike(first, share) => {
                *last = share;
                *count += 1;
            }
            _ => groups.push((share, share, 1)),
        }
    }
    let name = |(first, last, count): (&Share, &Share, usize)| match count {
        1 => format!("{base}.{}", first.name),
        _ => format!("{base}.{} … {}", first.name, last.name),
    };
    groups.into_iter().map(|g| (name(g), g.0)).collect()
}

fn alike(a: &Share, b: &Share) -> bool {
    let number = |s: &Share| s.name.as_str().bytes().all(|b| b.is_ascii_digit());
    number(a)
        && number(b)
        && Share {
            name: a.name.clone(),
            ..b.clone()
        } == *a
}

fn row(split: &SplitDevice, names: &str, share: &Share) -> Vec<String> {
    let grade = |g: &Guarantee| g.grade.to_string();
    let g = &share.guarantees;
    vec![
        names.to_owned(),
        format!("{} {}", split.device, split.product),
        split.method.strategy().to_string(),
        share.memory.map_or_else(|| "not limited".to_owned(), |m| m.to_string()),
        share
            .compute
            .map_or_else(|| "not limited".to_owned(), |c| format!("up to {c}")),
        grade(&g.memory),
        grade(&g.compute),
        grade(&g.bandwidth),
        grade(&g.faults),
    ]
}

fn left(split: &SplitDevice) -> String {
    let has_limits = split.shares.iter().any(|s| s.memory.is_some() || s.compute.is_some());
    if !has_limits {
        return format!("{}: {} shares\n", split.device, split.shares.len());
    }
    format!(
        "{}: {} shares; left over: {} MiB, {}% compute\n",
        split.device,
        split.shares.len(),
        split.memory_left_mib,
        split.compute_left
    )
}

fn not_split(inventory: &Inventory, sharing: &Sharing) -> Vec<String> {
    let split: BTreeSet<String> = sharing.plan.devices.iter().map(|d| d.device.cdi_name()).collect();
    let gpus = inventory
        .gpus
        .iter()
        .filter(|g| !g.is_in_mig_mode())
        .map(|g| g.index.to_string());
    let migs = inventory.mig_devices().map(|(g, m)| format!("{}:{}", g.index, m.index));
    gpus.chain(migs).filter(|name| !split.contains(name)).collect()
}

/// By what each grade holds, each reason once.
fn why(sharing: &Sharing) -> String {
    let mut lines: BTreeSet<String> = BTreeSet::new();
    let mut later: BTreeSet<&String> = BTreeSet::new();
    for share in sharing.plan.devices.iter().flat_map(|d| &d.shares) {
        let g = &share.guarantees;
        for (what, g) in [
            ("memory", &g.memory),
            ("compute", &g.compute),
            ("bandwidth", &g.bandwidth),
            ("faults", &g.faults),
        ] {
            lines.insert(format!("{what} {}: {}", g.grade, g.by));
        }
        later.extend(&g.not_available);
    }
    let mut text = String::from("\n");
    lines.iter().for_each(|l| text.push_str(&format!("{l}\n")));
    later.iter().for_each(|l| text.push_str(&format!("{l}\n")));
    if sharing.has_mps() {
        text.push_str(
            "a tenant that is root on the host, without a user namespace, can command the MPS daemon: one grade less\n",
        );
    }
    text
}
