//! Where the programs of tranche are: beside each other in a build or an unpacked archive; or, as packages install
//! them, those that people and engines name in `bin`, and the others in `libexec/tranche`.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The directory of programs that nobody types, below the prefix of an installation.
const LIBEXEC: &str = "libexec/tranche";

/// The file of the program `name`.
///
/// # Errors
/// Returns an error if it is in none of the places.
pub fn find(name: &str) -> Result<PathBuf> {
    let own = own_directory()?;
    let places = places(&own, name);
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Ok(found.clone());
    }
    let last = places
        .last()
        .map(|place| place.display().to_string())
        .unwrap_or_default();
    let error = Error::failed(name, format!("not found beside this program, nor as {last}"));
    Err(error.hint("install all programs of tranche from one package"))
}

fn own_directory() -> Result<PathBuf> {
    let unknown = |source| Error::failed("tranche", "its own path is unknown").from_source(source);
    let own = std::env::current_exe().map_err(unknown)?;
    Ok(own.parent().unwrap_or(&own).to_owned())
}

/// Where `name` can be for a program in the directory `own`, which has no links.
fn places(own: &Path, name: &str) -> Vec<PathBuf> {
    let other = match own.ends_with(LIBEXEC) {
        true => own.ancestors().nth(2).map(|prefix| prefix.join("bin")),
        false => own.parent().map(|prefix| prefix.join(LIBEXEC)),
    };
    let directories = [Some(own.to_owned()), other];
    directories
        .into_iter()
        .flatten()
        .map(|directory| directory.join(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_of_an_installation_finds_the_others() {
        for (own, other) in [
            ("/usr/bin", "/usr/libexec/tranche/x"),
            ("/usr/local/libexec/tranche", "/usr/local/bin/x"),
            ("/", ""),
        ] {
            let places = places(Path::new(own), "x");
            assert_eq!(places[0], Path::new(own).join("x"));
            assert_eq!(places.get(1).map_or("", |path| path.to_str().unwrap()), other);
        }
    }

    #[test]
    fn one_that_is_missing_is_named_with_its_place() {
        let line = find("tranche-nothing").unwrap_err().to_string();
        assert!(line.contains("tranche-nothing") && line.contains(LIBEXEC), "{line}");
    }
}
