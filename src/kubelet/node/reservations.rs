//! Keeps the reservations of pods in step with what they have.

use super::Node;
use crate::reconcile::{Devices, missing, moved};
use crate::said::Topic;
use std::ops::ControlFlow;
use std::time::Instant;
use tracing::info;
use tranche_core::broker::BrokerError;
use tranche_core::ledger::PodName;
use tranche_core::text::some;

impl Node {
    /// Reserves what pods have, and gives up what they had.
    pub(super) async fn reconcile(&mut self) {
        let (Some(offers), Some(pods)) = (&self.offers, &self.pods) else {
            return;
        };
        let now = Instant::now();
        let moved = moved(offers, pods);
        let missing = missing(offers, pods);
        let left = self.absences.listed(now, offers, pods);
        if moved.is_empty() && missing.is_empty() && left.is_empty() {
            return;
        }
        self.give_up(moved).await;
        for (pod, ids) in missing {
            let topic = Topic::Reserve(pod.clone());
            let reserved = self.broker.reserve(&pod, &ids).await;
            if self.is_done(topic, &pod, "reserved", &ids, reserved).is_break() {
                break;
            }
        }
        self.give_up(left).await;
        let at = self.pace.changed(now);
        self.asks.at(at);
    }

    pub(super) async fn give_up(&mut self, devices: Devices) {
        for (pod, ids) in devices {
            let topic = Topic::GiveUp(pod.clone());
            let given = self.broker.give_up(&pod, &ids).await;
            if given.is_ok() {
                self.absences.given_up(Instant::now(), &pod, &ids);
            }
            if self.is_done(topic, &pod, "given up", &ids, given).is_break() {
                break;
            }
        }
    }

    /// Logs what the broker has done. If it does not answer, there is no sense in asking it for the next pod.
    fn is_done(
        &mut self,
        topic: Topic,
        pod: &PodName,
        what: &str,
        ids: &[String],
        done: Result<(), BrokerError>,
    ) -> ControlFlow<()> {
        match done {
            Ok(()) => {
                self.said.is_well(&topic);
                info!("{pod}: {what}: {}", some(ids));
                ControlFlow::Continue(())
            }
            Err(e) => {
                let why = self.broker.explain(&e);
                self.said.warn(topic, format!("{pod}: not {what}: {why}"));
                match e {
                    BrokerError::Unreachable(_) => ControlFlow::Break(()),
                    BrokerError::Refused(_) => ControlFlow::Continue(()),
                }
            }
        }
    }
}
