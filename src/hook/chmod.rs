//! Permissions of directories that an engine made for device nodes, such as `/dev/nvidia-caps`.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

use super::report::Report;
use crate::error::{Error, Result};
use crate::oci::Bundle;

/// Reads a mode like `755`.
///
/// # Errors
/// [`crate::error::Kind::Usage`] for anything else, and for the bits that change who a program runs as.
pub(super) fn mode(text: &OsStr) -> Result<u32> {
    let text = text.to_string_lossy();
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| Error::usage(format!("--mode {text}"), "not permissions like 755"))
}

/// Gives what is at each path this mode. Links are followed inside the root; what is there is held by a handle and
/// cannot be another by the time it is changed. What fails is a line: the engine's own mode is a working one.
pub(super) fn change<'a>(paths: impl Iterator<Item = &'a Path>, mode: u32, bundle: &Bundle, report: &mut Report<'_>) {
    for path in paths {
        if let Err(error) = change_one(path, mode, bundle) {
            report.note(path.display(), format_args!("mode stays as it is: {error}"));
        }
    }
}

fn change_one(path: &Path, mode: u32, bundle: &Bundle) -> std::io::Result<()> {
    let found = bundle.root.find(path)?;
    if found.mode() == mode {
        return Ok(());
    }
    // The image's own files are not to change. /dev, which this is for, is a mount of the container.
    if bundle.config.read_only && bundle.root.check_image(&found).is_ok() {
        return Err(ErrorKind::ReadOnlyFilesystem.into());
    }
    bundle.root.set_mode(&found, mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_alone() {
        assert_eq!(mode(OsStr::new("755")).unwrap(), 0o755);
        assert_eq!(mode(OsStr::new("0644")).unwrap(), 0o644);
        for text in ["", "4755", "8", "u+x", "-1"] {
            assert_eq!(mode(OsStr::new(text)).unwrap_err().kind().exit_code(), 2, "{text}");
        }
    }
}
