//! Copies of programs.

use std::path::Path;
use std::process::Command;

/// Copies a program so that it can be executed at once.
///
/// A program that this process writes itself may be "busy" (ETXTBSY, execve(2)): what another thread starts at that moment has
/// inherited the open file, and keeps it until it executes something. Only `cp` has this one open.
pub(crate) fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let copied = Command::new("cp")
        .args(["--preserve=mode", "--"])
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(copied.success(), "cp {} {}", from.display(), to.display());
}
