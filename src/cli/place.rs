//! The options that name directories and files. They mean the same on every verb that has them.

use std::path::{Path, PathBuf};
use tranche_core::types::USUAL_SPEC_DIRS;
use tranche_specs::installed::EngineDirs;
use tranche_state::planning::{PolicyOptions, pipe_directories};

/// Which host a verb examines.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Which host to examine")]
pub struct HostArgs {
    /// Examine the directory DIR as the host's /, such as a copy of another machine. Paths in the result do not
    /// contain DIR
    #[arg(long, value_name = "DIR", env = "TRANCHE_ROOT", conflicts_with = "inventory")]
    pub root: Option<PathBuf>,
    /// The directory that contains the driver's files. Paths in the result contain it, because the engine mounts the
    /// files from there. With --root, this and the next three options name directories below that root
    #[arg(long, value_name = "DIR", env = "TRANCHE_DRIVER_ROOT", conflicts_with = "inventory")]
    pub driver_root: Option<PathBuf>,
    /// The directory that contains dev/ [default: the driver root if it has device nodes, else /]
    #[arg(long, value_name = "DIR", env = "TRANCHE_DEV_ROOT", conflicts_with = "inventory")]
    pub dev_root: Option<PathBuf>,
    /// Read DIR instead of /proc
    #[arg(long, value_name = "DIR", env = "TRANCHE_PROC_ROOT", conflicts_with = "inventory")]
    pub proc_root: Option<PathBuf>,
    /// Read DIR instead of /sys
    #[arg(long, value_name = "DIR", env = "TRANCHE_SYS_ROOT", conflicts_with = "inventory")]
    pub sys_root: Option<PathBuf>,
    /// Read a saved inventory instead of examining a host: a file, - for stdin, or sim:NAME for a built-in one
    /// (sim:help lists them)
    #[arg(long, value_name = "FILE", env = "TRANCHE_INVENTORY")]
    pub inventory: Option<String>,
}

/// Directories with CDI specifications. Later directories take precedence.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SpecDirArgs {
    /// A directory with CDI specifications. May be repeated; later directories take precedence [default: /etc/cdi,
    /// /var/run/cdi]
    #[arg(
        long = "spec-dir",
        value_name = "DIR",
        env = "TRANCHE_SPEC_DIR",
        value_delimiter = ':'
    )]
    pub spec_dirs: Vec<PathBuf>,
}

impl SpecDirArgs {
    /// What the environment says, for a command without the option.
    pub fn of_environment() -> Self {
        let named = std::env::var_os("TRANCHE_SPEC_DIR").unwrap_or_default();
        let named = std::env::split_paths(&named).filter(|dir| !dir.as_os_str().is_empty());
        Self {
            spec_dirs: named.collect(),
        }
    }

    /// The directories to read, in the order in which engines read them.
    pub fn dirs(&self) -> Vec<PathBuf> {
        if self.spec_dirs.is_empty() {
            USUAL_SPEC_DIRS.map(PathBuf::from).into()
        } else {
            self.spec_dirs.clone()
        }
    }
}

/// Where specifications of claims are written.
#[derive(Debug, Clone, clap::Args)]
pub struct SpecDirArg {
    /// The directory for specifications of claims; it must be one that engines read
    #[arg(long, value_name = "DIR", env = "TRANCHE_SPEC_DIR", default_value = "/var/run/cdi")]
    pub spec_dir: PathBuf,
}

/// How devices are to be shared.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigArgs {
    /// The policy file, which says how devices are shared [default: /etc/tranche/config.yaml, if it exists, or else
    /// that of a Kubernetes cluster]
    #[arg(long, value_name = "FILE", env = "TRANCHE_CONFIG")]
    pub config: Option<PathBuf>,
    /// The key of the configuration to use, if the policy file is a ConfigMap with several
    #[arg(long, value_name = "KEY", env = "TRANCHE_CONFIG_KEY")]
    pub config_key: Option<String>,
}

impl ConfigArgs {
    /// The policy that the options name, on a machine whose ledger is in `state_dir`.
    pub fn options(&self, state_dir: &Path) -> PolicyOptions {
        PolicyOptions::of(self.config.clone(), self.config_key.clone(), state_dir)
    }
}

/// The directory of the ledger.
#[derive(Debug, Clone, clap::Args)]
pub struct StateArgs {
    /// The directory of the ledger, which records who holds which share
    #[arg(long, value_name = "DIR", env = "TRANCHE_STATE_DIR", default_value = tranche_core::ledger::STATE_DIR)]
    pub state_dir: PathBuf,
}

/// Where engines are looked for.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct EngineArgs {
    /// A directory with the programs of engines, which are asked for their version; may be repeated [default: the
    /// usual ones]
    #[arg(long = "engine-dir", value_name = "DIR", help_heading = None)]
    pub engine_dirs: Vec<PathBuf>,
}

impl EngineArgs {
    /// The directories in which engines are looked for.
    pub fn options(&self) -> EngineDirs {
        EngineDirs {
            engine_dirs: self.engine_dirs.clone(),
        }
    }
}

/// Where the file for systemd-tmpfiles belongs.
#[derive(Debug, Clone, clap::Args)]
pub struct TmpfilesArgs {
    /// The directory of systemd-tmpfiles, which makes the directories at boot that a specification in /etc/cdi mounts
    /// for shares under MPS
    #[arg(long, value_name = "DIR", env = "TRANCHE_TMPFILES_DIR", default_value = pipe_directories::DIRECTORY, hide = true)]
    pub tmpfiles_dir: PathBuf,
}
