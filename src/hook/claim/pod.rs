//! The pod of Kubernetes whose container is being created.
//!
//! Its name is in annotations, which CRI runtimes set on each container, and which other engines may copy from an image
//! (podman up to 4.5.0 does). So they count only if the container is in the cgroups of the kubelet: a container is
//! there only if root has put it there.

use tranche_core::ledger::PodName;
use tranche_core::ledger::process::Machine;
use tranche_core::oci::State;

/// The annotations with a pod's namespace and name: containerd (internal/cri/annotations), and CRI-O (pkg/annotations).
const ANNOTATIONS: [(&str, &str); 2] = [
    ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name"),
    ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name"),
];

/// The pod of the container with this state, whose init is `pid`; `None` if it is not one of a pod.
pub(super) fn of(state: &State, pid: u32, machine: &Machine) -> Option<PodName> {
    let pod = named(state)?;
    machine.is_in_pods(pid).then_some(pod)
}

/// The pod that all pairs of annotations name. A pod may be given annotations by its user, and CRI-O passes these on:
/// one who has set the pair of the other runtime is in no pod here.
fn named(state: &State) -> Option<PodName> {
    let value = |key: &str| state.annotations.get(key).cloned();
    let mut pods = ANNOTATIONS.iter().filter_map(|(namespace, name)| {
        Some(PodName {
            namespace: value(namespace)?,
            name: value(name)?,
        })
    });
    let pod = pods.next()?;
    (pod.is_valid() && pods.all(|other| other == pod)).then_some(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(annotations: &str) -> State {
        State::parse(format!(r#"{{"bundle":"/b","annotations":{annotations}}}"#).as_bytes()).unwrap()
    }

    #[test]
    fn containerd_and_cri_o_name_the_pod() {
        for text in [
            r#"{"io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-name":"web-0","a":"b"}"#,
            r#"{"io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.name":"web-0"}"#,
        ] {
            assert_eq!(named(&state(text)).unwrap().to_string(), "pod shop/web-0");
        }
        for text in [
            "{}",
            r#"{"io.kubernetes.cri.sandbox-name":"web-0"}"#,
            r#"{"io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.name":"../x"}"#,
            r#"{"io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.name":"web-0",
                "io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-name":"web-1"}"#,
        ] {
            assert_eq!(named(&state(text)), None, "{text}");
        }
    }

    #[test]
    fn annotations_alone_make_no_pod() {
        let text = r#"{"io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.name":"web-0"}"#;
        let machine = Machine::here().unwrap();
        assert_eq!(of(&state(text), std::process::id(), &machine), None);
    }
}
