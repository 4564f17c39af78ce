//! The policy that a cluster gives this node: one configuration of the ConfigMap that NVIDIA's device plugin reads too.

use crate::serve::commands::Commands;
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use tranche_core::error::{Context, Error, Result};
use tranche_plan::inventory::Inventory;
use tranche_plan::policy::read;
use tranche_plan::share;
use tranche_protocol::PolicyAnswer;
use tranche_state::planning::PolicyOptions;
use tranche_state::replace;

/// Its name in messages. Lines and columns are those of the configuration, and not of the ConfigMap around it.
const NAME: &str = "the cluster's policy";

/// Keeps `text` as the policy of the cluster, or none, if it differs from the present one. A refresh follows, because
/// the file is one that a refresh depends on.
///
/// # Errors
/// Returns an error if the text is no policy, has what only the node's owner decides, or cannot be applied to this
/// host; if the owner has written a policy; or if the file cannot be written. What counted before counts then.
pub(in crate::serve) fn policy(commands: &Commands<'_>, text: Option<&str>) -> Result<Value> {
    let options = &commands.options.policy;
    let answer = match text {
        Some(text) => take(options, text, &commands.facts()?.inventory)?,
        None => PolicyAnswer {
            changed: remove(options)?,
            warnings: Vec::new(),
        },
    };
    serde_json::to_value(answer).about("broker", "cannot write its answer")
}

fn take(options: &PolicyOptions, text: &str, inventory: &Inventory) -> Result<PolicyAnswer> {
    if let Some(own) = options.of_the_owner() {
        let what = format!(
            "has no effect, because this node has a policy of its own: {}",
            own.display()
        );
        let hint = "remove that file from the node, or do not name a ConfigMap in the chart";
        return Err(Error::failed(NAME, what).hint(hint));
    }
    let read = read::parse(NAME, text)?;
    if read.runtime.is_some() {
        // It names programs that run as root.
        return Err(
            Error::usage(NAME, "has a section runtime, which only the policy of a node may have")
                .hint("write that section into /etc/tranche/config.yaml of the node, together with the rest"),
        );
    }
    let plan = share::plan(&read.policy, inventory)?;
    let mut warnings = read.warnings;
    warnings.extend(plan.warnings);
    warnings.extend(plan.absent.iter().map(ToString::to_string));
    let changed = fs::read(&options.cluster).ok().as_deref() != Some(text.as_bytes());
    if changed {
        replace::write(&options.cluster, text)?;
    }
    Ok(PolicyAnswer { changed, warnings })
}

fn remove(options: &PolicyOptions) -> Result<bool> {
    match fs::remove_file(&options.cluster) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        done => done
            .map(|()| true)
            .about(options.cluster.display(), "cannot be removed"),
    }
}
