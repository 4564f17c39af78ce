//! The samples that both programs write, and numbers as the values of samples.

use super::catalogue as family;
use super::exposition::Exposition;
use crate::controlled::DaemonState;
use crate::device::DeviceStatus;
use crate::public_status::PublicTurns;
use tranche_core::types::MemorySize;

/// Adds what is held and free of `devices`.
pub fn of_devices(out: &mut Exposition, devices: &[DeviceStatus]) {
    for device in devices {
        let label = [device.device.as_str()];
        out.add(family::READABLE, &label, truth(device.readable));
        if !device.policy_known {
            continue;
        }
        // A dedicated device has no shares: it is one.
        let is_one = device.shares.is_empty();
        let of = |shares: usize, whole: bool| if is_one { usize::from(whole) } else { shares };
        out.add(family::SHARES, &label, count(of(device.count, true)));
        if device.readable {
            out.add(family::HELD, &label, count(of(device.held.len(), device.held_whole)));
            out.add(family::FREE, &label, count(of(device.free_together, !device.is_held())));
            out.add(family::EARLIER, &label, count(device.held_of_earlier_policy.len()));
            out.add(family::WHOLE, &label, truth(device.held_whole));
        }
    }
}

/// Adds the MPS daemon of `device`, which was started again `restarts` times.
pub fn of_daemon(out: &mut Exposition, device: &str, state: DaemonState, restarts: u32) {
    out.add(family::DAEMON, &[device], truth(state == DaemonState::Running));
    out.add(family::RESTARTS, &[device], f64::from(restarts));
}

/// Adds how the holders of `device` have it by turns.
pub fn of_turns(out: &mut Exposition, device: &str, turns: &PublicTurns) {
    let label = [device];
    out.add(family::TURN_HELD, &label, truth(turns.is_held));
    out.add(family::TURN_SUSPENDED, &label, count(turns.suspended));
    out.add(family::TURN_MEMORY, &label, turns.host_memory_bytes as f64);
    out.add(family::TURN_CHANGES, &label, turns.changes as f64);
    let last = turns.last_change_ms.map(|last| last as f64 / 1000.0);
    out.add_some(family::TURN_LAST, &label, last);
}

/// 1 or 0.
pub fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// A number of things.
pub fn count(number: usize) -> f64 {
    number as f64
}

/// Bytes of a size in MiB.
pub fn bytes(mib: u64) -> f64 {
    MemorySize::from_mib(mib).bytes() as f64
}

/// A ratio of a number of percent.
pub fn ratio(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}
