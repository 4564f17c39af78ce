//! Directories of tranche's own on the host, opened so that no other user can replace one, or what leads to it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{Directory, FileType, Found, HostDirectory};
use crate::error::{Context, Error, Result};

/// The name of tranche's directory in the run-time directory of a user.
const TRANCHE: &str = "tranche";

/// As many links as the kernel follows in a path (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// What to do about a missing directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Make it, because there is something to write.
    Make,
    /// Do nothing, because files are only read.
    Leave,
}

impl HostDirectory {
    /// The directory `name` in `state_dir`, which only the user of this process may enter; `None` if a directory is
    /// missing and is not made. Each directory and each symbolic link on the way must belong to root or to this
    /// user, and only their owners may write them.
    ///
    /// In the user namespace of a rootless engine the host's directories have no owner, so this fails there.
    ///
    /// # Errors
    /// Returns an error if another user could replace or enter the directory, or the kernel's error.
    pub fn in_state_dir(state_dir: &Path, name: &str, missing: Missing) -> Result<Option<Self>> {
        let state_dir = std::path::absolute(state_dir).about(state_dir.display(), "cannot be named")?;
        match follow(&state_dir, name, missing)? {
            Some(state) => private(&state, name, &state_dir.join(name), missing),
            None => Ok(None),
        }
    }

    /// The directory `name` in this one, whose path is `path`, under the same conditions.
    ///
    /// # Errors
    /// As [`Self::in_state_dir`].
    pub fn private(&self, name: &str, path: &Path, missing: Missing) -> Result<Option<Self>> {
        let parent = self.as_fd().try_clone_to_owned().and_then(Found::from_fd);
        private(&parent.about(path.display(), "cannot be opened")?, name, path, missing)
    }

    /// The directory `name` in the one that this one is in; `None` if it is missing. Others may read it.
    ///
    /// # Errors
    /// Returns an error if it is not a directory of the user who runs this, if others may write it, or the kernel's
    /// error.
    pub fn readable_beside(&self, name: &str, path: &Path) -> Result<Option<Self>> {
        let above = Path::new("..").join(name);
        let found = existing(hold(self, &above, OFlags::NOFOLLOW)).about(path.display(), "cannot be opened")?;
        let is_own = |found: &Found| {
            let is_directory = found.kind() == FileType::Directory;
            is_directory && found.owner() == geteuid().as_raw() && found.mode() & 0o022 == 0
        };
        match found {
            Some(found) if !is_own(&found) => {
                let what = "is not a directory that only the user who runs this may write";
                Err(Error::failed(path.display(), what))
            }
            found => Ok(found.map(|found| HostDirectory::new(Directory::from_fd(found.into())))),
        }
    }

    /// The state directory itself, with the same checks of what leads to it.
    ///
    /// # Errors
    /// As [`Self::in_state_dir`].
    pub fn state_dir(path: &Path, missing: Missing) -> Result<Option<Self>> {
        let path = std::path::absolute(path).about(path.display(), "cannot be named")?;
        let found = follow(&path, "state", missing)?;
        Ok(found.map(|found| HostDirectory::new(Directory::from_fd(found.into()))))
    }

    /// The directory `tranche/NAME` in `runtime_dir`, the run-time directory of this process's user; `None` if a
    /// directory is missing and is not made.
    ///
    /// # Errors
    /// Returns an error if another user could write `runtime_dir`, or the errors of [`Self::in_state_dir`].
    pub fn in_runtime_dir(runtime_dir: &Path, name: &str, missing: Missing) -> Result<Option<Self>> {
        let about = runtime_dir.display();
        // The directories above it have no owner in a user namespace, so they are not checked.
        let Some(user) = existing(hold(CWD, runtime_dir, OFlags::empty())).about(&about, "cannot be opened")? else {
            return Ok(None);
        };
        if user.kind() != FileType::Directory || user.owner() != geteuid().as_raw() || user.mode() & 0o022 != 0 {
            return Err(Error::failed(
                about,
                "is not a directory that only the user who runs this may write",
            ));
        }
        let path = runtime_dir.join(TRANCHE);
        match enter(&user, TRANCHE.as_ref(), &path, missing, Mode::RWXU)? {
            Some(tranche) => {
                check(&tranche, &path, name)?;
                private(&tranche, name, &path.join(name), missing)
            }
            None => Ok(None),
        }
    }
}

