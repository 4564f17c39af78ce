//! Moves the paths of a specification that was made for another place, for example in a container with the driver.

use super::spec::{ContainerEdits, Spec};
use tranche_core::call::with_moved_paths;
use tranche_core::types::Side;

/// Replaces `from` by `to` at the beginning of every path on `side`. Only whole components match: `/run` does not match
/// `/runtime`. The declared version is raised if the result needs a newer one.
pub fn root(spec: &mut Spec, from: &str, to: &str, side: Side) {
    let rule = PathRule { from, to };
    for device in &mut spec.devices {
        edits(&mut device.edits, &rule, side);
    }
    edits(&mut spec.edits, &rule, side);
    let needed = super::minimum_version(spec);
    // A version that is higher than needed is kept, because its author may have a reason.
    let declared = spec.version.trim_start_matches('v').parse();
    if declared.map_or(true, |declared: tranche_core::types::CdiVersion| declared < needed) {
        spec.version = needed.to_string();
    }
}

struct PathRule<'a> {
    from: &'a str,
    to: &'a str,
}

impl PathRule<'_> {
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

fn edits(edits: &mut ContainerEdits, rule: &PathRule<'_>, side: Side) {
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
        // A startContainer hook is a program of the container (OCI runtime specification, config.md, "StartContainer
        // Hooks"); every other hook is a program of the host.
        let program = if hook.hook_name == "startContainer" {
            Side::Container
        } else {
            Side::Host
        };
        if side == program {
            hook.path = rule.apply(&hook.path);
        }
        let moved = |at: Side, path: &str| match at == side {
            true => rule.apply(path),
            false => path.to_owned(),
        };
        hook.args = with_moved_paths(&hook.args, moved);
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
    fn paths_in_arguments_of_hooks_are_moved() {
        let mut spec = spec();
        let claim = "tranche-oci hook claim --device=GPU-1 --node=/dev/nvidia0 --daemon=/run/tranche/mps/0";
        spec.edits.hooks.push(super::super::Hook {
            hook_name: "createRuntime".into(),
            path: "/usr/bin/tranche-oci".into(),
            args: claim.split(' ').map(str::to_owned).collect(),
            ..Default::default()
        });
        root(&mut spec, "/", "/host", Side::Host);
        assert_eq!(
            spec.edits.hooks[0].args.join(" "),
            "tranche-oci hook claim --device=GPU-1 --node=/dev/nvidia0:/host/dev/nvidia0 --daemon=/host/run/tranche/mps/0"
        );
        assert_eq!(spec.edits.hooks[0].path, "/host/usr/bin/tranche-oci");
        root(&mut spec, "/dev", "/d", Side::Container);
        assert_eq!(spec.edits.hooks[0].args[4], "--node=/d/nvidia0:/host/dev/nvidia0");
    }

    #[test]
    fn a_hook_that_runs_in_the_container_is_a_program_of_the_container() {
        let mut spec = spec();
        spec.edits.hooks.push(super::super::Hook {
            hook_name: "startContainer".into(),
            path: "/usr/bin/hook".into(),
            ..Default::default()
        });
        root(&mut spec, "/", "/host", Side::Host);
        assert_eq!(spec.edits.hooks[0].path, "/usr/bin/hook");
        root(&mut spec, "/", "/c", Side::Container);
        assert_eq!(spec.edits.hooks[0].path, "/c/usr/bin/hook");
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
