//! Whether a verb takes a description of a machine in place of this one: a verb that looks does, and one that changes
//! something does not, because what it changes is here.

use clap::ArgMatches;
use std::path::{Path, PathBuf};
use tranche_core::error::{Error, Result};
use tranche_core::types::STATE_DIR;

/// What a verb changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// At most the file that the command line names.
    Nothing,
    /// What the state directory records. With another directory than the machine's own, a built-in host is for trying.
    Records,
    /// This machine.
    Machine,
}

/// Each verb with `--inventory`. A test compares the list with the command line.
const EFFECTS: &[(&str, Effect)] = &[
    ("list", Effect::Nothing),
    ("inventory", Effect::Nothing),
    ("cdi generate", Effect::Nothing),
    ("cdi refresh", Effect::Records),
    ("cdi watch", Effect::Records),
    ("cdi validate", Effect::Nothing),
    ("policy check", Effect::Nothing),
    ("policy diff", Effect::Nothing),
    ("plan", Effect::Nothing),
    ("advise", Effect::Nothing),
    ("bench", Effect::Machine),
    ("bench sweep", Effect::Machine),
    ("bench restore", Effect::Machine),
    ("bench guard", Effect::Machine),
    ("claim create", Effect::Records),
    ("reserve", Effect::Records),
    ("status", Effect::Nothing),
    ("doctor", Effect::Nothing),
    ("drain", Effect::Records),
    ("undrain", Effect::Records),
    ("run", Effect::Records),
    ("turns try", Effect::Machine),
    ("verify", Effect::Nothing),
    ("top", Effect::Nothing),
    ("broker", Effect::Records),
    ("mps start", Effect::Records),
    ("mps stop", Effect::Records),
    ("mps restart", Effect::Records),
    ("mig status", Effect::Nothing),
    ("mig profiles", Effect::Nothing),
    ("mig plan", Effect::Nothing),
    ("mig apply", Effect::Machine),
    ("mig undo", Effect::Machine),
    ("mig restore", Effect::Machine),
    ("mig export", Effect::Nothing),
    ("metrics", Effect::Nothing),
    ("export", Effect::Nothing),
    ("system create-device-nodes", Effect::Machine),
    ("system create-dev-char-symlinks", Effect::Machine),
    ("system prepare-removal", Effect::Machine),
    ("system protect", Effect::Machine),
    ("system unprotect", Effect::Machine),
    ("assert", Effect::Nothing),
    ("apply", Effect::Machine),
    ("checkpoint", Effect::Nothing),
    ("restore", Effect::Machine),
];

/// Refuses an inventory for a verb that changes something.
///
/// # Errors
/// Returns an error of usage.
pub(super) fn check(matches: &ArgMatches) -> Result<()> {
    let (verb, given) = leaf(matches);
    let Some(inventory) = value::<String>(given, "inventory") else {
        return Ok(());
    };
    let known = EFFECTS.iter().find(|(name, _)| *name == verb);
    let is_changed = match known.map_or(Effect::Machine, |(_, effect)| *effect) {
        _ if matches!(given.try_get_one::<bool>("dry_run"), Ok(Some(true))) => false,
        Effect::Nothing => false,
        Effect::Records => {
            let state_dir = value::<PathBuf>(given, "state_dir").map_or(Path::new(STATE_DIR), PathBuf::as_path);
            inventory.starts_with("sim:") && is_same(state_dir, Path::new(STATE_DIR))
        }
        Effect::Machine => true,
    };
    match is_changed {
        true => Err(Error::usage(
            verb,
            format!("changes this machine, and --inventory {inventory} describes another"),
        )
        .hint("leave --inventory and TRANCHE_INVENTORY out")),
        false => Ok(()),
    }
}

fn value<'m, T: Clone + Send + Sync + 'static>(matches: &'m ArgMatches, name: &str) -> Option<&'m T> {
    matches.try_get_one::<T>(name).ok().flatten()
}

/// The verb with the words that lead to it, and its options.
fn leaf(matches: &ArgMatches) -> (String, &ArgMatches) {
    let (mut words, mut at) = (Vec::new(), matches);
    while let Some((word, below)) = at.subcommand() {
        words.push(word);
        at = below;
    }
    (words.join(" "), at)
}

fn is_same(path: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.components().collect());
    real(path) == real(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, CommandFactory};

    /// The verbs of `command` that take an inventory.
    fn with_inventory(command: &Command, path: &str) -> Vec<String> {
        let takes = command.get_arguments().any(|arg| arg.get_id() == "inventory");
        let own = takes.then(|| path.to_owned());
        let below = command.get_subcommands();
        let below = below.flat_map(|verb| with_inventory(verb, format!("{path} {}", verb.get_name()).trim_start()));
        own.into_iter().chain(below).collect()
    }

    #[test]
    fn each_verb_with_an_inventory_is_in_the_list_once() {
        let mut verbs = with_inventory(&crate::Arguments::command(), "");
        verbs.extend(
            with_inventory(&crate::mig::parted_command(), "")
                .into_iter()
                .filter(|verb| verb != "export"),
        );
        verbs.sort();
        let mut listed: Vec<String> = EFFECTS.iter().map(|(verb, _)| (*verb).to_owned()).collect();
        listed.sort();
        assert_eq!(listed, verbs);
    }
}
