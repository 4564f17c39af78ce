//! Whether SELinux lets confined containers use the devices.

use super::{Diagnosis, DoctorSubject};
use std::fs;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    match fs::read_to_string(subject.at("/sys/fs/selinux/enforce")) {
        Ok(text) if text.trim() == "1" => {}
        Ok(_) => return vec![Diagnosis::good("it is not enforced")],
        Err(_) => return vec![Diagnosis::skipped("this host has no SELinux")],
    }
    // Two numbers: the value in force, and the one that is pending (security_get_boolean_active(3)).
    let boolean = fs::read_to_string(subject.at("/sys/fs/selinux/booleans/container_use_devices"));
    match boolean.as_deref().map(|text| text.trim().starts_with('1')) {
        Ok(true) => vec![Diagnosis::good("enforced, and container_use_devices is on")],
        _ => vec![Diagnosis::advice(
            "enforced, and the boolean container_use_devices is not on",
            "containers are denied the driver's device nodes",
            "setsebool -P container_use_devices on, or start the container with --security-opt label=disable",
        )],
    }
}
