//! Replaces a file or a link as a whole: who opens it finds the old one or the new one.
//!
//! Three others replace files by themselves, and say why: `root/temporary.rs`, `ledger/directory.rs` and
//! `control/daemon/directories.rs`.

use nix::fcntl::{Flock, FlockArg, OFlag};
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tempfile::NamedTempFile;
use tranche_core::error::{Context, Error, Result};

/// How the name of a temporary file begins and ends. No engine reads such a name.
const PREFIX: &str = ".tranche.";
const SUFFIX: &str = ".tmp";

/// What a new file has in addition to its text.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions<'a> {
    /// Its permissions, whatever the umask of this process is.
    pub mode: u32,
    /// Its owner and group; `None`: those of this process.
    pub owner: Option<(u32, u32)>,
    /// When its text was changed last; `None`: now.
    pub modified: Option<SystemTime>,
    /// The directory of the temporary file, if it is in the same file system as the new one; `None`: that of the new
    /// one.
    pub through: Option<&'a Path>,
}

impl Default for FileOptions<'_> {
    /// A file that everybody may read.
    fn default() -> Self {
        Self {
            mode: 0o644,
            owner: None,
            modified: None,
            through: None,
        }
    }
}

/// Writes `text` to `path`, mode 0644. Missing directories are made, mode 0755.
///
/// An engine may read the directory at any time. So the text goes to a temporary file in the same directory, is synced
/// to the disk, and only then replaces `path`. If anything fails, the old file is unchanged. If the writer is
/// killed, the temporary file remains until the next call for this directory.
///
/// # Errors
/// Returns an error if a directory cannot be made or written, if the disk is full, or if `path` is a directory.
pub fn write(path: &Path, text: &str) -> Result<()> {
    Prepared::new(path, text, &FileOptions::default())?.put_in_place()
}

/// Makes a symbolic link to `target` at `path`, in the place of whatever is there but a directory.
///
/// # Errors
/// Returns an error if it cannot be made.
pub fn link(path: &Path, target: &Path) -> Result<()> {
    let new = temporary_link(path);
    remove(&new)?;
    symlink(target, &new).about(new.display(), "cannot be created")?;
    fs::rename(&new, path).about(path.display(), "cannot be written")
}

/// The name of a link before it is put in its place. It is the same each time, so that the next writer removes what a
/// killed one left.
fn temporary_link(path: &Path) -> PathBuf {
    let mut name = OsString::from(PREFIX);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Removes the file or link at `path`. One that does not exist is removed already.
///
/// # Errors
/// Returns an error if it exists and cannot be removed.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.about(path.display(), "cannot be removed"),
    }
}

/// Makes a directory with mode 0755, and its parents: others must read or reach what is in it. The umask of the caller
/// does not count, and directories that exist keep their mode.
///
/// # Errors
/// Returns an error if a directory cannot be made, or if something else has its name.
pub fn make_directory(dir: &Path) -> Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    for dir in missing.into_iter().rev().filter(|dir| !dir.as_os_str().is_empty()) {
        match fs::create_dir(dir) {
            // Another process has made it meanwhile.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            made => made.about(dir.display(), "cannot make the directory")?,
        }
        let open = fs::set_permissions(dir, Permissions::from_mode(0o755));
        open.about(dir.display(), "cannot set its mode")?;
    }
    match dir.is_dir() {
        true => Ok(()),
        false => Err(Error::failed(dir.display(), "is not a directory").hint("remove it")),
    }
}

/// A file that is complete on the disk under a temporary name. Dropping it removes it.
#[derive(Debug)]
pub struct Prepared {
    file: NamedTempFile,
    path: PathBuf,
    dir: PathBuf,
}

impl Prepared {
    /// Does everything of [`write()`] that can fail for lack of space, and leaves `path` as it is.
    ///
    /// # Errors
    /// As [`write()`], and if this process may not give the file its owner.
    pub fn new(path: &Path, text: &str, options: &FileOptions<'_>) -> Result<Self> {
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
            _ => PathBuf::from("."),
        };
        if fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
            return Err(Error::failed(path.display(), "is a directory"));
        }
        make_directory(&dir)?;
        // A file is renamed within one file system.
        let device = |dir: &Path| fs::metadata(dir).map(|data| data.dev()).ok();
        let through = options.through.filter(|through| device(through) == device(&dir));
        let through = through.unwrap_or(&dir);
        remove_abandoned(through)?;
        let mut file = temporary(through).about(path.display(), "cannot be written")?;
        file.write_all(text.as_bytes())
            .about(path.display(), "cannot be written")?;
        options.apply(file.as_file(), path)?;
        file.as_file()
            .sync_all()
            .about(path.display(), "cannot be brought to the disk")?;
        let path = path.to_owned();
        Ok(Self { file, path, dir })
    }

    /// The temporary file.
    pub fn temporary(&self) -> &Path {
        self.file.path()
    }

    /// Replaces the path by the file.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be written.
    pub fn put_in_place(self) -> Result<()> {
        let Self { file, path, dir } = self;
        file.persist(&path)
            .map_err(|e| e.error)
            .about(path.display(), "cannot be replaced")?;
        File::open(&dir)
            .and_then(|d| d.sync_all())
            .about(dir.display(), "cannot be brought to the disk")
    }
}

