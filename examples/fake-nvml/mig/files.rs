//! What the kernel module shows of instances in `/proc`, and the nodes that NVML has made for them by nvidia-modprobe.

use crate::config::{self, Mig};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The capabilities of a GPU's instances: the path below `gpuN/`, and the minor number.
///
/// The numbers are those of the real driver: 9 for each GPU instance, 15 of those for each GPU, from 3.
fn capabilities(gpu: u32, mig: &Mig) -> BTreeSet<(String, u32)> {
    let mut found = BTreeSet::new();
    for one in &mig.instances {
        let minor = 3 + gpu * 135 + one.id * 9;
        found.insert((format!("gi{}", one.id), minor));
        for compute in &one.compute {
            found.insert((format!("gi{}/ci{}", one.id, compute.id), minor + 1 + compute.id));
        }
    }
    found
}

/// Makes the files and nodes of what is new, and removes those of what is gone. A host whose tree has no directory of
/// capabilities is left alone.
pub(super) fn follow(gpu: u32, before: &Mig, after: &Mig) {
    let Some(root) = config::find().and_then(|path| path.parent().map(Path::to_owned)) else {
        return;
    };
    let (old, new) = (capabilities(gpu, before), capabilities(gpu, after));
    for (name, minor) in old.difference(&new) {
        let _ = fs::remove_dir_all(place(&root, gpu, name));
        let _ = fs::remove_file(node(&root, *minor));
    }
    for (name, minor) in new.difference(&old) {
        let place = place(&root, gpu, name);
        let _ = fs::create_dir_all(&place);
        let text = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        let _ = fs::write(place.join("access"), text);
        if let Some(major) = major(&root) {
            make_node(&node(&root, *minor), major, *minor);
        }
    }
    minors(&root, gpu, &old, &new);
}

fn place(root: &Path, gpu: u32, name: &str) -> PathBuf {
    root.join(format!("proc/driver/nvidia/capabilities/gpu{gpu}/mig/{name}"))
}

fn node(root: &Path, minor: u32) -> PathBuf {
    root.join(format!("dev/nvidia-caps/nvidia-cap{minor}"))
}

/// The major number of the capabilities in `/proc/devices`.
fn major(root: &Path) -> Option<u32> {
    let devices = fs::read_to_string(root.join("proc/devices")).ok()?;
    let line = devices.lines().find(|line| line.trim_end().ends_with(" nvidia-caps"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn make_node(path: &Path, major: u32, minor: u32) {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return;
    };
    // SAFETY: the path is a C string. A process that may not make nodes has none, as on the hosts of users.
    unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o444, libc::makedev(major, minor)) };
}

/// The list of the numbers, which has those of every instance that exists.
fn minors(root: &Path, gpu: u32, old: &BTreeSet<(String, u32)>, new: &BTreeSet<(String, u32)>) {
    let path = root.join("proc/driver/nvidia-caps/mig-minors");
    let Ok(text) = fs::read_to_string(&path) else { return };
    let line = |(name, minor): &(String, u32)| format!("gpu{gpu}/{name}/access {minor}");
    let gone: BTreeSet<String> = old.difference(new).map(line).collect();
    let kept = text.lines().map(str::to_owned).filter(|line| !gone.contains(line));
    let all: Vec<String> = kept.chain(new.difference(old).map(line)).collect();
    let _ = fs::write(&path, all.join("\n") + "\n");
}
