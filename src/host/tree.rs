//! One tree of files, which may be a whole machine's, and the only place where a path in it becomes a path to open.
//!
//! A tree may be a picture of another machine or the root of a driver container: an absolute link in it means a place
//! in *it*, and `..` does not leave it. So links are followed here, part by part, and what is opened afterwards has
//! none left. This keeps the names right, not an enemy out: a tree that somebody changes while we read it is not
//! defended against. For the roots of containers there is [`crate::root`].

use crate::types::HostPath;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// As many links as the kernel follows in one path.
const MAX_LINKS: usize = 40;

/// A tree: where it is, and how the host names it.
#[derive(Debug)]
pub(crate) struct Tree {
    host: HostPath,
    open: PathBuf,
    /// What the directories on the way to the paths that were asked for are. A discovery asks for hundreds of paths in
    /// some twenty directories, and each part of each costs a system call.
    known: RefCell<HashMap<String, Part>>,
}

/// What a part of a path is.
#[derive(Debug, Clone)]
enum Part {
    Plain,
    Link(String),
    Missing,
}

impl Clone for Tree {
    /// The same tree with nothing known of it: who looks again wants what is there now.
    fn clone(&self) -> Self {
        Self::new(self.open.clone(), self.host.clone())
    }
}

/// One entry of a directory. Names that are not UTF-8 are no names of the driver's and are not listed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// Its name.
    pub name: String,
    /// Whether it is a symbolic link.
    pub is_link: bool,
    /// Whether it is a directory itself.
    pub is_dir: bool,
}

impl Tree {
    /// The tree at `open`, which the host calls `host`.
    pub(crate) fn new(open: impl Into<PathBuf>, host: HostPath) -> Self {
        Self {
            host,
            open: open.into(),
            known: RefCell::default(),
        }
    }

    /// How the host names the path `inner` of this tree.
    pub(crate) fn host(&self, inner: &str) -> HostPath {
        self.host.join(inner)
    }

    /// What to open for `inner`, whose links are resolved already.
    pub(crate) fn path(&self, inner: &str) -> PathBuf {
        self.open.join(inner.trim_start_matches('/'))
    }

    /// Follows every link of `inner` inside the tree. The result is absolute in the tree and exists.
    ///
    /// # Errors
    /// As the kernel's: not found, too many links, no permission; and a link that is not UTF-8.
    pub(crate) fn resolve(&self, inner: &str) -> io::Result<String> {
        let mut todo: VecDeque<String> = parts(inner).map(str::to_owned).collect();
        let mut done = String::new();
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            if part == ".." {
                done.truncate(done.rfind('/').unwrap_or(0));
                continue;
            }
            let before = done.len();
            done.push('/');
            done.push_str(&part);
            match self.part(&done, !todo.is_empty())? {
                Part::Plain => {}
                Part::Missing => return Err(io::ErrorKind::NotFound.into()),
                Part::Link(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many symbolic links"));
                    }
                    done.truncate(if target.starts_with('/') { 0 } else { before });
                    for part in parts(&target).rev() {
                        todo.push_front(part.to_owned());
                    }
                }
            }
        }
        Ok(if done.is_empty() { "/".to_owned() } else { done })
    }

    /// What `path` is, whose links before its last part are resolved. `keep` is for what will be asked again.
    fn part(&self, path: &str, keep: bool) -> io::Result<Part> {
        if let Some(part) = self.known.borrow().get(path) {
            return Ok(part.clone());
        }
        let part = match fs::read_link(self.path(path)) {
            Ok(target) => match target.into_os_string().into_string() {
                Ok(target) => Part::Link(target),
                Err(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "link is not UTF-8")),
            },
            // EINVAL: it is there and no link.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Part::Plain,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Part::Missing,
            Err(e) => return Err(e),
        };
        if keep {
            self.known.borrow_mut().insert(path.to_owned(), part.clone());
        }
        Ok(part)
    }

    /// What a directory holds, sorted by name.
    pub(crate) fn list(&self, inner: &str) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.path(&self.resolve(inner)?))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if let Ok(name) = entry.file_name().into_string() {
                found.push(Entry {
                    name,
                    is_link: kind.is_symlink(),
                    is_dir: kind.is_dir(),
                });
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Opens a regular file. Anything else is refused before it can block or act: a FIFO waits, a device may do
    /// something when it is opened.
    pub(crate) fn open(&self, inner: &str) -> io::Result<File> {
        self.open_resolved(&self.resolve(inner)?)
    }

    /// As [`Tree::open`], for a path that came out of [`Tree::resolve`]: libraries are many, and each part of a path
    /// costs a system call.
    pub(crate) fn open_resolved(&self, inner: &str) -> io::Result<File> {
        let path = self.path(inner);
        let refuse = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
        if !fs::symlink_metadata(&path)?.is_file() {
            return Err(refuse());
        }
        let flags = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(refuse())
        }
    }

    /// Reads a regular file of at most `limit` bytes.
    pub(crate) fn read(&self, inner: &str, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(inner)?.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            let what = format!("larger than {limit} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        Ok(bytes)
    }

    /// Reads a small text file, as the kernel's and the driver's are. What is not UTF-8 in it is replaced: the parsers
    /// refuse it by themselves.
    pub(crate) fn text(&self, inner: &str) -> io::Result<String> {
        const LIMIT: u64 = 1 << 20;
        Ok(String::from_utf8_lossy(&self.read(inner, LIMIT)?).into_owned())
    }

    /// What is at `inner` itself: a link at its end is not followed, links before it are.
    pub(crate) fn lstat(&self, inner: &str) -> io::Result<Metadata> {
        let (dir, name) = inner.rsplit_once('/').unwrap_or(("", inner));
        fs::symlink_metadata(self.path(&self.resolve(dir)?).join(name))
    }

    /// What a link says; links before it are followed.
    pub(crate) fn read_link(&self, inner: &str) -> io::Result<PathBuf> {
        let (dir, name) = inner.rsplit_once('/').unwrap_or(("", inner));
        fs::read_link(self.path(&self.resolve(dir)?).join(name))
    }

    /// Whether `inner` is there, links followed.
    pub(crate) fn exists(&self, inner: &str) -> bool {
        self.resolve(inner).is_ok()
    }

    /// Whether `inner` is a directory, links followed.
    pub(crate) fn is_dir(&self, inner: &str) -> bool {
        self.resolve(inner).is_ok_and(|p| self.path(&p).is_dir())
    }
}

fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|p| !p.is_empty() && *p != ".")
}

/// Whether an error means no more than that something is not there.
pub(crate) fn is_absence(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// A directory that must be there, as the caller of the program names it, made absolute.
pub(crate) fn absolute_dir(path: &Path) -> io::Result<PathBuf> {
    let path = fs::canonicalize(path)?;
    if path.is_dir() {
        Ok(path)
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::new(dir.path(), HostPath::new("/").unwrap());
        (dir, tree)
    }

    #[test]
    fn links_stay_inside() {
        let (dir, tree) = tree();
        fs::create_dir_all(dir.path().join("usr/lib")).unwrap();
        fs::write(dir.path().join("usr/lib/a"), "x").unwrap();
        symlink("/usr/lib", dir.path().join("lib")).unwrap();
        symlink("../../../../../usr/lib/a", dir.path().join("usr/lib/up")).unwrap();
        assert_eq!(tree.resolve("/lib/a").unwrap(), "/usr/lib/a");
        assert_eq!(tree.resolve("/lib/up").unwrap(), "/usr/lib/a");
        assert_eq!(tree.resolve("/lib/../../..").unwrap(), "/");
        assert_eq!(tree.text("/lib/up").unwrap(), "x");
        assert!(tree.lstat("/lib/up").unwrap().file_type().is_symlink());
    }

    #[test]
    fn a_loop_ends() {
        let (dir, tree) = tree();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("/a/x", dir.path().join("b")).unwrap();
        let e = tree.resolve("/a").unwrap_err();
        assert!(e.to_string().contains("too many"), "{e}");
        assert!(!is_absence(&e));
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (dir, tree) = tree();
        nix::unistd::mkfifo(
            &dir.path().join("fifo"),
            nix::sys::stat::Mode::from_bits_truncate(0o600),
        )
        .unwrap();
        assert!(tree.read("/fifo", 10).is_err());
        assert!(tree.read("/", 10).is_err());
        fs::write(dir.path().join("big"), [0u8; 11]).unwrap();
        assert!(tree.read("/big", 10).is_err());
        assert_eq!(tree.read("/big", 11).unwrap().len(), 11);
    }
}
