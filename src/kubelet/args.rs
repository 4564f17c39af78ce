//! The command line.

use crate::prefer::Placement;
use crate::settings::ClusterSettings;
use lexopt::prelude::*;
use std::path::PathBuf;
use tranche_core::error::{Error, Result};

/// What `--help` prints.
pub const HELP: &str = "\
Offer the GPUs of this node, or shares of them, to the kubelet of Kubernetes

Usage: tranche-kubelet device-plugin [OPTIONS]

tranche-kubelet asks the broker of this node (package tranche) what the policy
gives to Kubernetes, and serves the kubelet as a device plugin.

Options:
      --kubelet-dir DIR   The directory of the kubelet [/var/lib/kubelet]
      --state-dir DIR     The directory of the broker's socket [/run/tranche]
      --placement packed|spread
                          Fill a GPU that is in use first, or take the one with
                          the most free devices [packed]
      --node NAME         The name of this node at the API server: with it,
                          faults are events about the node
      --config-dir DIR    Where the ConfigMap with the configurations of nodes
                          is mounted; the label nvidia.com/device-plugin.config
                          of this node names one of them
      --config-default KEY
                          The configuration of a node without that label
      --version           Print the version
      --help              Print this help
";

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// To serve the kubelet.
    DevicePlugin {
        /// The directory of the kubelet.
        kubelet_dir: PathBuf,
        /// The directory of the broker's socket.
        state_dir: PathBuf,
        /// Which GPU is filled first.
        placement: Placement,
        /// What the cluster says about the node.
        cluster: ClusterSettings,
    },
    /// The help.
    Help,
    /// The version.
    Version,
}

/// Reads the arguments after the name of the program.
///
/// # Errors
/// Returns an error of kind [`tranche_core::error::Kind::Usage`].
pub fn parse(args: impl IntoIterator<Item = impl Into<std::ffi::OsString>>) -> Result<Asked> {
    let wrong = |e: lexopt::Error| Error::usage("arguments", e).hint("tranche-kubelet --help lists them");
    let mut parser = lexopt::Parser::from_args(args);
    let mut kubelet_dir = PathBuf::from("/var/lib/kubelet");
    let mut state_dir = PathBuf::from(tranche_core::ledger::STATE_DIR);
    let mut placement = Placement::Packed;
    let mut cluster = ClusterSettings::default();
    let mut is_plugin = false;
    while let Some(arg) = parser.next().map_err(wrong)? {
        match arg {
            Long("help") | Short('h') => return Ok(Asked::Help),
            Long("version") | Short('V') => return Ok(Asked::Version),
            Long("kubelet-dir") => kubelet_dir = parser.value().map_err(wrong)?.into(),
            Long("state-dir") => state_dir = parser.value().map_err(wrong)?.into(),
            Long("node") => cluster.node = Some(parser.value().map_err(wrong)?.string().map_err(wrong)?),
            Long("config-dir") => cluster.config_dir = Some(parser.value().map_err(wrong)?.into()),
            Long("config-default") => {
                cluster.config_default = Some(parser.value().map_err(wrong)?.string().map_err(wrong)?);
            }
            Long("placement") => {
                let value = parser.value().map_err(wrong)?;
                placement = match value.to_str() {
                    Some("packed") => Placement::Packed,
                    Some("spread") => Placement::Spread,
                    _ => {
                        let object = format!("--placement {}", value.to_string_lossy());
                        return Err(Error::unknown(object, &["packed", "spread"]));
                    }
                };
            }
            Value(command) if command == "device-plugin" && !is_plugin => is_plugin = true,
            other => return Err(wrong(other.unexpected())),
        }
    }
    if !is_plugin {
        let error = Error::usage("arguments", "a command is missing");
        return Err(error.hint("type: tranche-kubelet device-plugin"));
    }
    Ok(Asked::DevicePlugin {
        kubelet_dir,
        state_dir,
        placement,
        cluster,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_help() {
        let Asked::DevicePlugin {
            kubelet_dir,
            state_dir,
            placement,
            cluster,
        } = parse(["device-plugin"]).unwrap()
        else {
            panic!("it is no device plugin");
        };
        for shown in [kubelet_dir.to_str().unwrap(), state_dir.to_str().unwrap(), "packed"] {
            assert!(HELP.contains(&format!("[{shown}]")), "{shown}");
        }
        assert_eq!(placement, Placement::Packed);
        assert_eq!(cluster, ClusterSettings::default());
        assert!(HELP.lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn each_option_has_its_value() {
        let args = [
            "device-plugin",
            "--kubelet-dir=/k",
            "--state-dir",
            "/s",
            "--placement",
            "spread",
            "--node=gpu1",
            "--config-dir=/c",
            "--config-default=a",
        ];
        let wanted = Asked::DevicePlugin {
            kubelet_dir: "/k".into(),
            state_dir: "/s".into(),
            placement: Placement::Spread,
            cluster: ClusterSettings {
                node: Some("gpu1".into()),
                config_dir: Some("/c".into()),
                config_default: Some("a".into()),
            },
        };
        assert_eq!(parse(args).unwrap(), wanted);
        assert_eq!(parse(["--help", "x"]).unwrap(), Asked::Help);
        assert_eq!(parse(["-V"]).unwrap(), Asked::Version);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (args, part) in [
            (&[][..], "a command is missing"),
            (&["device"], "device"),
            (&["device-plugin", "device-plugin"], "device-plugin"),
            (
                &["device-plugin", "--placement", "best"],
                "expected one of packed, spread",
            ),
            (&["device-plugin", "--state-dir"], "state-dir"),
            (&["--x"], "--x"),
        ] {
            let error = parse(args).unwrap_err();
            assert_eq!(error.kind(), tranche_core::error::Kind::Usage);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
