//! A plan for people, with a paragraph for each group of equal devices, in lines of 80 columns. Only commands may be
//! longer, because a command in two lines cannot be copied.

use crate::table::Table;
use std::collections::BTreeSet;
use tranche_bench::kept::MeasuredHere;
use tranche_core::text::{shown, some};
use tranche_core::types::CdiKind;
use tranche_plan::derive::Sharing;
use tranche_plan::inventory::Inventory;
use tranche_plan::policy::WholeDevice;
use tranche_plan::policy::read::DEFAULT_FILE;
use tranche_plan::share::{Guarantees, Share, SplitDevice};
use tranche_state::held::or_dash;
use tranche_state::planning::needs;

/// The width that text is wrapped to.
const WIDTH: usize = 80;

/// Where the reason of a guarantee begins: after its dimension and its two grades.
const REASON: usize = 33;

/// The whole text.
pub(super) fn of(inventory: &Inventory, sharing: &Sharing, measured: &[MeasuredHere]) -> String {
    let mut text = String::new();
    for devices in alike(&sharing.plan.devices) {
        paragraph(&mut text, &devices, sharing, measured);
        text.push('\n');
    }
    for absent in &sharing.plan.absent {
        wrapped(&mut text, "", &format!("Not offered: {absent}"), 2);
    }
    for warning in &sharing.plan.warnings {
        wrapped(&mut text, "", &format!("Warning: {warning}"), 2);
    }
    let rest = not_shared(inventory, sharing);
    if !rest.is_empty() {
        let rest = format!(
            "Not in the policy, shared by all containers that request it: gpu {}",
            some(&rest)
        );
        wrapped(&mut text, "", &rest, 2);
    }
    let shares = sharing.plan.devices.iter().flat_map(|device| device.shares.distinct());
    let later: BTreeSet<&String> = shares.flat_map(|share| &share.guarantees.not_available).collect();
    for line in later {
        wrapped(&mut text, "", &format!("Not in use: {line}"), 2);
    }
    for limits in sharing.plan.users.limits() {
        wrapped(&mut text, "", &limits, 2);
    }
    wrapped(
        &mut text,
        "",
        "ROOT: what holds against a container whose user is root on the host, in no user namespace, which is the default \
         of engines that run as root. OTHERS: what holds against any other container.",
        2,
    );
    text
}

/// The devices in groups that have equal shares and properties.
fn alike(devices: &[SplitDevice]) -> Vec<Vec<&SplitDevice>> {
    let mut groups: Vec<Vec<&SplitDevice>> = Vec::new();
    for device in devices {
        let same = |other: &SplitDevice| {
            let other = SplitDevice {
                device: device.device,
                key: device.key.clone(),
                uuid: device.uuid.clone(),
                ..other.clone()
            };
            other == *device
        };
        let group = groups
            .iter_mut()
            .find(|group| group.first().is_some_and(|first| same(first)));
        match group {
            Some(group) => group.push(device),
            None => groups.push(vec![device]),
        }
    }
    groups
}

fn paragraph(text: &mut String, devices: &[&SplitDevice], sharing: &Sharing, measured: &[MeasuredHere]) {
    let [first, others @ ..] = devices else { return };
    let names: Vec<String> = devices.iter().map(|d| d.device.cdi_name()).collect();
    let ram = of_ram(first);
    let memory = first.memory.map(|m| format!(", {m}{ram}")).unwrap_or_default();
    let title = format!(
        "gpu {}: {}{memory}, {}",
        some(&names),
        shown(&first.product),
        what(first)
    );
    wrapped(text, "", &title, 2);
    for (name, promised) in [("memory", first.memory_promised), ("compute", first.compute_promised)] {
        if let Some(percent) = promised.filter(|percent| *percent > 100) {
            text.push_str(&format!("  {name} is promised {} times\n", times(percent)));
        }
    }
    let rows = rows(first, sharing);
    let widths = rows.iter().map(|(name, _)| name.chars().count());
    let widest = widths.max().unwrap_or(0).min(50);
    for (name, what) in rows {
        text.push_str(&format!("  {name:widest$}  {what}\n"));
    }
    if !others.is_empty() {
        text.push_str("  the other devices have the same names, with their own numbers\n");
    }
    if first.memory_left.mib() > 0 && first.memory_promised.is_some()
        || first.compute_left > 0 && first.compute_promised.is_some()
    {
        let (mib, percent) = (first.memory_left.mib(), first.compute_left);
        let what = if first.uses_system_memory { "RAM" } else { "memory" };
        text.push_str(&format!("  left over: {mib} MiB of {what}, {percent}% of compute\n"));
    }
    if let Some(share) = first.shares.first() {
        grades(text, &share.guarantees);
    }
    measurements(text, devices, measured);
    for device in devices {
        let needs = device.needs(&sharing.state_dir);
        if let Some(does) = needs::by_broker(device, &needs) {
            wrapped(text, "", &format!("  {}: {does}", device.device), 4);
        }
        let commands = needs::by_operator(device, &needs);
        if !commands.is_empty() {
            text.push_str(&format!("  {}: {}:\n", device.device, needs::RUN_AS_ROOT));
        }
        for command in commands {
            text.push_str(&format!("    {command}\n"));
        }
        if let Some(cost) = needs::cost_of_defaults(&needs, device) {
            wrapped(text, "  ", &cost, 4);
        }
    }
}

/// How a device is given out: `mps, 10 equal shares`.
fn what(split: &SplitDevice) -> String {
    if split.method.is_whole() {
        return "dedicated: for one container at a time".to_owned();
    }
    let equal = split.replica().map_or("share", |_| "equal share");
    let shares = tranche_core::text::counted(split.shares.len(), equal);
    format!("{}, {shares}", split.method.strategy())
}

