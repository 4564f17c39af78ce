//! `tranche cdi inspect NAME`: what exactly a container would get.

use super::super::out;
use super::super::place::SpecDirArgs;
use crate::cdi::inject::{self, HostNode};
use crate::cdi::registry::{Found, Registry};
use crate::cdi::{ContainerEdits, LeftOut, minimum_version};
use crate::error::{Context, Error, Result};
use crate::text::{shown, some};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Devices, as an engine is given them: nvidia.com/gpu=0
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    dirs: SpecDirArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show this container specification (config.json; - is stdin) as an engine would change it
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    oci: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let dirs = super::spec_dirs(&args.dirs);
    let registry = Registry::read(&dirs);
    let found = args
        .names
        .iter()
        .map(|name| registry.find(name).ok_or_else(|| unresolvable(name, &registry, &dirs)))
        .collect::<Result<Vec<Found<'_>>>>()?;
    let edits = inject::collect(found.iter().map(|f| (&f.file.spec, f.device)));
    if let Some(file) = &args.oci {
        let mut config = read(file)?;
        inject::apply(&mut config, &edits, &host_node)?;
        out::json(&config)?;
    } else if args.json {
        out::json(&as_json(&args.names, &found, &edits))?;
    } else {
        out::result(&as_text(&args.names, &found, &edits))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Engines say only "unresolvable CDI devices": we say why.
fn unresolvable(name: &str, registry: &Registry, dirs: &[PathBuf]) -> Error {
    let lost = registry
        .problems
        .iter()
        .find(|p| p.lost.as_ref().is_some_and(|l| l.iter().any(|n| n == name)));
    if let Some(problem) = lost {
        return Error::usage(name, "is lost").hint(problem);
    }
    if !name.contains('=') {
        return incomplete(name, registry);
    }
    let alike = registry.alike(name);
    let dirs: Vec<String> = dirs.iter().map(|d| d.display().to_string()).collect();
    let there = match alike.as_slice() {
        [] => format!("no file in {} has that kind", some(&dirs)),
        names => format!("there are {}", some(names)),
    };
    Error::usage(name, "no such CDI device").hint(there)
}

/// Says what `name`, which has no kind, is called in full.
fn incomplete(name: &str, registry: &Registry) -> Error {
    let is_it = |whole: &&str| whole.split_once('=').is_some_and(|(_, end)| end == name);
    let whole: Vec<&str> = registry.devices().map(|(whole, _)| whole).filter(is_it).collect();
    let hint = match whole.as_slice() {
        [] => "write it as KIND=NAME, for example nvidia.com/gpu=0".to_owned(),
        [one] => format!("use {one}"),
        names => format!("there are {}", some(names)),
    };
    Error::usage(name, "is not a whole CDI name").hint(hint)
}

fn read(file: &Path) -> Result<Value> {
    let mut text = Vec::new();
    if file == Path::new("-") {
        std::io::stdin()
            .read_to_end(&mut text)
            .about("stdin", "cannot be read")?;
    } else {
        text = std::fs::read(file).about(file.display(), "cannot be read")?;
    }
    serde_json::from_slice(&text).about(file.display(), "is no JSON")
}

/// What is at `path` of this machine.
fn host_node(path: &str) -> Option<HostNode> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    let kind = meta.file_type();
    let node_type = if kind.is_char_device() {
        'c'
    } else if kind.is_block_device() {
        'b'
    } else if kind.is_fifo() {
        'p'
    } else {
        return None;
    };
    let number = meta.rdev();
    Some(HostNode {
        node_type,
        major: i64::try_from(nix::sys::stat::major(number)).ok()?,
        minor: i64::try_from(nix::sys::stat::minor(number)).ok()?,
        mode: meta.mode() & 0o7777,
    })
}

