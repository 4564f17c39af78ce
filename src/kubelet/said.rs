//! What the log and the node's events have: a fault that lasts is one line, and not one every ten seconds.

use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tracing::{info, warn};
use tranche_core::ledger::PodName;

/// What a fault is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The broker does not answer.
    Broker,
    /// The kubelet does not say which pods there are.
    Pods,
    /// What a pod has cannot be reserved.
    Reserve(PodName),
    /// What a pod had cannot be given up.
    GiveUp(PodName),
    /// A container of a pod may not start.
    Start(PodName),
    /// A device of a resource does not work.
    Device(String),
    /// The kubelet has forgotten a resource.
    Resource(String),
    /// A resource has more devices than the kubelet reads.
    LeftOut(String),
    /// The policy of the cluster cannot be taken.
    Policy,
    /// The policy of the node is wrong, and an earlier one stays in force.
    WrongPolicy,
    /// The label of the node is not known.
    Label,
    /// The slices of the driver for DRA are not published.
    Slices,
    /// The API server drops fields of the slices.
    Gates,
    /// The status of claims does not say what they were given.
    ClaimStatus,
    /// The labels of the node are not set.
    NodeLabels,
    /// Something of a slice is left out.
    Layout,
    /// The kubelet does not take a driver for dynamic resource allocation.
    Driver(String),
    /// Such a driver cannot listen.
    DriverSocket(String),
}

impl Topic {
    /// The reason of an event. The kubelet itself writes an event about a container that does not start, on its pod.
    fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::Broker => "BrokerUnavailable",
            Self::Pods => "PodsUnknown",
            Self::Reserve(_) => "ReservationFailed",
            Self::GiveUp(_) => "ReleaseFailed",
            Self::Start(_) => return None,
            Self::Device(_) => "DeviceUnhealthy",
            Self::Resource(_) => "ResourceForgotten",
            Self::Policy => "PolicyRefused",
            Self::WrongPolicy => "PolicyInvalid",
            Self::Label => return None,
            Self::Slices => "SlicesNotPublished",
            Self::Gates => "FieldsDropped",
            Self::ClaimStatus => "StatusNotWritten",
            Self::NodeLabels => "LabelsNotSet",
            Self::Layout | Self::LeftOut(_) => "DevicesLeftOut",
            Self::Driver(_) => "RegistrationRefused",
            Self::DriverSocket(_) => "DriverUnavailable",
        })
    }
}

/// An event about the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody has to do something.
    pub is_fault: bool,
    /// One word for programs.
    pub reason: &'static str,
    /// One line for people.
    pub text: String,
}

/// The last fault of each topic.
#[derive(Debug, Default)]
pub struct Said {
    last: BTreeMap<Topic, String>,
    events: Option<mpsc::Sender<Notice>>,
}

impl Said {
    /// One whose faults are events too, if there is somebody who writes them.
    pub fn new(events: Option<mpsc::Sender<Notice>>) -> Self {
        Self {
            last: BTreeMap::new(),
            events,
        }
    }

    /// Logs a fault, unless it is the last one of its topic.
    pub fn warn(&mut self, topic: Topic, what: String) {
        let reason = topic.reason();
        if self.is_new(topic, &what) {
            warn!("{what}");
            if let Some(reason) = reason {
                self.event(true, reason, what);
            }
        }
    }

    /// Logs what has been done, once.
    pub fn done(&mut self, reason: &'static str, what: String) {
        info!("{what}");
        self.event(false, reason, what);
    }

    /// The topic has no fault any more.
    pub fn is_well(&mut self, topic: &Topic) {
        if let Some(what) = self.last.remove(topic) {
            info!("no longer: {what}");
        }
    }

    fn is_new(&mut self, topic: Topic, what: &str) -> bool {
        let last = self.last.insert(topic, what.to_owned());
        last.as_deref() != Some(what)
    }

    fn event(&self, is_fault: bool, reason: &'static str, text: String) {
        // If the API server is slow, the log still has it.
        if let Some(events) = &self.events {
            let _ = events.try_send(Notice { is_fault, reason, text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pod;

    #[test]
    fn a_fault_that_lasts_is_one_line() {
        let mut said = Said::default();
        assert!(said.is_new(Topic::Broker, "away"));
        assert!(!said.is_new(Topic::Broker, "away"));
        assert!(said.is_new(Topic::Pods, "away"));
        assert!(said.is_new(Topic::Broker, "refused"));
        said.is_well(&Topic::Broker);
        assert!(said.is_new(Topic::Broker, "refused"));
    }

    #[test]
    fn a_fault_is_an_event_and_the_start_of_a_container_has_that_of_the_kubelet() {
        let (sender, mut events) = mpsc::channel(8);
        let mut said = Said::new(Some(sender));
        said.warn(Topic::Start(pod("a")), "refused".into());
        said.warn(Topic::Broker, "away".into());
        said.warn(Topic::Broker, "away".into());
        said.done("PolicyTaken", "taken".into());
        let mut next = || {
            events
                .try_recv()
                .ok()
                .map(|notice| (notice.is_fault, notice.reason, notice.text))
        };
        assert_eq!(next(), Some((true, "BrokerUnavailable", "away".to_owned())));
        assert_eq!(next(), Some((false, "PolicyTaken", "taken".to_owned())));
        assert_eq!(next(), None);
    }
}
