//! Messages on disk: one file for each container, without a lock.

use super::runtime_dir::runtime_dir;
use super::{LINES, Message};
use crate::error::{Context, Error, Result};
use crate::root::{HostDirectory, Missing, Permissions};
use crate::sys::cpu_time::LineOfFile;
use crate::text::shown;

use nix::fcntl::{OFlag, openat};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, fstat};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::Path;

/// The name of the directory in a state directory.
const NAME: &str = "messages";
/// The most containers with messages. If there are more, the file that was written least recently is removed.
const FILES: usize = 256;
/// The most bytes of a file. If a file would get larger, it is written anew with its newest messages, half as large.
const BYTES: u64 = 64 << 10;
/// The most names in the directory, including temporary files of hooks that run at the same time.
const NAMES: usize = 16 << 10;
/// The end of each file's name.
const ENDING: &str = ".jsonl";

/// The messages of all containers of this process's user.
#[derive(Debug)]
pub struct Messages {
    directory: HostDirectory,
}

/// What was found when the messages were read.
#[derive(Debug, Default)]
pub struct Kept {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// One error for each file that cannot be read.
    pub damaged: Vec<Error>,
}

impl Messages {
    /// Opens the directory in which this process keeps messages: in `state_dir`, or, if that belongs to another user,
    /// in the run-time directory of its user. Missing directories are made, except the user's.
    ///
    /// # Errors
    /// Returns an error if neither directory can be used.
    pub fn open(state_dir: &Path) -> Result<Messages> {
        let of_user = || HostDirectory::in_runtime_dir(&runtime_dir()?, NAME, Missing::Make);
        let of_state = HostDirectory::in_state_dir(state_dir, NAME, Missing::Make);
        match of_state.or_else(|e| of_user().map_err(|_| e))? {
            Some(directory) => Ok(Messages { directory }),
            None => Err(Error::failed(state_dir.display(), "cannot keep messages there")),
        }
    }

    /// The messages of this user's hooks: in `state_dir`, or, if that belongs to another user, in `user_dir`
    /// (`$XDG_RUNTIME_DIR`; without it, the directory by convention). `None` if no hook has kept messages.
    ///
    /// # Errors
    /// Returns an error if there is such a directory, but another user could have made or changed it.
    pub fn existing(state_dir: &Path, user_dir: Option<&Path>) -> Result<Option<Messages>> {
        let of_state = HostDirectory::in_state_dir(state_dir, NAME, Missing::Leave);
        if let Ok(Some(directory)) = of_state {
            return Ok(Some(Messages { directory }));
        }
        let user_dir = match user_dir {
            Some(directory) => directory.to_owned(),
            None => runtime_dir()?,
        };
        match HostDirectory::in_runtime_dir(&user_dir, NAME, Missing::Leave)? {
            Some(directory) => Ok(Some(Messages { directory })),
            // Other users may not read root's messages, which is not an error. Root must be able to read them.
            None if nix::unistd::geteuid().is_root() => of_state.map(|_| None),
            None => Ok(None),
        }
    }

