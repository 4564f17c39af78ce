//! The command line.

use crate::settings::{ClusterSettings, DriverOptions, PodRef, Settings, Times};
use lexopt::prelude::*;
use std::path::PathBuf;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::KubernetesObject;
use tranche_protocol::PodPlacement;

/// What `--help` prints.
pub const HELP: &str = "\
Offer the GPUs of this node, or shares of them, to the kubelet of Kubernetes

Usage: tranche-kubelet device-plugin|dra... [OPTIONS]

tranche-kubelet asks the broker of this node (package tranche) what the policy
gives to Kubernetes, and serves the kubelet.

Commands, one of the first two or both:
  device-plugin   Serve as a device plugin: the devices are extended resources
  dra             Serve as a driver for dynamic resource allocation: pods ask
                  for devices by resource claims, for an amount of one too
  ready           Say whether pods can get devices now, from --ready-file

Options:
      --kubelet-dir DIR   The directory of the kubelet [/var/lib/kubelet]
      --state-dir DIR     The directory of the broker's socket [/run/tranche]
      --placement policy|packed|spread|distributed
                          Fill a GPU that is in use first, take the one with the
                          most free devices, or choose for each share anew, as
                          NVIDIA's plugin does; or what the policy says [policy]
      --node NAME         The name of this node at the API server: with it,
                          faults are events about the node; dra needs it
      --config-dir DIR    Where the ConfigMap with the configurations of nodes
                          is mounted; the label nvidia.com/device-plugin.config
                          of this node names one of them
      --config-default KEY
                          The configuration of a node without that label
      --driver-name NAME  The name of the driver for dra [gpu.tranche.dev];
                          gpu.nvidia.com takes the place of NVIDIA's driver
      --ready-file FILE   Where it says whether pods can get devices: whether
                          all is published and registered
      --metrics-port N    The port of /metrics, about what dra does, on all
                          addresses; off if it is not given
      --claim-status      Write into the status of each claim what it was
                          given, and with which limits (Kubernetes 1.36)
      --node-labels POD/UID
                          Have Node Feature Discovery label this node with what
                          its GPUs are, as long as this pod is there
      --pod-uid UID       The UID of this pod: the sockets of dra have names of
                          their own, beside those of an instance that ends
      --version           Print the version
      --help              Print this help
";

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// To serve the kubelet, with the times of a real node.
    Serve(Box<Settings>),
    /// To say whether the program that keeps this file is ready.
    Ready(PathBuf),
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
    let mut parser = lexopt::Parser::from_args(args);
    let mut settings = Settings {
        kubelet_dir: PathBuf::from("/var/lib/kubelet"),
        state_dir: PathBuf::from(tranche_core::ledger::STATE_DIR),
        placement: None,
        device_plugin: false,
        dra: None,
        cluster: ClusterSettings::default(),
        ready_file: None,
        times: Times::default(),
    };
    let (mut is_driver, mut is_probe) = (false, false);
    let mut driver = DriverOptions::default();
    while let Some(arg) = parser.next().map_err(wrong)? {
        match arg {
            Long("help") | Short('h') => return Ok(Asked::Help),
            Long("version") | Short('V') => return Ok(Asked::Version),
            Long("kubelet-dir") => settings.kubelet_dir = parser.value().map_err(wrong)?.into(),
            Long("state-dir") => settings.state_dir = parser.value().map_err(wrong)?.into(),
            Long("node") => settings.cluster.node = Some(text(&mut parser)?),
            Long("config-dir") => settings.cluster.config_dir = Some(parser.value().map_err(wrong)?.into()),
            Long("config-default") => settings.cluster.config_default = Some(text(&mut parser)?),
            Long("driver-name") => driver.name = driver_name(text(&mut parser)?)?,
            Long("ready-file") => settings.ready_file = Some(parser.value().map_err(wrong)?.into()),
            Long("metrics-port") => driver.metrics_port = Some(port(&text(&mut parser)?)?),
            Long("claim-status") => driver.claim_status = true,
            Long("node-labels") => driver.labels_owner = Some(pod(&text(&mut parser)?)?),
            Long("pod-uid") => driver.pod_uid = Some(pod_uid(text(&mut parser)?)?),
            Long("placement") => settings.placement = placement(&text(&mut parser)?)?,
            Value(command) if command == "device-plugin" && !settings.device_plugin => settings.device_plugin = true,
            Value(command) if command == "dra" && !is_driver => is_driver = true,
            Value(command) if command == "ready" && !is_probe => is_probe = true,
            other => return Err(wrong(other.unexpected())),
        }
    }
    if is_probe {
        let file = settings.ready_file.filter(|_| !settings.device_plugin && !is_driver);
        let error = || Error::usage("ready", "needs the file that the program keeps, and no other command");
        return file
            .map(Asked::Ready)
            .ok_or_else(|| error().hint("give it with --ready-file"));
    }
    if !settings.device_plugin && !is_driver {
        let error = Error::usage("arguments", "a command is missing");
        return Err(error.hint("type: tranche-kubelet device-plugin, or tranche-kubelet dra --node NAME"));
    }
    if is_driver && settings.cluster.node.is_none() {
        let error = Error::usage("dra", "needs the name of this node at the API server");
        return Err(error.hint("give it with --node"));
    }
    settings.dra = is_driver.then_some(driver);
    Ok(Asked::Serve(Box::new(settings)))
}

fn text(parser: &mut lexopt::Parser) -> Result<String> {
    parser.value().and_then(ValueExt::string).map_err(wrong)
}

