//! A new entry under a name that nobody uses, until it takes the place of another.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// How many taken names we meet before we believe that someone makes them faster than we can.
const TRIES: usize = 16;

/// An entry that is removed again unless it is renamed to where it belongs.
pub(super) struct Temporary<'d> {
    directory: BorrowedFd<'d>,
    name: OsString,
    placed: bool,
}

impl<'d> Temporary<'d> {
    /// Calls `make` with names until one is free. `make` must fail with `EEXIST` on a name that is taken, and must not
    /// follow it if it is a link: `symlinkat` and `openat` with `O_EXCL` do.
    pub(super) fn make<T>(
        directory: BorrowedFd<'d>,
        mut make: impl FnMut(&OsStr) -> nix::Result<T>,
    ) -> io::Result<(Self, T)> {
        for _ in 0..TRIES {
            // A name need only be free, not secret: an entry that is there already is never used.
            let name = OsString::from(format!(".tranche-{:016x}", RandomState::new().build_hasher().finish()));
            match make(&name) {
                Ok(made) => {
                    return Ok((
                        Temporary {
                            directory,
                            name,
                            placed: false,
                        },
                        made,
                    ));
                }
                Err(Errno::EEXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(Errno::EEXIST.into())
    }

    /// Gives the entry the name `name`, in place of what has it.
    pub(super) fn rename_to(mut self, name: &OsStr) -> io::Result<()> {
        renameat(self.directory, self.name.as_os_str(), self.directory, name)?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.placed {
            // There is no one left to tell: the failure that brought us here is the one that is reported.
            let _ = unlinkat(self.directory, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}