    /// Keeps the last [`LINES`] of these messages of one container, without waiting for another process. Some of them
    /// may be lost if the disk is full, or if the container's file is full and two processes write it. Earlier
    /// messages are not lost.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn remember(&self, messages: &[Message]) -> Result<()> {
        let messages = messages.get(messages.len().saturating_sub(LINES)..).unwrap_or_default();
        let Some(first) = messages.first() else { return Ok(()) };
        let name = file_name(&first.container);
        let about = || format!("message of {}", shown(&first.container));
        // A container's limit on the size of files also applies to its hooks, and its signal would end this process.
        let mut limit = SigSet::empty();
        limit.add(Signal::SIGXFSZ);
        limit.thread_block().about(about(), "cannot be kept")?;
        let mut lines = Vec::new();
        for message in messages {
            lines.extend(line_of(message).about(about(), "cannot be kept")?);
        }
        let is_new = self.append(&name, &lines).about(about(), "cannot be kept")?;
        if is_new {
            self.drop_oldest().about("old messages", "cannot be removed")?;
        }
        Ok(())
    }

    /// A message that can be kept later without allocating memory.
    ///
    /// # Errors
    /// Returns an error if the message cannot be written, or the directory not be used again.
    pub fn prepare(&self, message: &Message) -> Result<LineOfFile> {
        let about = || format!("message of {}", shown(&message.container));
        let directory = self.directory.as_fd().try_clone_to_owned();
        let name = CString::new(file_name(&message.container).into_encoded_bytes());
        Ok(LineOfFile {
            directory: directory.about(about(), "cannot be kept")?,
            name: name.about(about(), "cannot be kept")?,
            line: line_of(message).about(about(), "cannot be kept")?,
        })
    }

    /// Every message that is kept, oldest first.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed.
    pub fn all(&self) -> Result<Kept> {
        let mut kept = Kept::default();
        let names = self
            .directory
            .names(NAMES)
            .about("messages of hooks", "cannot be listed")?;
        let mut names: Vec<_> = names.into_iter().filter(|name| is_message_file(name)).collect();
        // Of messages of one second, the one in the file that was written last is the last.
        let written = |name: &OsString| self.directory.status(name).ok().flatten();
        names.sort_by_cached_key(|name| written(name).map(|status| (status.st_mtime, status.st_mtime_nsec)));
        for name in &names {
            match self.read(name) {
                Ok(messages) => kept.messages.extend(messages),
                // Another hook has removed the file meanwhile.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => {
                    let what = "messages of hooks cannot be read";
                    kept.damaged.push(Error::failed(name.display(), what).from_source(e));
                }
            }
        }
        // Stable, so that the messages of one hook stay in order.
        kept.messages.sort_by_key(|message| message.at);
        Ok(kept)
    }

    /// The newest messages of one file. Invalid lines are ignored, because a full disk cuts off lines.
    fn read(&self, name: &OsStr) -> io::Result<Vec<Message>> {
        let text = self.directory.read(name, 2 * BYTES)?;
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let messages = lines.filter_map(|line| serde_json::from_slice::<Message>(line).ok());
        let mut messages: Vec<Message> = messages.map(|message| message.bounded()).collect();
        messages.drain(..messages.len().saturating_sub(LINES));
        Ok(messages)
    }

    /// Appends to a file, which is made if it is missing. Returns whether it is new.
    fn append(&self, name: &OsStr, lines: &[u8]) -> io::Result<bool> {
        let append = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let new = openat(&self.directory, name, append | OFlag::O_CREAT | OFlag::O_EXCL, mode);
        let (file, is_new) = match new {
            Ok(file) => (file, true),
            Err(nix::errno::Errno::EEXIST) => (openat(&self.directory, name, append, mode)?, false),
            Err(e) => return Err(e.into()),
        };
        let size = u64::try_from(fstat(&file)?.st_size).unwrap_or_default();
        if !is_new && size + lines.len() as u64 > BYTES {
            return self.shorten(name, lines).map(|()| false);
        }
        // One write, which the kernel does not mix with others.
        let written = File::from(file).write(lines)?;
        if written < lines.len() {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(is_new)
    }

    /// Replaces a file by one with its newest lines and `lines`.
    fn shorten(&self, name: &OsStr, lines: &[u8]) -> io::Result<()> {
        let now = self.directory.read(name, 2 * BYTES).unwrap_or_default();
        let most = (BYTES as usize / 2).saturating_sub(lines.len());
        let rest = now.get(now.len().saturating_sub(most)..).unwrap_or_default();
        // The first line may be cut off.
        let whole = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .and_then(|at| rest.get(at..));
        let mut text = whole.unwrap_or_default().to_vec();
        text.extend_from_slice(lines);
        self.directory.replace(name, &text, Permissions::new_file(0o600))
    }

    /// Keeps the [`FILES`] files that were written last and removes the others. Another process may do the same.
    fn drop_oldest(&self) -> io::Result<()> {
        let names = self.directory.names(NAMES)?;
        if names.len() <= FILES {
            return Ok(());
        }
        let mut files: Vec<(i64, i64, OsString)> = Vec::new();
        for name in names {
            if let Some(status) = self.directory.status(&name)? {
                files.push((status.st_mtime, status.st_mtime_nsec, name));
            }
        }
        files.sort();
        let beyond = files.len().saturating_sub(FILES);
        files
            .iter()
            .take(beyond)
            .try_for_each(|(_, _, name)| self.directory.remove(name))
    }
}

/// A message as it is in its file. The file may end in a part of a line, if the disk was full: this begins a new one.
fn line_of(message: &Message) -> serde_json::Result<Vec<u8>> {
    let mut line = vec![b'\n'];
    serde_json::to_writer(&mut line, &message.bounded())?;
    line.push(b'\n');
    Ok(line)
}

fn is_message_file(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.ends_with(ENDING) && !name.starts_with('.'))
}

/// The name of a container's file: the container's id if that can be a file name, which is so for all engines, else a
/// hash of the id. Two containers may share a file, because each message has its container's id.
fn file_name(container: &str) -> OsString {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !container.is_empty() && container.len() <= 128 && container.chars().all(plain) {
        return format!("{container}{ENDING}").into();
    }
    let mut hasher = DefaultHasher::new();
    container.hash(&mut hasher);
    // No id above has a dot.
    format!("x.{:016x}{ENDING}", hasher.finish()).into()
}

#[cfg(test)]
mod tests;
