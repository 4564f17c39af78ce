//! What a container gets for the devices that the kubelet chose.

use crate::catalog::Parts;
use std::fmt;

/// Why an allocation is impossible. The kubelet fails the pod, so there are only two reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// This id was never offered.
    Unknown(String),
    /// So many devices were asked for, and a container may have one.
    OneShare(usize),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unknown(id) => write!(f, "invalid request: device {id:?} was never offered"),
            // In the words of NVIDIA's plugin, which people search for.
            Refusal::OneShare(found) => write!(
                f,
                "invalid request: maximum request size for shared resources is 1; found {found}"
            ),
        }
    }
}

/// The CDI names for a container, each once, in the order of the offers.
///
/// The kubelet keeps the answer and replays it at every start of the container, also after a reboot
/// (`pkg/kubelet/cm/devicemanager/pod_devices.go`). So it depends on the ids alone.
///
/// # Errors
/// Returns a [`Refusal`].
pub fn cdi_names(parts: &Parts, ids: &[String]) -> Result<Vec<String>, Refusal> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let part = parts.get(id).ok_or_else(|| Refusal::Unknown(id.clone()))?;
        found.push((part.order, part));
    }
    if ids.len() > 1 && found.iter().any(|(_, part)| part.one_share) {
        return Err(Refusal::OneShare(ids.len()));
    }
    found.sort_by_key(|(order, _)| *order);
    let mut names: Vec<String> = Vec::with_capacity(found.len());
    for (_, part) in found {
        // Replicas without names of their own have one name for all: `GPU-….any`.
        if !names.iter().any(|name: &String| **name == *part.cdi) {
            names.push(part.cdi.to_string());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, offers};
    use crate::fixtures::{replicas, whole};
    use tranche_protocol::{Offer, OfferedParts};

    fn names(offer: impl IntoIterator<Item = Offer>, ids: &[&str]) -> Result<Vec<String>, String> {
        let mut catalog = Catalog::default();
        catalog.update(&offers(offer), None);
        let parts = &catalog.resources().next().unwrap().1.parts;
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        cdi_names(parts, &ids).map_err(|e| e.to_string())
    }

    #[test]
    fn each_device_has_its_name_in_the_order_of_the_offers() {
        let both = [whole("GPU-b"), whole("GPU-a")];
        assert_eq!(
            names(both, &["GPU-a", "GPU-b"]).unwrap(),
            ["nvidia.com/gpu=GPU-b", "nvidia.com/gpu=GPU-a"]
        );
        assert_eq!(names([whole("GPU-0")], &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn several_replicas_without_names_have_one_name() {
        let mut offer = replicas("GPU-0", 4);
        offer.parts = OfferedParts::Replicas { count: 4, named: false };
        assert_eq!(
            names([offer], &["GPU-0.3", "GPU-0.1"]).unwrap(),
            ["nvidia.com/gpu=GPU-0.any"]
        );
    }

    #[test]
    fn an_unknown_id_is_refused_by_its_name() {
        assert_eq!(
            names([whole("GPU-0")], &["GPU-0", "x\n"]).unwrap_err(),
            r#"invalid request: device "x\n" was never offered"#
        );
    }

    #[test]
    fn a_container_has_one_share_if_more_would_not_work() {
        let mut mps = replicas("GPU-0", 2);
        mps.one_share = true;
        let offer = [mps, replicas("GPU-1", 2)];
        assert_eq!(names(offer.clone(), &["GPU-0.0"]).unwrap(), ["nvidia.com/gpu=GPU-0.0"]);
        let refused = "invalid request: maximum request size for shared resources is 1; found 2";
        assert_eq!(names(offer.clone(), &["GPU-0.0", "GPU-0.1"]).unwrap_err(), refused);
        assert_eq!(names(offer, &["GPU-0.0", "GPU-1.1"]).unwrap_err(), refused);
    }
}
