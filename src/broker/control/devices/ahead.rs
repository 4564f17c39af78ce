//! Questions that are asked while the ledger is written, because their answers take longer than anything else of a
//! grant: the daemon has a program that asks it, and NVML a process that loads the driver's library.
//!
//! Nothing is granted by it. Who grants looks at the daemon and asks for the compute mode afterwards, and finds the
//! daemon's answer there and NVML's process running.

use super::super::daemon::{Daemon, Defaults};
use super::super::nvml::Nvml;
use super::{Control, FRESH};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tranche_core::types::DeviceKey;
use tranche_state::mutex::try_lock;

/// What a daemon said, and when.
#[derive(Debug, Clone, Copy)]
pub(in crate::control) struct AheadAnswer {
    at: Instant,
    defaults: Defaults,
}

impl AheadAnswer {
    /// When the daemon said it, and what, if that is not longer ago than `freshness`.
    pub(in crate::control) fn within(self, freshness: Duration) -> Option<(Instant, Defaults)> {
        (self.at.elapsed() < freshness).then_some((self.at, self.defaults))
    }
}

impl Control {
    /// Asks the daemon of `device` if it has one that is ready, and nobody else does something with the device. A
    /// daemon that does not answer is asked again by who grants, who does what is to be done about it.
    pub(super) fn ask_daemon_ahead(&self, device: &DeviceKey) {
        let slot = self.slot(device);
        let Some(mut slot) = try_lock(&slot) else { return };
        let record = slot.changes.as_ref().and_then(|changes| changes.daemon.as_ref());
        let (Some(target), true) = (slot.target.clone(), record.is_some_and(|record| record.is_ready)) else {
            return;
        };
        // Then NVML's process runs too, and nothing of the grant takes long.
        if slot.answered.is_some_and(|at| at.elapsed() < FRESH) {
            return;
        }
        thread::scope(|questions| {
            let library = target.nvml.clone().filter(|_| target.is_exclusive);
            if let Some(library) = library {
                let nvml = Nvml {
                    driver: Arc::clone(&self.tools.driver),
                    library,
                    patience: self.tools.nvml_patience,
                };
                let gpu = target.key.gpu().clone();
                // The mode may be another one when the claim is granted. What stays is the process.
                let mode = move || nvml.compute_mode(&gpu).map(drop);
                // Without a thread, it is asked when the claim is granted.
                let _ = thread::Builder::new().spawn_scoped(questions, mode);
            }
            let asked = self.daemon(&target).check(Daemon::patience(0));
            let at = Instant::now();
            slot.ahead = asked.ok().map(|defaults| AheadAnswer { at, defaults });
        });
    }
}
