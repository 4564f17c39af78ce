//! The directories of a daemon.
//!
//! The pipe directory has what clients open. A tenant may be able to write it: root in a container without a user
//! namespace is root. So everything in it is reached by a single name from an open directory, no link is followed, and
//! second names of the daemon's entries are kept in a directory that only root may enter. A socket keeps working under
//! its second name, and what was removed or replaced in the pipe directory is put back from there: clients that started
//! meanwhile have failed, and later ones work, without a restart of the daemon.

use rustix::fs::{AtFlags, linkat, renameat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Result};
use tranche_core::mps::CONTROL;
use tranche_core::root::{HostDirectory, Missing};

/// What the control program makes in its pipe directory.
const ENTRIES: [&str; 5] = [
    CONTROL,
    "control_lock",
    PRIVILEGED,
    "log",
    "nvidia-cuda-mps-control.pid",
];

/// The socket for commands. Its name is the longest one of a socket.
const PRIVILEGED: &str = "control_privileged";

/// The most bytes of a socket's path, without its end (unix(7)).
const MOST_BYTES: usize = 107;

/// The name of an entry in the directory of second names while it is put back.
const NEW: &str = ".new";

/// The most bytes of memory that a log may take.
const MOST_LOG: u64 = 4 << 20;

/// What the daemon prints.
pub(in crate::control) const OUTPUT: &str = "output.log";

/// The directories of one daemon.
#[derive(Debug)]
pub(in crate::control) struct Directories {
    /// For clients: `mps/0`.
    pub(in crate::control) pipe: PathBuf,
    /// For second names: `mps/.0`.
    pub(in crate::control) keep: PathBuf,
    /// For logs, which name clients: `mps-log/0`.
    pub(in crate::control) log: PathBuf,
}

impl Directories {
    /// The directories of the daemon with this pipe directory.
    pub(in crate::control) fn of(pipe: &Path) -> Self {
        let name = pipe.file_name().unwrap_or_default().to_string_lossy();
        let pipes = pipe.parent().unwrap_or(pipe);
        let state_dir = pipes.parent().unwrap_or(pipes);
        Self {
            pipe: pipe.to_owned(),
            keep: pipes.join(format!(".{name}")),
            log: state_dir.join("mps-log").join(&*name),
        }
    }

    /// Refuses a directory in which a socket's path would be too long.
    pub(super) fn check_length(&self) -> Result<()> {
        let socket = self.pipe.join(PRIVILEGED);
        match socket.as_os_str().len() {
            0..=MOST_BYTES => Ok(()),
            length => {
                let what = format!("is too long for a socket: {length} bytes, at most {MOST_BYTES}");
                Err(Error::failed(socket.display(), what).hint("choose a shorter state directory"))
            }
        }
    }

    /// Makes the directories, and removes what an earlier daemon left in them.
    ///
    /// # Errors
    /// Returns an error if a directory cannot be made or could be replaced by another user, or if something cannot be
    /// removed.
    pub(super) fn prepare(&self) -> Result<()> {
        let pipe = self.open_pipe()?;
        self.open_private(&self.keep)?;
        self.open_private(&self.log)?;
        self.remove_entries(&pipe)?;
        self.forget_kept()
    }

    /// Keeps second names of what the daemon has made.
    ///
    /// # Errors
    /// Returns an error if a name cannot be made.
    pub(super) fn keep(&self) -> Result<()> {
        let (pipe, keep) = (self.open_pipe()?, self.open_private(&self.keep)?);
        for name in ENTRIES {
            match linkat(&pipe, name, &keep, name, AtFlags::empty()) {
                // It is made later, it is kept already, or it is a directory.
                Err(Errno::NOENT | Errno::EXIST | Errno::PERM) => {}
                linked => linked.about(self.keep.join(name).display(), "cannot be made")?,
            }
        }
        Ok(())
    }

