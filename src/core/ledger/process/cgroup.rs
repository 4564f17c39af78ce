//! The cgroup of a container: while it has processes, the container is not gone, even if its init is. With the host's
//! pid namespace (`--pid=host`) the end of init ends no other process.
//!
//! A container's cgroup is taken for its own only if its init is the sole process in it when the claim is made. That
//! leaves out the root, the engine's own (`--cgroups=disabled`) and one that the container shares with its monitor:
//! such a cgroup would keep a share held for ever.
//!
//! Its path means something only where the same cgroups are mounted: a cgroup namespace of its own, as most engines
//! give one to a container, shows a part of them. So the inode of the directory on top is recorded too, and where that
//! is another one, nothing can be said.
//!
//! A user can make as many cgroups below the user's own as the kernel lets a cgroup have, and the ledger looks at all
//! claims while it is locked. So nothing here takes longer the more there are. Version 2 says in one file whether a
//! cgroup or any below it has a process. Version 1 does not, and there a bounded number of directories is looked at: a
//! tree with more of them counts as in use.

use super::CgroupState;
use super::proc_files::ProcFiles;
use crate::ledger::claim::Cgroup;
use nix::errno::Errno;
use rustix::fs::statfs;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `CGROUP2_SUPER_MAGIC` (statfs(2)).
const VERSION_2: i128 = 0x6367_7270;

/// `CGROUP_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC`.
const MAGIC: [i128; 2] = [0x0027_e0eb, VERSION_2];

/// Hierarchies of version 1 that every engine puts a container into, best first. The second word is the directory below
/// `/sys/fs/cgroup` at which it is mounted by convention.
const VERSION_1: [(&str, &str); 5] = [
    ("devices", "devices"),
    ("pids", "pids"),
    ("freezer", "freezer"),
    ("memory", "memory"),
    ("name=systemd", "systemd"),
];

/// The most directories of one tree that are looked at while the ledger is locked. systemd in a container has some 50
/// cgroups. Users make no cgroups of version 1 unless root has given them a directory.
const MOST_DIRECTORIES: usize = 256;

/// The most directories of one tree in which processes are listed, which is never done while the ledger is locked.
const MOST_LISTED_DIRECTORIES: usize = 4096;

/// The most processes that are listed: as many as the kernel has numbers by default (proc(5), `pid_max`).
const MOST_LISTED: usize = 32 << 10;

/// The most bytes of a file that has one line or a few.
const MOST_BYTES: u64 = 4096;

/// The cgroup that belongs to the container of process `pid`; `None` where no such cgroup can be seen from here.
pub(super) fn of(proc: &ProcFiles, pid: u32) -> Option<Cgroup> {
    let text = lines(proc, &format!("{pid}/cgroup")).ok()?;
    let own = lines(proc, "self/cgroup").ok()?;
    let own = hierarchies(&own);
    candidates(&hierarchies(&text), &own)
        .into_iter()
        .find_map(|directory| is_own(&directory, pid))
}

/// Directories that may be the cgroups of process `pid`, in every hierarchy that engines use.
pub(super) fn directories(proc: &ProcFiles, pid: u32) -> Vec<PathBuf> {
    let text = lines(proc, &format!("{pid}/cgroup")).unwrap_or_default();
    candidates(&hierarchies(&text), &BTreeMap::new())
}

/// Whether process `pid` is in the cgroups in which the kubelet keeps its pods.
pub(super) fn is_in_pods(proc: &ProcFiles, pid: u32) -> bool {
    let text = lines(proc, &format!("{pid}/cgroup")).unwrap_or_default();
    let hierarchies = hierarchies(&text);
    let mut paths = hierarchies.values();
    paths.any(|path| is_of_pods(path))
}

