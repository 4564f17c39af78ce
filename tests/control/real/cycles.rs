//! Random cycles of claims, and of kills of the daemon and of the broker: the daemon and the ledger agree after each
//! step.

use super::{RealBed, each, until};
use crate::bed::UNEQUAL;
use crate::support::sample;
use std::collections::BTreeSet;
use std::path::Path;
use tranche_broker::control::{Control, MachineControl};
use tranche_state::controlled::DaemonState;

const SHARES: [(&str, u32, u64); 2] = [("big", 80, 19_651), ("small", 20, 4_912)];

/// A sequence that is the same in each run.
struct Random(u64);

impl Random {
    /// A number below `most` (xorshift).
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Asserts that the daemon has the limits of the largest claim, or that none is left.
fn assert_agrees(real: &RealBed, control: &Control, held: &BTreeSet<&str>, step: &str) {
    let bed = &real.bed;
    let largest = SHARES.iter().find(|(name, ..)| held.contains(name));
    let Some((_, percent, mib)) = largest else {
        until("the device is put back", || control.tick().is_none());
        bed.assert_as_it_was(control);
        return;
    };
    // A daemon that was killed is started again after a pause.
    until(
        &format!("{step}: a daemon with the limits of {held:?}: {:?}", control.devices()),
        || {
            control.tick();
            let daemon = control.devices().first().and_then(|device| device.daemon.clone());
            daemon
                .is_some_and(|daemon| daemon.compute_percent == Some(*percent) && daemon.state == DaemonState::Running)
        },
    );
    assert_eq!(
        real.answer("get_default_active_thread_percentage"),
        format!("{percent}.0"),
        "{step}"
    );
    if real.has_memory() {
        let memory = real.answer("get_default_device_pinned_mem_limit 0");
        assert_eq!(memory, format!("{}G", mib / 1024), "{step}");
    }
    assert_eq!(real.names(), ["control"], "{step}");
    assert_eq!(bed.daemons().len(), 1, "{step}");
}

#[test]
fn daemon_and_ledger_agree_after_random_kills() {
    let cycles = std::env::var("TRANCHE_TEST_CYCLES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| sample::number(5, 20));
    each("daemon_and_ledger_agree_after_random_kills", UNEQUAL, |real| {
        let bed = &real.bed;
        let mut control = bed.control();
        let mut held: BTreeSet<&str> = BTreeSet::new();
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ u64::from(real.branch));
        let (mut daemons, mut brokers) = (0, 0);
        for cycle in 0..cycles {
            let (name, ..) = SHARES[usize::try_from(random.below(2)).unwrap()];
            let step = match random.below(5) {
                0 if !held.is_empty() => {
                    let before = bed.daemons();
                    for pid in bed.daemons() {
                        let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
                        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
                    }
                    // A process that is killed keeps its socket until its last thread has ended.
                    let is_left = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
                    until("the daemon has ended", || !before.iter().any(is_left));
                    daemons += 1;
                    // After several within a minute the broker gives up on purpose.
                    if daemons % 3 == 0
                        && let Ok(()) = control.restart(bed.key())
                    {}
                    "the daemon is killed"
                }
                1 => {
                    drop(control);
                    control = bed.control();
                    brokers += 1;
                    "the broker is killed"
                }
                _ if held.remove(name) => {
                    bed.stop(name);
                    "a container ends"
                }
                _ => {
                    bed.claim(name);
                    held.insert(name);
                    // While a daemon waits to be started again, the claim is refused; the container would not start.
                    until("the claim is granted", || control.prepare(bed.key()).is_ok());
                    "a container starts"
                }
            };
            assert_agrees(
                real,
                &control,
                &held,
                &format!("{}, cycle {cycle}: {step}", real.branch),
            );
        }
        println!(
            "{}: {cycles} cycles, {daemons} daemons and {brokers} brokers killed",
            real.branch
        );
        for name in std::mem::take(&mut held) {
            bed.stop(name);
        }
        assert_agrees(real, &control, &held, "the end");
    });
}
