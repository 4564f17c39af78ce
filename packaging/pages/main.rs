//! `tranche-pages` writes the files of a package that follow from other files of this repository. It is run by the
//! Makefile, and is in no package.
//!
//! ```text
//! tranche-pages commands DIR                       man pages and completions, as they lie below PREFIX/share
//! cargo metadata … | tranche-pages licences NAME…  the licences of the crates NAME, on standard output
//! ```

mod commands;
mod completions;
mod licences;

use anyhow::{Result, bail};
use std::io::{Read, Write};
use std::path::Path;

/// More than `cargo metadata` prints for a thousand crates.
const MOST_METADATA: u64 = 64 << 20;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["commands", directory] => commands::write(Path::new(directory)),
        ["licences", names @ ..] => {
            let mut metadata = Vec::new();
            std::io::stdin().take(MOST_METADATA).read_to_end(&mut metadata)?;
            let text = licences::list(&metadata, names)?;
            Ok(std::io::stdout().write_all(text.as_bytes())?)
        }
        _ => bail!("usage: tranche-pages commands DIR | licences NAME@VERSION..."),
    }
}
