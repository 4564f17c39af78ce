//! The directories of a daemon.
//!
//! The daemon works in a directory that no container sees: it follows links when it opens its log, its lock and the
//! file with its number, and writes there as root. Containers get a directory with one name in it, a hard link of the
//! socket that clients connect to. It is renamed over the old one, so that it changes in one step and holds in
//! containers that run while the daemon is started again. Both directories are below the state directory, on one
//! mount: link(2) fails with EXDEV across two.
//!
//! A daemon that an earlier version of tranche started works in the directory of the containers
//! ([`Directories::is_of_earlier_version`]). A tenant may be able to write that directory, so everything in it is
//! reached by a single name from an open directory, and no link is followed.

use super::log;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, linkat, openat, renameat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Result};
use tranche_core::mps::CONTROL;
use tranche_core::mps::version::{CONTROL_LOCK, CONTROL_PRIVILEGED, LOG, LONGEST_SOCKET, PID_FILE};
use tranche_core::root::{HostDirectory, Missing};

/// The directory of all directories that daemons work in.
pub(in crate::control) const WORK: &str = "mps-daemon";

/// The name of the link while it replaces the old one.
const NEW: &str = ".new";

/// The most names in a directory that are removed. A tenant of an earlier version may have made more.
const MOST_NAMES: usize = 1 << 16;

/// The most bytes of memory that a log may take.
const MOST_LOG: u64 = 4 << 20;

/// How much of the end of the log is read.
const TAIL: u64 = 64 << 10;

/// What the daemon and its servers print.
pub(in crate::control) const OUTPUT: &str = "output.log";

/// The directories of one daemon.
#[derive(Debug)]
pub(in crate::control) struct Directories {
    /// For clients: `mps/0`.
    pipe: PathBuf,
    /// For the daemon: `mps-daemon/0`.
    pub(in crate::control) work: PathBuf,
    /// For logs, which name clients: `mps-log/0`.
    pub(in crate::control) log: PathBuf,
    /// Second names of a daemon's entries, which earlier versions kept: `mps/.0`.
    kept: PathBuf,
}

impl Directories {
    /// The directories of the daemon that works in `work`, and that clients reach in `pipe`.
    pub(in crate::control) fn of(pipe: &Path, work: &Path) -> Self {
        let name = pipe.file_name().unwrap_or_default().to_string_lossy();
        let pipes = pipe.parent().unwrap_or(pipe);
        let state_dir = pipes.parent().unwrap_or(pipes);
        Self {
            pipe: pipe.to_owned(),
            work: work.to_owned(),
            log: state_dir.join("mps-log").join(&*name),
            kept: pipes.join(format!(".{name}")),
        }
    }

    /// Whether an earlier version of tranche started the daemon: it works where its clients are.
    pub(in crate::control) fn is_of_earlier_version(&self) -> bool {
        self.work == self.pipe
    }

    /// Refuses a directory in which a socket's path would be too long: the daemon then ends without a reason.
    pub(super) fn check_length(&self) -> Result<()> {
        let socket = self.work.join(CONTROL_PRIVILEGED);
        match socket.as_os_str().len() {
            0..=LONGEST_SOCKET => Ok(()),
            length => {
                let what = format!("is too long for a socket: {length} bytes, at most {LONGEST_SOCKET}");
                Err(Error::failed(socket.display(), what).hint("choose a shorter state directory"))
            }
        }
    }

    /// Makes the directories, and removes what an earlier daemon and others left in them.
    ///
    /// # Errors
    /// Returns an error if a directory cannot be made or could be replaced by another user, or if something cannot be
    /// removed.
    pub(super) fn prepare(&self) -> Result<()> {
        let pipe = open(&self.pipe)?;
        self.open_log()?;
        let work = open(&self.work)?;
        if let Some(parent) = self.work.parent() {
            close(parent, 0o710)?;
        }
        close(&self.work, 0o710)?;
        empty(&work, &self.work, None)?;
        empty(&pipe, &self.pipe, None)?;
        self.forget_kept()
    }

