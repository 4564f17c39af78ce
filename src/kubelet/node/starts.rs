//! Whether containers may start.

use super::Node;
use crate::command::{Command, Start};
use crate::reconcile::moved;
use crate::said::Topic;
use std::time::{Duration, Instant};
use tonic::Status;
use tranche_core::broker::BrokerError;
use tranche_core::error::line;
use tranche_core::text::some;

/// How often a pod is looked for before the start of its container is refused: the kubelet may list it a moment later.
const TRIES: u32 = 5;

/// The time between two of them.
const TRY_AGAIN: Duration = Duration::from_millis(200);

impl Node {
    /// Decides whether containers may start.
    pub(super) async fn start(&mut self, starts: Vec<Start>) {
        if let Err(status) = self.list().await {
            let why = format!("the pods of this node are not known: {}", status.message());
            return refuse(starts, &Status::unavailable(why));
        }
        if let Err(e) = self.ask().await {
            return refuse(starts, &self.refusal(&e));
        }
        self.publish().await;
        if let (Some(offers), Some(pods)) = (&self.offers, &self.pods) {
            let moved = moved(offers, pods);
            self.give_up(moved).await;
        }
        for start in starts {
            let owner = self
                .pods
                .as_ref()
                .and_then(|pods| pods.owner_of_all(&start.ids))
                .cloned();
            match owner {
                Some(pod) => {
                    let reserved = self.broker.reserve(&pod, &start.ids).await;
                    let answer = reserved.map_err(|e| self.refusal(&e));
                    // The kubelet tries again every ten seconds or so.
                    let topic = Topic::Start(pod.clone());
                    match &answer {
                        Ok(()) => self.said.is_well(&topic),
                        Err(status) => {
                            let what = format!("{pod}: its container does not start: {}", status.message());
                            self.said.warn(topic, what);
                        }
                    }
                    // The kubelet may have given up.
                    let _ = start.answer.send(answer);
                }
                None => self.again(start),
            }
        }
        let at = self.pace.changed(Instant::now());
        self.asks.at(at);
    }

    /// Looks for the pod once more, a moment later.
    fn again(&self, start: Start) {
        if start.tries >= TRIES {
            let why = format!("the kubelet lists no pod that has {}", some(&start.ids));
            return refuse(vec![start], &Status::unavailable(why));
        }
        let sender = self.sender.clone();
        tokio::spawn(async move {
            tokio::time::sleep(TRY_AGAIN).await;
            let start = Start {
                tries: start.tries + 1,
                ..start
            };
            let _ = sender.send(Command::Start(start)).await;
        });
    }

    /// Why a container does not start. The kubelet tries again, and shows the text in the pod's events.
    fn refusal(&self, error: &BrokerError) -> Status {
        match error {
            BrokerError::Refused(e) => Status::failed_precondition(line(e)),
            BrokerError::Unreachable(_) => Status::unavailable(self.broker.explain(error)),
        }
    }
}

fn refuse(starts: Vec<Start>, status: &Status) {
    for start in starts {
        let _ = start.answer.send(Err(status.clone()));
    }
}
