//! Mounts whose files are gone. An engine puts them into the configuration from a specification that may be older than
//! the host, and the low-level runtime refuses a container with such a mount.

use super::rewrite::RewriteContext;
use super::{clean, document, request};
use std::io::ErrorKind;
use std::path::Path;
use tranche_core::call::PrepareCall;
use tranche_core::error::Error;
use tranche_plan::host_file::HostFile;

/// The configuration `config` without the mounts whose files are gone, if `host.json` has them as files of the driver
/// that a container can do without; `None` if it has none of these. A remark names each. As the host has changed, the
/// specifications are then refreshed once.
///
/// What cannot be read is left to the low-level runtime, which says what is wrong with the configuration.
pub(super) fn without(config: &[u8], context: &RewriteContext<'_>) -> Option<Vec<u8>> {
    // What has files of the driver has the hook that prepares a root for them.
    if !clean::may_have_hook(config, PrepareCall::VERB) {
        return None;
    }
    let is_gone = |source: &String| {
        let found = || Path::new(source).symlink_metadata();
        source.starts_with('/') && found().is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    let mut gone = request::mount_sources(config).ok()?;
    gone.retain(is_gone);
    if gone.is_empty() {
        return None;
    }
    let host = HostFile::load(context.state_dir).ok()?;
    let files = host.inventory.driver.iter().flat_map(|driver| &driver.files);
    let files: Vec<_> = files
        .filter(|file| gone.iter().any(|gone| *gone == file.host.as_str()))
        .collect();
    // Without the driver itself nothing starts, and the low-level runtime names what it misses.
    if files.is_empty() || !files.iter().all(|file| file.is_optional()) {
        return None;
    }
    let optional: Vec<&str> = files.iter().map(|file| file.host.as_str()).collect();
    let mut document = document::parse(config).ok()?;
    clean::remove_mounts_with(&mut document, "source", |source| optional.contains(&source));
    let bytes = document::bytes(&document).ok()?;
    for file in optional {
        (context.remark)(Error::failed(file, "is gone, and the container starts without it"));
    }
    if let Err(error) = (context.refresh)(&host.arguments) {
        (context.remark)(error);
    }
    Some(bytes)
}
