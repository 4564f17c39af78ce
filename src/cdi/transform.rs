//! A specification whose paths begin elsewhere: made in a container with the driver, used on its host.

use super::spec::{ContainerEdits, Spec};
use crate::error::{Error, Result};

/// Which paths of a specification are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Paths that the engine follows: of nodes and mounts on the host, and of hooks.
    Host,
    /// Paths in the container.
    Container,
}

impl std::str::FromStr for Side {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "host" => Ok(Side::Host),
            "container" => Ok(Side::Container),
            _ => Err(Error::usage(format!("\"{text}\""), "is neither host nor container")),
        }
    }
}

/// Puts `to` in the place of `from` at the beginning of every path on `side`. Whole parts count: `/run` is no beginning of
/// `/runtime`. The version is that which the result needs.
pub fn root(spec: &mut Spec, from: &str, to: &str, side: Side) {
    let rule = Rule { from, to };
    for device in &mut spec.devices {
        edits(&mut device.edits, &rule, side);
    }
    edits(&mut spec.edits, &rule, side);
    let needed = super::minimum_version(spec);
    // A version that is declared higher than needed stays: somebody may have had a reason.
    let declared = spec.version.trim_start_matches('v').parse();
    if declared.map_or(true, |declared: crate::types::CdiVersion| declared < needed) {
        spec.version = needed.to_string();
    }
}

struct Rule<'a> {
    from: &'a str,
    to: &'a str,
}

impl Rule<'_> {
    fn apply(&self, path: &str) -> String {
        let from = self.from.trim_end_matches('/');
        let rest = match path.strip_prefix(from) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            _ => return path.to_owned(),
        };
        let joined = format!("{}{rest}", self.to.trim_end_matches('/'));
        if joined.is_empty() { "/".to_owned() } else { joined }
    }
}

fn edits(edits: &mut ContainerEdits, rule: &Rule<'_>, side: Side) {
    for node in &mut edits.device_nodes {
        let on_host = match side {
            Side::Host => rule.apply(node.on_host()),
            Side::Container => node.on_host().to_owned(),
        };
        if side == Side::Container {
            node.path = rule.apply(&node.path);
        }
        node.host_path = (on_host != node.path).then_some(on_host);
    }
    for mount in &mut edits.mounts {
        let path = match side {
            Side::Host => &mut mount.host_path,
            Side::Container => &mut mount.container_path,
        };
        *path = rule.apply(path);
    }
    for hook in &mut edits.hooks {
        if side == Side::Host {
            hook.path = rule.apply(&hook.path);
        } else {
            for arg in &mut hook.args {
                *arg = argument(arg, rule);
            }
        }
    }
}

/// An argument of a hook: a path, or `TARGET::LINK` with a path on either side of the mark.
fn argument(arg: &str, rule: &Rule<'_>) -> String {
    match arg.split_once("::") {
        Some((target, link)) => format!("{}::{}", rule.apply(target), rule.apply(link)),
        None => rule.apply(arg),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DeviceNode, Mount};
    use super::*;

    fn spec() -> Spec {
        let mut spec = Spec {
            version: "0.3.0".into(),
            ..Spec::default()
        };
        spec.edits.device_nodes.push(DeviceNode {
            path: "/dev/nvidia0".into(),
            host_path: Some("/run/driver/dev/nvidia0".into()),
            ..DeviceNode::default()
        });
        for host in ["/run/driver/usr/lib/x.so", "/run/driver2/y.so", "/run/driver"] {
            spec.edits.mounts.push(Mount {
                host_path: host.into(),
                container_path: host.into(),
                ..Mount::default()
            });
        }
        spec
    }

    #[test]
    fn whole_parts_are_replaced() {
        let mut host = spec();
        root(&mut host, "/run/driver/", "/", Side::Host);
        assert_eq!(host.edits.device_nodes[0].host_path, None, "equal paths need no second");
        let paths: Vec<&str> = host.edits.mounts.iter().map(|m| m.host_path.as_str()).collect();
        assert_eq!(paths, ["/usr/lib/x.so", "/run/driver2/y.so", "/"]);
        let mut container = spec();
        root(&mut container, "/run/driver", "/d", Side::Container);
        assert_eq!(container.edits.mounts[0].container_path, "/d/usr/lib/x.so");
        assert_eq!(container.edits.mounts[0].host_path, "/run/driver/usr/lib/x.so");
        assert_eq!(container.version, "0.5.0", "a host path needs it");
    }

    #[test]
    fn the_root_itself_can_be_moved() {
        let mut host = spec();
        root(&mut host, "/", "/host", Side::Host);
        assert_eq!(host.edits.mounts[0].host_path, "/host/run/driver/usr/lib/x.so");
        assert_eq!(
            host.edits.device_nodes[0].host_path.as_deref(),
            Some("/host/run/driver/dev/nvidia0")
        );
    }
}
