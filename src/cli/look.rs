//! The options that say how a host is examined, and the exit code for a host that could not be examined completely.

use super::out;
use super::place::{HostArgs, StateArgs};
use std::process::ExitCode;
use std::time::Duration;
use tranche_core::error::Kind;
use tranche_core::types::HostPath;
use tranche_host::examine::HostOptions;
use tranche_host::{DiscoveryOptions, RootPaths};
use tranche_inspect::observed::ObserveOptions;

/// How to examine a host.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "How to examine it")]
pub struct LookArgs {
    /// Search the host's directory DIR for the driver's libraries instead of the usual directories (may be repeated)
    #[arg(
        long = "library-search-path",
        value_name = "DIR",
        env = "TRANCHE_LIBRARY_SEARCH_PATHS",
        value_delimiter = ':'
    )]
    pub library_search_paths: Vec<HostPath>,
    /// Search the host's directory DIR for the driver's programs instead of the usual directories and those beside its
    /// libraries (may be repeated)
    #[arg(
        long = "program-search-path",
        value_name = "DIR",
        env = "TRANCHE_PROGRAM_SEARCH_PATHS",
        value_delimiter = ':'
    )]
    pub program_search_paths: Vec<HostPath>,
    /// Search the host's directory DIR for the driver's configuration files instead of the usual directories (may be
    /// repeated)
    #[arg(
        long = "config-search-path",
        value_name = "DIR",
        env = "TRANCHE_CONFIG_SEARCH_PATHS",
        value_delimiter = ':'
    )]
    pub config_search_paths: Vec<HostPath>,
    /// Include 32-bit libraries, and the configuration of Vulkan for them
    #[arg(long, env = "TRANCHE_COMPAT32")]
    pub compat32: bool,
    /// Do not use NVML, the driver's library: examine only /proc and /dev
    #[arg(long, env = "TRANCHE_NO_NVML")]
    pub no_nvml: bool,
    /// Give up if NVML does not answer for this long; each answer starts the time again. A driver without persistence
    /// mode takes tens of seconds to start
    #[arg(long, value_name = "SECONDS", env = "TRANCHE_NVML_DEADLINE", default_value = "60", value_parser = seconds)]
    pub nvml_deadline: Duration,
}

/// Reads a number of seconds of an option.
///
/// # Errors
/// Returns what is wrong with the number.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|d| !d.is_zero() && d.as_secs() <= 3600)
        .ok_or_else(|| "not between 0 and 3600 seconds".to_owned())
}

impl HostArgs {
    /// The host that the options name, examined as `how` says. The caller's environment says something about the
    /// machine that this program runs on, and nothing about a copy of another one.
    pub fn options(&self, how: &LookArgs) -> HostOptions {
        let dirs = |variable| match &self.root {
            None => dirs_of(variable),
            Some(_) => Vec::new(),
        };
        HostOptions {
            discovery: DiscoveryOptions {
                nvml: !how.no_nvml,
                deadline: how.nvml_deadline,
                waiting: super::progress::waiting,
                library_search_paths: how.library_search_paths.clone(),
                program_search_paths: how.program_search_paths.clone(),
                config_search_paths: how.config_search_paths.clone(),
                more_program_dirs: dirs("PATH"),
                more_config_dirs: dirs("XDG_DATA_DIRS"),
                compat32: how.compat32,
                ..DiscoveryOptions::default()
            },
            ..self.unexamined()
        }
    }

    /// The host that the options name, for a verb without the options that say how to examine it.
    pub fn unexamined(&self) -> HostOptions {
        HostOptions {
            roots: RootPaths {
                root: self.root.clone(),
                driver_root: self.driver_root.clone(),
                dev_root: self.dev_root.clone(),
                proc_root: self.proc_root.clone(),
                sys_root: self.sys_root.clone(),
            },
            inventory: self.inventory.clone(),
            discovery: DiscoveryOptions::default(),
        }
    }
}

/// What to look at of the state of the shares.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ObserveArgs {
    // In this order, because options without a heading of their own would get that of the ones before them.
    #[command(flatten)]
    state: StateArgs,
    /// Give up on NVML, the driver's library, after this time
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    gpu_timeout: Duration,
    #[command(flatten)]
    host: HostArgs,
}

impl ObserveArgs {
    /// What to look at.
    pub(super) fn options(&self) -> ObserveOptions {
        let mut host = self.host.unexamined();
        host.discovery.deadline = self.gpu_timeout;
        ObserveOptions {
            state_dir: self.state.state_dir.clone(),
            host,
        }
    }
}

/// The absolute directories in an environment variable that holds a list of them.
fn dirs_of(variable: &str) -> Vec<HostPath> {
    let list = std::env::var_os(variable).unwrap_or_default();
    std::env::split_paths(&list)
        .filter_map(|dir| HostPath::new(dir).ok())
        .collect()
}

/// The exit code for a result of an inventory that lacks `missing`. If anything is missing, prints what, and returns
/// the code of a failure, although the result was printed.
pub fn exit_code(missing: Option<&str>) -> ExitCode {
    let Some(missing) = missing else {
        return ExitCode::SUCCESS;
    };
    out::note(format_args!("tranche: not complete: {missing}"));
    out::code(Kind::Failed)
}
