//! The directory of the messages, opened so that no other user can replace it by another directory.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::geteuid;

use crate::root::HostDirectory;

/// The name of the directory in a state directory.
const NAME: &str = "messages";
/// The name of tranche's directory in the run-time directory of a user.
const TRANCHE: &str = "tranche";

/// What to do about a missing directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// Make it, because there are messages to keep.
    Make,
    /// Do nothing, because messages are only read.
    Leave,
}

/// The messages' directory in `state_dir`. Every component of the path must be a directory, not a link, that belongs to root
/// or to this process's user and that no other user may write. Only this process's user may enter the messages' directory.
///
/// In the user namespace of a rootless engine the host's directories have no owner, so this fails there.
///
/// # Errors
/// Returns `NotFound` if a directory is missing and is not made, `PermissionDenied` if a directory belongs to another user
/// or another user may write it, or the kernel's error.
pub(super) fn of_state(state_dir: &Path, missing: Missing) -> io::Result<HostDirectory> {
    let mut here = HostDirectory::open(Path::new("/"))?;
    check_trusted(&here)?;
    let mut components = state_dir.components().peekable();
    if components.next() != Some(Component::RootDir) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not an absolute path"));
    }
    while let Some(component) = components.next() {
        let Component::Normal(name) = component else {
            return Err(io::Error::new(ErrorKind::InvalidInput, "not a path in normal form"));
        };
        // Of the path, only the last directory is made.
        let missing = if components.peek().is_none() {
            missing
        } else {
            Missing::Leave
        };
        here = enter(&here, name, missing, 0o755)?;
        check_trusted(&here)?;
    }
    own(enter(&here, OsStr::new(NAME), missing, 0o700)?)
}

/// The messages' directory in `runtime_dir`, the run-time directory of this process's user.
///
/// # Errors
/// Returns the errors of [`of_state`].
pub(super) fn of_user(runtime_dir: &Path, missing: Missing) -> io::Result<HostDirectory> {
    let user = HostDirectory::open(runtime_dir)?;
    let status = fstat(user.as_fd())?;
    if status.st_uid != geteuid().as_raw() || status.st_mode & 0o022 != 0 {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let tranche = enter(&user, OsStr::new(TRANCHE), missing, 0o700)?;
    check_trusted(&tranche)?;
    own(enter(&tranche, OsStr::new(NAME), missing, 0o700)?)
}

/// The run-time directory of this process's user by convention (pam_systemd(8)). A hook has no environment variable for it.
/// In a user namespace the user has another number, so the number outside is read from /proc.
///
/// # Errors
/// Returns an error if /proc does not have the number.
pub(super) fn runtime_dir() -> io::Result<PathBuf> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    let uid = outside(&map, geteuid().as_raw()).ok_or(ErrorKind::NotFound)?;
    Ok(PathBuf::from(format!("/run/user/{uid}")))
}

/// The number of the user `uid` outside of the user namespace with this map (user_namespaces(7)).
fn outside(map: &str, uid: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (inside, outside, count) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        let within = uid.checked_sub(inside).filter(|within| *within < count)?;
        outside.checked_add(within)
    })
}

/// The directory `name` of `parent`. Links are not followed.
fn enter(parent: &HostDirectory, name: &OsStr, missing: Missing, mode: u32) -> io::Result<HostDirectory> {
    if missing == Missing::Make {
        match mkdirat(parent, name, Mode::from_bits_truncate(mode)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e.into()),
        }
    }
    parent.subdirectory(name)
}

/// Refuses a directory in which another user could replace an entry.
fn check_trusted(directory: &HostDirectory) -> io::Result<()> {
    let status = fstat(directory.as_fd())?;
    let sticky = status.st_mode & Mode::S_ISVTX.bits() != 0;
    let is_trusted_owner = status.st_uid == 0 || status.st_uid == geteuid().as_raw();
    if !is_trusted_owner || (status.st_mode & 0o022 != 0 && !sticky) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

/// Refuses a directory that other users may enter.
fn own(directory: HostDirectory) -> io::Result<HostDirectory> {
    let status = fstat(directory.as_fd())?;
    if status.st_uid != geteuid().as_raw() || status.st_mode & 0o077 != 0 {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn the_number_outside_is_found_in_the_map() {
        let rootless = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(outside(rootless, 0), Some(1000));
        assert_eq!(outside(rootless, 1), Some(100_000));
        assert_eq!(outside(rootless, 65_537), None);
        assert_eq!(outside("0 0 4294967295\n", 1000), Some(1000));
        assert_eq!(outside("", 0), None);
        assert_eq!(outside("0 x 1", 0), None);
    }

    #[test]
    fn the_directory_is_made_and_is_closed_to_others() {
        let top = tempfile::tempdir().unwrap();
        let state = top.path().join("state");
        assert_eq!(
            of_state(&state, Missing::Leave).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert!(!state.exists());
        of_state(&state, Missing::Make).unwrap();
        assert_eq!(fs::metadata(state.join("messages")).unwrap().mode() & 0o777, 0o700);
        of_state(&state, Missing::Leave).unwrap();
        let above = of_state(&top.path().join("a/b"), Missing::Make).unwrap_err();
        assert_eq!(above.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_path_that_somebody_else_could_change_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        fs::create_dir(at("real")).unwrap();
        symlink("real", at("link")).unwrap();
        assert!(of_state(&at("link"), Missing::Make).is_err());
        assert!(of_state(&at("link/state"), Missing::Make).is_err());
        assert!(of_state(Path::new("state"), Missing::Make).is_err());
        assert!(of_state(&at("real/../real"), Missing::Make).is_err());

        fs::set_permissions(at("real"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(of_state(&at("real/state"), Missing::Make).is_err());
        assert!(!at("real/state").exists());
        fs::set_permissions(at("real"), fs::Permissions::from_mode(0o1777)).unwrap();
        of_state(&at("real/state"), Missing::Make).unwrap();

        fs::set_permissions(at("real/state/messages"), fs::Permissions::from_mode(0o750)).unwrap();
        assert!(of_state(&at("real/state"), Missing::Leave).is_err());
        fs::remove_dir(at("real/state/messages")).unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        symlink("../../elsewhere", at("real/state/messages")).unwrap();
        assert!(of_state(&at("real/state"), Missing::Make).is_err());
    }

    #[test]
    fn the_directory_of_a_user_must_be_his() {
        let top = tempfile::tempdir().unwrap();
        assert!(of_user(&top.path().join("none"), Missing::Make).is_err());
        of_user(top.path(), Missing::Make).unwrap();
        assert_eq!(
            fs::metadata(top.path().join("tranche/messages")).unwrap().mode() & 0o777,
            0o700
        );
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(of_user(top.path(), Missing::Make).is_err());
        if !nix::unistd::Uid::effective().is_root() {
            println!("not run: messages::directory: not root");
            return;
        }
        let theirs = top.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        std::os::unix::fs::chown(&theirs, Some(12345), None).unwrap();
        assert!(of_user(&theirs, Missing::Make).is_err());
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(of_state(&theirs.join("state"), Missing::Make).is_err());
        assert!(!theirs.join("state").exists());
    }
}
