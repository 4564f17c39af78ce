//! What the driver does for a resource claim: it reads the allocation at the API server, and the broker does the rest.
//! So an instance knows nothing that another one would not find out too.

use super::allocation::{Allocated, Allocation};
use super::handler::{ClaimHandler, PreparedDevice};
use super::status::{Given, entry};
use crate::api::why;
use crate::broker::Broker;
use crate::metrics::{Kind, Metrics, Operation, Reason, Running};
use crate::settings::Times;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Error};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tranche_core::broker::BrokerError;
use tranche_core::ledger::KubernetesObject;
use tranche_protocol::{DraDevices, PrepareClaimRequest, PreparedClaim, since_boot};

/// After how long a question that had no answer is asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// After how long the broker is asked again for a device that is held: first, and at the most.
const HELD: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];

/// What a claim has at least that comes after others of its call have waited.
const LEAST: Duration = Duration::from_secs(1);

/// The driver on one node.
#[derive(Clone)]
pub struct Driver {
    pub(super) client: Client,
    pub(super) broker: Broker,
    /// Its name, a DNS subdomain.
    pub(super) name: String,
    /// The pool of its devices, which has the name of the node.
    pub(super) pool: String,
    pub(super) times: Times,
    /// What the node has; `None` until the broker has said it.
    pub(super) devices: watch::Receiver<Option<DraDevices>>,
    pub(super) metrics: Metrics,
    /// Where what a claim was given goes, if it is written into the status of claims.
    pub(super) status: Option<mpsc::Sender<Given>>,
}

/// Why something is not done for a claim: for a count, and in one line.
struct Failure(Reason, String);

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

    async fn allocation(&self, claim: &KubernetesObject, asked_at: u64) -> Result<Vec<Allocated>, Failure> {
        let found = self.find_patiently(claim, asked_at).await;
        let found = found.map_err(|why| Failure(Reason::ApiServer, why))?;
        let nothing = |what: &str| Failure(Reason::NotAllocated, what.to_owned());
        let found = found.ok_or_else(|| nothing("it does not exist any more"))?;
        let unknown = |why| Failure(Reason::NotUnderstood, why);
        let allocation = Allocation::of(&found).map_err(unknown)?;
        let allocation = allocation.ok_or_else(|| nothing("it is not allocated"))?;
        allocation.devices(&self.name, &self.pool).map_err(unknown)
    }

    /// Asks the broker until the holders of the devices have released them.
    async fn reserve(
        &self,
        claim: &KubernetesObject,
        devices: &[Allocated],
        asked_at: u64,
    ) -> Result<PreparedClaim, Failure> {
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
            let prepared = prepared.map_err(|e| self.broker_failure(&e))?;
            match prepared.held {
                None => return Ok(prepared),
                Some(held) if left(asked_at, self.times.waiting) <= pause => return Err(Failure(Reason::Held, held)),
                Some(_) => sleep(pause).await,
            }
            pause = most.min(pause * 2);
        }
    }

    fn broker_failure(&self, error: &BrokerError) -> Failure {
        let reason = match error {
            BrokerError::Unreachable(_) => Reason::BrokerUnreachable,
            BrokerError::Refused(_) => Reason::BrokerRefused,
        };
        Failure(reason, self.broker.explain(error))
    }

    async fn make_ready(&self, claim: &KubernetesObject, asked_at: u64) -> Result<Vec<PreparedDevice>, Failure> {
        let devices = self.allocation(claim, asked_at).await?;
        let PreparedClaim { cdi, given, .. } = self.reserve(claim, &devices, asked_at).await?;
        if cdi.len() != devices.len() {
            let why = "the broker has answered for other devices";
            return Err(Failure(Reason::BrokerRefused, why.to_owned()));
        }
        // Who watches a device is given nothing of it.
        let owned = devices.iter().filter(|one| !one.asked.admin);
        let kinds: Vec<Kind> = {
            let known = self.devices.borrow();
            owned.map(|one| Kind::of(&one.asked.device, known.as_ref())).collect()
        };
        self.metrics.allocated(kinds);
        if let Some(status) = &self.status {
            let given = devices.iter().zip(&given);
            let entries = given.filter_map(|(one, given)| Some(entry(&self.name, &one.answer, given.as_ref()?)));
            let entries: Vec<_> = entries.collect();
            let claim = claim.clone();
            // A claim is prepared without it: where too many wait, this one is left out.
            let _ = match entries.is_empty() {
                true => Ok(()),
                false => status.try_send(Given { claim, entries }),
            };
        }
        let answers = devices.into_iter().zip(cdi).map(|(one, cdi)| PreparedDevice {
            cdi: vec![cdi],
            ..one.answer
        });
        Ok(answers.collect())
    }

    /// Counts what `work` does, and how long it takes.
    async fn counted<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, String> {
        let running = Running::begin(&self.metrics, operation);
        let done = work.await;
        running.end(done.as_ref().err().map(|Failure(reason, _)| *reason));
        done.map_err(|Failure(_, why)| why)
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
        self.counted(Operation::Prepare, self.make_ready(&claim, asked_at))
            .await
    }

    async fn unprepare(&self, claim: KubernetesObject) -> Result<(), String> {
        let given = async {
            let given = self.broker.unprepare_claim(claim.uid.clone()).await;
            given.map_err(|e| self.broker_failure(&e))
        };
        self.counted(Operation::Unprepare, given).await
    }
}

/// What is left of `most` since the kubelet's call, which came at `asked_at` (milliseconds since boot).
fn left(asked_at: u64, most: Duration) -> Duration {
    most.saturating_sub(Duration::from_millis(since_boot().saturating_sub(asked_at)))
}
