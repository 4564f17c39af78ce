//! Limits as the daemon keeps and prints them.

use std::collections::BTreeMap;

/// The limits that a server gives to clients without limits of their own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Limits {
    pub(crate) percentage: f64,
    /// MiB by device, as the command named it. The real daemon does not check the name either.
    pub(crate) memory: BTreeMap<String, u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            percentage: 100.0,
            memory: BTreeMap::new(),
        }
    }
}

impl Limits {
    /// Sets the percentage. The answer is the new one, as the real daemon prints it.
    pub(crate) fn set_percentage(&mut self, text: &str) -> String {
        match text.parse::<f64>() {
            Ok(percentage) if percentage > 0.0 && percentage <= 100.0 => {
                self.percentage = percentage;
                self.percentage()
            }
            _ => "Invalid active thread percentage".to_owned(),
        }
    }

    pub(crate) fn percentage(&self) -> String {
        format!("{:.1}", self.percentage)
    }

    /// Sets the memory of `device`. The real daemon prints nothing.
    pub(crate) fn set_memory(&mut self, device: &str, text: &str) -> String {
        let size = match text.strip_suffix('M') {
            Some(mib) => mib.parse().ok(),
            None => text
                .strip_suffix('G')
                .and_then(|gib| gib.parse::<u64>().ok())
                .map(|gib| gib * 1024),
        };
        match size {
            Some(mib) => {
                self.memory.insert(device.to_owned(), mib);
                String::new()
            }
            None => "Invalid memory limit".to_owned(),
        }
    }

    /// The memory of `device`, in whole GiB from 1 GiB on: NVIDIA's GPU Operator documentation shows `3G` where the
    /// device plugin had set a size in MiB.
    pub(crate) fn memory(&self, device: &str) -> String {
        match self.memory.get(device) {
            None => String::new(),
            Some(mib) if *mib >= 1024 => format!("{}G", mib / 1024),
            Some(mib) => format!("{mib}M"),
        }
    }
}
