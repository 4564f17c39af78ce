//! Files of the image that are read once and then replaced or covered.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::report::HookReport;
use tranche_core::oci::Bundle;
use tranche_core::root::{NotOwn, OwnDirectory, OwnFile, Permissions};

/// Permissions of a new file that all users of the container may read.
pub(super) const READABLE: Permissions = Permissions::new_file(0o644);

/// A file of the image as it is now. Empty if there is no such file.
#[derive(Debug, Default)]
pub(super) struct Current(Option<(OwnFile, Vec<u8>)>);

impl Current {
    /// The file that the container sees at `path`. Links are followed inside the root.
    ///
    /// A file that is not the image's own counts as absent, and `report` says why: its content must not get into the
    /// container, and it must not be changed.
    ///
    /// # Errors
    /// Returns `FileTooLarge` beyond `limit` bytes, or the kernel's error.
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

    /// Replaces the file `name` of `directory` by one with these bytes. It keeps its mode and owner; a new file gets
    /// those of `new`. Nothing is done if the content is the same.
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

    /// Gives the container `bytes` at `path`, the path of this file. Nothing is done if the content is the same.
    ///
    /// If the root may be written, the file is replaced. On a read-only root it is covered. config.json decides whether
    /// the root may be written, because some runtimes (runc) make it read-only after the hooks. The file is also
    /// covered if the kernel reports that the image is read-only.
    ///
    /// # Errors
    /// Returns `ReadOnlyFilesystem` if nothing may be written and the image has no file to cover.
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
