//! Whether the broker answers, where shares cannot be used without it.

use super::{BrokerCondition, Diagnosis, DoctorSubject, Finding, Fix};
use tranche_core::text::some;

/// What starts it.
const UNIT: &str = "tranche-broker.socket";

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let by_hand = || Fix::by_hand("run tranche broker as root in the background, and at each boot");
    let fix = || subject.enable(&[UNIT]).unwrap_or_else(by_hand);
    let asked = match &subject.broker {
        BrokerCondition::NotNeeded => Diagnosis::skipped("the policy has no share that needs it"),
        BrokerCondition::Unknown => Diagnosis::skipped("the broker of another machine is not asked"),
        BrokerCondition::Works => Diagnosis::good("it answers"),
        BrokerCondition::Stopped { devices, why } => Diagnosis::wrong(
            Finding::BrokerStopped,
            format!(
                "it does not run ({why}), and shares of these devices need it: {}",
                some(devices)
            ),
            "a container with such a share is refused",
            fix(),
        ),
        BrokerCondition::Refuses(error) => Diagnosis::wrong(
            Finding::BrokerRefuses,
            error.found.clone(),
            "a container with a share that needs the broker is refused",
            error.fix_or("end the broker, and start it again with the installed version of tranche"),
        ),
    };
    let public = subject.public_error.as_ref().map(|error| {
        Diagnosis::wrong(
            Finding::StatusDamaged,
            error.found.clone(),
            "users other than root do not see which shares are free",
            error.fix_or("remove it; the broker writes it again when it is started or a share changes hands"),
        )
    });
    let private = subject.private_socket.as_ref().map(|(path, mode)| {
        let path = path.display();
        Diagnosis::wrong(
            Finding::BrokerPrivate,
            format!("{path} has mode {mode:04o}, so users other than root cannot reach it"),
            "claims of users, and the starts of their containers with a share, are refused",
            Fix::command(format!("chmod 0666 {path}")),
        )
    });
    public.into_iter().chain(private).chain([asked]).collect()
}
