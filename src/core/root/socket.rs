//! Mounts a socket of the host in a container.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::cover::check_private;

/// Mounts the socket at `host` on the file of the handle `target`, until the container ends. A link at the end of
/// `host` is not followed: the daemon's user may own the directory.
pub(super) fn mount(host: &Path, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let socket = openat(AT_FDCWD, host, flags, Mode::empty())?;
    if SFlag::from_bits_truncate(fstat(&socket)?.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
        return Err(io::Error::other("it is not a socket"));
    }
    check_private(&[target])?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(socket.as_fd(), "", clone)?;
    let onto = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(&tree, "", target, "", onto)?)
}