    /// Puts back what was removed or replaced in the pipe directory, and keeps what the daemon made since.
    ///
    /// # Errors
    /// Returns an error if an entry cannot be put back.
    pub(super) fn repair(&self) -> Result<()> {
        let identity = |path: &Path| path.symlink_metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        let is_lost = |name: &&str| {
            let kept = identity(&self.keep.join(name));
            kept.is_some() && kept != identity(&self.pipe.join(name))
        };
        let lost: Vec<&str> = ENTRIES.into_iter().filter(is_lost).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let (pipe, keep) = (self.open_pipe()?, self.open_private(&self.keep)?);
        for name in lost {
            let about = self.pipe.join(name);
            keep.remove(NEW.as_ref()).about(about.display(), "cannot be put back")?;
            // A second name is no copy that could be written anew: the daemon listens on this very socket.
            let put_back = || {
                linkat(&keep, name, &keep, NEW, AtFlags::empty())?;
                renameat(&keep, NEW, &pipe, name)
            };
            match put_back() {
                Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => {
                    remove(&pipe, &self.pipe, name)?;
                    keep.remove(NEW.as_ref()).about(about.display(), "cannot be put back")?;
                    put_back().about(about.display(), "cannot be put back")?;
                }
                done => done.about(about.display(), "cannot be put back")?,
            }
            tracing::warn!("{}: was removed or replaced, and is put back", about.display());
        }
        Ok(())
    }

    /// Removes everything that the daemon made, except its logs. The pipe directory stays, because specifications name
    /// it.
    ///
    /// # Errors
    /// Returns an error if something cannot be removed.
    pub(super) fn forget(&self) -> Result<()> {
        if !self.pipe.exists() {
            return Ok(());
        }
        self.remove_entries(&self.open_pipe()?)?;
        self.forget_kept()?;
        match fs::remove_dir(&self.keep) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.about(self.keep.display(), "cannot be removed"),
        }
    }

    /// The first line that the daemon printed, for a message.
    pub(super) fn said(&self) -> Option<String> {
        let text = fs::read(self.log.join(OUTPUT)).ok()?;
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find(|line| !line.trim().is_empty())?;
        Some(format!(": {}", line.trim().chars().take(200).collect::<String>()))
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
            // A daemon that does not append leaves a gap, which takes no memory.
            if meta.is_file() && meta.blocks() * 512 > MOST_LOG {
                let file = fs::OpenOptions::new().write(true).open(&about);
                file.and_then(|file| file.set_len(0))
                    .about(about.display(), "cannot be emptied")?;
            }
        }
        Ok(())
    }

    fn open_pipe(&self) -> Result<HostDirectory> {
        let opened = HostDirectory::state_dir(&self.pipe, Missing::Make)?;
        opened.ok_or_else(|| Error::failed(self.pipe.display(), "was removed while it was made"))
    }

    fn open_private(&self, path: &Path) -> Result<HostDirectory> {
        let parent = path.parent().unwrap_or(path);
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let opened = HostDirectory::in_state_dir(parent, name, Missing::Make)?;
        opened.ok_or_else(|| Error::failed(path.display(), "was removed while it was made"))
    }

    fn remove_entries(&self, pipe: &HostDirectory) -> Result<()> {
        ENTRIES.iter().try_for_each(|name| remove(pipe, &self.pipe, name))
    }

    fn forget_kept(&self) -> Result<()> {
        if !self.keep.exists() {
            return Ok(());
        }
        let keep = self.open_private(&self.keep)?;
        let mut names = ENTRIES.iter().chain([&NEW]);
        names.try_for_each(|name| remove(&keep, &self.keep, name))
    }
}

/// Removes `name`, whatever it is.
fn remove(directory: &HostDirectory, path: &Path, name: &str) -> Result<()> {
    let about = path.join(name);
    match directory.remove(name.as_ref()) {
        // It does not follow links, of which a tenant may make some while it removes.
        Err(e) if e.kind() == std::io::ErrorKind::IsADirectory => fs::remove_dir_all(&about),
        removed => removed,
    }
    .about(about.display(), "cannot be removed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_log_is_emptied_and_a_small_one_is_kept() {
        let top = tempfile::tempdir().unwrap();
        let directories = Directories::of(&top.path().join("state/mps/0"));
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
        let directories = Directories::of(Path::new("/run/tranche/mps/0-1"));
        assert_eq!(directories.keep, Path::new("/run/tranche/mps/.0-1"));
        assert_eq!(directories.log, Path::new("/run/tranche/mps-log/0-1"));
    }
}
