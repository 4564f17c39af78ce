//! What the driver does for a resource claim: it reads the allocation at the API server, and the broker does the rest.
//! So an instance knows nothing that another one would not find out too.

use super::allocation::{Allocated, Allocation};
use super::handler::{ClaimHandler, PreparedDevice};
use crate::api::why;
use crate::broker::Broker;
use crate::settings::Times;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Error};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tranche_core::ledger::KubernetesObject;
use tranche_protocol::{PrepareClaimRequest, since_boot};

/// After how long a question that had no answer is asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// After how long the broker is asked again for a device that is held: first, and at the most.
const HELD: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];

/// What a claim has at least that comes after others of its call have waited.
const LEAST: Duration = Duration::from_secs(1);

/// The driver on one node.
#[derive(Clone)]
pub struct Driver {
    client: Client,
    broker: Broker,
    name: String,
    pool: String,
    times: Times,
}

/// Why a claim is not known.
enum NotFound {
    /// The question or its answer was lost, or the server cannot answer now.
    Lost(String),
    /// The server says so.
    Refused(String),
}

impl NotFound {
    fn why(self) -> String {
        match self {
            Self::Lost(why) | Self::Refused(why) => why,
        }
    }
}

impl Driver {
    /// The driver `name` for the devices of the pool `pool`, which has the name of the node.
    pub fn new(client: Client, broker: Broker, name: &str, pool: &str, times: Times) -> Self {
        Self {
            times,
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
    async fn find(&self, claim: &KubernetesObject) -> Result<Option<DynamicObject>, NotFound> {
        let kind = ApiResource::erase::<ResourceClaim>(&());
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &claim.namespace, &kind);
        let seconds = self.times.question.as_secs_f32();
        // A connection on which no answer comes is not used again.
        let found = timeout(self.times.question, api.get_opt(&claim.name)).await;
        let found = found.map_err(|_| NotFound::Lost(format!("the API server did not answer within {seconds} s")))?;
        let found = found.map_err(|e| match &e {
            Error::Api(status) if status.code < 500 && status.code != 429 => NotFound::Refused(why(&e)),
            _ => NotFound::Lost(why(&e)),
        })?;
        Ok(found.filter(|found| found.metadata.uid.as_ref() == Some(&claim.uid)))
    }

    /// As [`Self::find`], again and again while questions are lost.
    async fn find_patiently(&self, claim: &KubernetesObject, asked_at: u64) -> Result<Option<DynamicObject>, String> {
        loop {
            match self.find(claim).await {
                Err(NotFound::Lost(_)) if left(asked_at, self.times.waiting) > AGAIN => sleep(AGAIN).await,
                found => return found.map_err(NotFound::why),
            }
        }
    }

    async fn allocation(&self, claim: &KubernetesObject, asked_at: u64) -> Result<Vec<Allocated>, String> {
        let found = self.find_patiently(claim, asked_at).await?;
        let found = found.ok_or("it does not exist any more")?;
        let allocation = Allocation::of(&found)?.ok_or("it is not allocated")?;
        allocation.devices(&self.name, &self.pool)
    }

    /// Asks the broker until the holders of the devices have released them, and returns the CDI names.
    async fn reserve(
        &self,
        claim: &KubernetesObject,
        devices: &[Allocated],
        asked_at: u64,
    ) -> Result<Vec<String>, String> {
        let [mut pause, most] = HELD;
        loop {
            let request = PrepareClaimRequest {
                claim: claim.clone(),
                devices: devices.iter().map(|one| one.asked.clone()).collect(),
                asked_at,
                waits: true,
            };
            let patience = left(asked_at, self.times.answer).max(LEAST);
            let prepared = self.broker.prepare_claim(request, patience).await;
            let prepared = prepared.map_err(|e| self.broker.explain(&e))?;
            match prepared.held {
                None => return Ok(prepared.cdi),
                Some(held) if left(asked_at, self.times.waiting) <= pause => return Err(held),
                Some(_) => sleep(pause).await,
            }
            pause = most.min(pause * 2);
        }
    }

    /// Whether no pod of this node can have the claim any more: it is deleted, or has no device of this node.
    ///
    /// # Errors
    /// Returns why the API server does not say it.
    pub(crate) async fn is_over(&self, claim: &KubernetesObject) -> Result<bool, String> {
        let Some(found) = self.find(claim).await.map_err(NotFound::why)? else {
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
        let devices = self.allocation(&claim, asked_at).await?;
        let cdi = self.reserve(&claim, &devices, asked_at).await?;
        if cdi.len() != devices.len() {
            return Err("the broker has answered for other devices".to_owned());
        }
        let answers = devices.into_iter().zip(cdi).map(|(one, cdi)| PreparedDevice {
            cdi: vec![cdi],
            ..one.answer
        });
        Ok(answers.collect())
    }

    async fn unprepare(&self, claim: KubernetesObject) -> Result<(), String> {
        self.give_up(&claim.uid).await
    }
}

/// What is left of `most` since the kubelet's call, which came at `asked_at` (milliseconds since boot).
fn left(asked_at: u64, most: Duration) -> Duration {
    most.saturating_sub(Duration::from_millis(since_boot().saturating_sub(asked_at)))
}
