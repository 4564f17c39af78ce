//! Where a file of ours goes: into the image, or over one of it.

use std::io::{self, ErrorKind};
use std::path::Path;

use nix::errno::Errno;

use crate::oci::Bundle;

/// The mode of a file that everybody in the container reads.
pub(super) const READABLE: u32 = 0o644;

/// Gives the container `bytes` at `path`, whose present content is `now`. Where that is the same nothing is done.
///
/// Where the root may be written the file is replaced as a whole. On a read-only root, and where the place is a mount of
/// its own, it is laid over the file that is there. Whether a root may be written is the user's word in config.json, not
/// what the kernel says: some runtimes (runc) make it read-only only after the hooks.
///
/// # Errors
/// `ReadOnlyFilesystem` if nothing may be written and there is no file to lay it over.
pub(super) fn put(bundle: &Bundle, path: &Path, bytes: &[u8], now: Option<&[u8]>) -> io::Result<()> {
    if now == Some(bytes) {
        return Ok(());
    }
    if !bundle.config.read_only {
        let (directory, name) = match bundle.root.make_parent(path) {
            Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => return cover(bundle, path, bytes),
            found => found?,
        };
        match directory.replace(name, bytes, READABLE) {
            // A mount of its own is busy; it and its file system may also be read-only where the root is not.
            Err(e) if matches!(e.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::ResourceBusy) => {}
            done => return done,
        }
    }
    cover(bundle, path, bytes)
}

fn cover(bundle: &Bundle, path: &Path, bytes: &[u8]) -> io::Result<()> {
    match bundle.root.find(path) {
        Ok(target) => bundle.root.cover(&target, bytes, READABLE),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(ErrorKind::ReadOnlyFilesystem.into()),
        Err(e) => Err(e),
    }
}

/// The regular file at `path` if there is one, links followed inside the root. Nothing where there is none, a link
/// leads nowhere, or something else is there.
pub(super) fn current(bundle: &Bundle, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    match bundle.root.read(path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if is_none(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether what was looked for cannot be a file for the container either.
fn is_none(error: &io::Error) -> bool {
    let by_kind = matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput
    );
    by_kind || error.raw_os_error() == Some(Errno::ELOOP as i32)
}
