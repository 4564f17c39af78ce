//! How a verb gets its inventory: it examines a host, or reads what `--inventory` names.

use super::out;
use super::place::HostArgs;
use crate::error::{Error, Kind};
use crate::host::{self, DiscoveryOptions, RootPaths, Roots};
use crate::inventory::{Degraded, Inventory};
use crate::sources;
use crate::types::HostPath;
use anyhow::Result;
use std::process::ExitCode;
use std::time::Duration;

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
    /// Search the host's directory DIR for the driver's configuration files instead of the usual directories (may be
    /// repeated)
    #[arg(
        long = "config-search-path",
        value_name = "DIR",
        env = "TRANCHE_CONFIG_SEARCH_PATHS",
        value_delimiter = ':'
    )]
    pub config_search_paths: Vec<HostPath>,
    /// Whether to take the libraries of GLVND and OpenCL's loader: a feature flag of `cdi generate`.
    #[arg(skip)]
    pub explicit_libraries: bool,
    /// Whether the caller's environment says nothing about the host: for what must not depend on who calls it.
    #[arg(skip)]
    pub ignore_environment: bool,
    /// Include 32-bit libraries
    #[arg(long, env = "TRANCHE_COMPAT32")]
    pub compat32: bool,
    /// Do not use NVML, the driver's library: examine only /proc and /dev
    #[arg(long, env = "TRANCHE_NO_NVML")]
    pub no_nvml: bool,
    /// Give up if NVML does not answer for this long; each answer starts the time again. A driver without persistence mode
    /// takes tens of seconds to start
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

/// The feature flag of NVIDIA's tool that asks for libraries which are not the driver's own.
pub const EXPLICIT_LIBRARIES: &str = "enable-explicit-driver-libraries";

impl LookArgs {
    /// Applies the feature flags of NVIDIA's tool that are about the discovery.
    pub fn take_feature_flags(&mut self, flags: &[String]) {
        self.explicit_libraries = flags.iter().any(|flag| flag == EXPLICIT_LIBRARIES);
    }

