//! Where the kubelet and the broker are, and how they are served.

use crate::prefer::Placement;
use std::path::PathBuf;
use std::time::Duration;

/// Where the kubelet and the broker are, and how they are served.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The directory of the kubelet: `/var/lib/kubelet`.
    pub kubelet_dir: PathBuf,
    /// The directory of the broker's socket: `/run/tranche`.
    pub state_dir: PathBuf,
    /// Which GPU is filled first.
    pub placement: Placement,
    /// What the cluster says about the node.
    pub cluster: ClusterSettings,
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

/// How long things take.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// How often the broker and the kubelet are asked, if nothing changes.
    pub period: Duration,
    /// How often the directory of device plugins is looked at, if inotify reports nothing.
    pub look: Duration,
    /// How often the kubelet is asked whether it has what it is shown.
    pub check: Duration,
    /// How long a pod must be missing from the lists of the kubelet before its reservations are given up.
    pub absent: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(10),
            look: Duration::from_secs(5),
            check: Duration::from_secs(10),
            absent: Duration::from_secs(60),
        }
    }
}
