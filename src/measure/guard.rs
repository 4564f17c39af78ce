//! The process that holds the device while `tranche bench` measures, and puts everything back when that ends, in
//! whatever way.
//!
//! It holds the device in the machine's ledger, is the broker of the [`Room`], and waits for the end of its standard
//! input, whose other end the process that measures has. So a run that is killed is over at once: its programs read the
//! end of their input as well. If this process is killed too, the ledger lets go of the device, and what is left of the
//! room is put back by the next run or by `tranche bench restore`.

use crate::layout;
use crate::room::{NO_SHARES, Room};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tracing::level_filters::LevelFilter;
use tranche_broker::command_line::{BrokerCommand, BrokerOptions};
use tranche_broker::control::{Control, ControlOptions, MachineControl};
use tranche_broker::facts::HostNow;
use tranche_broker::mig::DevicesHeld;
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Result};
use tranche_core::types::{DeviceKey, WaitTime};
use tranche_state::planning::PlanOptions;
use tranche_state::stop;

/// The name of the program in `tranche status` and in refusals.
const PROGRAM: &str = "tranche bench";

/// The line that says that everything is ready.
pub(crate) const READY: &str = "ready";

/// How long the programs of a run may take to read the end of their input, and to end.
const PROGRAMS_END: Duration = Duration::from_secs(5);

/// Holds `device`, serves the room, and puts everything back at the end of standard input.
///
/// # Errors
/// Returns who holds the device, or what could not be put back.
pub fn guard(at: &PlanOptions, device: &DeviceKey, log: LevelFilter) -> Result<()> {
    // Before any thread is started: the broker below reads these signals.
    let _stop = stop::signals("guard")?;
    let mut input = File::from(
        io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .about("guard", "has no input")?,
    );
    let room = Room::of(at);
    let occupied = room.occupy()?;
    put_back(&room)?;
    let claims = Claims::open(&at.state_dir)?;
    let held = DevicesHeld::take(&claims, PROGRAM, [device.clone()])?;
    // Until the first way is set up.
    room.set_policy(NO_SHARES)?;
    let mut output = io::stdout();
    thread::spawn(move || {
        // It ends at the end of the input, and with any error.
        let _ = io::copy(&mut input, &mut io::sink());
        let _ = kill(Pid::this(), Signal::SIGTERM);
    });
    writeln!(output, "{READY}").about("guard", "cannot answer")?;
    let served = serve(&room, log);
    let back = wait_for_programs(&room).and_then(|()| put_back(&room));
    if back.is_ok() {
        room.remove(&occupied)?;
    }
    drop(held);
    served.and(back)
}

/// Puts back what a run that was killed has left, if there is any.
///
/// # Errors
/// Returns an error if a run goes on, or what could not be put back.
pub fn restore(at: &PlanOptions) -> Result<bool> {
    let room = Room::of(at);
    if !room.exists() {
        return Ok(false);
    }
    let occupied = room.occupy()?;
    put_back(&room)?;
    room.remove(&occupied)?;
    Ok(true)
}

/// Is the broker of the room until SIGTERM.
fn serve(room: &Room, level: LevelFilter) -> Result<()> {
    let options = BrokerOptions {
        at: room.inside(),
        spec_dir: room.spec_dir(),
        idle: Some(WaitTime::default()),
        level,
    };
    BrokerCommand::Serve(Box::new(options)).run().map(drop)
}

/// Waits until nothing of the room is held any more, for a while.
fn wait_for_programs(room: &Room) -> Result<()> {
    let until = Instant::now() + PROGRAMS_END;
    let claims = Claims::open(&room.inside().state_dir)?;
    while claims.books()?.claims().next().is_some() && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Stops the MPS daemons of the room, and puts compute modes, turns and layouts of MIG back.
fn put_back(room: &Room) -> Result<()> {
    let inside = room.inside();
    if !inside.state_dir.exists() {
        return Ok(());
    }
    let control = Control::open(ControlOptions::of(&inside)?, Arc::new(HostNow::new(inside.clone())))?;
    for device in control.devices() {
        control.stop(&device.key, true)?;
    }
    drop(control);
    layout::put_back(room)
}
