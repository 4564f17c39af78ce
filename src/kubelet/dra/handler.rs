//! What is done for a resource claim.

use tranche_core::ledger::KubernetesObject;

/// Makes devices ready for claims. A claim may be prepared again, and one that is not prepared may be unprepared: both
/// must then succeed. Of two instances of the driver, either may get the second call.
pub trait ClaimHandler: Send + Sync + 'static {
    /// Prepares a claim. `asked_at` is when the call came, in milliseconds since boot. The work is dropped when the
    /// kubelet waits no longer, which is after 45 s (`pkg/kubelet/cm/dra/plugin/dra_plugin.go`).
    ///
    /// # Errors
    /// Returns why the claim is not prepared, in one line, which becomes an event of the pod. The kubelet tries again.
    fn prepare(
        &self,
        claim: KubernetesObject,
        asked_at: u64,
    ) -> impl Future<Output = Result<Vec<PreparedDevice>, String>> + Send;

    /// Takes back what was prepared. The claim itself may not exist any more.
    ///
    /// # Errors
    /// Returns why the claim is still prepared, in one line. The kubelet tries again, and its pod does not end before.
    fn unprepare(&self, claim: KubernetesObject) -> impl Future<Output = Result<(), String>> + Send;
}

/// A device that is ready for the containers of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The requests of the claim that it is for, without names of subrequests; empty: all of them.
    pub requests: Vec<String>,
    /// The pool of the device, as the allocation of the claim has it.
    pub pool: String,
    /// The name of the device.
    pub device: String,
    /// The CDI names that a container with it gets: `nvidia.com/claim=…`.
    pub cdi: Vec<String>,
    /// The scheduler's id of the share of a device that several claims may have.
    pub share_id: Option<String>,
}
