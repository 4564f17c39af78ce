//! Sets the owner, the mode and the access control list of one node.

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstat, makedev};
use nix::unistd::{Gid, Uid, fchownat};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::AsRawFd;
use tranche_core::error::{Context, Error, Result};
use tranche_plan::access::{NodeAccess, NodeParams, Opening};

/// Where the kernel keeps a list (acl(5)).
const ATTRIBUTE: &str = "system.posix_acl_access";

/// Gives the node what `kept` says. One that does not exist is left out, and one that has it already is not written.
///
/// Each step leaves the node at most as open as it was or as it is to be: the attribute brings its mode with it.
///
/// # Errors
/// Returns an error if the path has another file than the driver's node, or if the kernel does not do it, as on a file
/// system without lists.
pub(super) fn set(kept: &NodeAccess<'_>, params: NodeParams) -> Result<()> {
    let (node, about) = (kept.node, kept.node.host.as_str());
    // It is not opened: the driver would start the GPU.
    let handle = match open(
        node.host.as_path(),
        OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
        Mode::empty(),
    ) {
        Err(nix::errno::Errno::ENOENT) => return Ok(()),
        opened => opened.about(about, "cannot be opened")?,
    };
    let status = fstat(&handle).about(about, "cannot be examined")?;
    let is_device = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
    if !is_device || status.st_rdev != makedev(u64::from(node.major), u64::from(node.minor)) {
        let what = "is not the driver's device node, and its owner and mode are left as they are";
        return Err(Error::failed(about, what).hint("run tranche doctor"));
    }
    let path = CString::new(format!("/proc/self/fd/{}", handle.as_raw_fd())).about(about, "cannot be named")?;
    let ((uid, gid), mode, list) = match &kept.opening {
        Opening::ByDriver => ((params.uid, params.gid), params.mode, None),
        Opening::Everybody(mode) => ((0, 0), *mode, None),
        Opening::Listed(list) => ((0, 0), list.mode(), list.attribute()),
    };
    let give_away = |is_due: bool| match is_due && (status.st_uid, status.st_gid) != (uid, gid) {
        false => Ok(()),
        true => {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            let changed = fchownat(AT_FDCWD, path.as_c_str(), Some(uid), Some(gid), AtFlags::empty());
            changed.about(about, "its owner cannot be set")
        }
    };
    // The owner alone sets a mode without CAP_FOWNER, which the broker does not have.
    give_away(uid == 0)?;
    // One byte more than expected, so that a longer list is seen to be another one.
    let mut present = vec![0; list.as_ref().map_or(0, |list| list.len() + 1)];
    let read = getxattr(&path, ATTRIBUTE, present.as_mut_slice());
    let is_set = match (&list, read) {
        (Some(list), Ok(length)) => present.get(..length) == Some(list),
        (Some(_), Err(_)) => false,
        (None, Ok(_)) => false,
        (None, Err(error)) => error == Errno::NODATA || error == Errno::NOTSUP,
    };
    let written = match &list {
        _ if is_set => Ok(()),
        Some(list) => setxattr(&path, ATTRIBUTE, list, XattrFlags::empty()),
        None => removexattr(&path, ATTRIBUTE),
    };
    written.about(about, "its access control list cannot be set")?;
    let now = fstat(&handle).about(about, "cannot be examined")?.st_mode & 0o7777;
    if now != mode {
        let mode = Mode::from_bits_truncate(mode);
        let set = fchmodat(AT_FDCWD, path.as_c_str(), mode, FchmodatFlags::FollowSymlink);
        set.about(about, "its mode cannot be set")?;
    }
    give_away(uid != 0)
}