    /// Takes the rights of others from what the daemon has made, and gives its clients the socket. A server that runs
    /// as a user other than root (`many_users` is false) has the group of root, and reaches its daemon by that.
    ///
    /// # Errors
    /// Returns an error if a mode cannot be set, or as [`Self::publish`].
    pub(super) fn open_to_clients(&self, many_users: bool) -> Result<()> {
        if many_users {
            close(&self.work, 0o700)?;
        }
        // The server of another user writes its lines into the daemon's log.
        let log = if many_users { 0o600 } else { 0o620 };
        for (name, mode) in [
            (LOG, log),
            (CONTROL_LOCK, 0o600),
            (PID_FILE, 0o600),
            (CONTROL_PRIVILEGED, 0o700),
        ] {
            let path = self.work.join(name);
            match fs::set_permissions(&path, Permissions::from_mode(mode)) {
                // Not every version has a file with its number.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                set => set.about(path.display(), "cannot be closed to others")?,
            }
        }
        self.publish()
    }

    /// Gives the socket of the daemon a second name in the directory of the clients.
    fn publish(&self) -> Result<()> {
        let (pipe, work) = (open(&self.pipe)?, open(&self.work)?);
        let source = self.work.join(CONTROL);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = openat(&work, CONTROL, flags, Mode::empty()).about(source.display(), "cannot be opened")?;
        let found = fstat(&socket).about(source.display(), "cannot be looked at")?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(Error::failed(source.display(), "is not a socket"));
        }
        let about = self.pipe.join(CONTROL);
        let link = || {
            remove(&pipe, &self.pipe, NEW)?;
            // The file that was looked at, whatever has its name now.
            let source = format!("/proc/self/fd/{}", socket.as_raw_fd());
            let linked = linkat(CWD, source.as_str(), &pipe, NEW, AtFlags::SYMLINK_FOLLOW);
            linked.about(about.display(), "cannot be made")
        };
        link()?;
        match renameat(&pipe, NEW, &pipe, CONTROL) {
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => {
                remove(&pipe, &self.pipe, CONTROL)?;
                renameat(&pipe, NEW, &pipe, CONTROL).about(about.display(), "cannot be replaced")?;
            }
            renamed => renamed.about(about.display(), "cannot be replaced")?,
        }
        // Between two names of one file, rename(2) does nothing.
        remove(&pipe, &self.pipe, NEW)
    }

    /// Puts the clients' name of the socket back if it was removed or replaced, and removes what others made beside it.
    ///
    /// # Errors
    /// Returns an error if that is not possible.
    pub(super) fn repair(&self) -> Result<()> {
        if self.is_of_earlier_version() {
            return Ok(());
        }
        let identity = |path: &Path| path.symlink_metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        let own = identity(&self.work.join(CONTROL));
        if own.is_some() && own != identity(&self.pipe.join(CONTROL)) {
            self.publish()?;
            tracing::warn!(
                "{}: was removed or replaced, and is put back",
                self.pipe.join(CONTROL).display()
            );
        }
        empty(&open(&self.pipe)?, &self.pipe, Some(CONTROL))
    }

    /// Removes everything that the daemon made, except its logs. The directory of the clients stays, because
    /// specifications name it.
    ///
    /// # Errors
    /// Returns an error if something cannot be removed.
    pub(super) fn forget(&self) -> Result<()> {
        if self.pipe.exists() {
            empty(&open(&self.pipe)?, &self.pipe, None)?;
        }
        if !self.is_of_earlier_version() && self.work.exists() {
            empty(&open(&self.work)?, &self.work, None)?;
            gone(fs::remove_dir(&self.work)).about(self.work.display(), "cannot be removed")?;
        }
        self.forget_kept()
    }

    /// Removes the second names that an earlier version kept. Nobody but root can enter their directory.
    fn forget_kept(&self) -> Result<()> {
        gone(fs::remove_dir_all(&self.kept)).about(self.kept.display(), "cannot be removed")
    }

    /// Why the daemon does not run, by its log, for a message.
    pub(super) fn said(&self) -> Option<String> {
        log::reason(&self.end_of_log()?).map(|reason| format!(": {reason}"))
    }

    /// What became of the server that the daemon started last, by its log.
    pub(super) fn last_server(&self) -> log::LastServer {
        self.end_of_log()
            .map_or(log::LastServer::None, |text| log::last_server(&text))
    }

    /// The end of what the daemon and its servers printed; `None` if it cannot be read.
    fn end_of_log(&self) -> Option<String> {
        let mut file = fs::File::open(self.log.join(OUTPUT)).ok()?;
        let size = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(TAIL))).ok()?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Empties logs that have become large: they are in memory, because the state directory is on a tmpfs, and have a
    /// line for each client.
    ///
    /// # Errors
    /// Returns an error if a log cannot be looked at or emptied.
    pub(super) fn bound_logs(&self) -> Result<()> {
        for entry in fs::read_dir(&self.log).about(self.log.display(), "cannot be listed")? {
            let entry = entry.about(self.log.display(), "cannot be listed")?;
            let about = entry.path();
            let meta = entry.metadata().about(about.display(), "cannot be read")?;
            if meta.is_file() && meta.blocks() * 512 > MOST_LOG {
                let file = fs::OpenOptions::new().write(true).open(&about);
                file.and_then(|file| file.set_len(0))
                    .about(about.display(), "cannot be emptied")?;
            }
        }
        Ok(())
    }

    fn open_log(&self) -> Result<HostDirectory> {
        let parent = self.log.parent().unwrap_or(&self.log);
        let name = self.log.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let opened = HostDirectory::in_state_dir(parent, name, Missing::Make)?;
        opened.ok_or_else(|| Error::failed(self.log.display(), "was removed while it was made"))
    }
}

