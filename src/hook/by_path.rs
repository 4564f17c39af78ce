//! `/dev/dri/by-path`: links that name a graphics node by its PCI address, as udev makes them on a host.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use super::report::HookReport;
use tranche_core::call::ByPath;
use tranche_core::oci::Bundle;

const DRI: &str = "/dev/dri";
const BY_PATH: &str = "/dev/dri/by-path";

/// Makes the link of each node that the container has. A link that cannot be made is reported and does not fail the
/// start: the node works without it.
pub(super) fn make(links: &[ByPath], bundle: &Bundle, report: &mut HookReport<'_>) {
    let config = &bundle.config;
    let is_here = |link: &&ByPath| config.has_node(link.node.as_path());
    let mut here = links.iter().filter(is_here).peekable();
    // Where /dev or /dev/dri is the host's own, its by-path is there already and must not be changed.
    if here.peek().is_none() || config.is_bound_from_host(Path::new(DRI)) {
        return;
    }
    if let Err(e) = make_all(here, bundle) {
        report.note(BY_PATH, format!("cannot make the links: {e}"));
    }
}

fn make_all<'l>(links: impl Iterator<Item = &'l ByPath>, bundle: &Bundle) -> io::Result<()> {
    let dri = match bundle.root.directory(Path::new(DRI)) {
        Ok(directory) => directory,
        // A rootless runtime may put the nodes somewhere that we do not see yet; there is nothing to link to.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    // /dev is a tmpfs of the container's own, unlike the image: a read-only root says nothing about it.
    if bundle.config.read_only && bundle.root.check_image(&dri).is_ok() {
        return Err(io::ErrorKind::ReadOnlyFilesystem.into());
    }
    let directory = bundle.root.make_directory(Path::new(BY_PATH))?;
    for link in links {
        let target = format!("../{}", link.node.file_name());
        directory.link(OsStr::new(&link.name), OsStr::new(&target))?;
    }
    Ok(())
}
