//! One tree of files, which may be that of a whole machine. Only this module turns a path in it into a path to open.
//!
//! A tree may be a copy of another machine or the root of a driver container. An absolute link in it leads to a place
//! in the tree, and `..` does not leave it. So links are followed here, part by part, and the path that is opened
//! afterwards has no links left. This keeps names right; it does not protect against somebody who changes the tree
//! while it is read. For the roots of containers, which are hostile, there is [`tranche_core::root`].
//!
//! Three kinds of path meet here, and each has its type: `&str` is a path as something in the tree writes it, with
//! links; [`TreePath`] is a path of one tree with every link followed; [`HostPath`] is the name of a file on the
//! described host, for an engine or a person.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tranche_core::bounded;
use tranche_core::types::HostPath;

/// The number of links that the kernel follows in one path (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// A tree: where it is on this machine, and how the described host names it.
#[derive(Debug)]
pub(crate) struct Tree {
    host: HostPath,
    open: PathBuf,
    /// What is known about the directories of paths that were resolved. A discovery resolves hundreds of paths in some
    /// twenty directories, and each part of each path costs a system call.
    known: RefCell<HashMap<String, Component>>,
}

/// What one part of a path is.
#[derive(Debug, Clone)]
enum Component {
    Plain,
    Link(String),
    Missing,
}

impl Clone for Tree {
    /// The same tree without what is known about it, so that the copy sees the tree as it is now.
    fn clone(&self) -> Self {
        Self::new(self.open.clone(), self.host.clone())
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TreeEntry {
    /// Its name.
    pub name: String,
    /// Whether it is a symbolic link.
    pub is_link: bool,
    /// Whether it is itself a directory.
    pub is_dir: bool,
}

/// A path of a tree with every link followed, unless [`TreePath::sibling_link`] made it. [`Tree::resolve`] makes it, so
/// it existed then.
#[derive(Debug, Clone)]
pub(crate) struct TreePath<'t> {
    tree: &'t Tree,
    path: String,
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

    /// Follows every link of `inner` inside the tree.
    ///
    /// # Errors
    /// Returns the kernel's error (not found, too many links, no permission), or an error for a link that is not UTF-8.
    pub(crate) fn resolve(&self, inner: &str) -> io::Result<TreePath<'_>> {
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
            match self.component(&done, !todo.is_empty())? {
                Component::Plain => {}
                Component::Missing => return Err(io::ErrorKind::NotFound.into()),
                Component::Link(target) => {
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
        let path = if done.is_empty() { "/".to_owned() } else { done };
        Ok(TreePath { tree: self, path })
    }

    /// What is at `path`, whose links before the last part are followed. With `keep`, the answer is remembered.
    fn component(&self, path: &str, keep: bool) -> io::Result<Component> {
        if let Some(component) = self.known.borrow().get(path) {
            return Ok(component.clone());
        }
        let component = match fs::read_link(self.at(path)) {
            Ok(target) => match target.into_os_string().into_string() {
                Ok(target) => Component::Link(target),
                Err(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "link is not UTF-8")),
            },
            // EINVAL: the file exists and is not a link.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Component::Plain,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Component::Missing,
            Err(e) => return Err(e),
        };
        if keep {
            self.known.borrow_mut().insert(path.to_owned(), component.clone());
        }
        Ok(component)
    }

    /// The path on this machine of `inner`, whose links are followed already.
    pub(crate) fn at(&self, inner: &str) -> PathBuf {
        self.open.join(inner.trim_start_matches('/'))
    }

    /// The path on this machine of `inner`, with links followed before its last part but not there.
    fn at_unfollowed(&self, inner: &str) -> io::Result<PathBuf> {
        let (dir, name) = inner.rsplit_once('/').unwrap_or(("", inner));
        Ok(self.resolve(dir)?.to_open().join(name))
    }

    /// The entries of a directory, sorted by name.
    pub(crate) fn list(&self, inner: &str) -> io::Result<Vec<TreeEntry>> {
        self.resolve(inner)?.list()
    }

    /// Reads a regular file of at most `limit` bytes.
    pub(crate) fn read(&self, inner: &str, limit: u64) -> io::Result<Vec<u8>> {
        bounded::read(self.resolve(inner)?.open()?, limit)
    }

    /// Reads a small text file of the kernel or the driver. Invalid UTF-8 is replaced; the parsers refuse the result.
    pub(crate) fn text(&self, inner: &str) -> io::Result<String> {
        const LIMIT: u64 = 1 << 20;
        Ok(String::from_utf8_lossy(&self.read(inner, LIMIT)?).into_owned())
    }

    /// The metadata of `inner` itself: a link at its end is not followed, links before it are.
    pub(crate) fn lstat(&self, inner: &str) -> io::Result<Metadata> {
        fs::symlink_metadata(self.at_unfollowed(inner)?)
    }

    /// The target of a link; links before it are followed.
    pub(crate) fn read_link(&self, inner: &str) -> io::Result<PathBuf> {
        fs::read_link(self.at_unfollowed(inner)?)
    }

    /// Whether `inner` exists, links followed.
    pub(crate) fn exists(&self, inner: &str) -> bool {
        self.resolve(inner).is_ok()
    }
}

impl<'t> TreePath<'t> {
    /// The path as the tree itself names it. For a driver container, this is also the path in a container.
    pub(crate) fn as_str(&self) -> &str {
        &self.path
    }

