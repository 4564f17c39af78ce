//! Discovery: a machine, or a picture of one, becomes an [`Inventory`].
//!
//! What is read: the driver's library NVML (in a process of its own, see [`nvml`]), `/proc/driver/nvidia`,
//! `/proc/devices`, sysfs, the device nodes, the loader's cache and the directories of libraries. Nothing is written
//! and nothing but the driver's library is executed.
//!
//! Whatever is missing or broken costs itself: it ends in [`Inventory::warnings`] or [`Inventory::absent`], and the
//! rest is described.

mod driver;
mod gpus;
mod mig;
mod node;
mod nodes;
pub mod nvml;
mod order;
mod pci;
mod platform;
pub(crate) mod proc;
mod roots;
mod sign;
mod tree;

pub use roots::{RootPaths, Roots};

use crate::error::Result;
use crate::inventory::{Degraded, Inventory, PlatformKind};
use crate::types::{DriverVersion, HostPath, Minor};
use proc::{Majors, MigMinors};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How long NVML may be silent. Without persistence mode, `nvmlInit` starts every GPU of the machine in one call, which takes
/// tens of seconds where there are eight large ones; and a library that hangs is rare.
pub const SILENCE: Duration = Duration::from_secs(60);

/// How to look.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether to ask NVML. It runs code of the tree that is looked at.
    pub nvml: bool,
    /// How long NVML may be silent before it is ended. Each answer of it begins this anew.
    pub deadline: Duration,
    /// Gets what we wait for once NVML has taken two seconds, and again every second; `None` when that is over.
    pub waiting: fn(Option<nvml::Waiting>),
    /// The program to start as NVML's child: one that calls [`nvml::run_if_asked`].
    pub program: PathBuf,
    /// Directories of the host to search for libraries, instead of those in the driver's tree that are known or in the
    /// loader's cache. One below the driver root is a directory of the driver's tree.
    pub library_search_paths: Vec<HostPath>,
    /// Directories of the host to search for configuration files, instead of the known ones in the driver's tree.
    pub config_search_paths: Vec<HostPath>,
    /// Directories in the driver's tree that are searched for programs after the known ones: those of the caller's `PATH`.
    pub more_program_dirs: Vec<HostPath>,
    /// Directories in the driver's tree that are searched for configuration files after the known ones: those of the
    /// caller's `XDG_DATA_DIRS`.
    pub more_config_dirs: Vec<HostPath>,
    /// Whether to take the libraries of other projects that a driver's installer brings as well: GLVND and OpenCL's loader.
    pub explicit_libraries: bool,
    /// Whether to take 32-bit libraries too.
    pub compat32: bool,
}

impl Default for Options {
    /// NVML with [`SILENCE`], this program, the known directories, 64 bits.
    fn default() -> Self {
        Self {
            nvml: true,
            deadline: SILENCE,
            waiting: nvml::in_silence,
            program: PathBuf::from("/proc/self/exe"),
            library_search_paths: Vec::new(),
            config_search_paths: Vec::new(),
            more_program_dirs: Vec::new(),
            more_config_dirs: Vec::new(),
            explicit_libraries: false,
            compat32: false,
        }
    }
}

