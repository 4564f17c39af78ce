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
        // A startContainer hook is a program of the container (OCI runtime specification, config.md, "StartContainer
        // Hooks"); every other one is a program of the host.
        let program = if hook.hook_name == "startContainer" {
            Side::Container
        } else {
            Side::Host
        };
        if side == program {
            hook.path = rule.apply(&hook.path);
        }
        hook.args = arguments(&hook.args, rule, side);
    }
}

/// Options of hooks whose value is a path of the host: those of our claim hooks, and the ldconfig that NVIDIA's
/// `update-ldcache` runs. The value of any other option is taken for a path of the container, which is what hooks are
/// about.
const OPTIONS_OF_HOST: [&str; 4] = ["daemon", "state-dir", "spec-file", "ldconfig-path"];

/// The arguments of a hook with the paths of `side` moved. A value is in the argument of its option (`--node=/dev/x`) or in
/// the next one.
fn arguments(args: &[String], rule: &Rule<'_>, side: Side) -> Vec<String> {
    let side_of = |option: &str| match OPTIONS_OF_HOST.contains(&option) {
        true => Side::Host,
        false => Side::Container,
    };
    // What a value without an option is about: the option before it, if that had no value yet.
    let mut side_of_value = Side::Container;
    let mut moved = Vec::new();
    for arg in args {
        let option = arg
            .strip_prefix("--")
            .map(|option| option.split_once('=').unwrap_or((option, "")));
        moved.push(match option {
            Some((option, value)) if arg.contains('=') => {
                let is_meant = side_of(option) == side;
                side_of_value = Side::Container;
                if is_meant {
                    format!("--{option}={}", value_of(value, rule))
                } else {
                    arg.clone()
                }
            }
            Some((option, _)) => {
                side_of_value = side_of(option);
                arg.clone()
            }
            None => {
                let is_meant = std::mem::replace(&mut side_of_value, Side::Container) == side;
                if is_meant { value_of(arg, rule) } else { arg.clone() }
            }
        });
    }
    moved
}

/// A value: a path, or several with the mark `::` between them, as in `TARGET::LINK`.
fn value_of(value: &str, rule: &Rule<'_>) -> String {
    let parts: Vec<String> = value.split("::").map(|part| rule.apply(part)).collect();
    parts.join("::")
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

    /// The arguments of one hook, moved.
    fn moved(args: &[&str], from: &str, to: &str, side: Side) -> String {
        let mut spec = spec();
        spec.edits.hooks.push(super::super::Hook {
            hook_name: "createContainer".into(),
            path: "/usr/bin/hook".into(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            ..Default::default()
        });
        root(&mut spec, from, to, side);
        spec.edits.hooks[0].args.join(" ")
    }

    #[test]
    fn arguments_of_hooks_move_with_the_side_that_they_are_about() {
        let claim = [
            "tranche-oci",
            "hook",
            "claim",
            "--device=GPU-1",
            "--node=/dev/nvidia0",
            "--daemon=/run/tranche/mps/0",
            "--state-dir=/run/other",
            "--spec-file=/run/cdi/x.json",
        ];
        assert_eq!(
            moved(&claim, "/", "/host", Side::Host),
            "tranche-oci hook claim --device=GPU-1 --node=/dev/nvidia0 --daemon=/host/run/tranche/mps/0 \
             --state-dir=/host/run/other --spec-file=/host/run/cdi/x.json"
        );
        assert_eq!(
            moved(&claim, "/", "/c", Side::Container),
            "tranche-oci hook claim --device=GPU-1 --node=/c/dev/nvidia0 --daemon=/run/tranche/mps/0 \
             --state-dir=/run/other --spec-file=/run/cdi/x.json"
        );
        let prepare = [
            "tranche-oci",
            "--link",
            "/usr/lib/a::/usr/lib/b",
            "--ldcache-dir",
            "/usr/lib",
            "--library",
            "64::/usr/lib/a::a.so.1",
            "--ldconfig-path",
            "/usr/lib/ldconfig",
        ];
        assert_eq!(
            moved(&prepare, "/usr", "/x", Side::Host),
            "tranche-oci --link /usr/lib/a::/usr/lib/b --ldcache-dir /usr/lib --library 64::/usr/lib/a::a.so.1 \
             --ldconfig-path /x/lib/ldconfig"
        );
        assert_eq!(
            moved(&prepare, "/usr", "/x", Side::Container),
            "tranche-oci --link /x/lib/a::/x/lib/b --ldcache-dir /x/lib --library 64::/x/lib/a::a.so.1 \
             --ldconfig-path /usr/lib/ldconfig"
        );
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