/// Follows the absolute path `state_dir` from the root directory, and checks each directory and each link on the way.
fn follow(state_dir: &Path, name: &str, missing: Missing) -> Result<Option<Found>> {
    let root = || hold(CWD, Path::new("/"), OFlags::empty()).about("/", "cannot be opened");
    let mut at = root()?;
    let mut shown = PathBuf::from("/");
    let mut links = 0;
    let mut rest: VecDeque<OsString> = names(state_dir).collect();
    check(&at, &shown, name)?;
    while let Some(next) = rest.pop_front() {
        let here = shown.join(&next);
        // 0755, because files for all users are in the state directory, too.
        let Some(found) = enter(&at, &next, &here, missing, Mode::from_raw_mode(0o755))? else {
            return Ok(None);
        };
        check(&found, &here, name)?;
        match found.kind() {
            FileType::Directory => (at, shown) = (found, here),
            FileType::Link => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Error::failed(state_dir.display(), "has too many symbolic links"));
                }
                let target = fs::readlinkat(&found, "", Vec::new()).about(here.display(), "cannot be read")?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    (at, shown) = (root()?, PathBuf::from("/"));
                }
                rest = names(&target).chain(rest).collect();
            }
            FileType::File | FileType::Other => return Err(Error::failed(here.display(), "is not a directory")),
        }
    }
    Ok(Some(at))
}

fn names(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// What has the name `name` in `parent`, held and not followed; `None` if it is missing and is not made. A new
/// directory has this mode.
fn enter(parent: &Found, name: &OsStr, path: &Path, missing: Missing, mode: Mode) -> Result<Option<Found>> {
    let held = || existing(hold(parent, name.as_ref(), OFlags::NOFOLLOW)).about(path.display(), "cannot be opened");
    match held()? {
        None if missing == Missing::Make => {
            match fs::mkdirat(parent, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e).about(path.display(), "cannot be made"),
            }
            held()
        }
        found => Ok(found),
    }
}

fn hold(parent: impl AsFd, name: &Path, flags: OFlags) -> io::Result<Found> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    Found::from_fd(fs::openat(parent, name, flags, Mode::empty())?)
}

fn existing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Refuses a directory or link that a user other than root and the one who runs this could change, as its owner or
/// because of its mode. In a directory with the sticky bit, no user can replace the files of another.
fn check(found: &Found, path: &Path, name: &str) -> Result<()> {
    const STICKY: u32 = 0o1000;
    if found.owner() != 0 && found.owner() != geteuid().as_raw() {
        let what = format!("belongs to user {}, who could replace the {name}", found.owner());
        return Err(Error::failed(path.display(), what).hint("keep the state in a directory that belongs to root"));
    }
    let mode = found.mode();
    if found.kind() == FileType::Directory && mode & 0o022 != 0 && mode & STICKY == 0 {
        let what = format!("has mode {mode:04o}, so others could replace the {name}");
        return Err(Error::failed(path.display(), what).hint(format!("run: chmod go-w {}", path.display())));
    }
    Ok(())
}

