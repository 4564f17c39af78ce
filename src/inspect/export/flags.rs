//! Flags of programs that are started by a command line.

use super::environment;
use tranche_core::types::{ContainerPath, HostPath};
use tranche_plan::edits::{Edits, MountEdit};

/// Whether a mount may only be read.
fn is_read_only(mount: &MountEdit) -> bool {
    mount.options.iter().any(|option| option == "ro")
}

/// A word of a shell: quoted if a shell would read it otherwise than as it is.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// bwrap(1). The flags come after those that make `/dev` and the root.
pub(super) fn bwrap(edits: &Edits) -> Vec<String> {
    let bind = |flag: &str, host: &HostPath, path: &ContainerPath| {
        format!("{flag} {} {}", word(host.as_str()), word(path.as_str()))
    };
    let nodes = edits
        .nodes
        .iter()
        .map(|(path, node)| bind("--dev-bind", &node.host, path));
    let mounts = edits.mounts.iter().map(|(path, mount)| {
        let flag = if is_read_only(mount) { "--ro-bind" } else { "--bind" };
        bind(flag, &mount.host, path)
    });
    let variables = environment(edits).into_iter();
    let variables = variables.map(|(name, value)| format!("--setenv {name} {}", word(&value)));
    nodes.chain(mounts).chain(variables).collect()
}

/// systemd-nspawn(1). It allows a container no device but those that a property names.
pub(super) fn nspawn(edits: &Edits) -> Vec<String> {
    // A colon separates the two paths, and a backslash quotes it.
    let path = |text: &str| text.replace('\\', r"\\").replace(':', r"\:");
    let pair = |host: &HostPath, inside: &ContainerPath| match host.as_str() == inside.as_str() {
        true => path(host.as_str()),
        false => format!("{}:{}", path(host.as_str()), path(inside.as_str())),
    };
    let nodes = edits.nodes.iter().flat_map(|(inside, node)| {
        let allowed = format!("--property=DeviceAllow={} rw", node.host);
        [word(&format!("--bind={}", pair(&node.host, inside))), word(&allowed)]
    });
    let mounts = edits.mounts.iter().map(|(inside, mount)| {
        let flag = if is_read_only(mount) { "--bind-ro" } else { "--bind" };
        word(&format!("{flag}={}", pair(&mount.host, inside)))
    });
    let variables = environment(edits).into_iter();
    let variables = variables.map(|(name, value)| word(&format!("--setenv={name}={value}")));
    nodes.chain(mounts).chain(variables).collect()
}

/// apptainer(1), `--contain`, `--bind` and `--env`. Without the first, a container has the host's `/dev` with the nodes
/// of every GPU.
pub(super) fn apptainer(edits: &Edits) -> Vec<String> {
    let bind = |host: &HostPath, inside: &ContainerPath, options: &str| {
        format!("--bind {}", word(&format!("{host}:{inside}{options}")))
    };
    let nodes = edits.nodes.iter().map(|(inside, node)| bind(&node.host, inside, ""));
    let mounts = edits.mounts.iter().map(|(inside, mount)| {
        let options = if is_read_only(mount) { ":ro" } else { "" };
        bind(&mount.host, inside, options)
    });
    let variables = environment(edits).into_iter();
    let variables = variables.map(|(name, value)| format!("--env {}", word(&format!("{name}={value}"))));
    let contain = std::iter::once("--contain".to_owned());
    contain.chain(nodes).chain(mounts).chain(variables).collect()
}
