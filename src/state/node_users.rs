//! The processes that have a GPU open, as `/proc` shows them.
//!
//! NVML lists those that compute or draw. nvidia-persistenced, DCGM, a display server, nvsm and the fabric manager keep
//! a GPU open without being in its lists (facts of NVIDIA's issues: gpu-operator#118, mig-parted#181, DCGM#276), and a
//! change of the MIG mode fails while they do.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tranche_core::error::{Context, Result};
use tranche_core::text::shown;

/// A process that has a node of the driver open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeUser {
    /// Its number in this pid namespace.
    pub pid: u32,
    /// Its name, as `/proc/PID/comm` has it, safe to print.
    pub command: String,
    /// The effective user.
    pub uid: u32,
    /// Its groups.
    pub gids: BTreeSet<u32>,
    /// The unit of systemd that it belongs to: `nvidia-dcgm.service`.
    pub unit: Option<String>,
    /// Whether it is part of a service of the system, which root has set up.
    pub is_of_system: bool,
    /// The nodes, as major and minor number.
    pub nodes: BTreeSet<(u64, u64)>,
}

impl NodeUser {
    /// For a message: `nv-hostengine (pid 812, nvidia-dcgm.service)`.
    pub fn label(&self) -> String {
        match &self.unit {
            Some(unit) => format!("{} (pid {}, {unit})", self.command, self.pid),
            None => format!("{} (pid {})", self.command, self.pid),
        }
    }
}

/// The processes below `proc` that have one of `nodes` open, by their numbers. A node is known by its device number,
/// because a container has it under another path.
///
/// A process that ends meanwhile is left out.
///
/// # Errors
/// Returns an error if `proc` cannot be listed.
pub fn users_of(proc: &Path, nodes: &BTreeSet<(u64, u64)>) -> Result<Vec<NodeUser>> {
    let entries = fs::read_dir(proc).about(proc.display(), "cannot be listed")?;
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut users: Vec<NodeUser> = pids.filter_map(|pid| user(proc, pid, nodes)).collect();
    users.sort();
    Ok(users)
}

fn user(proc: &Path, pid: u32, nodes: &BTreeSet<(u64, u64)>) -> Option<NodeUser> {
    let process = proc.join(pid.to_string());
    let open: BTreeSet<(u64, u64)> = fs::read_dir(process.join("fd"))
        .ok()?
        .flatten()
        .filter_map(|entry| device(&entry.path()))
        .filter(|node| nodes.contains(node))
        .collect();
    if open.is_empty() {
        return None;
    }
    let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
    let cgroup = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let status = fs::read_to_string(process.join("status")).ok()?;
    Some(NodeUser {
        pid,
        command: shown(command.trim_end()).to_string(),
        // The second number is the effective one (proc_pid_status(5)).
        uid: *numbers(&status, "Uid:").get(1)?,
        gids: numbers(&status, "Gid:")
            .into_iter()
            .skip(1)
            .take(1)
            .chain(numbers(&status, "Groups:"))
            .collect(),
        unit: unit(&cgroup),
        is_of_system: is_of_system(&cgroup),
        nodes: open,
    })
}

/// The device that a file descriptor is of, if it is of a character device.
fn device(fd: &Path) -> Option<(u64, u64)> {
    /// `S_IFCHR`
    const CHARACTER_DEVICE: u32 = 0o020_000;
    // This follows the link to what is open, and opens nothing.
    let metadata = fs::metadata(fd).ok()?;
    let is_device = metadata.mode() & 0o170_000 == CHARACTER_DEVICE;
    let number = metadata.rdev();
    is_device.then(|| (nix::sys::stat::major(number), nix::sys::stat::minor(number)))
}

/// The numbers after `key` in `/proc/PID/status`.
fn numbers(status: &str, key: &str) -> Vec<u32> {
    let rest = status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .unwrap_or_default();
    rest.split_ascii_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// The path of systemd's hierarchy in `/proc/PID/cgroup`.
fn path_of_systemd(cgroup: &str) -> Option<&str> {
    let of_systemd = |line: &&str| line.starts_with("0::") || line.contains(":name=systemd:");
    let mut lines = cgroup.lines().filter(of_systemd);
    lines.find_map(|line| line.splitn(3, ':').nth(2))
}

/// Whether the process is in a service of the system: no user can move a process there.
fn is_of_system(cgroup: &str) -> bool {
    path_of_systemd(cgroup).is_some_and(|path| path.starts_with("/system.slice/"))
}

/// The unit in `/proc/PID/cgroup`: the last part of the path of systemd's hierarchy that is the name of a unit.
fn unit(cgroup: &str) -> Option<String> {
    let path = path_of_systemd(cgroup)?;
    let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
    path.rsplit('/').find(is_unit).map(|unit| shown(unit).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;

    #[test]
    fn a_process_with_an_open_node_is_found_by_its_device_number() {
        let null = nix::sys::stat::stat("/dev/null").unwrap().st_rdev;
        let null = (nix::sys::stat::major(null), nix::sys::stat::minor(null));
        // A handle that reads and writes nothing counts: the driver has the GPU open for it as well.
        let _open = open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
        let users = users_of(Path::new("/proc"), &BTreeSet::from([null])).unwrap();
        let own = users.iter().find(|user| user.pid == std::process::id()).unwrap();
        assert_eq!(own.nodes, BTreeSet::from([null]));
        assert_eq!(own.uid, nix::unistd::geteuid().as_raw());
        assert!(own.gids.contains(&nix::unistd::getegid().as_raw()));
        assert!(own.label().contains(&format!("(pid {}", own.pid)), "{}", own.label());
        let none = users_of(Path::new("/proc"), &BTreeSet::from([(511, 12345)])).unwrap();
        assert_eq!(none, []);
    }

    #[test]
    fn the_unit_is_the_last_one_in_the_path() {
        for (cgroup, expected) in [
            (
                "0::/system.slice/nvidia-persistenced.service\n",
                Some("nvidia-persistenced.service"),
            ),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope\n",
                Some("run-r1.scope"),
            ),
            ("0::/system.slice/docker.service/payload\n", Some("docker.service")),
            (
                "4:memory:/a.service\n1:name=systemd:/system.slice/gdm.service\n",
                Some("gdm.service"),
            ),
            ("0::/\n", None),
            ("", None),
        ] {
            assert_eq!(unit(cgroup).as_deref(), expected, "{cgroup}");
            assert_eq!(is_of_system(cgroup), cgroup.contains("/system.slice/"), "{cgroup}");
        }
    }

    #[test]
    fn a_proc_that_is_missing_is_an_error() {
        assert!(users_of(Path::new("/nonexistent"), &BTreeSet::new()).is_err());
    }
}
