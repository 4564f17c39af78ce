//! How often each kind of operation comes, by what is tried.

use crate::known::ONE_ORDER;

/// How often each kind of operation comes, by what is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) claims: u64,
    pub(crate) containers: u64,
    pub(crate) programs: u64,
    pub(crate) instances: u64,
    pub(crate) kubernetes: u64,
    pub(crate) drains: u64,
    pub(crate) kills: u64,
    pub(crate) disks: u64,
    pub(crate) boots: u64,
    pub(crate) rejoins: u64,
    /// Reservations for later, and jumps of the clock.
    pub(crate) times: u64,
    /// Whether policies let root wait behind users.
    pub(crate) root_waits: bool,
}

/// Everything.
pub(crate) const ALL: Weights = Weights {
    claims: 40,
    containers: 16,
    programs: 6,
    instances: 12,
    kubernetes: 12,
    drains: 4,
    kills: 8,
    disks: 5,
    boots: 2,
    rejoins: 1,
    times: 8,
    root_waits: true,
};

/// Nothing.
const NOTHING: Weights = Weights {
    claims: 0,
    containers: 0,
    programs: 0,
    instances: 0,
    kubernetes: 0,
    drains: 0,
    kills: 0,
    disks: 0,
    boots: 0,
    rejoins: 0,
    times: 0,
    root_waits: false,
};

/// Reservations for later, those who hold and wait, and kills.
const CALENDAR: Weights = Weights {
    claims: 24,
    containers: 6,
    programs: 4,
    kubernetes: 4,
    drains: 2,
    kills: 6,
    disks: 3,
    boots: 2,
    times: 40,
    root_waits: true,
    ..NOTHING
};

/// Those who wait, and for what.
const QUEUE: Weights = Weights {
    claims: 40,
    containers: 8,
    programs: 4,
    kills: 1,
    rejoins: 1,
    root_waits: true,
    ..NOTHING
};

/// The same without those who hang up again and again.
const ORDER: Weights = Weights { rejoins: 0, ..QUEUE };

/// Instances that are made on demand.
const INSTANCES: Weights = Weights {
    claims: 6,
    programs: 4,
    instances: 40,
    kubernetes: 8,
    kills: 6,
    boots: 1,
    ..NOTHING
};

/// Disks that are full or cannot be written, and what outlives a boot.
const DISKS: Weights = Weights {
    claims: 10,
    containers: 6,
    kubernetes: 20,
    drains: 4,
    disks: 20,
    boots: 4,
    kills: 4,
    ..NOTHING
};

/// What `make test` does. Two things are left out until there is one order for all who wait ([`ONE_ORDER`]): a root
/// that waits behind users, and a user who hangs up and waits again.
pub(crate) const DEFAULT: Weights = match ONE_ORDER {
    true => ALL,
    false => Weights {
        root_waits: false,
        rejoins: 0,
        ..ALL
    },
};

/// The weights of this name.
pub(crate) fn named(name: &str) -> Weights {
    match name {
        "default" => DEFAULT,
        "all" => ALL,
        "queue" => QUEUE,
        "order" => ORDER,
        "instances" => INSTANCES,
        "disks" => DISKS,
        "calendar" => CALENDAR,
        other => panic!("{other}: expected default, all, queue, order, instances, disks or calendar"),
    }
}
