//! What starts units of systemd, where they are installed.

use super::subject::exists;
use super::{DoctorSubject, Fix};
use std::fs;
use std::path::Path;

/// Where systemd finds units, in its order (systemd.unit(5)).
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

impl DoctorSubject {
    /// The command that starts `units` now and at each boot; `None` if systemd does not run or one of them is not
    /// installed, so that the command would fail.
    pub(super) fn enable(&self, units: &[&str]) -> Option<Fix> {
        let found = |unit: &&str| {
            let mut paths = DIRECTORIES.iter().map(|directory| self.at(directory).join(unit));
            paths.find(|path| exists(path))
        };
        let paths: Option<Vec<_>> = units.iter().map(found).collect();
        let paths = paths.filter(|_| self.has_systemd())?;
        let is_masked = paths
            .iter()
            .any(|path| fs::read_link(path).is_ok_and(|target| target == Path::new("/dev/null")));
        let unmask = match is_masked {
            true => format!("systemctl unmask {} && ", units.join(" ")),
            false => String::new(),
        };
        Some(Fix::command(format!(
            "{unmask}systemctl enable --now {}",
            units.join(" ")
        )))
    }

    /// What starts a daemon that belongs to the driver, and has to be of its version.
    pub(super) fn enable_of_driver(&self, daemon: &str) -> Fix {
        self.enable(&[&format!("{daemon}.service")]).unwrap_or_else(|| {
            let version = self.inventory.driver.as_ref().map(|driver| driver.version.to_string());
            let version = version.unwrap_or_else(|| "the driver".to_owned());
            Fix::by_hand(format!(
                "install {daemon} of version {version}, and start it now and at each boot"
            ))
        })
    }
}
