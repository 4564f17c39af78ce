//! Where the kubelet and the broker are, and how they are served.

use std::path::PathBuf;
use std::time::Duration;
use tranche_protocol::PodPlacement;

/// Where the kubelet and the broker are, and how they are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The directory of the kubelet: `/var/lib/kubelet`.
    pub kubelet_dir: PathBuf,
    /// The directory of the broker's socket: `/run/tranche`.
    pub state_dir: PathBuf,
    /// Which device a container gets; `None`: what the policy says.
    pub placement: Option<PodPlacement>,
    /// Whether it is a device plugin.
    pub device_plugin: bool,
    /// The driver for dynamic resource allocation; `None`: it is not one.
    pub dra: Option<DriverOptions>,
    /// What the cluster says about the node.
    pub cluster: ClusterSettings,
    /// Where it is written whether pods can get devices ([`crate::ready`]); `None`: nowhere.
    pub ready_file: Option<PathBuf>,
    /// How long things take.
    pub times: Times,
}

/// What the cluster says about the node, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The name of the node at the API server; `None`: the API server is not used.
    pub node: Option<String>,
    /// Where the ConfigMap with the configurations of the nodes is mounted; `None`: the cluster has no ConfigMap.
    pub config_dir: Option<PathBuf>,
    /// The configuration of a node without the label.
    pub config_default: Option<String>,
}

/// A driver for dynamic resource allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverOptions {
    /// Its name, a DNS subdomain.
    pub name: String,
    /// The UID of the driver's pod; `None`: there is one instance at a time.
    pub pod_uid: Option<String>,
    /// The port of [`crate::metrics`]; `None`: nobody listens.
    pub metrics_port: Option<u16>,
    /// Whether the status of a claim says what the claim was given.
    pub claim_status: bool,
    /// The pod that owns the labels of the node; `None`: the node gets no labels.
    pub labels_owner: Option<PodRef>,
}

/// A pod, as the owner of other objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self {
            name: "gpu.tranche.dev".to_owned(),
            pod_uid: None,
            metrics_port: None,
            claim_status: false,
            labels_owner: None,
        }
    }
}

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// How often the broker and the kubelet are asked, if nothing changes.
    pub period: Duration,
    /// How often the directory of device plugins is looked at, if inotify reports nothing.
    pub look: Duration,
    /// How often the kubelet is asked whether it has what it is shown.
    pub check: Duration,
    /// How long a pod must be missing from the lists of the kubelet before its reservations are given up.
    pub absent: Duration,
    /// How long after the start of the driver the claims that are prepared are compared with those of the API server.
    /// That is done twice, and then every thirty times as long.
    pub reconcile: Duration,
    /// How long the API server may take for one question about a claim. One that is lost is asked again, on another
    /// connection.
    pub question: Duration,
    /// How long after the kubelet's call a claim waits for the API server and for the holder of its device. The kubelet
    /// waits for 45 s (`pkg/kubelet/cm/dra/plugin/dra_plugin.go`), and calls again a minute later.
    pub waiting: Duration,
    /// When a call of the kubelet is answered at the latest, however long a daemon takes to start.
    pub answer: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(10),
            look: Duration::from_secs(5),
            check: Duration::from_secs(10),
            absent: Duration::from_secs(60),
            reconcile: Duration::from_secs(60),
            question: Duration::from_secs(5),
            waiting: Duration::from_secs(35),
            answer: Duration::from_secs(43),
        }
    }
}
