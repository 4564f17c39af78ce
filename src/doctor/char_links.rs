//! Whether systemd finds the driver's devices by their numbers.

use super::{Diagnosis, DoctorSubject, Trouble};
use crate::device_files::{LinkChange, links};
use crate::text::some;

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
            Err(error) => return vec![Diagnosis::wrong(error.to_string(), WHY, "remove it")],
        }
    }
    match (wanted.len(), wrong.is_empty()) {
        (0, _) => vec![Diagnosis::skipped("the driver has no device nodes on this host")],
        (count, true) => vec![Diagnosis::good(format!("all {count} lead to their nodes"))],
        (count, false) => vec![Diagnosis::Wrong(Trouble::safe(
            format!(
                "{} of {count} are missing or lead elsewhere: {}",
                wrong.len(),
                some(&wrong)
            ),
            WHY,
            &["system", "create-dev-char-symlinks"],
        ))],
    }
}

const WHY: &str = "with systemd's cgroup driver, a running container loses its GPU at the next systemctl daemon-reload";
