//! Checks whether everything that a specification refers to exists on this host. An engine notices only when a
//! container starts, and then refuses it.

use super::problem::Reference;
use super::spec::{ContainerEdits, DeviceNode, Hook, Mount, Spec};
use super::validate::{Fault, Faults};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

/// Everything that `spec` refers to and that an engine on this host would not find, or could not use: what is wrong,
/// and what is referred to.
pub fn broken(spec: &Spec) -> Vec<(Fault, Reference)> {
    let mut faults = Faults::default();
    let mut references = Vec::new();
    faults.field("containerEdits", |f| of_edits(f, &mut references, &spec.edits));
    faults.each("devices", &spec.devices, |f, device| {
        f.field("containerEdits", |f| of_edits(f, &mut references, &device.edits));
    });
    // Each fault was added with its reference.
    faults.found.into_iter().zip(references).collect()
}

fn of_edits(faults: &mut Faults, references: &mut Vec<Reference>, edits: &ContainerEdits) {
    let mut add = |f: &mut Faults, field: &'static str, what: Option<String>, is_hook: bool, path: &str| {
        if let Some(what) = what {
            f.add_at(field, what);
            let path = path.into();
            references.push(Reference { is_hook, path });
        }
    };
    faults.each("mounts", &edits.mounts, |f, mount| {
        add(f, "hostPath", source(mount), false, &mount.host_path);
    });
    faults.each("deviceNodes", &edits.device_nodes, |f, node| match &node.host_path {
        Some(path) => add(f, "hostPath", device(node), false, path),
        None => add(f, "path", device(node), false, &node.path),
    });
    faults.each("hooks", &edits.hooks, |f, hook| {
        add(f, "path", program(hook), true, &hook.path);
    });
}

/// What is wrong with the source of a mount. The source of a file system such as tmpfs is not a path.
fn source(mount: &Mount) -> Option<String> {
    let path = Path::new(&mount.host_path);
    let is_bind = mount.mount_type.as_deref().is_none_or(|t| t.is_empty() || t == "bind")
        || mount.options.iter().any(|o| o == "bind" || o == "rbind");
    // An empty path is a fault of the specification, which validate() reports.
    if !is_bind || path.as_os_str().is_empty() {
        return None;
    }
    not_absolute(path).or_else(|| fs::metadata(path).err().map(|e| missing(path, &e)))
}

/// What is wrong with a device node. If its type and numbers are given, the engine makes it, and it need not exist.
fn device(node: &DeviceNode) -> Option<String> {
    let path = Path::new(node.host_path.as_deref().unwrap_or(&node.path));
    if path.as_os_str().is_empty() {
        return None;
    }
    let is_complete = node.node_type.is_some() && (node.major.is_some() || node.node_type.as_deref() == Some("p"));
    not_absolute(path).or_else(|| match fs::symlink_metadata(path) {
        Err(_) if is_complete => None,
        Err(e) => Some(missing(path, &e)),
        Ok(data) => {
            let kind = data.file_type();
            let is_node = kind.is_char_device() || kind.is_block_device() || kind.is_fifo();
            (!is_node && !is_complete).then(|| format!("{} is not a device node", path.display()))
        }
    })
}

/// What is wrong with a hook's program.
fn program(hook: &Hook) -> Option<String> {
    let path = Path::new(&hook.path);
    if path.as_os_str().is_empty() {
        return None;
    }
    not_absolute(path).or_else(|| match fs::metadata(path) {
        Err(e) => Some(missing(path, &e)),
        Ok(data) if !data.is_file() || data.permissions().mode() & 0o111 == 0 => {
            Some(format!("{} is not an executable file", path.display()))
        }
        Ok(_) => None,
    })
}

fn not_absolute(path: &Path) -> Option<String> {
    (!path.is_absolute()).then(|| format!("{} is not an absolute path", path.display()))
}

fn missing(path: &Path, e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            format!("{} does not exist on this host", path.display())
        }
        _ => format!("{} cannot be examined: {e}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Device;
    use super::*;

    #[test]
    fn each_thing_that_is_missing_is_named_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::write(at("plain"), "").unwrap();
        let mount = |host_path: &str| Mount {
            host_path: host_path.into(),
            container_path: "/x".into(),
            ..Mount::default()
        };
        let node = |path: &str| DeviceNode {
            path: path.into(),
            ..DeviceNode::default()
        };
        let hook = |path: &str| Hook {
            hook_name: "createContainer".into(),
            path: path.into(),
            ..Hook::default()
        };
        let tmpfs = Mount {
            mount_type: Some("tmpfs".into()),
            ..mount("tmpfs")
        };
        let made = DeviceNode {
            node_type: Some("c".into()),
            major: Some(195),
            minor: Some(0),
            ..node("/dev/not-made-yet")
        };
        let mut spec = Spec {
            devices: vec![Device::default()],
            ..Spec::default()
        };
        spec.edits.mounts = vec![mount("/"), mount(&at("gone")), mount("relative"), tmpfs];
        spec.edits.hooks = vec![hook("/bin/sh"), hook(&at("plain")), hook("/nowhere/hook")];
        spec.devices[0].edits.device_nodes = vec![node("/dev/null"), node(&at("plain")), node("/dev/nowhere"), made];
        let said: Vec<String> = broken(&spec).iter().map(|(fault, _)| fault.to_string()).collect();
        assert_eq!(
            said,
            [
                format!(
                    "containerEdits.mounts[1].hostPath: {} does not exist on this host",
                    at("gone")
                ),
                "containerEdits.mounts[2].hostPath: relative is not an absolute path".to_owned(),
                format!(
                    "containerEdits.hooks[1].path: {} is not an executable file",
                    at("plain")
                ),
                "containerEdits.hooks[2].path: /nowhere/hook does not exist on this host".to_owned(),
                format!(
                    "devices[0].containerEdits.deviceNodes[1].path: {} is not a device node",
                    at("plain")
                ),
                "devices[0].containerEdits.deviceNodes[2].path: /dev/nowhere does not exist on this host".to_owned(),
            ]
        );
    }
}
