//! A policy's text, from a file that somebody names: `tranche` may be root, and the file may be anything.

use std::io::ErrorKind;
use std::path::Path;
use tranche_core::bounded;
use tranche_core::error::{Context, Error, Result};

/// The largest policy file, in bytes. The longest that a person writes has a few hundred lines.
const MOST_BYTES: u64 = 1 << 20;

/// The text of the file at `path`. It is opened once, and the open file is what is checked and read.
///
/// # Errors
/// Returns an error if the file does not exist, is not a regular file (a pipe would keep the program waiting, and a
/// device has no end), has more than 1 MiB, or is not UTF-8.
pub fn text(path: &Path) -> Result<String> {
    let shown = &path.display();
    let file = match bounded::regular_file(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(Error::failed(shown, "not found").hint("write a policy there, or give --config FILE"));
        }
        Err(e) if e.kind() == ErrorKind::InvalidInput => {
            return Err(Error::failed(shown, "is not a regular file").hint("a policy is read from a regular file"));
        }
        other => other.about(shown, "cannot be opened")?,
    };
    let bytes = bounded::read(file, MOST_BYTES).map_err(|e| match e.kind() {
        ErrorKind::FileTooLarge => {
            Error::failed(shown, format!("is {e}, the most for a policy")).hint("make it smaller")
        }
        _ => Error::failed(shown, "cannot be read").from_source(e),
    })?;
    String::from_utf8(bytes).map_err(|_| Error::failed(shown, "is not UTF-8 text").hint("save it as UTF-8"))
}
