//! The environment variables of NVIDIA's tool that name places of the host.

use super::arguments::Args;
use crate::error::Result;
use crate::types::HostPath;
use std::path::PathBuf;

/// Takes for the places what NVIDIA's tool takes, where no option says otherwise.
///
/// # Errors
/// A search path that is not absolute.
pub(super) fn with_nvidia_s_environment(args: &mut Args) -> Result<()> {
    let said = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let host = &mut args.host;
    if host.inventory.is_none() && host.root.is_none() {
        if host.driver_root.is_none() {
            host.driver_root = said("NVIDIA_CTK_DRIVER_ROOT").map(PathBuf::from);
        }
        if host.dev_root.is_none() {
            host.dev_root = said("NVIDIA_CTK_DEV_ROOT").map(PathBuf::from);
        }
    }
    for (name, paths) in [
        (
            "NVIDIA_CTK_CDI_GENERATE_LIBRARY_SEARCH_PATHS",
            &mut args.look.library_search_paths,
        ),
        (
            "NVIDIA_CTK_CDI_GENERATE_CONFIG_SEARCH_PATHS",
            &mut args.look.config_search_paths,
        ),
    ] {
        if let Some(list) = said(name)
            && paths.is_empty()
        {
            for dir in crate::cli::cdi::between_commas(&list) {
                paths.push(HostPath::new(dir)?);
            }
        }
    }
    Ok(())
}
