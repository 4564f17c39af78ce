//! Whether devices are out of service. A compute mode that prohibits every use is reported by the check of compute
//! modes.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use tranche_core::types::DeviceKey;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let Some(out) = &subject.out_of_service else {
        return vec![Diagnosis::skipped("another machine is examined")];
    };
    if let Some(why) = &out.unreadable {
        return vec![Diagnosis::wrong(
            Finding::OutOfServiceDamaged,
            why.clone(),
            "it is unknown which devices are out of service, so nothing new is given of any device",
            Fix::by_hand("tranche undrain all writes the file anew; then drain the devices that are to stay out"),
        )];
    }
    if let Some(why) = &subject.calendar_problem {
        return vec![Diagnosis::wrong(
            Finding::CalendarUnusable,
            why.clone(),
            "it is not known what is reserved for later: without a readable calendar nothing new is given of any device, \
             and with a clock that is behind it counts from its last change",
            Fix::by_hand(
                "set the clock if that is wrong; tranche reserve cancel all writes the calendar anew, without a reservation",
            ),
        )];
    }
    let names = |key: &DeviceKey| {
        let catalogue = subject.inventory.catalogue();
        let found = catalogue.all().find(|device| device.key() == *key);
        match found {
            Some(device) => (device.to_string(), device.device().cdi_name()),
            None => (key.to_string(), key.gpu().to_string()),
        }
    };
    let drained = out.drained.iter().map(|outage| {
        let (device, argument) = names(&outage.device);
        Diagnosis::advice(
            Finding::DeviceOutOfService,
            format!("{device}: {outage}"),
            "no container gets anything new of it; who holds something keeps it",
            Fix::by_hand(format!("when it works again: tranche undrain {argument}")),
        )
    });
    let found: Vec<Diagnosis> = drained.collect();
    match found.is_empty() {
        true => vec![Diagnosis::good("every device is in service")],
        false => found,
    }
}
