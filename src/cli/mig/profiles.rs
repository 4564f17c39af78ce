//! `tranche mig profiles`

use super::ViewArgs;
use crate::out;
use crate::table::Table;
use anyhow::Result;
use std::process::ExitCode;
use tranche_plan::mig::MigGpu;

/// Show the profiles of instances that each GPU offers, with their places
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let view = args.view.look()?;
    out::either(args.view.json, &view.gpus, || text(&view.gpus))?;
    Ok(ExitCode::SUCCESS)
}

/// GPUs that offer the same are listed once.
fn text(gpus: &[MigGpu]) -> String {
    let mut shown: Vec<&MigGpu> = Vec::new();
    let mut text = String::new();
    for gpu in gpus {
        // What is known of compute instances depends on which instances there are.
        let offers = |gpu: &MigGpu| {
            let profiles = gpu.profiles.iter();
            profiles
                .map(|profile| (profile.id, profile.name.clone(), profile.placements.clone()))
                .collect::<Vec<_>>()
        };
        let is_same = |other: &&&MigGpu| other.product == gpu.product && offers(other) == offers(gpu);
        if shown.iter().any(|other| is_same(&other)) {
            continue;
        }
        shown.push(gpu);
        if !text.is_empty() {
            text.push('\n');
        }
        let same: Vec<String> = gpus
            .iter()
            .filter(|other| other.product == gpu.product && offers(other) == offers(gpu))
            .map(|other| other.index.to_string())
            .collect();
        text.push_str(&format!("gpu {}: {}\n", same.join(", "), gpu.product));
        if gpu.profiles.is_empty() {
            text.push_str("its driver lists profiles only while MIG mode is on\n");
            continue;
        }
        let mut table = Table::with_header(&["PROFILE", "ID", "MEMORY", "SM", "MOST", "PLACES"]);
        for profile in &gpu.profiles {
            let places: Vec<String> = profile.placements.iter().map(|place| place.start.to_string()).collect();
            let size = profile.placements.first().map_or(0, |place| place.size);
            table.row([
                profile.name.to_string(),
                profile.id.to_string(),
                format!("{} MiB", profile.memory.mib()),
                profile.sms.to_string(),
                profile.most.to_string(),
                format!("{} of {size} units", places.join(" ")),
            ]);
        }
        text.push_str(&table.text());
    }
    text
}
