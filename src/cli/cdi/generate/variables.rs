//! The environment variables of NVIDIA's tool that name places of the host.

use crate::cli::cdi::between_commas;
use crate::cli::look::LookArgs;
use crate::cli::place::HostArgs;
use crate::error::Result;
use crate::types::HostPath;
use std::path::PathBuf;

/// Sets the places of the host that no option names to those that NVIDIA's tool would use.
///
/// # Errors
/// Returns an error if a search path is not absolute.
pub(in crate::cli::cdi) fn take_nvidia_variables(host: &mut HostArgs, look: &mut LookArgs) -> Result<()> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if host.is_here() {
        for (root, name) in [
            (&mut host.driver_root, "NVIDIA_CTK_DRIVER_ROOT"),
            (&mut host.dev_root, "NVIDIA_CTK_DEV_ROOT"),
        ] {
            if root.is_none() {
                *root = variable(name).map(PathBuf::from);
            }
        }
    }
    for (paths, name) in [
        (
            &mut look.library_search_paths,
            "NVIDIA_CTK_CDI_GENERATE_LIBRARY_SEARCH_PATHS",
        ),
        (
            &mut look.config_search_paths,
            "NVIDIA_CTK_CDI_GENERATE_CONFIG_SEARCH_PATHS",
        ),
    ] {
        if let Some(list) = variable(name).filter(|_| paths.is_empty()) {
            *paths = between_commas(&list).map(HostPath::new).collect::<Result<_>>()?;
        }
    }
    Ok(())
}
