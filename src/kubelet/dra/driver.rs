//! What the driver does for a resource claim: it reads the allocation at the API server, and the broker does the rest.
//! So an instance knows nothing that another one would not find out too.

use super::allocation::{Allocated, Allocation};
use super::handler::{ClaimHandler, PreparedDevice};
use crate::api::why;
use crate::broker::Broker;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use std::time::Duration;
use tokio::time::timeout;
use tranche_core::ledger::KubernetesObject;
use tranche_protocol::PrepareClaimRequest;

/// How long the API server may take for a claim: the kubelet waits for 45 s, and tries again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The driver on one node.
#[derive(Clone)]
pub struct Driver {
    client: Client,
    broker: Broker,
    name: String,
    pool: String,
}

impl Driver {
    /// The driver `name` for the devices of the pool `pool`, which has the name of the node.
    pub fn new(client: Client, broker: Broker, name: &str, pool: &str) -> Self {
        Self {
            client,
            broker,
            name: name.to_owned(),
            pool: pool.to_owned(),
        }
    }

    /// The claim with all of its fields, also those that this program does not know, if it is still the one with this
    /// UID.
    ///
    /// # Errors
    /// Returns why the API server does not say it.
    async fn find(&self, claim: &KubernetesObject) -> Result<Option<DynamicObject>, String> {
        let kind = ApiResource::erase::<ResourceClaim>(&());
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &claim.namespace, &kind);
        let found = timeout(PATIENCE, api.get_opt(&claim.name)).await;
        let found = found.map_err(|_| format!("the API server did not answer within {} s", PATIENCE.as_secs()))?;
        let found = found.map_err(|e| why(&e))?;
        Ok(found.filter(|found| found.metadata.uid.as_ref() == Some(&claim.uid)))
    }

    async fn allocation(&self, claim: &KubernetesObject) -> Result<Vec<Allocated>, String> {
        let found = self.find(claim).await?;
        let found = found.ok_or("it does not exist any more")?;
        let allocation = Allocation::of(&found)?.ok_or("it is not allocated")?;
        allocation.devices(&self.name, &self.pool)
    }

    /// Whether no pod of this node can have the claim any more: it is deleted, or has no device of this node.
    ///
    /// # Errors
    /// Returns why the API server does not say it.
    pub(crate) async fn is_over(&self, claim: &KubernetesObject) -> Result<bool, String> {
        let Some(found) = self.find(claim).await? else {
            return Ok(true);
        };
        let allocation = Allocation::of(&found)?;
        Ok(!allocation.is_some_and(|allocation| allocation.has(&self.name, &self.pool)))
    }

    /// Gives up what is reserved for a claim.
    ///
    /// # Errors
    /// Returns why the broker does not.
    pub(crate) async fn give_up(&self, uid: &str) -> Result<(), String> {
        let given = self.broker.unprepare_claim(uid.to_owned()).await;
        given.map_err(|e| self.broker.explain(&e))
    }
}

impl ClaimHandler for Driver {
    async fn prepare(&self, claim: KubernetesObject, asked_at: u64) -> Result<Vec<PreparedDevice>, String> {
        let devices = self.allocation(&claim).await?;
        let request = PrepareClaimRequest {
            claim,
            devices: devices.iter().map(|one| one.asked.clone()).collect(),
            asked_at,
        };
        let prepared = self.broker.prepare_claim(request).await;
        let prepared = prepared.map_err(|e| self.broker.explain(&e))?;
        if prepared.cdi.len() != devices.len() {
            return Err("the broker has answered for other devices".to_owned());
        }
        let answers = devices.into_iter().zip(prepared.cdi).map(|(one, cdi)| PreparedDevice {
            cdi: vec![cdi],
            ..one.answer
        });
        Ok(answers.collect())
    }

    async fn unprepare(&self, claim: KubernetesObject) -> Result<(), String> {
        self.give_up(&claim.uid).await
    }
}
