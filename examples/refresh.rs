//! How a program outside this crate writes the specifications of a host, here of one that is made of files.
//!
//! ```text
//! cargo run --example refresh -- ROOT DIRECTORY
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use std::error::Error;
use std::path::Path;
use tranche_specs::refresh::{Refresh, RefreshOptions};

/// Writes the specifications of the host in `root` to `directory`, without NVML. Returns what was done, in lines.
pub(crate) fn refresh(root: &Path, directory: &Path) -> Result<String, Box<dyn Error>> {
    let mut options = RefreshOptions {
        output_dir: directory.join("cdi"),
        ..RefreshOptions::default()
    };
    options.at.state_dir = directory.join("state");
    options.at.host.roots.root = Some(root.to_owned());
    options.at.host.discovery.nvml = false;
    let mut lines = Vec::new();
    let refreshed = Refresh::begin(&options, false)?.run(&mut lines)?;
    lines.push(refreshed.report.line());
    Ok(lines.join("\n"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [root, directory] = &arguments[..] else {
        return Err("usage: refresh ROOT DIRECTORY".into());
    };
    println!("{}", refresh(root.as_ref(), directory.as_ref())?);
    Ok(())
}
