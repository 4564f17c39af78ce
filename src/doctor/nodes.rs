//! Whether the device nodes exist.

use super::{Diagnosis, DoctorSubject, Trouble};
use crate::device_files::{NodeSet, nodes};
use crate::text::some;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let all = nodes(&subject.inventory, NodeSet::All);
    if all.is_empty() {
        return vec![Diagnosis::skipped("the driver has no device nodes on this host")];
    }
    let missing: Vec<String> = all
        .iter()
        .filter(|file| !file.node.present)
        .map(|file| file.node.host.to_string())
        .collect();
    if missing.is_empty() {
        return vec![Diagnosis::good(format!("all {} exist", all.len()))];
    }
    vec![Diagnosis::Wrong(Trouble::safe(
        format!("missing: {}", some(&missing)),
        "the driver makes nodes only when a program on the host asks for them; engines that need them on the host refuse \
         the container",
        &["system", "create-device-nodes"],
    ))]
}
