//! Offers, for the tests of the crate and those of the program.

use tranche_core::ledger::PodName;
use tranche_protocol::{Offer, OfferedParts, Taken};

/// A GPU that is offered as `nvidia.com/gpu`.
pub(crate) fn whole(device: &str) -> Offer {
    Offer {
        resource: "nvidia.com/gpu".into(),
        device: device.into(),
        gpu: device.into(),
        kind: "nvidia.com/gpu".into(),
        numa: None,
        parts: OfferedParts::Whole,
        one_share: false,
        unhealthy: None,
        out_of_service: None,
        taken: Vec::new(),
    }
}

/// So many equal parts of one.
pub(crate) fn replicas(device: &str, count: u32) -> Offer {
    Offer {
        parts: OfferedParts::Replicas { count, named: true },
        ..whole(device)
    }
}

/// A pod of the namespace `default`.
pub(crate) fn pod(name: &str) -> PodName {
    PodName {
        namespace: "default".into(),
        name: name.into(),
    }
}

/// A part that a pod has, or a container outside Kubernetes.
pub(crate) fn taken(share: Option<&str>, pod: Option<PodName>) -> Taken {
    Taken {
        share: share.map(str::to_owned),
        pod,
        by: "container 262bf9f7e5a8".into(),
    }
}
