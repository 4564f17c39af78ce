//! Lines of an LXC configuration.

use super::{HostEntry, environment};
use tranche_core::types::{ContainerPath, HostPath};
use tranche_plan::edits::{Edits, MountEdit};

/// lxc.container.conf(5). `look` says what a path of the host is.
pub(super) fn lines(edits: &Edits, look: impl Fn(&HostPath) -> Option<HostEntry>) -> Vec<String> {
    let mut lines = Vec::new();
    for (inside, node) in &edits.nodes {
        // A node whose numbers are unknown does not exist, and its mount is optional.
        let found = match look(&node.host) {
            Some(HostEntry::Device(major, minor)) => Some((major, minor)),
            _ => node.numbers,
        };
        if let Some((major, minor)) = found {
            lines.push(format!("lxc.cgroup2.devices.allow = c {major}:{minor} rw"));
        }
        lines.push(entry(&node.host, inside, "bind,optional,create=file"));
    }
    for (inside, mount) in &edits.mounts {
        lines.push(entry(&mount.host, inside, &options(mount, look(&mount.host))));
    }
    for (name, value) in environment(edits) {
        lines.push(format!("lxc.environment = {name}={value}"));
    }
    lines
}

fn options(mount: &MountEdit, source: Option<HostEntry>) -> String {
    let access = if mount.options.iter().any(|option| option == "ro") {
        ",ro"
    } else {
        ""
    };
    let kind = if source == Some(HostEntry::Directory) {
        "dir"
    } else {
        "file"
    };
    format!("rbind{access},optional,create={kind}")
}

/// A mount as in fstab(5), with a path relative to the container's root.
fn entry(host: &HostPath, inside: &ContainerPath, options: &str) -> String {
    let inside = inside.as_str().trim_start_matches('/');
    format!(
        "lxc.mount.entry = {} {} none {options} 0 0",
        field(host.as_str()),
        field(inside)
    )
}

/// A field of fstab(5): blanks and backslashes as octal numbers.
fn field(text: &str) -> String {
    let text = text.replace('\\', r"\134");
    text.replace(' ', r"\040").replace('\t', r"\011").replace('\n', r"\012")
}
