//! `tranche-verify` and `tranche-load`, built as `make` builds them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `tranche-load`, which is built with `tranche-verify`.
pub fn load() -> PathBuf {
    path().with_file_name("tranche-load")
}

/// `tranche-verify`. It is built if `TRANCHE_VERIFY` does not name it.
pub fn path() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| match std::env::var_os("TRANCHE_VERIFY") {
        Some(path) => path.into(),
        None => build(),
    })
}

fn build() -> PathBuf {
    let top = crate::top();
    let target = top.join("target/verify");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--release", "--manifest-path"])
        .arg(top.join("verify/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("release/tranche-verify")
}