fn open(path: &Path) -> Result<HostDirectory> {
    let opened = HostDirectory::state_dir(path, Missing::Make)?;
    opened.ok_or_else(|| Error::failed(path.display(), "was removed while it was made"))
}

fn close(path: &Path, mode: u32) -> Result<()> {
    let set = fs::set_permissions(path, Permissions::from_mode(mode));
    set.about(path.display(), "cannot be closed to others")
}

fn gone(removed: std::io::Result<()>) -> std::io::Result<()> {
    match removed {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes everything in a directory but `kept`.
fn empty(directory: &HostDirectory, path: &Path, kept: Option<&str>) -> Result<()> {
    let names = directory.names(MOST_NAMES).about(path.display(), "cannot be listed")?;
    for name in names {
        match name.to_str() {
            Some(name) if Some(name) == kept => {}
            _ => remove(directory, path, &name)?,
        }
    }
    Ok(())
}

/// Removes `name`, whatever it is.
fn remove(directory: &HostDirectory, path: &Path, name: impl AsRef<OsStr>) -> Result<()> {
    let name = name.as_ref();
    let about = path.join(name);
    match directory.remove(name) {
        // It does not follow links, of which a tenant may make some while it removes.
        Err(e) if e.kind() == ErrorKind::IsADirectory => gone(fs::remove_dir_all(&about)),
        removed => removed,
    }
    .about(about.display(), "cannot be removed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::os::unix::net::UnixListener;

    fn directories(top: &tempfile::TempDir) -> Directories {
        let state = top.path().join("state");
        Directories::of(&state.join("mps/0"), &state.join("mps-daemon/0"))
    }

    #[test]
    fn a_large_log_is_emptied_and_a_small_one_is_kept() {
        let top = tempfile::tempdir().unwrap();
        let directories = directories(&top);
        directories.prepare().unwrap();
        let log = |name: &str| directories.log.join(name);
        let large = vec![b'x'; 5 << 20];
        fs::write(log("control.log"), &large).unwrap();
        fs::write(log("server.log"), "kept").unwrap();
        directories.bound_logs().unwrap();
        assert_eq!(fs::metadata(log("control.log")).unwrap().len(), 0);
        assert_eq!(fs::read_to_string(log("server.log")).unwrap(), "kept");
    }

    #[test]
    fn the_directories_follow_from_that_of_the_sockets() {
        let directories = Directories::of(
            Path::new("/run/tranche/mps/0-1"),
            Path::new("/run/tranche/mps-daemon/0-1"),
        );
        assert_eq!(directories.kept, Path::new("/run/tranche/mps/.0-1"));
        assert_eq!(directories.log, Path::new("/run/tranche/mps-log/0-1"));
        assert!(!directories.is_of_earlier_version());
        let earlier = Directories::of(Path::new("/run/tranche/mps/0"), Path::new("/run/tranche/mps/0"));
        assert!(earlier.is_of_earlier_version());
    }

    #[test]
    fn clients_get_the_socket_and_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        let directories = directories(&top);
        fs::create_dir_all(&directories.pipe).unwrap();
        symlink("/etc/passwd", directories.pipe.join("log")).unwrap();
        directories.prepare().unwrap();
        let _daemon = UnixListener::bind(directories.work.join(CONTROL)).unwrap();
        for name in [LOG, CONTROL_LOCK, PID_FILE] {
            fs::write(directories.work.join(name), "").unwrap();
        }
        directories.open_to_clients(false).unwrap();
        let names = || {
            let names = fs::read_dir(&directories.pipe).unwrap();
            names
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(), [CONTROL]);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&directories.work), 0o710);
        assert_eq!(mode(directories.work.parent().unwrap()), 0o710);
        assert_eq!(
            (
                mode(&directories.work.join(LOG)),
                mode(&directories.work.join(PID_FILE))
            ),
            (0o620, 0o600)
        );
        // What a tenant of an earlier version may do there.
        let socket = directories.pipe.join(CONTROL);
        for attack in 0..4 {
            fs::remove_file(&socket).unwrap();
            match attack {
                0 => {}
                1 => symlink("/etc/passwd", &socket).unwrap(),
                2 => fs::create_dir_all(socket.join("deep")).unwrap(),
                _ => fs::write(&socket, "x").unwrap(),
            }
            fs::write(directories.pipe.join("other"), "").unwrap();
            directories.repair().unwrap();
            assert!(socket.symlink_metadata().unwrap().file_type().is_socket(), "{attack}");
            assert_eq!(names(), [CONTROL], "{attack}");
        }
        directories.forget().unwrap();
        assert!(names().is_empty() && !directories.work.exists());
    }

    #[test]
    fn what_is_no_socket_is_not_given_to_clients() {
        let top = tempfile::tempdir().unwrap();
        let directories = directories(&top);
        directories.prepare().unwrap();
        symlink("/etc/passwd", directories.work.join(CONTROL)).unwrap();
        let error = directories.open_to_clients(true).unwrap_err().to_string();
        assert!(error.contains("is not a socket"), "{error}");
        assert_eq!(fs::read_dir(&directories.pipe).unwrap().count(), 0);
    }

    #[test]
    fn a_socket_s_path_has_at_most_106_bytes() {
        let of = |length: usize| {
            let rest = length - "//control_privileged".len();
            let work = format!("/{}", "d".repeat(rest));
            let directories = Directories::of(Path::new("/run/tranche/mps/0"), Path::new(&work));
            assert_eq!(directories.work.join(CONTROL_PRIVILEGED).as_os_str().len(), length);
            directories.check_length().is_ok()
        };
        assert!(of(106) && !of(107));
    }
}