/// The directory `name` in `parent`, if no other user may enter it.
fn private(parent: &Found, name: &str, path: &Path, missing: Missing) -> Result<Option<HostDirectory>> {
    let about = path.display();
    let Some(found) = enter(parent, name.as_ref(), path, missing, Mode::RWXU)? else {
        return Ok(None);
    };
    let me = geteuid();
    if found.owner() == 0 && !me.is_root() {
        return Err(Error::failed(about, "belongs to root").hint("run this as root"));
    }
    if found.kind() != FileType::Directory || found.owner() != me.as_raw() {
        let error = Error::failed(about, "is not a directory of the user who runs this");
        return Err(error.hint("another program made it; remove it when no container holds a share"));
    }
    let mode = found.mode();
    if mode & 0o077 != 0 {
        let what = format!("has mode {mode:04o}, and others must not be able to enter it");
        return Err(Error::failed(&about, what).hint(format!("run: chmod 0700 {about}")));
    }
    Ok(Some(HostDirectory::new(Directory::from_fd(found.into()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    /// Makes `messages` in this state directory. Returns the error's text.
    fn make(state_dir: &Path) -> Result<(), String> {
        match HostDirectory::in_state_dir(state_dir, "messages", Missing::Make) {
            Ok(made) => made.map(drop).ok_or_else(|| "not made".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_directory_is_made_and_is_closed_to_others() {
        let top = tempfile::tempdir().unwrap();
        let state = top.path().join("a/state");
        let existing = || HostDirectory::in_state_dir(&state, "messages", Missing::Leave).unwrap();
        assert!(existing().is_none() && !top.path().join("a").exists());
        make(&state).unwrap();
        assert_eq!(mode(&state.join("messages")), 0o700);
        assert_eq!(mode(&state), 0o755);
        assert!(existing().is_some());
    }

    #[test]
    fn links_of_trusted_users_are_followed() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        std::fs::create_dir_all(at("real/deep")).unwrap();
        symlink("real/deep", at("relative")).unwrap();
        symlink(at("real"), at("absolute")).unwrap();
        make(&at("relative")).unwrap();
        assert!(at("real/deep/messages").is_dir());
        make(&at("absolute")).unwrap();
        assert!(at("real/messages").is_dir());
        make(&at("relative/../../second")).unwrap();
        assert!(at("second/messages").is_dir(), "`..` leads out of the link's target");
        symlink("loop", at("loop")).unwrap();
        assert!(make(&at("loop")).unwrap_err().contains("too many symbolic links"));
        symlink("gone", at("dangling")).unwrap();
        make(&at("dangling")).unwrap();
        assert!(at("gone/messages").is_dir());
    }

    #[test]
    fn a_path_that_somebody_else_could_change_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        std::fs::create_dir(at("real")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        assert!(make(&at("file")).unwrap_err().contains("file: is not a directory"));
        assert!(
            make(&at("file/state"))
                .unwrap_err()
                .contains("file: is not a directory")
        );

        set_mode(&at("real"), 0o777);
        let refused = make(&at("real/state")).unwrap_err();
        let says = format!(
            "real: has mode 0777, so others could replace the messages; run: chmod go-w {}",
            at("real").display()
        );
        assert!(refused.ends_with(&says), "{refused}");
        assert!(!at("real/state").exists());
        set_mode(&at("real"), 0o1777);
        make(&at("real/state")).unwrap();

        let messages = at("real/state/messages");
        set_mode(&messages, 0o750);
        let refused = make(&at("real/state")).unwrap_err();
        assert!(
            refused.contains("has mode 0750, and others must not be able to enter it"),
            "{refused}"
        );
        std::fs::remove_dir(&messages).unwrap();
        std::fs::create_dir(at("elsewhere")).unwrap();
        symlink("../../elsewhere", &messages).unwrap();
        let refused = make(&at("real/state")).unwrap_err();
        assert!(
            refused.contains("is not a directory of the user who runs this"),
            "{refused}"
        );
        assert_eq!(std::fs::read_dir(at("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn the_run_time_directory_must_be_the_users() {
        let top = tempfile::tempdir().unwrap();
        let make_in = |dir: &Path| HostDirectory::in_runtime_dir(dir, "messages", Missing::Make);
        assert!(make_in(&top.path().join("none")).unwrap().is_none());
        assert!(!top.path().join("none").exists());
        make_in(top.path()).unwrap().unwrap();
        assert_eq!(mode(&top.path().join("tranche")), 0o700);
        assert_eq!(mode(&top.path().join("tranche/messages")), 0o700);
        set_mode(&top.path().join("tranche"), 0o770);
        make_in(top.path()).unwrap_err();
        set_mode(&top.path().join("tranche"), 0o700);
        set_mode(top.path(), 0o1777);
        make_in(top.path()).unwrap_err();
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        if !geteuid().is_root() {
            println!("not run: root::state: not root");
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let foreign = top.path().join("foreign");
        std::fs::create_dir(&foreign).unwrap();
        chown(&foreign, Some(12345), None).unwrap();
        HostDirectory::in_runtime_dir(&foreign, "messages", Missing::Make).unwrap_err();
        let refused = make(&foreign.join("state")).unwrap_err();
        assert!(
            refused.contains("belongs to user 12345, who could replace the messages"),
            "{refused}"
        );
        let link = top.path().join("link");
        symlink(top.path(), &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
        let refused = make(&link.join("state")).unwrap_err();
        assert!(refused.contains("link: belongs to user 12345"), "{refused}");
        assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 0);
        assert!(!top.path().join("state").exists());
    }
}