    /// How the host names it.
    pub(crate) fn host(&self) -> HostPath {
        self.tree.host(&self.path)
    }

    /// Where it is on this machine.
    pub(crate) fn to_open(&self) -> PathBuf {
        self.tree.at(&self.path)
    }

    /// The path `name` below this directory, links followed.
    pub(crate) fn below(&self, name: &str) -> io::Result<TreePath<'t>> {
        self.tree.resolve(&format!("{}/{name}", self.path))
    }

    /// The path of an entry of this directory. Only a link has to be resolved: the directory's own path has none left.
    pub(crate) fn entry(&self, entry: &TreeEntry) -> io::Result<TreePath<'t>> {
        if entry.is_link {
            return self.below(&entry.name);
        }
        let path = format!("{}/{}", self.path.trim_end_matches('/'), entry.name);
        Ok(TreePath { tree: self.tree, path })
    }

    /// Whether there is something at `name` below this directory, which may be a link that leads nowhere.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tree.lstat(&format!("{}/{name}", self.path)).is_ok()
    }

    /// Whether there is something of this name beside it.
    pub(crate) fn has_sibling(&self, name: &str) -> bool {
        let (dir, _) = self.path.rsplit_once('/').unwrap_or_default();
        self.tree.lstat(&format!("{dir}/{name}")).is_ok()
    }

    /// The link of this name beside it that leads straight to it, as a path that is not followed.
    pub(crate) fn sibling_link(&self, name: &str) -> Option<TreePath<'t>> {
        let (dir, own) = self.path.rsplit_once('/').unwrap_or_default();
        let path = format!("{dir}/{name}");
        let target = self.tree.read_link(&path).ok()?;
        let tree = self.tree;
        (target == Path::new(own)).then_some(TreePath { tree, path })
    }

    /// Its metadata.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        fs::symlink_metadata(self.to_open())
    }

    /// Whether it is a directory.
    pub(crate) fn is_dir(&self) -> bool {
        self.metadata().is_ok_and(|data| data.is_dir())
    }

    /// Whether it is a regular file.
    pub(crate) fn is_file(&self) -> bool {
        self.metadata().is_ok_and(|data| data.is_file())
    }

    /// The entries of a directory, sorted by name. Skips names that are not UTF-8: the driver installs no such files.
    pub(crate) fn list(&self) -> io::Result<Vec<TreeEntry>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.to_open())? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if let Ok(name) = entry.file_name().into_string() {
                found.push(TreeEntry {
                    name,
                    is_link: kind.is_symlink(),
                    is_dir: kind.is_dir(),
                });
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Opens a regular file. Other files are refused before they are opened: a FIFO would block, and opening a device
    /// may have an effect.
    pub(crate) fn open(&self) -> io::Result<File> {
        let refuse = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
        if !self.metadata()?.is_file() {
            return Err(refuse());
        }
        let flags = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOFOLLOW;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits())
            .open(self.to_open())?;
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(refuse())
        }
    }
}

fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|p| !p.is_empty() && *p != ".")
}

/// Whether an error only means that a file does not exist.
pub(crate) fn is_absence(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Makes the path of an existing directory, as the caller of the program names it, absolute.
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
        assert_eq!(tree.resolve("/lib/a").unwrap().as_str(), "/usr/lib/a");
        assert_eq!(tree.resolve("/lib/up").unwrap().as_str(), "/usr/lib/a");
        assert_eq!(tree.resolve("/lib/../../..").unwrap().as_str(), "/");
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
