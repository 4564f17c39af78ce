//! Whether docker is installed in a snap, which is confined to files of its own and brings parts of NVIDIA's toolkit
//! (README.md of github.com/canonical/docker-snap).

use super::subject::exists;
use super::{Diagnosis, DoctorSubject, Finding};

/// Where snapd mounts the snap: on most distributions, and on those without /snap.
const PLACES: [&str; 2] = ["/snap/docker/current", "/var/lib/snapd/snap/docker/current"];

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    match PLACES.iter().find(|place| exists(&subject.at(place))) {
        None => vec![Diagnosis::skipped("docker is not installed in a snap")],
        Some(place) => vec![Diagnosis::wrong(
            Finding::EngineInSnap,
            format!("docker is installed in a snap ({place})"),
            "it reads /var/snap/docker/current/config/daemon.json and none of the files that tranche writes, and its GPUs \
             come from a toolkit of its own, past the policy",
            "install docker from the distribution or from Docker, and remove the snap (snap remove docker), which has \
             containers and images of its own",
        )],
    }
}
