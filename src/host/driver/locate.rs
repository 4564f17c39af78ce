//! Finds a file by its name in a list of directories.

use crate::tree::{Tree, TreePath};
use std::io;
use tranche_core::types::HostPath;

/// A directory to search.
pub(super) struct SearchDir<'t> {
    /// How the host names it; a path below may have links in it.
    pub host: HostPath,
    /// The directory itself; `None` if it does not exist.
    pub path: Option<TreePath<'t>>,
}

impl<'t> SearchDir<'t> {
    /// The directory `inner` of a tree.
    pub(super) fn new(tree: &'t Tree, inner: &str) -> Self {
        Self {
            host: tree.host(inner),
            path: tree.resolve(inner).ok(),
        }
    }
}

/// The first file called `name` in `dirs` that `accept` takes. `accept` gets the directory, and the file with its links
/// followed or the error of that.
pub(super) fn locate<'d, 't: 'd, T>(
    dirs: impl IntoIterator<Item = &'d SearchDir<'t>>,
    name: &str,
    accept: impl Fn(&'d SearchDir<'t>, io::Result<TreePath<'t>>) -> Option<T>,
) -> Option<T> {
    dirs.into_iter()
        .find_map(|dir| accept(dir, dir.path.as_ref()?.below(name)))
}
