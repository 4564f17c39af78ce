//! `tranche complete-names`: the names that shells offer. It reads what the last refresh and the ledger say, asks no
//! driver and takes no lock. What cannot be read is no name: an error in the middle of a command line helps nobody.

use super::place::StateArgs;
use super::{claim, out};
use anyhow::Result;
use std::path::Path;
use std::process::ExitCode;
use tranche_core::types::Part;
use tranche_plan::host_file::HostFile;
use tranche_plan::inventory::Inventory;
use tranche_plan::mig::described;
use tranche_plan::share::Plan;
use tranche_plan::sim;

/// Print the names that the completions of shells offer, one a line
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which names
    #[arg(value_enum)]
    kind: Kind,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// Devices and their shares
    Devices,
    /// Claims that were made beforehand
    Claims,
    /// Layouts of MIG with one instance
    Layouts,
    /// Built-in inventories
    Inventories,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let state_dir = &args.state.state_dir;
    let mut names = match args.kind {
        Kind::Devices => of_host(state_dir, |host| devices(&host.inventory, &host.plan)),
        Kind::Claims => claim::names(state_dir).unwrap_or_default(),
        Kind::Layouts => of_host(state_dir, |host| layouts(&host.inventory)),
        Kind::Inventories => sim::ALL.iter().map(|sim| format!("sim:{}", sim.name)).collect(),
    };
    names.iter_mut().for_each(|name| name.push('\n'));
    out::result(&names.concat())?;
    Ok(ExitCode::SUCCESS)
}

fn of_host(state_dir: &Path, names: impl FnOnce(&HostFile) -> Vec<String>) -> Vec<String> {
    HostFile::load(state_dir).map_or_else(|_| Vec::new(), |host| names(&host))
}

fn devices(inventory: &Inventory, plan: &Plan) -> Vec<String> {
    let mut names = Vec::new();
    for device in inventory.catalogue().usable() {
        let name = device.name();
        if let Some(split) = plan.split(device.device()).filter(|split| !split.method.is_whole()) {
            let any = split.replica().map(|_| Part::Any);
            let parts = any.into_iter().chain(split.shares.listed().map(Part::Share));
            names.extend(parts.map(|part| part.name_of(&name)));
        }
        names.push(name);
    }
    names
}

fn layouts(inventory: &Inventory) -> Vec<String> {
    let (gpus, _) = described(inventory);
    let of_gpu = |gpu: tranche_plan::mig::MigGpu| {
        let index = gpu.index;
        let profiles = gpu.profiles.into_iter().map(|profile| profile.name.to_string());
        let others = ["empty", "off"].map(str::to_owned);
        let wishes = profiles.chain(others).collect::<Vec<_>>();
        wishes.into_iter().map(move |wish| format!("{index}:{wish}"))
    };
    gpus.into_iter().flat_map(of_gpu).collect()
}
