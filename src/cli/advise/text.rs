//! Advice for people, in lines of 80 columns. Only a policy and commands may be wider.

use super::NOT_MEASURED;
use crate::out::fitted;
use std::path::Path;
use tranche_bench::kept::MeasuredHere;
use tranche_core::text::{counted, some};
use tranche_plan::advise::observed::Observed;
use tranche_plan::advise::{Advice, Choice};
use tranche_plan::policy::read::DEFAULT_FILE;

/// The width that text is wrapped to.
const WIDTH: usize = 80;

/// The whole text. `written` is the file to which the policy was written.
pub(super) fn of(advice: &Advice, measured: &[MeasuredHere], written: Option<&Path>) -> String {
    let mut text: String = advice.choices.iter().map(|one| choice(one, measured)).collect();
    if !advice.runners_up.is_empty() {
        text.push_str("Runners-up, and what each gives up:\n");
        for one in &advice.runners_up {
            text.push_str(&line(&format!("{}: {}: {}", one.wish, one.way, one.gives_up)));
        }
        text.push('\n');
    }
    text.push_str("Notes:\n");
    for note in &advice.notes {
        text.push_str(&line(note));
    }
    if measured.is_empty() {
        text.push_str(&line(NOT_MEASURED));
    }
    text.push_str(&format!("\nThe policy:\n{}\nTo put it into force:\n", advice.policy));
    match written {
        None => text.push_str(&format!("  tranche advise … --write {DEFAULT_FILE}\n")),
        Some(file) if file == Path::new(DEFAULT_FILE) => {}
        Some(file) => text.push_str(&format!("  cp {} {DEFAULT_FILE}\n", file.display())),
    }
    if !advice.mig_layouts.is_empty() {
        let layouts = advice.mig_layouts.iter();
        let layouts: Vec<String> = layouts.map(|layout| format!("--layout {layout}")).collect();
        text.push_str(&format!("  tranche mig apply {}\n", layouts.join(" ")));
    }
    text.push_str("  tranche policy check\n  tranche cdi refresh\n");
    text
}

/// What was seen, as wishes for a file that a person may correct.
pub(super) fn observed(seen: &[Observed]) -> String {
    let mut text = "What runs, as wishes:\n".to_owned();
    text.extend(seen.iter().map(|one| line(&one.to_string())));
    text.push_str(&line(
        "Bounds of latency, and tenants who do not trust one another, cannot be seen: write them to a file of wishes",
    ));
    text.push('\n');
    text
}

fn choice(one: &Choice, measured: &[MeasuredHere]) -> String {
    let containers = counted(one.containers as usize, "container");
    let mut text = format!("{}, {containers}: {}\n", one.wish, one.way);
    for device in &one.devices {
        text.push_str(&line(device));
    }
    // Turns of one device have one name.
    let mut names = one.ask.clone();
    names.dedup();
    text.push_str(&line(&format!("ask for {}", some(&names))));
    text.push_str(&line(&format!(
        "{} (rule {}; it rests on {})",
        one.reason, one.rule, one.source
    )));
    // Each of its devices begins with its name.
    let is_on = |name: &str| {
        let mut devices = one.devices.iter();
        devices.any(|device| device.split_once(',').is_some_and(|(device, _)| device == name))
    };
    for here in measured.iter().filter(|here| is_on(&here.device)) {
        text.push_str(&line(&format!("{}: {here}", here.device)));
    }
    if let Some(worth) = one.worth {
        text.push_str(&line(&format!(
            "limits: memory {}, compute {}, bandwidth {}, faults of a neighbour {}",
            worth.memory, worth.compute, worth.bandwidth, worth.faults
        )));
    }
    text.push('\n');
    text
}

/// A line below a heading.
fn line(text: &str) -> String {
    fitted(&format!("  {text}"), WIDTH, 4)
}
