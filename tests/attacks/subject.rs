//! Which program is attacked. Besides ours there are two that must fail: one that does nothing, and one that trusts
//! images.

use crate::support::fake_host::fake_library;
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A program that is attacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// tranche's programs: static, as packages have them, where `make test` has built them.
    Real,
    /// Exits with 0 and has no effect.
    Nothing,
    /// `examples/naive-hook`, with these of the faults that have switches.
    Naive(Vec<&'static str>),
}

thread_local! {
    static CURRENT: RefCell<Subject> = const { RefCell::new(Subject::Real) };
}

impl Subject {
    /// The program that is attacked by this thread.
    pub(crate) fn current() -> Subject {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Attacks this program from here on, in this thread.
    pub(crate) fn make_current(self) {
        CURRENT.set(self);
    }

    pub(crate) fn is_real(&self) -> bool {
        *self == Subject::Real
    }

    /// The program's file, in place of `tranche-oci`.
    pub(crate) fn hook(&self) -> PathBuf {
        match self {
            Subject::Real => shipped("TRANCHE_OCI_STATIC", env!("CARGO_BIN_EXE_tranche-oci")),
            Subject::Nothing => "/bin/true".into(),
            Subject::Naive(_) => naive().to_owned(),
        }
    }

    /// The program's file, in place of `tranche`.
    pub(crate) fn command_line(&self) -> PathBuf {
        match self {
            Subject::Real => env!("CARGO_BIN_EXE_tranche").into(),
            other => other.hook(),
        }
    }

    /// The program's file, in place of `tranche-runtime`.
    pub(crate) fn runtime(&self) -> PathBuf {
        match self {
            Subject::Real => runtime().to_owned(),
            other => other.hook(),
        }
    }

    /// What must be added to the arguments: the naive program may change what is below these directories alone.
    pub(crate) fn arguments(&self, fence: &[&Path]) -> Vec<OsString> {
        let Subject::Naive(faults) = self else {
            return Vec::new();
        };
        let directories: Vec<_> = fence.iter().map(|path| path.as_os_str()).collect();
        vec![
            "--naive-fence".into(),
            directories.join(":".as_ref()),
            "--naive-faults".into(),
            faults.join(",").into(),
        ]
    }
}

/// The static program that `variable` names, which is the one that packages have. Without the variable it is `debug`,
/// as Cargo built it for the tests, so that a single attack can be run by `cargo test`; in strict mode that is a
/// failure.
fn shipped(variable: &str, debug: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => path.into(),
        None if crate::support::skip::is_strict() => panic!("{variable} is not set: run `make attack` or `make test`"),
        None => debug.into(),
    }
}

/// A copy of `tranche-runtime` in a directory without `tranche`, which would write the specifications of this machine.
fn runtime() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attacks");
        std::fs::create_dir_all(&directory).unwrap();
        let copy = directory.join("tranche-runtime");
        // In another process: a program cannot be executed while a process has it open to write.
        let built = shipped("TRANCHE_RUNTIME_STATIC", env!("CARGO_BIN_EXE_tranche-runtime"));
        let done = Command::new("install")
            .args(["-m", "755"])
            .arg(built)
            .arg(&copy)
            .status();
        assert!(done.unwrap().success());
        copy
    })
}

/// The naive program as Cargo built it, up to date.
fn naive() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| fake_library::build("naive-hook").unwrap().join("naive-hook"))
}
