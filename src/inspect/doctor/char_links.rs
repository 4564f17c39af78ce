//! Whether systemd finds the driver's devices by their numbers.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use tranche_core::text::some;
use tranche_specs::device_files::{LinkChange, links};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if !subject.has_systemd() {
        return vec![Diagnosis::skipped(
            "systemd does not run on this host, and only systemd needs them",
        )];
    }
    let directory = subject.at("/dev/char");
    let wanted = links(&subject.inventory, false);
    let mut wrong = Vec::new();
    for link in &wanted {
        match link.look(&directory) {
            Ok(LinkChange::Kept) => {}
            Ok(_) => wrong.push(link.name.clone()),
            Err(error) => {
                let fix = format!(
                    "rm -r {} && tranche system create-dev-char-symlinks",
                    directory.join(&link.name).display()
                );
                return vec![Diagnosis::wrong(
                    Finding::LinkBlocked,
                    error.to_string(),
                    WHY,
                    Fix::command(fix),
                )];
            }
        }
    }
    match (wanted.len(), wrong.is_empty()) {
        (0, _) => vec![Diagnosis::skipped("the driver has no device nodes on this host")],
        (count, true) => vec![Diagnosis::good(format!("all {count} lead to their nodes"))],
        (count, false) => vec![Diagnosis::wrong(
            Finding::LinkMissing,
            format!(
                "{} of {count} are missing or lead elsewhere: {}",
                wrong.len(),
                some(&wrong)
            ),
            WHY,
            Fix::safe(&["system", "create-dev-char-symlinks"]),
        )],
    }
}

const WHY: &str = "with systemd's cgroup driver, a running container loses its GPU at the next systemctl daemon-reload";