fn wrong(error: lexopt::Error) -> Error {
    Error::usage("arguments", error).hint("tranche-kubelet --help lists them")
}

fn placement(text: &str) -> Result<Option<PodPlacement>> {
    match text {
        "policy" => Ok(None),
        _ => text.parse().map(Some),
    }
}

/// The name of a driver is a DNS subdomain (`resource.k8s.io/v1`, ResourceSliceSpec.driver), and becomes part of the
/// names of files.
fn driver_name(name: String) -> Result<String> {
    let is_label = |label: &str| {
        let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_valid = |byte: u8| is_end(&byte) || byte == b'-';
        label.bytes().all(is_valid)
            && label.as_bytes().first().is_some_and(is_end)
            && label.as_bytes().last().is_some_and(is_end)
    };
    match name.len() <= 63 && name.split('.').all(is_label) {
        true => Ok(name),
        false => Err(Error::usage(
            format!("--driver-name {name}"),
            "is not a DNS subdomain of at most 63 characters",
        )),
    }
}

fn port(text: &str) -> Result<u16> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| Error::usage(format!("--metrics-port {text}"), "is not a port from 1 to 65535"))
}

/// The name and the UID of a pod.
fn pod(text: &str) -> Result<PodRef> {
    let pod = text
        .split_once('/')
        .filter(|(name, uid)| !name.is_empty() && KubernetesObject::is_uid(uid));
    let (name, uid) = pod.ok_or_else(|| {
        Error::usage(
            format!("--node-labels {text}"),
            "is not the name and the UID of a pod with / between them",
        )
    })?;
    Ok(PodRef {
        name: name.to_owned(),
        uid: uid.to_owned(),
    })
}

/// The UID becomes part of the names of files.
fn pod_uid(uid: String) -> Result<String> {
    match KubernetesObject::is_uid(&uid) {
        true => Ok(uid),
        false => Err(Error::usage(format!("--pod-uid {uid}"), "is not the UID of a pod")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(args: &[&str]) -> Settings {
        match parse(args).unwrap() {
            Asked::Serve(settings) => *settings,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_help() {
        let settings = serve(&["device-plugin"]);
        let driver = DriverOptions::default();
        for shown in [
            settings.kubelet_dir.to_str().unwrap(),
            settings.state_dir.to_str().unwrap(),
            "policy",
            &driver.name,
        ] {
            assert!(HELP.contains(&format!("[{shown}]")), "{shown}");
        }
        assert_eq!(settings.placement, None);
        assert_eq!(settings.cluster, ClusterSettings::default());
        assert_eq!((settings.device_plugin, settings.dra), (true, None));
        assert!(HELP.lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn each_option_has_its_value() {
        let settings = serve(&[
            "device-plugin",
            "dra",
            "--kubelet-dir=/k",
            "--state-dir",
            "/s",
            "--placement",
            "spread",
            "--node=gpu1",
            "--config-dir=/c",
            "--config-default=a",
            "--driver-name=gpu.nvidia.com",
            "--pod-uid=8a1c-2d3e",
            "--metrics-port=9400",
            "--claim-status",
            "--node-labels=tranche-x/8a1c-2d3e",
        ]);
        assert_eq!((settings.kubelet_dir, settings.state_dir), ("/k".into(), "/s".into()));
        assert_eq!(
            (settings.placement, settings.device_plugin),
            (Some(PodPlacement::Spread), true)
        );
        let cluster = ClusterSettings {
            node: Some("gpu1".into()),
            config_dir: Some("/c".into()),
            config_default: Some("a".into()),
        };
        assert_eq!(settings.cluster, cluster);
        let driver = DriverOptions {
            name: "gpu.nvidia.com".into(),
            pod_uid: Some("8a1c-2d3e".into()),
            metrics_port: Some(9400),
            claim_status: true,
            labels_owner: Some(PodRef {
                name: "tranche-x".into(),
                uid: "8a1c-2d3e".into(),
            }),
        };
        assert_eq!(settings.dra, Some(driver));
        let alone = serve(&["dra", "--node=gpu1"]);
        assert_eq!(
            (alone.device_plugin, alone.dra),
            (false, Some(DriverOptions::default()))
        );
        assert_eq!(parse(["ready", "--ready-file=/r"]).unwrap(), Asked::Ready("/r".into()));
        assert_eq!(parse(["--help", "x"]).unwrap(), Asked::Help);
        assert_eq!(parse(["-V"]).unwrap(), Asked::Version);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (args, part) in [
            (&[][..], "a command is missing"),
            (&["device"], "device"),
            (&["device-plugin", "device-plugin"], "device-plugin"),
            (&["dra", "dra"], "dra"),
            (&["dra"], "needs the name of this node"),
            (
                &["device-plugin", "--placement", "best"],
                "expected one of packed, spread",
            ),
            (&["dra", "--node=a", "--driver-name=../x"], "is not a DNS subdomain"),
            (&["dra", "--node=a", "--driver-name=a..b"], "is not a DNS subdomain"),
            (&["dra", "--node=a", "--pod-uid=../x"], "is not the UID of a pod"),
            (&["dra", "--node=a", "--metrics-port=0"], "is not a port"),
            (
                &["dra", "--node=a", "--node-labels=a"],
                "is not the name and the UID of a pod",
            ),
            (&["device-plugin", "--state-dir"], "state-dir"),
            (&["ready"], "give it with --ready-file"),
            (&["ready", "device-plugin", "--ready-file=/r"], "no other command"),
            (&["--x"], "--x"),
        ] {
            let error = parse(args).unwrap_err();
            assert_eq!(error.kind(), tranche_core::error::Kind::Usage);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
