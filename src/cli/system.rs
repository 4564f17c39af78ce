//! `tranche system`: the driver's device nodes, who may open them, the links in `/dev/char` that lead to them, and the
//! removal of tranche.

mod create_dev_char_symlinks;
mod create_device_nodes;
mod modules;
mod prepare_removal;
mod protect;

use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use tranche_core::error::Error;
use tranche_host::examine::{self, HostOptions};
use tranche_plan::inventory::{Inventory, Source};
use tranche_plan::policy::Access;
use tranche_specs::device_files::{NodeSet, make_missing, nodes};
use tranche_state::access::{self, Enforcement, KeptNodes};
use tranche_state::accounts::{AccountSources, Accounts};
use tranche_state::planning::{self, PlanOptions};

#[derive(clap::Subcommand)]
pub(super) enum Verb {
    CreateDeviceNodes(create_device_nodes::Args),
    CreateDevCharSymlinks(create_dev_char_symlinks::Args),
    PrepareRemoval(Box<prepare_removal::Args>),
    Protect(Box<protect::ProtectArgs>),
    Unprotect(Box<protect::UnprotectArgs>),
}

pub(super) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::CreateDeviceNodes(args) => create_device_nodes::run(args),
        Verb::CreateDevCharSymlinks(args) => create_dev_char_symlinks::run(args),
        Verb::PrepareRemoval(args) => prepare_removal::run(args),
        Verb::Protect(args) => protect::protect(args),
        Verb::Unprotect(args) => protect::unprotect(args),
    }
}

/// The host's inventory. What is in `/dev` and is not the driver's node is an error here, and not a warning.
///
/// # Errors
/// Returns an error for a host that is not this machine, and those of the discovery.
fn examine(host: &HostOptions) -> Result<(Inventory, Vec<Error>)> {
    if !host.is_here() {
        bail!(
            Error::usage("--root and --inventory", "describe another machine")
                .hint("device files are made on this machine; give --driver-root or --dev-root")
        );
    }
    let inventory = examine::quietly(host)?;
    // A warning about a node that exists says that it is not the driver's. One that is missing is named by its place in
    // a container, where this machine may have another driver's node.
    let files = nodes(&inventory, NodeSet::All);
    let is_missing = |path: &str| {
        let mut missing = files.iter().filter(|file| !file.node.present);
        missing.any(|file| file.node.container.as_str() == path)
    };
    let exists =
        |path: &str| path.contains("/dev/nvidia") && !is_missing(path) && Path::new(path).symlink_metadata().is_ok();
    let (wrong, others): (Vec<_>, Vec<_>) = inventory.warnings.iter().partition(|warning| exists(&warning.object));
    for warning in others {
        tracing::warn!("{}: {}", warning.object, warning.text);
    }
    let wrong = wrong
        .into_iter()
        .map(|warning| Error::failed(&warning.object, &warning.text))
        .collect();
    Ok((inventory, wrong))
}

/// The host with its device nodes, of which those that were missing have been made.
struct WithNodes {
    inventory: Inventory,
    /// The paths of the nodes that were made.
    made: BTreeSet<String>,
    /// What is not the driver's node, and what could not be made.
    wrong: Vec<Error>,
}

impl WithNodes {
    /// The host as it is.
    ///
    /// # Errors
    /// Returns the errors of [`examine()`].
    fn without_making(host: &HostOptions) -> Result<Self> {
        let (inventory, wrong) = examine(host)?;
        Ok(Self {
            inventory,
            made: BTreeSet::new(),
            wrong,
        })
    }
}

/// Makes the nodes of `set` that do not exist. Where the policy closes nodes, all get the lists that follow from the
/// ledger.
///
/// Without the control node NVML does not answer, and it makes none here: the process that asks it has no right to.
/// What it alone knows of, such as the capabilities of MIG, follows when it has been asked again.
///
/// # Errors
/// Returns the errors of [`examine()`], or one if the module's parameters cannot be read.
fn make_nodes(options: &PlanOptions, set: NodeSet) -> Result<WithNodes> {
    let accounts = Accounts::new(AccountSources::default());
    let kept = KeptNodes {
        host: &options.host,
        state_dir: &options.state_dir,
        accounts: &accounts,
        starting: &[],
    };
    // A policy that cannot be read may close them.
    let policy = planning::policy_in_force(&options.policy, &options.state_dir);
    let wanted = policy.as_ref().map_or(Access::Enforce, |policy| policy.access);
    let params = access::params(&options.host)?;
    let is_closed = Enforcement::of(wanted, params) == Enforcement::InForce;
    let mut made = BTreeSet::new();
    loop {
        let (inventory, mut wrong) = examine(&options.host)?;
        let (new, errors) = make_missing(&inventory, set, params, is_closed);
        wrong.extend(errors);
        let is_last = inventory.source == Source::Nvml || new.is_empty();
        made.extend(new.into_iter().map(|path| path.as_str().to_owned()));
        if !is_last {
            continue;
        }
        if is_closed {
            let lists = policy
                .and_then(|policy| tranche_plan::share::plan(&policy, &inventory))
                .and_then(|plan| kept.keep(&inventory, &plan));
            wrong.extend(lists.unwrap_or_else(|error| vec![error]));
        }
        return Ok(WithNodes { inventory, made, wrong });
    }
}