impl FileOptions<'_> {
    /// Gives them to `file`, which will be at `path`. The owner first: a change of it takes bits of the mode away.
    fn apply(&self, file: &File, path: &Path) -> Result<()> {
        if let Some((user, group)) = self.owner {
            let own = file.metadata().about(path.display(), "cannot be written")?;
            if (own.uid(), own.gid()) != (user, group) {
                fchown(file, Some(user), Some(group)).about(path.display(), "cannot keep its owner")?;
            }
        }
        file.set_permissions(Permissions::from_mode(self.mode))
            .about(path.display(), "cannot be given its mode")?;
        match self.modified {
            None => Ok(()),
            Some(time) => file
                .set_modified(time)
                .about(path.display(), "cannot be given its time"),
        }
    }
}

/// A new temporary file in `dir`, locked, and for its owner alone until it has its mode. The lock shows, across pid
/// namespaces, that its writer lives: the kernel releases it when the writer ends.
fn temporary(dir: &Path) -> io::Result<NamedTempFile> {
    loop {
        let file = tempfile::Builder::new()
            .prefix(PREFIX)
            .suffix(SUFFIX)
            .tempfile_in(dir)?;
        rustix::fs::flock(file.as_file(), rustix::fs::FlockOperation::LockExclusive)?;
        // Before it was locked, another process may have removed it as an abandoned one.
        if file.as_file().metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Removes the temporary files in `dir` whose writers were killed, and returns their number. A file of another owner,
/// or one whose writer lives, is kept.
///
/// # Errors
/// Returns an error if `dir` cannot be listed or a file cannot be removed. A directory that does not exist has no such
/// files.
pub fn remove_abandoned(dir: &Path) -> Result<usize> {
    let mut removed = 0;
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        entries => entries.about(dir.display(), "cannot be listed")?,
    };
    for entry in entries {
        let entry = entry.about(dir.display(), "cannot be listed")?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_temporary = name
            .to_str()
            .is_some_and(|n| n.starts_with(PREFIX) && n.ends_with(SUFFIX));
        if !is_temporary {
            continue;
        }
        // It is locked until it is removed, so that a writer that waits for the lock then sees that it was removed.
        if let Some(_lock) = abandoned(&path) {
            match fs::remove_file(&path) {
                Ok(()) => removed += 1,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(Error::failed(path.display(), "cannot be removed").from_source(e)),
            }
        }
    }
    Ok(removed)
}

/// The file at `path`, locked, if it is a regular file of this user that no process has locked. One that cannot be
/// opened is left alone.
fn abandoned(path: &Path) -> Option<Flock<File>> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path).ok()?;
    let of_file = file.metadata().ok()?;
    if !of_file.is_file() || of_file.uid() != nix::unistd::geteuid().as_raw() {
        return None;
    }
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_readable_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/x.yaml");
        write(&path, "one\n").unwrap();
        write(&path, "two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        let names: Vec<_> = fs::read_dir(dir.path().join("a/b")).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing else is left behind");
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_and_what_a_live_one_writes_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let named = |name: &str| dir.path().join(name);
        fs::write(named(".tranche.left.tmp"), "half").unwrap();
        fs::write(named(".other.left.tmp"), "another program's").unwrap();
        fs::write(named("x.tmp"), "a person's").unwrap();
        symlink(named("x.tmp"), named(".tranche.link.tmp")).unwrap();
        let live = temporary(dir.path()).unwrap();
        write(&named("x.yaml"), "text\n").unwrap();
        let mut names: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let live_name = live.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = [".other.left.tmp", ".tranche.link.tmp", &live_name, "x.tmp", "x.yaml"];
        expected.sort_unstable();
        assert_eq!(names, expected);
        live.persist(named("y.yaml")).unwrap();
        assert_eq!(remove_abandoned(dir.path()).unwrap(), 0);
        assert_eq!(remove_abandoned(&named("missing")).unwrap(), 0);
    }

    #[test]
    fn many_writers_of_one_directory_do_not_take_one_another_s_files() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let path = dir.path().join(format!("{thread}.yaml"));
                scope.spawn(move || (0..25).for_each(|n| write(&path, &format!("{n}\n")).unwrap()));
            }
        });
        for thread in 0..8 {
            let text = fs::read_to_string(dir.path().join(format!("{thread}.yaml"))).unwrap();
            assert_eq!(text, "24\n");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 8);
    }

    #[test]
    fn a_failure_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        let e = write(&dir.path().join("file/x.yaml"), "y").unwrap_err().to_string();
        assert!(e.contains("is not a directory"), "{e}");
        fs::create_dir_all(dir.path().join("x.yaml/sub")).unwrap();
        let e = write(&dir.path().join("x.yaml"), "y").unwrap_err().to_string();
        assert!(e.contains("is a directory"), "{e}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_has_its_options() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drop-ins/x.conf");
        let through = dir.path().to_owned();
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(86_400);
        let options = FileOptions {
            mode: 0o600,
            modified: Some(time),
            through: Some(&through),
            ..FileOptions::default()
        };
        let prepared = Prepared::new(&path, "secret\n", &options).unwrap();
        assert_eq!(prepared.temporary().parent(), Some(dir.path()));
        prepared.put_in_place().unwrap();
        let data = fs::metadata(&path).unwrap();
        assert_eq!((data.mode() & 0o7777, data.modified().unwrap()), (0o600, time));
        let unwritable = FileOptions {
            owner: Some((data.uid() + 1, data.gid())),
            ..options
        };
        if data.uid() != 0 {
            assert!(Prepared::new(&path, "other", &unwritable).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), "secret\n");
        }
    }

    #[test]
    fn a_link_replaces_a_file_and_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link");
        fs::write(&path, "x").unwrap();
        // A killed writer left it.
        fs::write(dir.path().join(".tranche.link"), "x").unwrap();
        for target in ["a", "b"] {
            link(&path, Path::new(target)).unwrap();
            assert_eq!(fs::read_link(&path).unwrap(), Path::new(target));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
