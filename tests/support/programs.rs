//! Programs that a test makes and executes.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Copies a program in another process: a program cannot be executed while a process has it open to write (ETXTBSY,
/// execve(2)), and this process forks in many threads.
pub(crate) fn install(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let done = Command::new("install")
        .args(["-m", "755"])
        .arg(from.as_ref())
        .arg(to.as_ref())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Writes a script that may be executed.
pub(crate) fn script(path: &Path, text: &str) {
    let source = path.with_extension("source");
    fs::write(&source, format!("#!/bin/sh\n{text}\n")).unwrap();
    install(&source, path);
}
