//! The thread that makes the machine agree with the ledger, and shows everybody what has changed.

use super::commands::Commands;
use super::on_demand;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tranche_core::error::line;
use tranche_core::ledger::{Ledger, Woken};

/// How often it looks although nothing has changed: a container that ends by itself writes nothing to the ledger.
const LONGEST: Duration = Duration::from_secs(30);

/// Looks at each change of the ledger, at each byte in `woken`, and when [`crate::control::MachineControl::tick`] wants
/// to. Ends when nothing more can come from `woken`.
pub(super) fn run(commands: &Commands<'_>, mut woken: &UnixStream) {
    let watch = match Ledger::open(commands.state_dir()) {
        Ok(ledger) => ledger.watch(),
        Err(error) => {
            tracing::warn!("{error}");
            return;
        }
    };
    loop {
        let next = commands.control.tick().unwrap_or(LONGEST).min(LONGEST);
        commands.keep_nodes();
        if let Err(error) = on_demand::destroy_idle(commands) {
            tracing::warn!("{}", line(&error));
        }
        if let Err(error) = commands.write_status() {
            tracing::warn!("{}", line(&error));
        }
        if watch.wait_or(next, Some(woken.as_fd())) == Woken::Other {
            let mut bytes = [0; 256];
            match woken.read(&mut bytes) {
                Ok(1..) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }
}
