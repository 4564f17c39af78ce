//! What `make build` leaves behind, with a compiler that only copies.

use crate::support::{programs, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Stands for Cargo: puts the programs where Cargo does.
fn cargo(at: &Path) {
    let text = format!(
        "#!/bin/sh\n\
         printf %s \"$CARGO_ENCODED_RUSTFLAGS\" | tr '\\037' '\\n' > rustflags\n\
         case \"$*\" in\n\
         *'--release --features pages,web --bin tranche '*)\n\
         \x20   mkdir -p target/release && cp '{}' target/release/tranche && for program in broker driver web; do cp /bin/true target/release/tranche-$program; done ;;\n\
         *'--profile oci'*)\n\
         \x20   while test $# -gt 0; do\n\
         \x20       case $1 in --target) target=$2 ;; --bin) program=$2 ;; esac\n\
         \x20       shift\n\
         \x20   done\n\
         \x20   mkdir -p \"target/$target/oci\" && cp /bin/true \"target/$target/oci/$program\" ;;\n\
         *'--manifest-path verify/Cargo.toml'*)\n\
         \x20   mkdir -p target/verify/release && for program in verify load; do cp /bin/true target/verify/release/tranche-$program; done ;;\n\
         *) exit 1 ;;\n\
         esac\n",
        env!("CARGO_BIN_EXE_tranche")
    );
    programs::write(at, text);
}

#[test]
fn a_specification_of_a_build_names_the_hook_of_that_build() {
    if Command::new("make").arg("--version").output().is_err() {
        return skip::not_run("a_specification_of_a_build_names_the_hook_of_that_build", "needs make");
    }
    let directory = tempfile::Builder::new().prefix("with a space").tempdir().unwrap();
    let at = directory.path();
    fs::create_dir(at.join("packaging")).unwrap();
    let parts = ["install.mk", "package.mk", "kubernetes.mk", "dist.mk", "remap.sh"];
    let parts = parts.map(|part| format!("packaging/{part}"));
    for file in ["Makefile", "Cargo.toml"]
        .into_iter()
        .chain(parts.iter().map(String::as_str))
    {
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(file), at.join(file)).unwrap();
    }
    cargo(&at.join("cargo"));
    let make = |arguments: &[&str]| {
        let made = Command::new("make").args(arguments).current_dir(at).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap()
    };
    let of_containers = ["verify", "load"].map(|program| at.join(format!("target/tranche/tranche-{program}")));
    let without = make(&["build", "CARGO=./cargo", "CC=no-such-compiler"]);
    assert!(
        without.contains("tranche-verify and tranche-load: not built"),
        "{without}"
    );
    assert!(of_containers.iter().all(|program| !program.exists()));
    make(&["build", "CARGO=./cargo"]);
    assert!(of_containers.iter().all(|program| program.exists()));
    let flags = fs::read_to_string(at.join("rustflags")).unwrap();
    let here = fs::canonicalize(at).unwrap();
    let remapped = format!("--remap-path-prefix={}=/usr/src/tranche", here.display());
    assert!(flags.lines().any(|flag| flag == remapped), "{flags}");
    let output = Command::new(at.join("target/tranche/tranche"))
        .args(["cdi", "generate", "--inventory=sim:t4x2"])
        .env_clear()
        .output()
        .unwrap();
    let spec = String::from_utf8(output.stdout).unwrap();
    let hook = here.join("target/tranche/tranche-oci");
    assert!(spec.contains(&format!("path: {}\n", hook.display())), "{spec:.2000}");
}

#[test]
fn a_cargo_that_is_missing_or_too_old_is_named_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let cargo = directory.path().join("cargo");
    let said = |version: Option<&str>| {
        if let Some(version) = version {
            programs::script(&cargo, &format!("echo 'cargo {version} (c24e10642 2025-06-23)'"));
        }
        let output = Command::new("packaging/rust.sh")
            .arg(&cargo)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let needed = env!("CARGO_PKG_RUST_VERSION");
    let (code, line) = said(None);
    assert_eq!((code, line.lines().count()), (Some(1), 1), "{line}");
    let missing = format!("missing: Rust {needed} or later: {} cannot be run; ", cargo.display());
    assert!(line.starts_with(&missing), "{line}");
    for old in ["1.9.0", "1.85.1", "0.99.0"] {
        let (code, line) = said(Some(old));
        let expected = format!("missing: Rust {needed} or later: this is {old}; rustup update brings a newer one\n");
        assert_eq!((code, line), (Some(1), expected));
    }
    for new in [&format!("{needed}.0"), needed, "1.100.0-nightly", "2.0.0"] {
        assert_eq!(said(Some(new)), (Some(0), String::new()));
    }
}
