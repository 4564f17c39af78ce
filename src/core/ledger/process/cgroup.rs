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

use super::CgroupState;
use super::proc_files::ProcFiles;
use crate::ledger::claim::Cgroup;
use rustix::fs::statfs;
use std::collections::BTreeMap;
use std::fs;
use std::io;
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

/// Deeper trees are not searched: no engine makes them, and what is not searched counts as in use.
const MOST_LEVELS: u32 = 16;

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

/// `directory` as a container's own cgroup: the process is the only one in it and below it.
fn is_own(directory: &Path, pid: u32) -> Option<Cgroup> {
    let inode = is_cgroup(directory).ok()?;
    let mut processes = Vec::new();
    collect(directory, MOST_LEVELS, &mut processes).ok()?;
    (processes == [pid]).then_some(())?;
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

/// The numbers of all processes in a cgroup and below it.
fn collect(directory: &Path, levels: u32, processes: &mut Vec<u32>) -> io::Result<()> {
    let text = fs::read_to_string(directory.join("cgroup.procs"));
    match text {
        // A process of another pid namespace is 0; it is one all the same.
        Ok(text) => processes.extend(text.lines().map(|line| line.parse::<u32>().unwrap_or(0))),
        // A threaded cgroup of version 2 lists its processes in its parent.
        Err(e) if e.raw_os_error() == Some(nix::errno::Errno::EOPNOTSUPP as i32) => {}
        Err(e) => return Err(e),
    }
    // Each directory below is one link more (kernfs counts them), so that most need no listing.
    if fs::symlink_metadata(directory)?.st_nlink() <= 2 {
        return Ok(());
    }
    let levels = levels.checked_sub(1).ok_or_else(|| io::Error::other("too deep"))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            match collect(&entry.path(), levels, processes) {
                // It was removed since.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
    }
    Ok(())
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
    matches!(processes(cgroup), Ok(pids) if pids.is_empty())
}

/// Whether a cgroup certainly has a process.
pub(super) fn has_processes(cgroup: &Cgroup) -> bool {
    matches!(processes(cgroup), Ok(pids) if !pids.is_empty())
}

/// The numbers of the processes that the cgroup has.
///
/// # Errors
/// Returns an error if the file system of cgroups is not where it was when the claim was made, or shows other cgroups
/// here.
pub(super) fn processes(cgroup: &Cgroup) -> io::Result<Vec<u32>> {
    let directory = Path::new(&cgroup.path);
    let is_same = match is_cgroup(directory) {
        Ok(inode) => inode == cgroup.inode,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(e),
    };
    if !is_same {
        // It was removed, and there may be a later one of its name; or this is another part of the hierarchy.
        return match top_of(directory) {
            Some(top) if cgroup.top.is_none_or(|recorded| recorded == top) => Ok(Vec::new()),
            _ => Err(io::Error::other("is in another part of the hierarchy of cgroups")),
        };
    }
    let mut processes = Vec::new();
    match collect(directory, MOST_LEVELS, &mut processes) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        result => result.map(|()| processes),
    }
}

#[cfg(test)]
mod tests;
