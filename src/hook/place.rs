//! Files whose content is carried over for the image: read once, and then replaced or covered.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::report::HookReport;
use crate::oci::Bundle;
use crate::root::{NotOwn, OwnDirectory, OwnFile, Permissions};

/// Permissions of a new file that everybody in the container reads.
pub(super) const READABLE: Permissions = Permissions::new_file(0o644);

/// A file of the image as it is now. Empty if there is no such file.
#[derive(Debug, Default)]
pub(super) struct Current(Option<(OwnFile, Vec<u8>)>);

impl Current {
    /// The file that the container sees at `path`. Links are followed inside the root.
    ///
    /// A file that is not the image's own counts as absent, and `report` says why: its content is not for the container
    /// to read, and it is not for the hook to change.
    ///
    /// # Errors
    /// `FileTooLarge` beyond `limit` bytes, and what the kernel says of a file that cannot be read.
    pub(super) fn at(bundle: &Bundle, path: &Path, limit: u64, report: &mut HookReport<'_>) -> io::Result<Current> {
        known(Current::of(bundle.root.own_file(path), limit), path, report)
    }

    /// The file `name` of `directory`, whose path is `path`. A link is not followed, and counts as absent.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub(super) fn in_directory(
        bundle: &Bundle,
        (directory, path): (&OwnDirectory, &Path),
        name: &OsStr,
        limit: u64,
        report: &mut HookReport<'_>,
    ) -> io::Result<Current> {
        known(Current::named(bundle, directory, name, limit), &path.join(name), report)
    }

    /// As [`Self::in_directory`], for a caller that reports by itself.
    ///
    /// # Errors
    /// Returns why the file is not the image's own.
    pub(super) fn named(
        bundle: &Bundle,
        directory: &OwnDirectory,
        name: &OsStr,
        limit: u64,
    ) -> Result<Current, NotOwn> {
        let found = directory.find(name).map_err(NotOwn::from);
        Current::of(found.and_then(|found| bundle.root.own(found)), limit)
    }

    fn of(found: Result<OwnFile, NotOwn>, limit: u64) -> Result<Current, NotOwn> {
        let file = match found {
            Err(NotOwn::Absent) => return Ok(Current(None)),
            found => found?,
        };
        let bytes = file.read(limit).map_err(NotOwn::Unknown)?;
        Ok(Current(Some((file, bytes))))
    }

    /// Its content, if there is such a file.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_ref().map(|(_, bytes)| bytes.as_slice())
    }

    /// Makes the file `name` of `directory` one of these bytes. It keeps the mode and owner that it has; a new file gets
    /// those of `new`. Nothing is done where the content is the same.
    ///
    /// # Errors
    /// As [`OwnDirectory::replace`].
    pub(super) fn replace(
        &self,
        directory: &OwnDirectory,
        name: &OsStr,
        bytes: &[u8],
        new: Permissions,
    ) -> io::Result<()> {
        if self.bytes() == Some(bytes) {
            return Ok(());
        }
        let permissions = self.0.as_ref().map_or(new, |(file, _)| file.permissions());
        directory.replace(name, bytes, permissions)
    }

    /// Gives the container `bytes` at `path`, where this file is. Nothing is done where the content is the same.
    ///
    /// Where the root may be written the file is replaced as a whole. On a read-only root it is covered. Whether a root
    /// may be written is the user's word in config.json, not what the kernel says: some runtimes (runc) make it
    /// read-only only after the hooks. It is also covered where the kernel says that the image is read-only.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem` if nothing may be written and there is no file of the image to cover.
    pub(super) fn put(&self, bundle: &Bundle, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.bytes() == Some(bytes) {
            return Ok(());
        }
        if !bundle.config.read_only {
            let replaced = bundle
                .root
                .make_parent(path)
                .and_then(|(directory, name)| self.replace(&directory, name, bytes, READABLE));
            match replaced {
                // ResourceBusy: something is mounted on the file itself.
                Err(e) if matches!(e.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::ResourceBusy) => {}
                done => return done,
            }
        }
        match &self.0 {
            Some((file, _)) => bundle.root.cover(file, bytes),
            None => Err(ErrorKind::ReadOnlyFilesystem.into()),
        }
    }
}

/// Counts a file that is not the image's own as absent, and reports that.
fn known(current: Result<Current, NotOwn>, path: &Path, report: &mut HookReport<'_>) -> io::Result<Current> {
    match current {
        Ok(current) => Ok(current),
        Err(NotOwn::Unknown(error)) => Err(error),
        Err(why) => {
            report.note(path.display(), format_args!("its content is ignored: {why}"));
            Ok(Current::default())
        }
    }
}