/// Describes the host at `roots`.
///
/// # Errors
/// None so far: what goes wrong is in the inventory. A host without a driver gives one that says so.
pub fn discover(roots: &Roots, options: &Options) -> Result<Inventory> {
    // A copy knows nothing from the last time.
    let roots = &roots.clone();
    let mut inventory = Inventory::empty(platform::read(roots));
    if let Some(dev) = &roots.dev_root_note {
        inventory.absent("device nodes in the driver root", [dev.clone()]);
    }
    let module = module_version(roots, &mut inventory);
    let found = driver::search(roots, options, module.as_ref(), &mut inventory);

    // The child loads and asks while we read files.
    let sign = sign::of_driver(roots, module.as_ref(), &found);
    let mut asked = start_nvml(roots, options, &found, module.is_some(), &mut inventory);
    inventory.driver = driver::collect(roots, options, &found, module.as_ref(), &mut inventory);
    let majors = majors(roots, &mut inventory);
    let minors = mig_minors(roots, &mut inventory);
    let in_proc = gpus::in_proc(roots, &mut inventory);
    let report = asked.as_mut().map(nvml::Asked::finish);

    if let Some(report) = &report {
        inventory.warnings.extend(report.warnings.iter().cloned());
        if let Some(why) = &report.failure {
            inventory.degrade(Degraded::Nvml { why: why.clone() });
        }
        for name in &report.missing {
            inventory.absent(format!("{name}()"), ["libnvidia-ml.so.1".to_owned()]);
        }
        gpus::driver_facts(&report.facts, &mut inventory);
    }
    inventory.gpus = gpus::collect(roots, report.as_ref(), &in_proc, &majors, &minors, &mut inventory);
    let taken: BTreeSet<Minor> = inventory.gpus.iter().map(|g| g.minor).collect();
    inventory.nodes = nodes::collect(roots, &majors, &minors, &taken, &mut inventory);
    inventory.platform.kind = platform::kind(roots, &inventory);
    sign::note_missing(sign.as_deref(), &found, &mut inventory);
    Ok(inventory)
}

/// The version of the kernel module that is loaded.
fn module_version(roots: &Roots, inventory: &mut Inventory) -> Option<DriverVersion> {
    let files = ["/driver/nvidia/version", "/module/nvidia/version"];
    let of_proc = roots.proc.text(files[0]).ok().and_then(|t| proc::module_version(&t));
    let found = of_proc.or_else(|| roots.sys.text(files[1]).ok()?.trim().parse().ok());
    if found.is_none() {
        let looked_in = [roots.proc.host(files[0]), roots.sys.host(files[1])];
        inventory.absent("version of the kernel module", looked_in.map(|p| p.as_str().to_owned()));
    }
    found
}

fn majors(roots: &Roots, inventory: &mut Inventory) -> Majors {
    match roots.proc.text("/devices") {
        Ok(text) => Majors::parse(&text),
        Err(e) => {
            inventory.warn(
                roots.proc.host("/devices"),
                format!("cannot be read: {e}; nodes are taken as they are"),
            );
            Majors::default()
        }
    }
}

fn mig_minors(roots: &Roots, inventory: &mut Inventory) -> MigMinors {
    const FILE: &str = "/driver/nvidia-caps/mig-minors";
    roots.proc.text(FILE).map(MigMinors::new).unwrap_or_else(|_| {
        inventory.absent("mig-minors", [roots.proc.host(FILE).as_str().to_owned()]);
        MigMinors::default()
    })
}

fn start_nvml(
    roots: &Roots,
    options: &Options,
    found: &driver::Found<'_>,
    has_module: bool,
    inventory: &mut Inventory,
) -> Option<nvml::Asked> {
    const NAME: &str = "libnvidia-ml.so.1";
    if !options.nvml {
        return None;
    }
    let (library, shown) = match driver::nvml(found) {
        Some((tree, path)) => {
            let shown = tree.host(&path).as_str().to_owned();
            (tree.path(&path).into_os_string(), shown)
        }
        None => {
            inventory.absent(NAME, found.looked_in.iter().cloned());
            // Without any library, that is what is said, and NVML is one of them.
            if found.version.is_some() {
                let why = format!("cannot be asked: {NAME} was not found");
                inventory.degrade(Degraded::Nvml { why });
            }
            // A loader may know more directories than we do, but it is the loader of this machine.
            if !(roots.live && has_module) {
                if has_module {
                    inventory.warn(
                        NAME,
                        "not found: memory, modes and MIG UUIDs are unknown; install the driver's libraries",
                    );
                }
                return None;
            }
            (OsString::from(NAME), NAME.to_owned())
        }
    };
    match nvml::start(&options.program, &library, &shown, options.deadline, options.waiting) {
        Ok(asked) => Some(asked),
        Err(e) => {
            let why = format!("cannot be asked: its process cannot be started: {e}");
            inventory.warn("NVML", &why);
            inventory.degrade(Degraded::Nvml { why });
            None
        }
    }
}
