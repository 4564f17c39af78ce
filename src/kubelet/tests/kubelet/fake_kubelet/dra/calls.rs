//! What the manager of claims does for pods (`cm/dra/manager.go`).

use super::FakeDra;
use crate::bed::until;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tranche_core::ledger::KubernetesObject;
use tranche_kubelet::proto::dra::dra_plugin_client::DraPluginClient;
use tranche_kubelet::proto::drabeta1::dra_plugin_client::DraPluginClient as DraBetaPluginClient;
use tranche_kubelet::proto::{dra as v1, drabeta1 as v1beta1};

/// How long the kubelet waits.
const PATIENCE: Duration = Duration::from_secs(45);

/// The result of each claim, by its UID.
pub(crate) type Results<T> = BTreeMap<String, Result<T, String>>;

/// Asks in the words of one version.
macro_rules! ask {
    ($api:ident, $client:ident, $method:ident, $request:ident, $channel:expr, $claims:expr) => {{
        let claim = |claim: &KubernetesObject| $api::Claim {
            namespace: claim.namespace.clone(),
            uid: claim.uid.clone(),
            name: claim.name.clone(),
        };
        let mut request = Request::new($api::$request {
            claims: $claims.iter().map(claim).collect(),
        });
        request.set_timeout(PATIENCE);
        let answer = $client::new($channel).$method(request).await?;
        answer.into_inner().claims.into_iter()
    }};
}

fn result<T>(uid: String, error: String, prepared: T) -> (String, Result<T, String>) {
    let result = if error.is_empty() { Ok(prepared) } else { Err(error) };
    (uid, result)
}

impl FakeDra {
    fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        self.running.as_ref().unwrap().runtime.block_on(call)
    }

    /// The newest instance of a driver.
    fn newest(&self, driver: &str) -> Result<(Channel, String), Status> {
        let state = self.state();
        let found = state.drivers.iter().rfind(|found| found.name == driver);
        found
            .map(|found| (found.channel.clone(), found.version.clone()))
            .ok_or_else(|| Status::unavailable(format!("DRA driver {driver} is not registered")))
    }

    /// NodePrepareResources, whatever is prepared already.
    pub(crate) fn prepare(
        &self,
        driver: &str,
        claims: &[KubernetesObject],
    ) -> Result<Results<Vec<v1::Device>>, Status> {
        let (channel, version) = self.newest(driver)?;
        self.wait(async {
            if version == "v1beta1.DRAPlugin" {
                let same = |device: v1beta1::Device| v1::Device {
                    request_names: device.request_names,
                    pool_name: device.pool_name,
                    device_name: device.device_name,
                    cdi_device_ids: device.cdi_device_ids,
                    share_id: None,
                };
                let answer = ask!(
                    v1beta1,
                    DraBetaPluginClient,
                    node_prepare_resources,
                    NodePrepareResourcesRequest,
                    channel,
                    claims
                );
                let entries =
                    answer.map(|(uid, entry)| result(uid, entry.error, entry.devices.into_iter().map(same).collect()));
                return Ok(entries.collect());
            }
            let answer = ask!(
                v1,
                DraPluginClient,
                node_prepare_resources,
                NodePrepareResourcesRequest,
                channel,
                claims
            );
            Ok(answer
                .map(|(uid, entry)| result(uid, entry.error, entry.devices))
                .collect())
        })
    }

    /// A new sandbox of a pod: the claims that this process has not prepared are prepared. Returns all CDI names.
    pub(crate) fn sandbox(&self, driver: &str, claims: &[KubernetesObject]) -> Result<Vec<String>, String> {
        let missing = claims
            .iter()
            .filter(|claim| !self.state().prepared.contains_key(&claim.uid));
        let missing: Vec<_> = missing.cloned().collect();
        if !missing.is_empty() {
            let mut results = self.prepare(driver, &missing).map_err(|status| status.to_string())?;
            for claim in &missing {
                let result = results.remove(&claim.uid);
                let devices = result.ok_or("NodePrepareResources left out a claim")??;
                let names = devices.into_iter().flat_map(|device| device.cdi_device_ids);
                self.state().prepared.insert(claim.uid.clone(), names.collect());
            }
        }
        let state = self.state();
        Ok(claims
            .iter()
            .flat_map(|claim| state.prepared[&claim.uid].clone())
            .collect())
    }

    /// NodeUnprepareResources, also of claims that are not prepared.
    pub(crate) fn unprepare(&self, driver: &str, claims: &[KubernetesObject]) -> Result<Results<()>, Status> {
        let (channel, version) = self.newest(driver)?;
        let results: Results<()> = self.wait(async {
            if version == "v1beta1.DRAPlugin" {
                let answer = ask!(
                    v1beta1,
                    DraBetaPluginClient,
                    node_unprepare_resources,
                    NodeUnprepareResourcesRequest,
                    channel,
                    claims
                );
                return Ok::<_, Status>(answer.map(|(uid, entry)| result(uid, entry.error, ())).collect());
            }
            let answer = ask!(
                v1,
                DraPluginClient,
                node_unprepare_resources,
                NodeUnprepareResourcesRequest,
                channel,
                claims
            );
            Ok(answer.map(|(uid, entry)| result(uid, entry.error, ())).collect())
        })?;
        for (uid, _) in results.iter().filter(|(_, result)| result.is_ok()) {
            self.state().prepared.remove(uid);
        }
        Ok(results)
    }

    /// The last pod of a claim has ended: it is unprepared until that succeeds.
    pub(crate) fn delete(&self, driver: &str, claim: &KubernetesObject) {
        until("the claim is unprepared", || {
            let results = self.unprepare(driver, std::slice::from_ref(claim));
            results.is_ok_and(|results| results[&claim.uid].is_ok())
        });
    }
}
