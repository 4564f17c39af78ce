//! The names in a directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::FileType;

/// The names in a directory, in its own order, in one allocation: a directory may have thousands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    text: Vec<u8>,
    /// Where in the text each name ends; it begins where the one before ends.
    ends: Vec<(usize, Option<FileType>)>,
}

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<'a> {
    /// The name.
    pub name: &'a OsStr,
    /// Its kind when the directory was read. Only a hint, because it may have changed; some file systems do not have
    /// it.
    pub kind: Option<FileType>,
}

impl Listing {
    /// How many names there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = Named<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |(end, kind)| {
            let name = self.text.get(start..*end).unwrap_or_default();
            start = *end;
            Named {
                name: OsStr::from_bytes(name),
                kind: *kind,
            }
        })
    }

    pub(super) fn push(&mut self, name: &[u8], kind: Option<FileType>) {
        self.text.extend_from_slice(name);
        self.ends.push((self.text.len(), kind));
    }
}
