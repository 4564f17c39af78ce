//! The end of a container that holds a share by MPS: before it is killed, the broker ends its clients.
//!
//! A client that is killed while it uses the device can make the MPS daemon, and with it every other client of the
//! device, fail. The broker gets one line and answers with one. Whatever happens, the container is killed.

use super::container::HoldingContainer;
use std::path::Path;
use std::time::Duration;
use tranche_core::broker::{self, EndClientsRequest, SOCKET};
use tranche_core::error::{Context, Result};
use tranche_core::ledger::Strategy;

/// How long the broker may take in all.
const PATIENCE: Duration = Duration::from_millis(500);

/// Has the broker of `state_dir` end the clients of `container`, if the container holds a share by MPS.
///
/// # Errors
/// Returns an error if the broker does not answer in time, and if it could not end them.
pub(super) fn end_clients(container: &HoldingContainer, state_dir: &Path) -> Result<()> {
    let is_mps = |promise: tranche_core::ledger::Promise| promise.strategy() == Strategy::Mps;
    if !container
        .claims
        .iter()
        .any(|claim| claim.part.promise().is_some_and(is_mps))
    {
        return Ok(());
    }
    let request = EndClientsRequest {
        container: container.name.clone(),
    };
    let socket = state_dir.join(SOCKET);
    broker::tell(&socket, &request, PATIENCE).about(socket.display(), "the MPS clients were not ended")
}
