//! Where the files of the machine that is examined are.
//!
//! Another machine (`--root`, `--inventory`) has files of its own: nothing of this machine says anything about it,
//! except what an option names.

use std::path::{Path, PathBuf};
use tranche_core::ledger::STATE_DIR;
use tranche_core::types::USUAL_SPEC_DIRS;
use tranche_plan::policy::read::DEFAULT_FILE;
use tranche_state::planning::{PlanOptions, PolicyOptions};

/// Where the files of the machine are.
pub(super) struct Machine {
    /// The directory that is its `/`; `None` for a machine of which only an inventory is known.
    pub(super) root: Option<PathBuf>,
    /// Whether this program runs on it.
    pub(super) is_here: bool,
    /// The directories of specifications.
    pub(super) spec_dirs: Vec<PathBuf>,
    /// The policy; `None` if the machine has no policy.
    pub(super) policy: Option<PolicyOptions>,
    /// The state directory; `None` for that of another machine, whose processes cannot be asked.
    pub(super) state_dir: Option<PathBuf>,
}

impl Machine {
    /// The machine that the options name.
    pub(super) fn of(at: &PlanOptions, spec_dirs: &[PathBuf]) -> Self {
        let is_here = at.host.is_here();
        let root = match (&at.host.inventory, &at.host.roots.root) {
            (Some(_), _) => None,
            (None, Some(root)) => Some(root.clone()),
            (None, None) => Some(PathBuf::from("/")),
        };
        let below = |path: &str| root.as_ref().and_then(|root| inside(root, path));
        let spec_dirs = match spec_dirs {
            [_, ..] => spec_dirs.to_vec(),
            [] if is_here => USUAL_SPEC_DIRS.map(PathBuf::from).into(),
            // On most systems /var/run is a link to /run, which leads to this machine.
            [] => [below("etc/cdi"), below("var/run/cdi").or_else(|| below("run/cdi"))]
                .into_iter()
                .flatten()
                .collect(),
        };
        let named = at.policy.file.clone();
        let file = match is_here {
            true => at.policy.to_read(),
            false => named.or_else(|| below(DEFAULT_FILE)),
        };
        let policy = file.map(|file| PolicyOptions {
            file: Some(file),
            ..at.policy.clone()
        });
        let is_usual = at.state_dir == Path::new(STATE_DIR);
        Self {
            is_here,
            spec_dirs,
            policy,
            state_dir: (is_here || !is_usual).then(|| at.state_dir.clone()),
            root,
        }
    }

    /// The path of a file of the machine; `None` if it does not exist, or if a link leads out of the machine.
    pub(super) fn file(&self, path: &str) -> Option<PathBuf> {
        inside(self.root.as_ref()?, path)
    }
}

/// What `path` is below `root`; `None` if it does not exist, or if a link leads out of `root`.
fn inside(root: &Path, path: &str) -> Option<PathBuf> {
    let path = root.join(path.trim_start_matches('/'));
    let real = path.canonicalize().ok()?;
    real.starts_with(root.canonicalize().ok()?).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_out_of_a_machine_is_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        fs::create_dir_all(at("root/run/cdi")).unwrap();
        fs::create_dir_all(at("root/var")).unwrap();
        fs::create_dir_all(at("elsewhere/cdi")).unwrap();
        symlink(at("elsewhere"), at("root/var/run")).unwrap();
        let root = at("root");
        assert_eq!(inside(&root, "/run/cdi"), Some(at("root/run/cdi")));
        assert_eq!(inside(&root, "var/run/cdi"), None);
        assert_eq!(inside(&root, "missing"), None);
    }
}