/// Whether a cgroup is below that of the kubelet's pods: `kubepods`, or `kubepods.slice` under systemd, behind the
/// kubelet's `cgroupRoot` (Kubernetes, pkg/kubelet/cm/node_container_manager_linux.go). A user may name a cgroup so,
/// too, but only in the part of the tree that systemd lets the user have.
fn is_of_pods(path: &str) -> bool {
    let is_pods = |name: &str| matches!(name, "kubepods" | "kubepods.slice") || name.ends_with("-kubepods.slice");
    let mut above = path.split('/').take_while(|name| *name != "user.slice");
    above.by_ref().any(is_pods) && above.next().is_some()
}

fn lines(proc: &ProcFiles, name: &str) -> io::Result<String> {
    String::from_utf8(proc.read(name)?).map_err(io::Error::other)
}

/// The lines of `/proc/PID/cgroup` by controllers, of which version 2 has none (cgroups(7)).
fn hierarchies(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            Some((parts.nth(1)?, parts.next()?))
        })
        .collect()
}

/// Directories that may be the cgroup of a process: those of hierarchies in which it is elsewhere than this program,
/// which is in the engine's cgroup.
fn candidates(of: &BTreeMap<&str, &str>, own: &BTreeMap<&str, &str>) -> Vec<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let mut found = Vec::new();
    let mut add = |controllers: &str, mounts: &[PathBuf]| {
        let Some(path) = of.get(controllers) else { return };
        // A path that begins with `/..` is outside the cgroup namespace that this program is in.
        let relative = path.trim_start_matches('/');
        if relative.is_empty() || path.starts_with("/..") || own.get(controllers) == Some(path) {
            return;
        }
        found.extend(mounts.iter().map(|mount| mount.join(relative)));
    };
    add("", &[top.to_owned(), top.join("unified")]);
    for (controller, directory) in VERSION_1 {
        let joined = of.keys().find(|names| names.split(',').any(|name| name == controller));
        if let Some(names) = joined {
            // `cpu,cpuacct` is mounted under that name, with links for each.
            add(names, &[top.join(directory), top.join(names)]);
        }
    }
    found
}

/// `directory` as a container's own cgroup: the process is the only one in it and below it, as far as it is looked at.
/// Of a tree that is too large it is taken for its own: the claim then lasts until the whole tree is empty.
fn is_own(directory: &Path, pid: u32) -> Option<Cgroup> {
    let inode = is_cgroup(directory).ok()?;
    if read(directory, "cgroup.procs").ok()?.trim_end() != pid.to_string() {
        return None;
    }
    let mut directories = Directories::below(directory).ok()?;
    for below in directories.by_ref().take(MOST_DIRECTORIES) {
        // A threaded cgroup of version 2 lists its processes in its parent.
        match has_own_processes(&below.ok()?) {
            Ok(false) => {}
            Err(e) if is_threaded(&e) || is_gone(&e) => {}
            Ok(true) | Err(_) => return None,
        }
    }
    Some(Cgroup {
        path: directory.to_str()?.to_owned(),
        inode,
        top: Some(top_of(directory)?),
    })
}

/// The inode of the top of the hierarchy that `directory` is in, as it is mounted here; `None` if it is in no
/// hierarchy. What is at the end of the path may be missing.
fn top_of(directory: &Path) -> Option<u64> {
    let mut above = directory.ancestors().filter_map(|above| is_cgroup(above).ok());
    let first = above.next()?;
    Some(above.last().unwrap_or(first))
}

/// The inode of a directory of a cgroup file system.
fn is_cgroup(directory: &Path) -> io::Result<u64> {
    if !MAGIC.contains(&i128::from(statfs(directory)?.f_type)) {
        return Err(io::Error::other("is not a cgroup"));
    }
    Ok(fs::symlink_metadata(directory)?.st_ino())
}

/// The directories below one, in no order. A directory is listed when its turn comes, so that one who stops early has
/// not looked at the rest.
struct Directories {
    /// Those that are to be listed.
    left: Vec<PathBuf>,
    /// The one that is being listed.
    listing: Option<fs::ReadDir>,
}

