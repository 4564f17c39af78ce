//! How a program gets an inventory: it examines a host, or opens one that was saved.

use crate::{DiscoveryOptions, RootPaths, Roots};
use tranche_core::error::{Error, Kind, Result};
use tranche_plan::inventory::{Degraded, Inventory};
use tranche_plan::sources;

/// Which host is examined, and how.
#[derive(Debug, Clone, Default)]
pub struct HostOptions {
    /// Where the parts of the host are.
    pub roots: RootPaths,
    /// A saved inventory, which is opened instead: a file, `-` for standard input, or `sim:NAME` for a built-in one.
    pub inventory: Option<String>,
    /// How the host is examined.
    pub discovery: DiscoveryOptions,
}

/// The feature flag of NVIDIA's tool that asks for libraries which are not the driver's own.
pub const EXPLICIT_LIBRARIES: &str = "enable-explicit-driver-libraries";

impl HostOptions {
    /// Whether the host is the machine that this program runs on, and not a copy or a description of another one.
    pub fn is_here(&self) -> bool {
        self.roots.root.is_none() && self.inventory.is_none()
    }

    /// The same host without the directories of the caller's environment: for what must not depend on who calls it.
    #[must_use]
    pub fn without_environment(mut self) -> Self {
        self.discovery.more_program_dirs.clear();
        self.discovery.more_config_dirs.clear();
        self
    }

    /// The options that change what is found on the same host, as a person types them. A saved inventory has none.
    pub fn choices(&self) -> Vec<String> {
        if self.inventory.is_some() {
            return Vec::new();
        }
        let roots = [
            ("driver-root", &self.roots.driver_root),
            ("dev-root", &self.roots.dev_root),
            ("proc-root", &self.roots.proc_root),
            ("sys-root", &self.roots.sys_root),
        ];
        let roots = roots
            .into_iter()
            .filter_map(|(name, root)| Some((name, root.as_deref()?)));
        let how = &self.discovery;
        let search_paths = [
            ("library-search-path", &how.library_search_paths),
            ("program-search-path", &how.program_search_paths),
            ("config-search-path", &how.config_search_paths),
        ];
        let search_paths = search_paths.into_iter();
        let search_paths = search_paths.flat_map(|(name, dirs)| dirs.iter().map(move |dir| (name, dir.as_path())));
        let paths = roots.chain(search_paths);
        let paths = paths.map(|(name, path)| format!("--{name}={}", path.display()));
        let switches = [
            (how.compat32, "--compat32".to_owned()),
            (!how.nvml, "--no-nvml".to_owned()),
            (how.explicit_libraries, format!("--feature-flag={EXPLICIT_LIBRARIES}")),
        ];
        let switches = switches
            .into_iter()
            .filter_map(|(is_on, switch)| is_on.then_some(switch));
        paths.chain(switches).collect()
    }
}

/// The inventory of a host. Its warnings are logged, and as information also what was not found.
///
/// # Errors
/// As [`quietly`].
pub fn inventory(host: &HostOptions) -> Result<Inventory> {
    let inventory = quietly(host)?;
    for warning in &inventory.warnings {
        tracing::warn!("{}: {}", warning.object, warning.text);
    }
    log_absent(&inventory);
    Ok(inventory)
}

/// The inventory of a host, of which nothing is logged.
///
/// # Errors
/// Returns an error if a root is not a directory, or if the saved inventory cannot be read.
pub fn quietly(host: &HostOptions) -> Result<Inventory> {
    match &host.inventory {
        Some(saved) => sources::open(saved),
        None => Ok(crate::discover(&Roots::new(&host.roots)?, &host.discovery)),
    }
}

/// Logs one line for each name that was not found. A list of several places is logged once, after the names.
fn log_absent(inventory: &Inventory) {
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

/// The reasons why an inventory is not complete, in one line; `None` if it is complete.
pub fn missing<'a>(degraded: impl IntoIterator<Item = &'a Degraded>) -> Option<String> {
    let reasons: Vec<String> = degraded.into_iter().map(ToString::to_string).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// The error for a host without a GPU: [`Kind::Nothing`], or [`Kind::Failed`] if the driver is installed and did not
/// answer.
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
