//! Modes of directories that an engine made for device nodes, such as `/dev/nvidia-caps`.

use std::io::ErrorKind;
use std::path::Path;

use super::report::HookReport;
use tranche_core::oci::Bundle;
use tranche_core::types::ContainerPath;

/// Sets the mode of the file or directory at each path. Links are followed inside the root. The mode is set through the
/// handle that was checked. A failure is reported and does not fail the start, because the engine's own mode works.
pub(super) fn change(paths: &[ContainerPath], mode: u32, bundle: &Bundle, report: &mut HookReport<'_>) {
    for path in paths {
        if let Err(error) = change_one(path.as_path(), mode, bundle) {
            report.note(path, format_args!("mode stays as it is: {error}"));
        }
    }
}

fn change_one(path: &Path, mode: u32, bundle: &Bundle) -> std::io::Result<()> {
    let found = bundle.root.find(path)?;
    if found.mode() == mode {
        return Ok(());
    }
    // On a read-only root the image must not change. /dev is a mount of the container.
    if bundle.config.read_only && bundle.root.check_image(&found).is_ok() {
        return Err(ErrorKind::ReadOnlyFilesystem.into());
    }
    bundle.root.set_mode(&found, mode)
}
