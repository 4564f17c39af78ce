//! The metrics: name, type, unit, labels and meaning. docs/reference/metrics.md has the same list, and a test
//! compares the two.

pub use tranche_core::openmetrics::{Family, FamilyKind};

/// Defines a constant for each family, and the list of all.
macro_rules! families {
    ($($constant:ident: $name:literal $kind:ident [$($label:literal)*] $help:literal;)+) => {
        $(#[doc = $help]
        pub const $constant: Family = Family {
            name: $name,
            kind: FamilyKind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)+

        /// All families, in the order in which they are written.
        pub const ALL: &[Family] = &[$($constant),+];
    };
}

families! {
    BUILD: "tranche_build_info" Gauge ["version"] "The program that wrote this: always 1.";
    PROBLEMS: "tranche_problems" Gauge [] "Parts of the state that could not be read, and so are missing here.";
    HOST_FILE: "tranche_host_file_current" Gauge [] "Whether host.json exists and describes the host: 1 or 0.";
    DEVIATIONS: "tranche_deviations" Gauge ["device" "kind"] "What differs from the expected state, by kind.";
    SHARES: "tranche_device_shares" Gauge ["device"] "Shares that the present policy makes of the device; 1 for a dedicated device.";
    HELD: "tranche_device_shares_held" Gauge ["device"] "Shares of the present policy that are held; 1 for a dedicated device that is held.";
    FREE: "tranche_device_shares_free" Gauge ["device"] "Shares that containers can have now, all of them together; 1 for a dedicated device that is free.";
    EARLIER: "tranche_device_shares_of_earlier_policy" Gauge ["device"]
        "Shares that are held and that the present policy does not have.";
    WHOLE: "tranche_device_held_whole" Gauge ["device"] "Whether one claim holds all of the device: 1 or 0.";
    READABLE: "tranche_device_readable" Gauge ["device"]
        "Whether the device's part of the ledger could be read: 1 or 0. If not, its other values are not known.";
    OUT: "tranche_device_out_of_service" Gauge ["device" "reason"]
        "A device that is taken out of service: 1, or 0 if its time has not come.";
    MEMORY: "tranche_device_memory_bytes" Gauge ["device"] "Memory of the device.";
    MEMORY_USED: "tranche_device_memory_used_bytes" Gauge ["device"] "Memory of the device that is allocated.";
    BUSY: "tranche_device_busy_ratio" Gauge ["device"]
        "Part of the last sample period in which a kernel ran on the GPU. Unknown in MIG mode.";
    MEMORY_BUSY: "tranche_device_memory_busy_ratio" Gauge ["device"]
        "Part of the last sample period in which memory of the GPU was read or written. Unknown in MIG mode.";
    PROCESSES: "tranche_device_processes" Gauge ["device"] "Processes that use the device.";
    EXCLUSIVE: "tranche_device_exclusive" Gauge ["device"]
        "Whether the compute mode of the GPU is another one than DEFAULT: 1 or 0.";
    TURN_HELD: "tranche_device_turn_held" Gauge ["device"] "Whether one of the holders by turns has the device now: 1 or 0.";
    TURN_SUSPENDED: "tranche_device_turn_suspended" Gauge ["device"]
        "Holders by turns whose memory of the device is in that of the machine.";
    TURN_MEMORY: "tranche_device_turn_host_memory_bytes" Gauge ["device"] "Memory of the machine that they use.";
    TURN_CHANGES: "tranche_device_turn_changes" Counter ["device"]
        "How often the device has changed its holder since somebody has held it by turns.";
    TURN_LAST: "tranche_device_turn_last_change_seconds" Gauge ["device"] "How long the last of these changes took.";
    CLAIM: "tranche_claim_held" Gauge ["device" "shares" "strategy" "claim" "container" "container_name"]
        "A claim: 1 if a container uses it, 0 if it is reserved.";
    CLAIM_SINCE: "tranche_claim_start_time_seconds" Gauge ["device" "shares"]
        "When the claim was made, in seconds since 1970.";
    CLAIM_MEMORY: "tranche_claim_memory_limit_bytes" Gauge ["device" "shares"]
        "Memory that was promised with the claim. Absent without a limit.";
    CLAIM_COMPUTE: "tranche_claim_compute_limit_ratio" Gauge ["device" "shares"]
        "Part of the device's compute that was promised with the claim. Absent without a limit.";
    CLAIM_USED: "tranche_claim_memory_used_bytes" Gauge ["device" "shares"]
        "Memory of the device that the processes of the claim have allocated.";
    CLAIM_BUSY: "tranche_claim_busy_ratio" Gauge ["device" "shares"]
        "Part of the last sample period in which a kernel of the claim's processes ran.";
    CLAIM_PROCESSES: "tranche_claim_processes" Gauge ["device" "shares"] "Processes of the claim that use the device.";
    WAITERS: "tranche_waiters" Gauge [] "Starts of containers, and commands, that wait for a share.";
    LONGEST: "tranche_longest_wait_seconds" Gauge [] "How long the first of them has waited; 0 if nobody waits.";
    DAEMON: "tranche_mps_daemon_running" Gauge ["device"] "Whether the MPS daemon of the device serves clients: 1 or 0.";
    RESTARTS: "tranche_mps_daemon_restarts" Counter ["device"]
        "How often the MPS daemon of the device was started again after it had died.";
}
