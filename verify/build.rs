//! Makes the libraries that the programs are linked with: `libc.so.6` and `libdl.so.2` that have nothing but the symbols
//! below, at the oldest version of glibc for the machine.
//!
//! A linker binds each symbol to the default version in the library that it is given, and that of Debian 12 is 2.34 for
//! `dlopen` and `__libc_start_main`. A program that was linked there does not start in an older image. Every later
//! glibc still has the oldest versions, so a program that is bound to these starts with each.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBC: &[&str] = &[
    "__errno_location",
    "__libc_start_main",
    "_exit",
    "abort",
    "alarm",
    "bcmp",
    "close",
    "connect",
    "getuid",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "mmap",
    "poll",
    "read",
    "readlink",
    "setsockopt",
    "signal",
    "socket",
    "strlen",
    "syscall",
    "unlink",
    "write",
];
const LIBDL: &[&str] = &["dlerror", "dlopen", "dlsym"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    // The version with which glibc began on the machine (glibc, `shlib-versions`).
    let version = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "GLIBC_2.2.5",
        "aarch64" => "GLIBC_2.17",
        other => {
            return Err(format!(
                "tranche-verify and tranche-load do not support {other}: NVIDIA's driver has no CUDA for it"
            )
            .into());
        }
    };
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for (library, symbols) in [("libc.so.6", LIBC), ("libdl.so.2", LIBDL)] {
        stub(&out, library, version, symbols)?;
        println!("cargo::rustc-link-arg-bins={}", out.join(library).display());
    }
    // The beginning of the programs is in src/sys.rs: that of the compiler's C library may need a newer one.
    println!("cargo::rustc-link-arg-bins=-nostartfiles");
    println!("cargo::rustc-link-arg-bins=-Wl,--no-undefined,--as-needed,-z,relro,-z,now");
    Ok(())
}

/// Makes a library with these symbols, which do nothing: it is only linked with.
fn stub(out: &Path, library: &str, version: &str, symbols: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut source = String::new();
    for symbol in symbols {
        writeln!(source, ".globl {symbol}\n.type {symbol}, %function\n{symbol}:")?;
    }
    source.push_str(".section .note.GNU-stack, \"\", %progbits\n");
    let map = format!("{version} {{ global: {}; local: *; }};\n", symbols.join("; "));
    let (source_file, map_file) = (out.join(format!("{library}.s")), out.join(format!("{library}.map")));
    fs::write(&source_file, source)?;
    fs::write(&map_file, map)?;
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-o"])
        .arg(out.join(library))
        .arg(format!("-Wl,-soname,{library}"))
        .arg(format!("-Wl,--version-script={}", map_file.display()))
        .arg(&source_file)
        .status()
        .map_err(|e| format!("{compiler}: cannot be started: {e}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{compiler}: {library} was not made: {status}").into()),
    }
}
