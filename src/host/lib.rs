//! Discovery: reads a machine, or a copy of one, into an [`Inventory`].
//!
//! It reads the driver's library NVML (in a process of its own, see [`nvml`]), `/proc/driver/nvidia`, `/proc/devices`,
//! sysfs, the device nodes, the loader's cache and the directories of libraries. It writes nothing, and it executes
//! nothing but the driver's library.
//!
//! A missing or broken part of the host does not affect the discovery of the others: it is noted in
//! [`Inventory::warnings`], [`Inventory::absent`] or [`Inventory::degraded`].

mod driver;
pub mod examine;
mod findings;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod gpus;
mod mig;
mod node;
mod nodes;
pub mod nvml;
mod order;
mod pci;
mod platform;
pub(crate) mod proc;
pub mod program;
mod roots;
mod scan;
mod sign;
pub mod sys;
mod tree;
mod usage;

#[cfg(test)]
use tranche_test_support::programs;

pub use roots::{RootPaths, Roots};
pub use usage::{Usage, usage};

use scan::Scan;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tranche_core::error::{Context, Result};
use tranche_core::types::{HostPath, Minor};
use tranche_driver_protocol::Question;
use tranche_plan::inventory::{Degraded, Inventory, WarningKind};

/// How long NVML may be silent. Without persistence mode, `nvmlInit` starts every GPU of the machine in one call, which
/// takes tens of seconds for eight large GPUs. A library that hangs is rare.
pub const SILENCE: Duration = Duration::from_secs(60);

/// How to discover a host.
#[derive(Debug, Clone)]
pub struct DiscoveryOptions {
    /// Whether to ask NVML, which runs code from the tree that is examined.
    pub nvml: bool,
    /// How long NVML may be silent before its process is killed. Each of its answers restarts this time.
    pub deadline: Duration,
    /// Called with the step that NVML works on after two seconds and then each second; with `None` when that is over.
    pub waiting: fn(Option<nvml::Waiting>),
    /// The program that asks NVML; `None`: `tranche-driver` of this installation.
    pub program: Option<PathBuf>,
    /// Directories of the host to search for libraries, instead of the known ones in the driver's tree and those in
    /// the loader's cache. A directory below the driver root is in the driver's tree.
    pub library_search_paths: Vec<HostPath>,
    /// Directories of the host to search for programs, instead of the known ones in the driver's tree and those beside
    /// the libraries.
    pub program_search_paths: Vec<HostPath>,
    /// Directories of the host to search for configuration files, instead of the known ones in the driver's tree.
    pub config_search_paths: Vec<HostPath>,
    /// Directories of the driver's tree to search for programs after the known ones: those of the caller's `PATH`.
    pub more_program_dirs: Vec<HostPath>,
    /// Directories of the driver's tree to search for configuration files after the known ones: those of the caller's
    /// `XDG_DATA_DIRS`.
    pub more_config_dirs: Vec<HostPath>,
    /// Whether to take the libraries of other projects that a driver's installer brings: GLVND and OpenCL's loader.
    pub explicit_libraries: bool,
    /// Whether to take 32-bit libraries too.
    pub compat32: bool,
}

impl Default for DiscoveryOptions {
    /// NVML with [`SILENCE`], the program of this installation, the known directories, 64-bit libraries.
    fn default() -> Self {
        Self {
            nvml: true,
            deadline: SILENCE,
            waiting: nvml::in_silence,
            program: None,
            library_search_paths: Vec::new(),
            program_search_paths: Vec::new(),
            config_search_paths: Vec::new(),
            more_program_dirs: Vec::new(),
            more_config_dirs: Vec::new(),
            explicit_libraries: false,
            compat32: false,
        }
    }
}

/// Describes the host at `roots`. What goes wrong is in the inventory; a host without a driver gives one that says so.
pub fn discover(roots: &Roots, options: &DiscoveryOptions) -> Inventory {
    // The copy remembers nothing from an earlier discovery.
    let roots = &roots.clone();
    let scan = Scan::begin(roots, options);
    let found = driver::search(&scan);

    // The child loads the library and asks it while this process reads files.
    let sign = sign::of_driver(&scan, &found);
    let mut child = start_nvml(&scan, &found, &Question::Inventory);
    let mut inventory = Inventory::empty(scan.platform.clone());
    inventory.driver = driver::collect(&scan, &found);
    let in_proc = gpus::in_proc(&scan);
    let report = child.as_mut().map(|child| child.finish(&scan.findings));

    if let (Some(report), Some(driver)) = (&report, &mut inventory.driver) {
        driver.cuda = gpus::driver_facts(&scan, report, &driver.version);
        driver.limits_cgroups = report.driver.as_ref().is_some_and(|facts| facts.limits_cgroups);
    }
    inventory.source = gpus::source(report.as_ref());
    inventory.gpus = gpus::collect(&scan, report.as_ref(), &in_proc);
    let minors: BTreeSet<Minor> = inventory.gpus.iter().map(|g| g.minor).collect();
    inventory.nodes = nodes::collect(&scan, &minors);
    inventory.platform.kind = platform::kind(roots, &inventory.gpus);
    sign::note_missing(&scan, sign, &found, &inventory);
    scan.findings.store(&mut inventory);
    inventory
}

/// The text of `/proc/driver/nvidia/params`, which has the parameters of the loaded driver; empty without a driver.
///
/// # Errors
/// Returns an error if it exists and cannot be read.
pub fn driver_params(roots: &Roots) -> Result<String> {
    const PARAMS: &str = "/driver/nvidia/params";
    match roots.proc.text(PARAMS) {
        Err(error) if tree::is_absence(&error) => Ok(String::new()),
        read => read.about(roots.proc.host(PARAMS), "cannot be read"),
    }
}

const NVML: &str = "libnvidia-ml.so.1";

fn start_nvml(scan: &Scan<'_>, found: &driver::FoundLibraries<'_>, question: &Question) -> Option<nvml::NvmlChild> {
    let options = scan.options;
    if !options.nvml {
        return None;
    }
    let (library, shown) = match driver::nvml(found) {
        Some(path) => (path.to_open().into_os_string(), path.host().as_str().to_owned()),
        None => {
            scan.findings.absent(NVML, &found.looked_in);
            // If no library is found at all, NVML is one of them, and the inventory says that already.
            if found.version.is_some() {
                let why = format!("cannot be asked: {NVML} was not found");
                scan.findings.degrade(Degraded::Nvml { why });
            }
            // The loader of this machine may know more directories, but only for this machine.
            match (&scan.module, scan.roots.live) {
                (Some(_), true) => (OsString::from(NVML), NVML.to_owned()),
                (Some(_), false) => {
                    let text = "not found: memory, modes and MIG UUIDs are unknown; install the driver's libraries";
                    scan.findings.warn_of(WarningKind::Incomplete, NVML, text);
                    return None;
                }
                (None, _) => return None,
            }
        }
    };
    nvml::start(question, options, &library, &shown)
        .map_err(|e| {
            let why = format!("cannot be asked: its process cannot be started: {e}");
            scan.findings.warn_of(WarningKind::Incomplete, "NVML", &why);
            scan.findings.degrade(Degraded::Nvml { why });
        })
        .ok()
}
