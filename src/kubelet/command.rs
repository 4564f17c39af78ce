//! What the plugin of a resource reports to the node.

use std::time::Duration;
use tokio::sync::oneshot;
use tonic::Status;

/// What the plugin of a resource reports.
#[derive(Debug)]
pub(crate) enum Command {
    /// Devices were allocated to a pod, whose name the kubelet does not say.
    Allocated,
    /// A container is about to start.
    Start(Start),
    /// The kubelet does not have the devices of this resource, and the plugin registers it again.
    Forgotten {
        /// The resource.
        resource: String,
        /// After how long it registers.
        wait: Duration,
    },
}

/// A container that is about to start.
#[derive(Debug)]
pub(crate) struct Start {
    /// Its devices of one resource.
    pub(crate) ids: Vec<String>,
    /// How often its pod was looked for.
    pub(crate) tries: u32,
    /// Whether it may start.
    pub(crate) answer: oneshot::Sender<Result<(), Status>>,
}
