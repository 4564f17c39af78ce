//! The options that say where things are. They mean the same on every verb that has them.

use crate::error::{Context, Result};
use crate::types::HostPath;
use std::path::PathBuf;

/// Where the host is that a verb looks at.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Where the host is")]
pub struct HostArgs {
    /// Take DIR for the host's /: a picture of another machine (paths in the result are without DIR)
    #[arg(long, value_name = "DIR", env = "TRANCHE_ROOT", conflicts_with = "inventory")]
    pub root: Option<PathBuf>,
    /// Where the driver's files are; stays in the paths, since the engine must mount them from there. This and the
    /// next three name places of the host: with --root, places in DIR
    #[arg(long, value_name = "DIR", env = "TRANCHE_DRIVER_ROOT", conflicts_with = "inventory")]
    pub driver_root: Option<PathBuf>,
    /// Where the tree with /dev is [default: the driver root, where that has device nodes]
    #[arg(long, value_name = "DIR", env = "TRANCHE_DEV_ROOT", conflicts_with = "inventory")]
    pub dev_root: Option<PathBuf>,
    /// Take DIR for /proc
    #[arg(long, value_name = "DIR", env = "TRANCHE_PROC_ROOT", conflicts_with = "inventory")]
    pub proc_root: Option<PathBuf>,
    /// Take DIR for /sys
    #[arg(long, value_name = "DIR", env = "TRANCHE_SYS_ROOT", conflicts_with = "inventory")]
    pub sys_root: Option<PathBuf>,
    /// Use a saved inventory instead of looking: a file, - for stdin, sim:NAME for a built-in one (sim:help lists them)
    #[arg(long, value_name = "FILE", env = "TRANCHE_INVENTORY")]
    pub inventory: Option<String>,
}

impl HostArgs {
    /// Whether the host is the machine that this program runs on, and not a picture or a description of another one.
    pub fn is_here(&self) -> bool {
        self.root.is_none() && self.inventory.is_none()
    }
}

/// Directories with CDI specs, later ones first in rank.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SpecDirArgs {
    /// A directory with CDI specs; given again, later ones win [default: /etc/cdi, /var/run/cdi]
    #[arg(
        long = "spec-dir",
        value_name = "DIR",
        env = "TRANCHE_SPEC_DIR",
        value_delimiter = ':'
    )]
    pub spec_dirs: Vec<PathBuf>,
}

impl SpecDirArgs {
    /// The directories to read, in the order in which engines read them.
    pub fn dirs(&self) -> Vec<PathBuf> {
        if self.spec_dirs.is_empty() {
            vec!["/etc/cdi".into(), "/var/run/cdi".into()]
        } else {
            self.spec_dirs.clone()
        }
    }
}

/// How devices are to be shared.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigArgs {
    /// The policy: which devices are shared, and how [default: /etc/tranche/config.yaml, where it is there]
    #[arg(long, value_name = "FILE", env = "TRANCHE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where the policy is a ConfigMap with several configurations: the key of the one to use
    #[arg(long, value_name = "KEY", env = "TRANCHE_CONFIG_KEY")]
    pub config_key: Option<String>,
}

impl ConfigArgs {
    /// The file to read, if there is one: one that was named must be there, the default one need not.
    pub fn file(&self) -> Option<PathBuf> {
        let default = || PathBuf::from(crate::policy::read::DEFAULT_FILE);
        match &self.config {
            Some(file) => Some(file.clone()),
            None => Some(default()).filter(|f| f.exists()),
        }
    }
}

/// Where the ledger is.
#[derive(Debug, Clone, clap::Args)]
pub struct StateArgs {
    /// Where the ledger of shares is
    #[arg(long, value_name = "DIR", env = "TRANCHE_STATE_DIR", default_value = crate::ledger::STATE_DIR)]
    pub state_dir: PathBuf,
}

impl StateArgs {
    /// The directory, as a hook must name it, which runs wherever an engine does.
    ///
    /// # Errors
    /// A path that cannot be: none, or one that climbs out of the root.
    pub fn dir(&self) -> Result<HostPath> {
        let shown = self.state_dir.display();
        HostPath::new(std::path::absolute(&self.state_dir).about(shown, "cannot be named")?)
    }
}