/// What the maker of a file says it left out for an old version of CDI, of what concerns these devices.
fn left_out(found: &[Found<'_>]) -> BTreeSet<String> {
    found
        .iter()
        .flat_map(|f| {
            f.file
                .comments
                .iter()
                .filter_map(|line| LeftOut::from_comment(line, &f.device.name))
        })
        .collect()
}

fn as_text(names: &[String], found: &[Found<'_>], edits: &ContainerEdits) -> String {
    let mut text = String::new();
    // Names, paths and variables come from files of any vendor.
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(text, "{what:<9} {}", shown(value));
    };
    for (name, one) in names.iter().zip(found) {
        let needed = minimum_version(&one.file.spec);
        line("device", name);
        line(
            "from",
            &format!(
                "{} (declares CDI {}, needs {needed})",
                one.file.path.display(),
                one.file.spec.version
            ),
        );
        for (key, value) in &one.device.annotations {
            line("note", &format!("{key}={value}"));
        }
    }
    for entry in &edits.env {
        line("env", entry);
    }
    for node in &edits.device_nodes {
        let numbers = match host_node(node.on_host()) {
            Some(host) => format!("{} {}:{} {:04o}", host.node_type, host.major, host.minor, host.mode),
            None => match (&node.node_type, node.major, node.minor) {
                (Some(kind), Some(major), minor) if major != 0 => {
                    format!(
                        "{kind} {major}:{} (not on the host; made from these numbers)",
                        minor.unwrap_or(0)
                    )
                }
                _ => "MISSING ON THE HOST: no container starts with it".to_owned(),
            },
        };
        line(
            "node",
            &format!("{}{}  {numbers}", node.path, from(node.on_host(), &node.path)),
        );
    }
    for net in &edits.net_devices {
        line("network", &format!("{} from {}", net.name, net.host_interface_name));
    }
    for mount in &edits.mounts {
        let missing = if Path::new(&mount.host_path).exists() {
            ""
        } else {
            "  MISSING ON THE HOST: no container starts with it"
        };
        let path = &mount.container_path;
        line(
            "mount",
            &format!(
                "{path}{}  {}{missing}",
                from(&mount.host_path, path),
                mount.options.join(",")
            ),
        );
    }
    for hook in &edits.hooks {
        let missing = if Path::new(&hook.path).exists() {
            ""
        } else {
            "  (MISSING ON THE HOST)"
        };
        line("hook", &format!("{} {}{missing}", hook.hook_name, hook.path));
        for argument in &hook.args {
            line("", &format!("  {argument}"));
        }
    }
    for gid in &edits.additional_gids {
        line("group", &gid.to_string());
    }
    for what in left_out(found) {
        line("left out", &what);
    }
    text
}

fn from(host: &str, container: &str) -> String {
    if host == container {
        String::new()
    } else {
        format!(" from {host}")
    }
}

fn as_json(names: &[String], found: &[Found<'_>], edits: &ContainerEdits) -> Value {
    let devices: Vec<Value> = names
        .iter()
        .zip(found)
        .map(|(name, one)| {
            json!({
                "name": name,
                "file": one.file.path,
                "cdiVersion": one.file.spec.version,
                "minimumVersion": minimum_version(&one.file.spec),
            })
        })
        .collect();
    let nodes: Vec<Value> = edits
        .device_nodes
        .iter()
        .map(|node| {
            let host = host_node(node.on_host());
            json!({
                "path": node.path,
                "hostPath": node.on_host(),
                "missing": host.is_none(),
                "type": host.map(|h| h.node_type.to_string()).or_else(|| node.node_type.clone()),
                "major": host.map(|h| h.major).or(node.major),
                "minor": host.map(|h| h.minor).or(node.minor),
            })
        })
        .collect();
    let missing: Vec<&str> = edits
        .mounts
        .iter()
        .map(|m| m.host_path.as_str())
        .chain(edits.hooks.iter().map(|h| h.path.as_str()))
        .filter(|p| !Path::new(p).exists())
        .collect();
    json!({
        "devices": devices,
        "containerEdits": edits,
        "nodesOnHost": nodes,
        "missingOnHost": missing,
        "leftOut": left_out(found),
    })
}
