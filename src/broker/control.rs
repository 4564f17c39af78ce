//! What changes a GPU or an MPS daemon, so that the machine agrees with the ledger.
//!
//! What a device needs follows from the claims on it, from the plan and from the journal of what was changed before.
//! There is no other record: a process that is killed at any point leaves a journal, and the next one makes the machine
//! agree with the ledger again or puts the device back as it was.

mod blocked;
mod cgroup_limit;
mod changes;
mod client_user;
mod daemon;
mod device;
mod devices;
mod driver_access;
mod goal;
mod journal;
pub mod nvml;
mod real;
mod run;
mod shown;
mod target;
mod this_machine;
mod time_slice;
pub mod turns_driver;

pub use devices::{Control, ControlOptions};
pub use driver_access::DriverAccess;
pub use run::run_daemon;

use std::time::Duration;
use tranche_core::error::Result;
use tranche_core::ledger::{Claim, ContainerName};
use tranche_core::types::DeviceKey;
use tranche_state::controlled::ControlledDevice;

/// What the broker asks of the machine. Every call may come at any time and from several threads: a slow change of one
/// device must not hold up a call about another.
pub trait MachineControl: Send + Sync {
    /// Makes `device` ready for all claims that the ledger has on it: the one that was just entered is in use as soon
    /// as this returns. If the device is ready already, this starts no process.
    ///
    /// # Errors
    /// Returns why the claims cannot be served. What was changed for them alone is put back by
    /// [`MachineControl::tick`].
    fn prepare(&self, device: &DeviceKey) -> Result<()>;

    /// Ends the MPS clients of `container` in an orderly way, because it is about to be killed. Returns their number.
    ///
    /// # Errors
    /// Returns an error if the daemon does not answer within 400 ms, or refuses.
    fn end_clients(&self, container: &ContainerName) -> Result<usize>;

    /// Compares the machine with the ledger, and changes what differs: daemons that died are started again, defaults
    /// follow the claims, and a device that nobody has claimed for a while is put back as it was. Returns when to call
    /// again; `None` if nothing of the machine is changed now, so that nobody has to watch it.
    fn tick(&self) -> Option<Duration>;

    /// The claims of holders that have kept an MPS daemon from others repeatedly, of devices whose policy says that
    /// such a holder is ended.
    fn blockers(&self) -> Vec<Claim>;

    /// Starts the daemon of `device` although nothing is claimed, and keeps it until [`MachineControl::stop`].
    ///
    /// # Errors
    /// As [`MachineControl::prepare`].
    fn start(&self, device: &DeviceKey) -> Result<()>;

    /// Stops the daemon of `device` and puts the device back as it was. `force` does it although containers hold shares
    /// of it: their processes lose the device.
    ///
    /// # Errors
    /// Returns an error if a share of it is held and `force` is not set, if the daemon is not one that tranche started,
    /// or if the device cannot be put back.
    fn stop(&self, device: &DeviceKey, force: bool) -> Result<()>;

    /// [`MachineControl::stop`] with `force`, and a start with the same limits.
    ///
    /// # Errors
    /// As [`MachineControl::stop`] and [`MachineControl::start`].
    fn restart(&self, device: &DeviceKey) -> Result<()>;

    /// The devices that are changed now, in the order of their names.
    fn devices(&self) -> Vec<ControlledDevice>;

    /// How the driver is asked and its GPUs are changed.
    ///
    /// # Errors
    /// Returns an error if the host cannot be examined, or has no driver.
    fn driver(&self) -> Result<DriverAccess>;

    /// A line for each record of a changed device that cannot be read. What was changed of such a device is unknown,
    /// and the device is not in [`MachineControl::devices`].
    fn unreadable(&self) -> Vec<String>;
}
