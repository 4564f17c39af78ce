//! Programs that a test makes and executes.
//!
//! Another process writes each of them: a program cannot be executed while a process has it open to write (ETXTBSY,
//! execve(2)), and what this process has open, a child of another thread has open too until it executes its program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program of this repository, as Cargo built it for the tests: beside the directory of the test's own program.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let directory = test.ancestors().nth(2).unwrap();
    let program = directory.join(name);
    assert!(program.is_file(), "{}: Cargo has not built it", program.display());
    program
}

/// Makes a copy that everybody may execute, with the directory that it is in.
pub fn install(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    install_with(from.as_ref(), to.as_ref(), b"");
}

/// Makes a program that everybody may execute of this text, which begins with the line that names its interpreter.
pub fn write(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    install_with(Path::new("/dev/stdin"), path.as_ref(), text.as_ref());
}

/// Makes a program of these lines of shell.
pub fn script(path: impl AsRef<Path>, lines: &str) {
    write(path, format!("#!/bin/sh\n{lines}\n"));
}

fn install_with(from: &Path, to: &Path, input: &[u8]) {
    let mut install = Command::new("install")
        .args(["-D", "-m", "755", "--"])
        .args([from, to])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    install.stdin.take().unwrap().write_all(input).unwrap();
    let done = install.wait().unwrap();
    assert!(
        done.success(),
        "{} was not made of {}: {done}",
        to.display(),
        from.display()
    );
}