    /// The options of a discovery. `is_here` says whether the host is the machine that we run on: only then the caller's
    /// environment says something about it.
    fn options(&self, is_here: bool) -> DiscoveryOptions {
        let is_here = is_here && !self.ignore_environment;
        DiscoveryOptions {
            nvml: !self.no_nvml,
            deadline: self.nvml_deadline,
            waiting: super::progress::waiting,
            library_search_paths: self.library_search_paths.clone(),
            config_search_paths: self.config_search_paths.clone(),
            more_program_dirs: if is_here { dirs_of("PATH") } else { Vec::new() },
            more_config_dirs: if is_here { dirs_of("XDG_DATA_DIRS") } else { Vec::new() },
            explicit_libraries: self.explicit_libraries,
            compat32: self.compat32,
            ..DiscoveryOptions::default()
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

/// The inventory that a verb works on. Warnings are logged, and with `-v` also what was not found.
///
/// # Errors
/// As [`quietly`].
pub fn inventory(at: &HostArgs, how: &LookArgs) -> Result<Inventory> {
    let inventory = quietly(at, how)?;
    for warning in &inventory.warnings {
        tracing::warn!("{}: {}", warning.object, warning.text);
    }
    say_absent(&inventory);
    Ok(inventory)
}

/// The inventory that a verb works on, of which nothing is logged.
///
/// # Errors
/// Returns an error if a root is not a directory, or if the inventory cannot be read.
pub fn quietly(at: &HostArgs, how: &LookArgs) -> Result<Inventory> {
    match &at.inventory {
        Some(spec) => Ok(sources::open(spec)?),
        None => Ok(host::discover(&roots(at)?, &how.options(at.root.is_none()))),
    }
}

/// The trees of the host that `at` names.
///
/// # Errors
/// Returns an error if a root is not a directory.
pub fn roots(at: &HostArgs) -> Result<Roots> {
    let paths = RootPaths {
        root: at.root.clone(),
        driver_root: at.driver_root.clone(),
        dev_root: at.dev_root.clone(),
        proc_root: at.proc_root.clone(),
        sys_root: at.sys_root.clone(),
    };
    Ok(Roots::new(&paths)?)
}

/// The parameters of the loaded driver, as text; empty if no driver is loaded.
///
/// # Errors
/// Returns an error if they exist and cannot be read.
pub fn driver_params(at: &HostArgs) -> Result<String> {
    Ok(host::driver_params(&roots(at)?)?)
}

/// The options that change what is found on the same host, as a person types them. A saved inventory has none.
pub fn choices(at: &HostArgs, how: &LookArgs) -> Vec<String> {
    if at.inventory.is_some() {
        return Vec::new();
    }
    let roots = [
        ("driver-root", &at.driver_root),
        ("dev-root", &at.dev_root),
        ("proc-root", &at.proc_root),
        ("sys-root", &at.sys_root),
    ];
    let roots = roots
        .into_iter()
        .filter_map(|(name, root)| Some((name, root.as_deref()?)));
    let search_paths = [
        ("library-search-path", &how.library_search_paths),
        ("config-search-path", &how.config_search_paths),
    ];
    let search_paths = search_paths.into_iter();
    let search_paths = search_paths.flat_map(|(name, dirs)| dirs.iter().map(move |dir| (name, dir.as_path())));
    let paths = roots.chain(search_paths);
    let paths = paths.map(|(name, path)| format!("--{name}={}", path.display()));
    let switches = [
        (how.compat32, "--compat32".to_owned()),
        (how.no_nvml, "--no-nvml".to_owned()),
        (how.explicit_libraries, format!("--feature-flag={EXPLICIT_LIBRARIES}")),
    ];
    let switches = switches
        .into_iter()
        .filter_map(|(is_on, switch)| is_on.then_some(switch));
    paths.chain(switches).collect()
}

/// Logs one line for each name that was not found. A list of several places is logged once, after the names.
fn say_absent(inventory: &Inventory) {
    for absent in &inventory.absent {
        for what in &absent.what {
            match absent.looked_in.as_slice() {
                [one] if one != what => tracing::info!("{what}: not found in {one}"),
                [] | [_] => tracing::info!("{what}: not found"),
                many => tracing::info!("{what}: not found in {} places", many.len()),
            }
        }
    }
    let lists = inventory.absent.iter().map(|absent| &absent.looked_in);
    for list in lists.filter(|list| list.len() > 1) {
        tracing::info!("the {} places are {}", list.len(), list.join(", "));
    }
}

/// The exit code for a result of an inventory that lacks `missing`. If anything is missing, prints what, and returns the
/// code of a failure, although the result was printed.
pub fn exit_code(missing: Option<&str>) -> ExitCode {
    let Some(missing) = missing else {
        return ExitCode::SUCCESS;
    };
    out::note(format_args!("tranche: not complete: {missing}"));
    out::code(Kind::Failed)
}

/// The reasons why an inventory is not complete, in one line; `None` if it is complete.
pub fn missing<'a>(degraded: impl IntoIterator<Item = &'a Degraded>) -> Option<String> {
    let reasons: Vec<String> = degraded.into_iter().map(ToString::to_string).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// The error for a host without a GPU: [`Kind::Nothing`], or [`Kind::Failed`] if the driver is installed and did not answer.
pub fn no_gpu(inventory: &Inventory) -> Error {
    let is_failure = |degraded: &&Degraded| !matches!(degraded, Degraded::NoGpu { .. });
    if let Some(failure) = inventory.degraded.iter().find(is_failure) {
        let what = format!("no GPU was found, because it could not be examined: {failure}");
        return Error::failed("host", what);
    }
    match &inventory.driver {
        None => Error::new(
            Kind::Nothing,
            "host",
            "no NVIDIA driver found: neither a kernel module nor libraries",
        )
        .hint("-v shows where tranche searched; for a driver container, give --driver-root DIR"),
        Some(driver) => Error::new(
            Kind::Nothing,
            "host",
            format!("driver {} is installed, but no GPU answers", driver.version),
        )
        .hint("-v shows what tranche searched for"),
    }
}
