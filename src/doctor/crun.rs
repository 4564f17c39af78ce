//! Whether the low-level runtime shows what hooks print.

use super::{Diagnosis, DoctorSubject};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    match subject.engines.iter().find(|engine| engine.name == "crun") {
        None => vec![Diagnosis::skipped(
            "crun was not found; other runtimes show what a hook that fails prints",
        )],
        Some(crun) => vec![Diagnosis::advice(
            format!("{} discards what hooks print", crun.shown()),
            "if a hook refuses a container, the engine's message does not have the reason",
            "tranche status shows the messages of all hooks",
        )],
    }
}
