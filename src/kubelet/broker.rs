//! The host's broker, asked by threads that may wait.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::broker::{self, BrokerError, Command, MOST_BYTES};
use tranche_core::error::line;
use tranche_core::ledger::PodName;
use tranche_protocol::{
    DraDevices, DraDevicesRequest, GiveUpRequest, Offers, OffersRequest, PolicyAnswer, PolicyRequest,
    PrepareClaimRequest, PreparedClaim, ReserveRequest, UnprepareClaimRequest,
};

/// How long one answer may take: the kubelet waits for 30 s in all before it fails the start of a container
/// (`KubeletPluginPreStartContainerRPCTimeoutInSecs` in `pkg/kubelet/cm/devicemanager/endpoint.go`).
const PATIENCE: Duration = Duration::from_secs(5);

/// What a request has in addition to its ids and the name of the pod.
const FRAME: usize = 1 << 10;

/// The broker that listens in a state directory.
#[derive(Debug, Clone)]
pub struct Broker {
    socket: PathBuf,
}

impl Broker {
    /// That of `state_dir`.
    pub fn of(state_dir: &Path) -> Self {
        Self {
            socket: state_dir.join(broker::SOCKET),
        }
    }

    /// What the kubelet may allocate.
    ///
    /// # Errors
    /// Returns [`BrokerError`].
    pub async fn offers(&self) -> Result<Offers, BrokerError> {
        self.wait(|socket| broker::ask(socket, &OffersRequest {}, PATIENCE))
            .await
    }

    /// Passes the policy that the cluster has for this node; `None` if it has none.
    ///
    /// # Errors
    /// Returns [`BrokerError`]. The policy is then as it was.
    pub async fn policy(&self, text: Option<String>) -> Result<PolicyAnswer, BrokerError> {
        let request = PolicyRequest { text };
        self.wait(move |socket| broker::ask(socket, &request, PATIENCE)).await
    }

    /// What the driver for dynamic resource allocation may publish.
    ///
    /// # Errors
    /// Returns [`BrokerError`].
    pub async fn dra_devices(&self) -> Result<DraDevices, BrokerError> {
        self.wait(|socket| broker::ask(socket, &DraDevicesRequest {}, PATIENCE))
            .await
    }

    /// Makes the devices of a resource claim ready, for which an MPS daemon may be started, within `patience`.
    ///
    /// # Errors
    /// Returns [`BrokerError`]. Nothing is reserved then but what was before.
    pub async fn prepare_claim(
        &self,
        request: PrepareClaimRequest,
        patience: Duration,
    ) -> Result<PreparedClaim, BrokerError> {
        self.wait(move |socket| broker::ask(socket, &request, patience)).await
    }

    /// Gives up the devices of a resource claim, by its UID.
    ///
    /// # Errors
    /// Returns [`BrokerError`].
    pub async fn unprepare_claim(&self, uid: String) -> Result<(), BrokerError> {
        let request = UnprepareClaimRequest { uid };
        self.wait(move |socket| broker::tell(socket, &request, PATIENCE)).await
    }

    /// Reserves devices for a pod.
    ///
    /// # Errors
    /// Returns [`BrokerError`]. A part of the devices may be reserved then.
    pub async fn reserve(&self, pod: &PodName, ids: &[String]) -> Result<(), BrokerError> {
        self.tell(pod, ids, |pod, devices| ReserveRequest { pod, devices })
            .await
    }

    /// Gives up devices of a pod.
    ///
    /// # Errors
    /// Returns [`BrokerError`]. A part of the devices may be given up then.
    pub async fn give_up(&self, pod: &PodName, ids: &[String]) -> Result<(), BrokerError> {
        self.tell(pod, ids, |pod, devices| GiveUpRequest { pod, devices }).await
    }

    /// Sends as many requests about devices of a pod as they need, up to the first that fails.
    async fn tell<C: Command + Send + 'static>(
        &self,
        pod: &PodName,
        ids: &[String],
        request: impl Fn(PodName, Vec<String>) -> C,
    ) -> Result<(), BrokerError> {
        for devices in pieces(pod, ids) {
            let request = request(pod.clone(), devices.to_vec());
            self.wait(move |socket| broker::tell(socket, &request, PATIENCE))
                .await?;
        }
        Ok(())
    }

    async fn wait<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Path) -> Result<T, BrokerError> + Send + 'static,
    ) -> Result<T, BrokerError> {
        let socket = self.socket.clone();
        let asked = tokio::task::spawn_blocking(move || ask(&socket)).await;
        asked.unwrap_or_else(|e| Err(BrokerError::Unreachable(io::Error::other(e))))
    }

    /// Why there is no answer, and what to do, in one line.
    pub fn explain(&self, error: &BrokerError) -> String {
        let socket = self.socket.display();
        match error {
            BrokerError::Unreachable(e) if e.kind() == io::ErrorKind::NotFound => format!(
                "{socket}: not found; install the package tranche on this node, and start it: systemctl enable --now \
                 tranche-broker.socket"
            ),
            BrokerError::Unreachable(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                format!("{socket}: nothing listens on it; start it on this node: systemctl start tranche-broker.socket")
            }
            BrokerError::Unreachable(e) => format!("{socket}: the broker does not answer: {e}"),
            BrokerError::Refused(e) => line(e),
        }
    }
}

/// The ids of as many requests as they need, of which none has more than [`MOST_BYTES`].
fn pieces<'a>(pod: &PodName, ids: &'a [String]) -> Vec<&'a [String]> {
    let room = MOST_BYTES.saturating_sub(FRAME + pod.namespace.len() + pod.name.len());
    let mut pieces = Vec::new();
    let mut rest = ids;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fitting = rest.iter().take_while(|id| {
            // Quotes and a comma.
            bytes += id.len() + 3;
            bytes <= room
        });
        // An id that is too long alone is refused by the broker, and does not stop the others.
        let (piece, after) = rest.split_at(fitting.count().max(1));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pod;

    #[test]
    fn no_request_is_longer_than_the_broker_reads() {
        let ids: Vec<String> = (0..4480)
            .map(|n| format!("MIG-6f5b7e3c-7a0e-5c5e-9f0c-{n:012}.{}", n % 10))
            .collect();
        let pod = PodName {
            namespace: "n".repeat(63),
            name: "p".repeat(253),
        };
        let pieces = pieces(&pod, &ids);
        assert!(pieces.len() > 10);
        assert_eq!(pieces.concat(), ids);
        for piece in pieces {
            let devices = piece.to_vec();
            let request = ReserveRequest {
                pod: pod.clone(),
                devices,
            };
            let line = serde_json::to_string(&request).unwrap();
            // The version and the command are added.
            assert!(line.len() + 100 < MOST_BYTES, "{}", line.len());
        }
    }

    #[test]
    fn an_id_that_is_too_long_is_a_request_of_its_own() {
        let ids = ["a".to_owned(), "x".repeat(MOST_BYTES), "b".to_owned()];
        assert_eq!(pieces(&pod("a"), &ids).len(), 3);
        assert_eq!(pieces(&pod("a"), &[]).len(), 0);
    }

    #[test]
    fn a_missing_broker_is_explained_by_what_to_install() {
        let broker = Broker::of(Path::new("/run/tranche"));
        let missing = BrokerError::Unreachable(io::ErrorKind::NotFound.into());
        assert!(
            broker
                .explain(&missing)
                .starts_with("/run/tranche/broker.sock: not found; install the package tranche on this node")
        );
    }
}
