//! `/proc/driver/nvidia/params` as a container should see it.
//!
//! The driver's libraries make missing device nodes, and set the mode of those that are there, when this file says
//! `ModifyDeviceFiles: 1`. In a container that means nodes that nobody asked for, so a copy that says 0 is laid over
//! it.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::place::READABLE;
use super::report::Report;
use crate::oci::Bundle;

const PARAMS: &str = "/proc/driver/nvidia/params";
/// The driver's is about a kilobyte.
const MAX_PARAMS: u64 = 64 << 10;

/// Lays the copy over the container's file. What cannot be done is a line: nodes that appear in a container are the
/// engine's to forbid as well, and it does.
pub(super) fn turn_off(bundle: &Bundle, report: &mut Report<'_>) {
    if let Err(error) = cover(bundle) {
        report.note(PARAMS, format_args!("device-node modification stays on: {error}"));
    }
}

/// One handle is read and mounted on, so it does not matter what the image makes of the path: at worst a file of its own
/// is covered by a copy of itself.
fn cover(bundle: &Bundle) -> io::Result<()> {
    let found = match bundle.root.find(Path::new(PARAMS)) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        found => found?,
    };
    let bytes = found.read(MAX_PARAMS)?;
    match without_modification(&String::from_utf8_lossy(&bytes)) {
        Some(text) => bundle.root.cover(&found, text.as_bytes(), READABLE),
        None => Ok(()),
    }
}

/// The host's text with the modification of device files off, or nothing where it is off already or not spoken of:
/// then there is nothing to lay over.
pub(crate) fn without_modification(text: &str) -> Option<String> {
    const ON: &str = "ModifyDeviceFiles: 1";
    const OFF: &str = "ModifyDeviceFiles: 0";
    text.lines().any(|line| line == ON).then(|| {
        let lines = text.lines().map(|line| if line == ON { OFF } else { line });
        lines.flat_map(|line| [line, "\n"]).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_that_line_changes() {
        let host = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nRmMsg: \"\"\n";
        let container = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileUID: 0\nRmMsg: \"\"\n";
        assert_eq!(without_modification(host).as_deref(), Some(container));
        assert_eq!(without_modification(container), None);
        assert_eq!(without_modification("Other: 1\nXModifyDeviceFiles: 1\n"), None);
        assert_eq!(without_modification(""), None);
    }
}
