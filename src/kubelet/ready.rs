//! Whether pods of this node can get devices: what is to be published is at the API server, and the kubelet has
//! registered what serves it. The probe of the chart reads it from a file, so the program opens no port.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tokio::sync::watch;
use tranche_core::error::{Context, Error, Result};

/// The content of the file when nothing is missing.
const READY: &str = "ready";

/// What has to be so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The broker has said what the device plugin offers.
    Offers,
    /// The kubelet reads the devices of a resource.
    Resource(String),
    /// The slices at the API server are those of the node.
    Slices,
    /// The kubelet has registered the driver for dynamic resource allocation.
    Driver,
}

/// What is missing, with the reason of each. Its copies are one.
#[derive(Debug, Clone)]
pub struct Ready(watch::Sender<BTreeMap<Part, String>>);

impl Ready {
    /// With everything missing that the program serves.
    pub fn new(is_plugin: bool, is_driver: bool) -> Self {
        let mut missing = BTreeMap::new();
        if is_plugin {
            missing.insert(Part::Offers, "the broker has not answered yet".to_owned());
        }
        if is_driver {
            let (slices, driver) = ("are not published yet", "is not registered with the kubelet yet");
            missing.insert(Part::Slices, format!("the ResourceSlices of this node {slices}"));
            missing.insert(Part::Driver, format!("the driver {driver}"));
        }
        Self(watch::Sender::new(missing))
    }

    /// Says why `part` is missing; `None` if it is not.
    pub fn set(&self, part: Part, missing: Option<String>) {
        self.0.send_if_modified(|all| match missing {
            Some(why) => all.insert(part, why.clone()).as_ref() != Some(&why),
            None => all.remove(&part).is_some(),
        });
    }

    /// Writes into `file` what is missing, at each change. It never returns.
    pub async fn keep(self, file: PathBuf) {
        let mut changes = self.0.subscribe();
        loop {
            let missing: Vec<String> = changes.borrow_and_update().values().cloned().collect();
            let text = match missing.is_empty() {
                true => READY.to_owned(),
                false => missing.join("; "),
            };
            if let Err(e) = write(&file, &text) {
                tracing::warn!(
                    "{}: cannot be written, and the probe finds another state: {e}",
                    file.display()
                );
            }
            // The sender is `self`.
            let _ = changes.changed().await;
        }
    }
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)
}

/// Asks the program that keeps `file`.
///
/// # Errors
/// Returns what is missing, or that no program keeps the file.
pub fn check(file: &Path) -> Result<()> {
    let text = match fs::read_to_string(file) {
        // The first probe may come before the program has written anything.
        Err(error) if error.kind() == io::ErrorKind::NotFound => "the program has not begun to serve".to_owned(),
        read => read.about(file.display(), "cannot be read")?,
    };
    match text == READY {
        true => Ok(()),
        false => Err(Error::failed("not ready", text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_missing_is_named_until_it_is_not() {
        let ready = Ready::new(false, true);
        let missing = || ready.0.borrow().keys().cloned().collect::<Vec<_>>();
        assert_eq!(missing(), [Part::Slices, Part::Driver]);
        ready.set(Part::Slices, None);
        ready.set(Part::Resource("a".to_owned()), Some("gone".to_owned()));
        ready.set(Part::Driver, None);
        assert_eq!(missing(), [Part::Resource("a".to_owned())]);
        ready.set(Part::Resource("a".to_owned()), None);
        assert_eq!(missing(), []);
    }

    #[test]
    fn a_probe_before_the_program_serves_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("state");
        let said = || check(&file).unwrap_err().to_string();
        assert_eq!(said(), "not ready: the program has not begun to serve");
        write(&file, "the driver is not registered").unwrap();
        assert_eq!(said(), "not ready: the driver is not registered");
        write(&file, READY).unwrap();
        check(&file).unwrap();
    }
}
