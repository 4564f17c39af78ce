//! The calls about claims, in both versions of the interface.

use crate::dra::{ClaimHandler, PreparedDevice};
use crate::proto::{dra as v1, drabeta1 as v1beta1};
use std::collections::HashMap;
use std::sync::Arc;
use tonic::{Request, Response, Status};
use tracing::warn;
use tranche_core::ledger::KubernetesObject;
use tranche_protocol::since_boot;

/// An entry without an error would be a success, and it would have no devices.
const NO_REASON: &str = "the driver has failed without a reason";

/// What both services do. Its copies, one for each connection, are one.
#[derive(Debug)]
pub(super) struct Claims<H>(Arc<H>);

impl<H> Claims<H> {
    pub(super) fn new(handler: H) -> Self {
        Self(Arc::new(handler))
    }
}

impl<H> Clone for Claims<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H: ClaimHandler> Claims<H> {
    /// Prepares the claims of one call, one after the other. Every claim has a result: the kubelet takes a missing one
    /// for a failure of the driver.
    async fn prepare(
        &self,
        claims: impl Iterator<Item = KubernetesObject>,
    ) -> HashMap<String, Result<Vec<PreparedDevice>, String>> {
        let asked_at = since_boot();
        let mut results = HashMap::new();
        for claim in claims {
            let uid = claim.uid.clone();
            let about = format!("{}/{}", claim.namespace, claim.name);
            let prepared = self.0.prepare(claim, asked_at).await;
            results.insert(uid, prepared.map_err(|why| failed(why, "prepared", &about)));
        }
        results
    }

    /// The same for claims that are not used any more. The results are errors, empty if there is no error.
    async fn unprepare(&self, claims: impl Iterator<Item = KubernetesObject>) -> HashMap<String, String> {
        let mut results = HashMap::new();
        for claim in claims {
            let uid = claim.uid.clone();
            let about = format!("{}/{}", claim.namespace, claim.name);
            let unprepared = self.0.unprepare(claim).await;
            let error = unprepared.map_err(|why| failed(why, "unprepared", &about)).err();
            results.insert(uid, error.unwrap_or_default());
        }
        results
    }
}

fn failed(why: String, what: &str, claim: &str) -> String {
    let why = if why.is_empty() { NO_REASON.to_owned() } else { why };
    warn!("resource claim {claim} is not {what}: {why}");
    why
}

/// Serves [`Claims`] by the messages of one version.
macro_rules! serve {
    ($api:ident, $message:expr) => {
        #[tonic::async_trait]
        impl<H: ClaimHandler> $api::dra_plugin_server::DraPlugin for Claims<H> {
            async fn node_prepare_resources(
                &self,
                request: Request<$api::NodePrepareResourcesRequest>,
            ) -> Result<Response<$api::NodePrepareResourcesResponse>, Status> {
                let claims = request.into_inner().claims.into_iter().map(|claim| claim.into());
                let entry = |(uid, prepared): (String, Result<Vec<PreparedDevice>, String>)| {
                    let entry = match prepared {
                        Ok(devices) => $api::NodePrepareResourceResponse {
                            devices: devices.into_iter().map($message).collect(),
                            error: String::new(),
                        },
                        Err(error) => $api::NodePrepareResourceResponse {
                            devices: Vec::new(),
                            error,
                        },
                    };
                    (uid, entry)
                };
                let claims = self.prepare(claims).await.into_iter().map(entry).collect();
                Ok(Response::new($api::NodePrepareResourcesResponse { claims }))
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<$api::NodeUnprepareResourcesRequest>,
            ) -> Result<Response<$api::NodeUnprepareResourcesResponse>, Status> {
                let claims = request.into_inner().claims.into_iter().map(|claim| claim.into());
                let entry = |(uid, error)| (uid, $api::NodeUnprepareResourceResponse { error });
                let claims = self.unprepare(claims).await.into_iter().map(entry).collect();
                Ok(Response::new($api::NodeUnprepareResourcesResponse { claims }))
            }
        }

        impl From<$api::Claim> for KubernetesObject {
            fn from(claim: $api::Claim) -> Self {
                Self {
                    namespace: claim.namespace,
                    name: claim.name,
                    uid: claim.uid,
                }
            }
        }
    };
}

serve!(v1, |device| v1::Device {
    request_names: device.requests,
    pool_name: device.pool,
    device_name: device.device,
    cdi_device_ids: device.cdi,
    share_id: device.share_id,
});

serve!(v1beta1, |device| v1beta1::Device {
    request_names: device.requests,
    pool_name: device.pool,
    device_name: device.device,
    cdi_device_ids: device.cdi,
});
