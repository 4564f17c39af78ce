//! What root's own commands read: specification files of everybody, and the driver's library.
#![allow(unsafe_code, reason = "a library is opened in this very process")]

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::ffi::OsStrExt;

use crate::{Wrong, values};

/// Prints each file and what it is. Of a file that is not a specification, it prints the first line.
pub(crate) fn specs(arguments: &[OsString]) -> Result<(), Wrong> {
    let mut out = std::io::stdout().lock();
    for directory in values(arguments, "--spec-dir") {
        for entry in fs::read_dir(directory).map_err(|e| e.to_string())?.flatten() {
            let bytes = fs::read(entry.path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let kind = text.lines().find_map(|line| line.strip_prefix("kind:"));
            let shown = kind.map_or_else(
                || bytes.lines().next().and_then(Result::ok).unwrap_or_default(),
                str::to_owned,
            );
            let _ = out.write_all(entry.file_name().as_bytes());
            let _ = writeln!(out, ": {shown}");
        }
    }
    Ok(())
}

/// Opens the driver's library here, and asks it.
pub(crate) fn library(arguments: &[OsString]) -> Result<(), Wrong> {
    let Some(root) = values(arguments, "--root").pop() else {
        return Ok(());
    };
    let file = std::path::Path::new(&root).join("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1");
    let name = CString::new(file.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: the name is a C string. What the library's constructor does is its own matter: that is the point.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return Err(format!("{}: cannot be opened", file.display()));
    }
    // SAFETY: both are C strings, and the handle is one of dlopen.
    let init = unsafe { libc::dlsym(handle, c"nvmlInit_v2".as_ptr()) };
    if !init.is_null() {
        // SAFETY: NVML declares it so.
        let init: extern "C" fn() -> i32 = unsafe { std::mem::transmute(init) };
        let _ = init();
    }
    println!("{}", file.display());
    Ok(())
}
