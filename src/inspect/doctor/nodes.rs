//! Whether the device nodes exist.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use tranche_core::text::some;
use tranche_plan::inventory::WarningKind;
use tranche_specs::device_files::{NodeSet, nodes};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let all = nodes(&subject.inventory, NodeSet::All);
    let wrong: Vec<String> = subject
        .warns_of(WarningKind::WrongNode)
        .map(|node| {
            format!(
                "{} {}",
                node.object,
                node.text.split(": it is left out").next().unwrap_or(&node.text)
            )
        })
        .collect();
    let mut found = Vec::new();
    if !wrong.is_empty() {
        let paths: Vec<&str> = subject
            .warns_of(WarningKind::WrongNode)
            .map(|node| &*node.object)
            .collect();
        found.push(Diagnosis::wrong(
            Finding::NodeWrong,
            some(&wrong),
            "a container would get another device, so it is left out of specifications",
            Fix::command(format!(
                "rm -r {} && tranche system create-device-nodes",
                paths.join(" ")
            )),
        ));
    }
    if all.is_empty() && found.is_empty() {
        return vec![Diagnosis::skipped("the driver has no device nodes on this host")];
    }
    let missing: Vec<String> = all
        .iter()
        .filter(|file| !file.node.present)
        .map(|file| file.node.host.to_string())
        .collect();
    if !missing.is_empty() {
        found.push(Diagnosis::wrong(
            Finding::NodeMissing,
            format!("missing: {}", some(&missing)),
            "the driver makes nodes only when a program on the host asks for them; engines that need them on the host \
             refuse the container",
            Fix::safe(&["system", "create-device-nodes"]),
        ));
    }
    if found.is_empty() {
        found.push(Diagnosis::good(format!("all {} exist", all.len())));
    }
    found
}