impl Directories {
    fn below(directory: &Path) -> io::Result<Self> {
        let mut directories = Self {
            left: Vec::new(),
            listing: None,
        };
        directories.listing = directories.list(directory)?;
        Ok(directories)
    }

    /// Begins to list a directory, if there is anything in it.
    fn list(&self, directory: &Path) -> io::Result<Option<fs::ReadDir>> {
        // Each directory below is one link more (kernfs counts them), so that most need no listing.
        match fs::symlink_metadata(directory)?.st_nlink() {
            ..=2 => Ok(None),
            _ => fs::read_dir(directory).map(Some),
        }
    }

    fn next_one(&mut self) -> io::Result<Option<PathBuf>> {
        loop {
            while let Some(entry) = self.listing.as_mut().and_then(Iterator::next) {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    self.left.push(entry.path());
                    return Ok(Some(entry.path()));
                }
            }
            let Some(directory) = self.left.pop() else {
                return Ok(None);
            };
            self.listing = match self.list(&directory) {
                // It was removed since.
                Err(e) if is_gone(&e) => None,
                listing => listing?,
            };
        }
    }
}

impl Iterator for Directories {
    type Item = io::Result<PathBuf>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_one().transpose()
    }
}

/// Whether an error says that a cgroup was removed: its directory, or what was opened of it.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ENODEV as i32)
}

/// Whether an error is that of the list of processes of a threaded cgroup (cgroups(7)).
fn is_threaded(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32)
}

