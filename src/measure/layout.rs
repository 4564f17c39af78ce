//! Layouts of MIG for as long as a way is measured.
//!
//! The broker of the room changes them, by the code of `tranche mig apply`, with a journal in the room. What the GPU
//! had before is written down first, and is made again by what puts the room back.

use crate::machine::Measurable;
use crate::room::{NO_SHARES, Room};
use std::time::Duration;
use tranche_broker::mig;
use tranche_broker::serve::change_without_broker;
use tranche_core::broker::{self, BrokerError};
use tranche_core::error::{Error, Result};
use tranche_plan::host_file::HostFile;
use tranche_protocol::{MigAnswer, MigRequest, PolicyCheck};
use tranche_state::planning::option;
use tranche_state::renew;

/// How long a change may take: a GPU may be reset.
const PATIENCE: Duration = Duration::from_secs(300);

/// Gives `device` the layout, as `tranche mig apply --layout` takes it.
///
/// # Errors
/// Returns what stands in the way. The GPU has what it had then.
pub(crate) fn apply(room: &Room, device: &Measurable, layout: &str) -> Result<()> {
    room.keep_layout(|| device.layout())?;
    // The policy of the way before names devices that go away.
    room.set_policy(NO_SHARES)?;
    let inside = room.inside();
    if HostFile::load(&inside.state_dir).is_err() {
        // What the broker refreshes after the change is written to the same place: not where engines read.
        let mut arguments = inside.arguments();
        arguments.push(option("output-dir", room.spec_dir().as_os_str()));
        renew::specifications(&inside.state_dir, &arguments)?;
    }
    device.let_go();
    let asked = broker::ask::<MigAnswer>(&inside.state_dir.join(broker::SOCKET), &request(layout), PATIENCE);
    match asked {
        Ok(_) => Ok(()),
        Err(BrokerError::Refused(error)) => Err(error),
        Err(BrokerError::Unreachable(error)) => Err(Error::failed("guard", "does not answer").from_source(error)),
    }
}

/// Gives the GPU the layout that it had before the first change, if there was one. No broker runs in the room.
///
/// # Errors
/// Returns what stands in the way. The next call tries it again.
pub(crate) fn put_back(room: &Room) -> Result<()> {
    let Some(layout) = room.kept_layout()? else {
        return Ok(());
    };
    room.set_policy(NO_SHARES)?;
    change_without_broker(&room.inside(), |host| mig::apply(host, &request(&layout)))?;
    // The instances may have other numbers than before, and the nodes of others.
    let outside = room.outside();
    if HostFile::load(&outside.state_dir).is_ok() {
        renew::after_change(&outside.state_dir, &outside.arguments())?;
    }
    room.forget_layout()
}

/// The layout of the machine's policy is that of the time after the run.
fn request(layout: &str) -> MigRequest {
    MigRequest {
        layouts: vec![layout.to_owned()],
        may_change_mode: true,
        may_reset: true,
        check: PolicyCheck::Nothing,
        ..MigRequest::default()
    }
}