/// 150 percent as `1.5`, 133 as `1.33`.
fn times(percent: u32) -> String {
    let text = format!("{:.2}", f64::from(percent) / 100.0);
    text.strip_suffix('0').unwrap_or(&text).to_owned()
}

/// What follows a size of memory of a device: that of the machine, if the GPU has none of its own.
fn of_ram(split: &SplitDevice) -> &'static str {
    if split.uses_system_memory { " of RAM" } else { "" }
}

/// The names of a device, and what a container gets under each.
fn rows(split: &SplitDevice, sharing: &Sharing) -> Vec<(String, String)> {
    let device = split.device.cdi_name();
    let base = format!("{}={device}", split.kind);
    let mut named = sharing.plan.named_shares(split);
    let mut rows: Vec<(String, String)> = match split.replica() {
        None => named
            .filter_map(|name| Some((format!("{base}.{name}"), size(split, split.share(&name)?))))
            .collect(),
        Some(share) => {
            let numbers = named.next().zip(named.last()).map(|(first, last)| {
                let name = format!("{base}.{first} … {last}");
                (name, "the same shares, by number".to_owned())
            });
            let any = (format!("{base}.any"), size(split, share));
            std::iter::once(any).chain(numbers).collect()
        }
    };
    let whole = match (split.method.is_whole(), sharing.plan.whole_device) {
        (true, _) => Some("the whole device"),
        (false, WholeDevice::Claim) => Some("the whole device, while no share is held"),
        (false, WholeDevice::Open) => Some("the whole device, for every container that requests it"),
        (false, WholeDevice::Hide) => None,
    };
    rows.extend(whole.map(|what| (format!("nvidia.com/gpu={device}"), what.to_owned())));
    rows
}

fn size(split: &SplitDevice, share: &Share) -> String {
    let memory = share.memory.map(|m| format!("{m}{}", of_ram(split)));
    let compute = share.compute.map(|c| format!("up to {c} of compute"));
    let parts: Vec<String> = memory.into_iter().chain(compute).collect();
    if parts.is_empty() {
        "no limit of memory or compute".to_owned()
    } else {
        parts.join(", ")
    }
}

/// What the shares of a device guarantee. All shares of a device have limits of the same kind, and so the same grades.
fn grades(text: &mut String, guarantees: &Guarantees) {
    text.push_str(&format!("  {:<11}{:<10}{:<10}BECAUSE\n", "", "ROOT", "OTHERS"));
    for (dimension, guarantee) in [
        ("memory", &guarantees.memory),
        ("compute", &guarantees.compute),
        ("bandwidth", &guarantees.bandwidth),
        ("faults", &guarantees.faults),
    ] {
        let begin = format!("  {dimension:<11}{:<10}{:<10}", guarantee.root, guarantee.grade);
        wrapped(text, &begin, &guarantee.by, REASON);
    }
}

/// What was measured on this machine of devices with equal shares: one line if that is nothing of any of them.
fn measurements(text: &mut String, devices: &[&SplitDevice], measured: &[MeasuredHere]) {
    let of_device = |split: &&SplitDevice| measured.iter().find(|one| one.key == split.key);
    let found: Vec<&MeasuredHere> = devices.iter().filter_map(of_device).collect();
    let is_nothing = |one: &&MeasuredHere| one.measured.is_none() && one.why_not.is_none();
    let lines = match found.iter().all(is_nothing) {
        true => found.get(..1).unwrap_or_default(),
        false => &found,
    };
    for one in lines {
        let name = match found.len() {
            1 => String::new(),
            _ if lines.len() < found.len() => String::new(),
            _ => format!("{}: ", one.device),
        };
        let hint = one.command.as_ref().map(|command| format!("; {command} measures it"));
        wrapped(text, "", &format!("  {name}{one}{}", hint.unwrap_or_default()), 4);
    }
}

/// The page for a machine on which nothing is shared.
pub(super) fn not_shared_at_all(inventory: &Inventory) -> String {
    let mut table = Table::with_header(&["DEVICE", "PRODUCT", "MEMORY"]);
    for device in inventory.catalogue().usable() {
        let memory = or_dash(device.memory().map(|memory| memory.to_string()));
        let name = format!("{}={}", CdiKind::nvidia_gpu(), device.name());
        table.row([name, device.product(), memory]);
    }
    format!(
        "no policy shares a device, so each is given whole, by its name:\n{}\n\
         to share each between two containers, write to {DEFAULT_FILE}:\n{EXAMPLE}",
        table.text()
    )
}

/// A policy to begin with.
const EXAMPLE: &str = "  version: v1
  sharing:
    timeSlicing:
      resources:
      - {name: nvidia.com/gpu, replicas: 2}
";

/// The devices that the policy does not share.
fn not_shared(inventory: &Inventory, sharing: &Sharing) -> Vec<String> {
    let catalogue = inventory.catalogue();
    let not_shared = catalogue
        .usable()
        .filter(|device| sharing.plan.split(device.device()).is_none());
    not_shared.map(|device| device.name()).collect()
}

/// Adds `begin` and `rest` in lines of at most [`WIDTH`]; later lines are indented by `indent`. A word that is longer
/// than a line has a line of its own.
fn wrapped(text: &mut String, begin: &str, rest: &str, indent: usize) {
    let mut line = begin.to_owned();
    let mut is_empty = true;
    for word in rest.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    text.push_str(&line);
    text.push('\n');
}
