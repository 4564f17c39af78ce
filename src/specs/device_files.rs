//! The driver's device nodes, and the links in `/dev/char` that lead to them: which belong on a host, and how they are
//! made.
//!
//! An inventory has the numbers of each node, whether or not it exists. The driver makes nodes only on request
//! (nvidia-modprobe), and its module for them is not known to udev, so nobody makes the links either. Without the
//! links, systemd cannot translate a device's number into a rule of the device cgroup: at `systemctl daemon-reload` it
//! writes the rules of every container anew, and the container loses its GPU (NVIDIA/nvidia-container-toolkit#48).

mod link;
mod node;

pub use link::{CharLink, LinkChange, links};
pub use node::{DeviceFile, NodeSet, make_missing, nodes};
