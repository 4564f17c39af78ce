//! Where this program may change something: it is wrong on purpose, and runs as root on the machine where the tests
//! run.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories.
pub(crate) struct Fence(Vec<PathBuf>);

impl Fence {
    pub(crate) fn new(directories: impl Iterator<Item = PathBuf>) -> Fence {
        Fence(
            directories
                .filter_map(|directory| fs::canonicalize(directory).ok())
                .collect(),
        )
    }

    /// Whether what would be made or changed at `path`, with every link followed, lies inside.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        let mut path = path.to_owned();
        for _ in 0..50 {
            match fs::read_link(&path) {
                Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
                Err(_) => break,
            }
        }
        let known = path.ancestors().find_map(|above| fs::canonicalize(above).ok());
        known.is_some_and(|known| self.0.iter().any(|directory| known.starts_with(directory)))
    }

    /// As [`Self::holds`], with an error in plain words.
    pub(crate) fn check(&self, path: &Path) -> Result<(), String> {
        match self.holds(path) {
            true => Ok(()),
            false => Err(format!("{}: outside the fence", path.display())),
        }
    }
}