/// The beginning of a file of a cgroup.
fn read(directory: &Path, name: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(directory.join(name))?
        .take(MOST_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Whether a process is in the cgroup itself. One of another pid namespace is listed as 0, and is one all the same.
fn has_own_processes(directory: &Path) -> io::Result<bool> {
    let mut first = [0];
    Ok(File::open(directory.join("cgroup.procs"))?.read(&mut first)? > 0)
}

/// What is known of the processes in a cgroup and below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Population {
    Empty,
    Populated,
    /// There are more directories than are looked at.
    TooMany,
}

/// Whether a process is in the cgroup or below it.
fn population_of(directory: &Path) -> io::Result<Population> {
    if i128::from(statfs(directory)?.f_type) == VERSION_2 {
        // "1 if the cgroup or its descendants contain any live processes" (cgroup-v2, "Core Interface Files").
        let events = read(directory, "cgroup.events")?;
        let mut values = events.lines().filter_map(|line| line.strip_prefix("populated "));
        return match values.next() {
            Some("0") => Ok(Population::Empty),
            Some("1") => Ok(Population::Populated),
            _ => Err(io::Error::other("cgroup.events does not say whether it has processes")),
        };
    }
    if has_own_processes(directory)? {
        return Ok(Population::Populated);
    }
    for (number, below) in Directories::below(directory)?.enumerate() {
        if number >= MOST_DIRECTORIES {
            return Ok(Population::TooMany);
        }
        match has_own_processes(&below?) {
            Ok(true) => return Ok(Population::Populated),
            Err(e) if !is_gone(&e) => return Err(e),
            Ok(false) | Err(_) => {}
        }
    }
    Ok(Population::Empty)
}

/// Whether the cgroup still exists, and is one of version 2.
///
/// # Errors
/// Returns an error if its place cannot be looked at, or is not in a file system of cgroups.
pub(super) fn state(cgroup: &Cgroup) -> io::Result<CgroupState> {
    let directory = Path::new(&cgroup.path);
    match is_cgroup(directory) {
        Ok(inode) if inode != cgroup.inode => Ok(CgroupState::Gone),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(CgroupState::Gone),
        Err(e) => Err(e),
        Ok(_) => Ok(match i128::from(statfs(directory)?.f_type) {
            VERSION_2 => CgroupState::Version2,
            _ => CgroupState::Version1,
        }),
    }
}

/// Whether a cgroup certainly has no process any more, because it is empty or gone.
pub(super) fn is_empty(cgroup: &Cgroup) -> bool {
    matches!(population(cgroup), Ok(Population::Empty))
}

/// Whether a cgroup has a process. One with too many cgroups below it counts as one that has.
pub(super) fn has_processes(cgroup: &Cgroup) -> bool {
    matches!(population(cgroup), Ok(Population::Populated | Population::TooMany))
}

/// The file that says whether a cgroup of version 2 or any below it has a process, read once: from then on, its next
/// change is an event of it (cgroups(7), `cgroup.events`).
pub(super) fn end_of(cgroup: &Cgroup) -> Option<OwnedFd> {
    let directory = present(cgroup).ok()??;
    let mut events = File::open(directory.join("cgroup.events")).ok()?;
    let mut text = String::new();
    events.by_ref().take(MOST_BYTES).read_to_string(&mut text).ok()?;
    // What is empty by now has no next change.
    text.lines().any(|line| line == "populated 1").then(|| events.into())
}

/// Whether it cannot be seen when the last process of a cgroup ends, because there are too many below it.
pub(super) fn is_too_large(cgroup: &Cgroup) -> bool {
    matches!(population(cgroup), Ok(Population::TooMany))
}

fn population(cgroup: &Cgroup) -> io::Result<Population> {
    match present(cgroup)? {
        None => Ok(Population::Empty),
        Some(directory) => match population_of(directory) {
            // It was removed since.
            Err(e) if is_gone(&e) => Ok(Population::Empty),
            found => found,
        },
    }
}

/// The directory of a cgroup; `None` if it was removed.
///
/// # Errors
/// Returns an error if the file system of cgroups is not where it was when the claim was made, or shows other cgroups
/// here.
fn present(cgroup: &Cgroup) -> io::Result<Option<&Path>> {
    let directory = Path::new(&cgroup.path);
    let is_same = match is_cgroup(directory) {
        Ok(inode) => inode == cgroup.inode,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(e),
    };
    if is_same {
        return Ok(Some(directory));
    }
    // It was removed, and there may be a later one of its name; or this is another part of the hierarchy.
    match top_of(directory) {
        Some(top) if cgroup.top.is_none_or(|recorded| recorded == top) => Ok(None),
        _ => Err(io::Error::other("is in another part of the hierarchy of cgroups")),
    }
}

/// The numbers of the processes that the cgroup has, and those below it. Takes the longer the more there are, and is
/// not called while the ledger is locked.
///
/// # Errors
/// As [`present`], and returns an error if there are more cgroups or processes than are listed.
pub(super) fn processes(cgroup: &Cgroup) -> io::Result<Vec<u32>> {
    let Some(top) = present(cgroup)? else {
        return Ok(Vec::new());
    };
    let mut processes = Vec::new();
    let own = [Ok(top.to_owned())].into_iter();
    let below = match Directories::below(top) {
        Err(e) if is_gone(&e) => return Ok(Vec::new()),
        below => below?,
    };
    for (number, directory) in own.chain(below).enumerate() {
        if number > MOST_LISTED_DIRECTORIES {
            let what = format!("has more than {MOST_LISTED_DIRECTORIES} cgroups below it");
            return Err(io::Error::other(what));
        }
        let file = match File::open(directory?.join("cgroup.procs")) {
            Err(e) if is_gone(&e) => continue,
            file => file?,
        };
        let mut text = String::new();
        // A number has at most 7 digits (proc(5), `pid_max`).
        match file.take(MOST_LISTED as u64 * 8).read_to_string(&mut text) {
            Ok(_) => {}
            // A threaded cgroup of version 2 lists its processes in its parent.
            Err(e) if is_threaded(&e) || is_gone(&e) => continue,
            Err(e) => return Err(e),
        }
        // A process of another pid namespace is 0; it is one all the same.
        processes.extend(text.lines().map(|line| line.parse::<u32>().unwrap_or(0)));
        if processes.len() > MOST_LISTED {
            return Err(io::Error::other(format!("has more than {MOST_LISTED} processes")));
        }
    }
    Ok(processes)
}

#[cfg(test)]
mod tests;
