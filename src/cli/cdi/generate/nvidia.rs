//! What NVIDIA's `nvidia-ctk cdi generate` takes: other names of options, environment variables, and options of Tegra.

use crate::cdi::between_commas;
use anyhow::Result;
use clap::Arg;
use std::path::PathBuf;
use tranche_core::types::HostPath;
use tranche_host::examine::{EXPLICIT_LIBRARIES, HostOptions};

/// Options, and the other names that they have in NVIDIA's tool.
const ALIASES: &[(&str, &[&str])] = &[
    ("vendor", &["cdi-vendor"]),
    ("class", &["cdi-class"]),
    ("mode", &["discovery-mode"]),
    ("device-id", &["device-ids", "device", "devices"]),
    ("feature-flag", &["feature-flags"]),
    ("hook-path", &["nvidia-ctk-path"]),
    ("disable-hook", &["disable-hooks"]),
    ("enable-hook", &["enable-hooks"]),
];

/// Options, and the environment variables that set them in NVIDIA's tool.
const VARIABLES: &[(&str, &str)] = &[
    ("output", "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"),
    ("format", "NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT"),
    ("vendor", "NVIDIA_CTK_CDI_GENERATE_VENDOR"),
    ("class", "NVIDIA_CTK_CDI_GENERATE_CLASS"),
    ("mode", "NVIDIA_CTK_CDI_GENERATE_MODE"),
    ("device-id", "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS"),
    ("device-name-strategy", "NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES"),
    ("no-all-device", "NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE"),
    ("feature-flag", "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS"),
    ("hook-path", "NVIDIA_CTK_CDI_HOOK_PATH"),
    ("disable-hook", "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS"),
    ("enable-hook", "NVIDIA_CTK_CDI_GENERATE_ENABLED_HOOKS"),
    ("ldconfig-path", "NVIDIA_CTK_CDI_GENERATE_LDCONFIG_PATH"),
    ("csv.file", "NVIDIA_CTK_CDI_GENERATE_CSV_FILES"),
    ("csv.ignore-pattern", "NVIDIA_CTK_CDI_GENERATE_CSV_IGNORE_PATTERNS"),
    (
        "csv.compat-container-root",
        "NVIDIA_CTK_CDI_GENERATE_CSV_CONTAINER_COMPAT_ROOT",
    ),
];

/// Gives `option` the names and the environment variable that it has in NVIDIA's tool.
pub(in crate::cdi) fn with_nvidia_names(option: Arg) -> Arg {
    let long = option.get_long().unwrap_or_default().to_owned();
    let aliases = ALIASES.iter().filter(|(name, _)| *name == long);
    let option = option.aliases(aliases.flat_map(|(_, aliases)| aliases.iter().copied()));
    match VARIABLES.iter().find(|(name, _)| *name == long) {
        Some((_, variable)) => option.env(variable),
        None => option,
    }
}

/// Options for Tegra. They have no effect, and are accepted so that scripts that give them work.
#[derive(Debug, clap::Args)]
pub(super) struct CsvArgs {
    #[arg(long = "csv.file", hide = true)]
    _files: Vec<PathBuf>,
    #[arg(long = "csv.ignore-pattern", hide = true)]
    _ignore_patterns: Vec<String>,
    #[arg(long = "csv.compat-container-root", hide = true)]
    _compat_container_root: Option<PathBuf>,
}

/// Sets the places of the host that no option names to those that NVIDIA's tool would use, and applies the feature
/// flags that are about the discovery.
///
/// # Errors
/// Returns an error if a search path is not absolute.
pub(in crate::cdi) fn take_nvidia_options(host: &mut HostOptions, feature_flags: &[String]) -> Result<()> {
    host.discovery.explicit_libraries = feature_flags.iter().any(|flag| flag == EXPLICIT_LIBRARIES);
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let take = |root: &mut Option<PathBuf>, name| {
        if root.is_none() {
            *root = variable(name).map(PathBuf::from);
        }
    };
    if host.is_here() {
        take(&mut host.roots.driver_root, "NVIDIA_CTK_DRIVER_ROOT");
        take(&mut host.roots.dev_root, "NVIDIA_CTK_DEV_ROOT");
    }
    let take = |paths: &mut Vec<HostPath>, name| -> Result<()> {
        if let Some(list) = variable(name).filter(|_| paths.is_empty()) {
            *paths = between_commas(&list).map(HostPath::new).collect::<Result<_, _>>()?;
        }
        Ok(())
    };
    take(
        &mut host.discovery.library_search_paths,
        "NVIDIA_CTK_CDI_GENERATE_LIBRARY_SEARCH_PATHS",
    )?;
    take(
        &mut host.discovery.config_search_paths,
        "NVIDIA_CTK_CDI_GENERATE_CONFIG_SEARCH_PATHS",
    )
}
