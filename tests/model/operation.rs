//! What the model does: small values that mean the same in every run, so that each can be left out when a failure is
//! made smaller.

use crate::reserving::Killed;
use std::fmt;

/// The users, beside root.
pub(crate) const USERS: [u32; 7] = [60_001, 60_002, 60_003, 60_004, 60_005, 60_006, 60_007];

/// Root's engine and its command line.
pub(crate) const ROOT: u32 = 0;

/// What somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// So many shares of a GPU that is split.
    Shares(u8, u8),
    /// A dedicated GPU.
    Whole(u8),
    /// Any whole device.
    Any,
    /// An instance of this profile, made on demand.
    Instance(Profile),
}

/// A profile of MIG, by the slices that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Profile {
    One,
    Two,
    Three,
}

impl Profile {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "1g.5gb",
            Self::Two => "2g.10gb",
            Self::Three => "3g.20gb",
        }
    }
}

/// What is done to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Full,
    ReadOnly,
    Well,
}

/// Which directory is a disk of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// What is lost at a boot.
    State,
    /// What outlives a boot.
    Kept,
    /// The specifications.
    Specs,
}

/// What the policy says of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) root_waits: bool,
    /// Seconds.
    pub(crate) reserve_for: u8,
    /// How many shares a user may hold.
    pub(crate) quota: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// `tranche claim create`, under one of a few names, with so many seconds to wait.
    Create {
        who: u32,
        name: u8,
        what: What,
        wait: u8,
    },
    /// `tranche claim release`.
    Release {
        who: u32,
        name: u8,
    },
    /// `tranche run`, whose program runs until it is ended.
    Run {
        who: u32,
        name: u8,
        what: What,
        wait: u8,
    },
    /// A container: root's engine runs the hook, a user's asks the broker.
    Start {
        who: u32,
        name: u8,
        what: What,
        elsewhere: bool,
    },
    /// The program or container ends.
    End {
        who: u32,
        name: u8,
    },
    /// A pod gets shares of a GPU, as the device plugin asks for it.
    Reserve {
        pod: u8,
        what: What,
    },
    GiveUp {
        pod: u8,
    },
    /// A resource claim, as the DRA driver asks for it.
    Prepare {
        claim: u8,
        what: What,
    },
    Unprepare {
        claim: u8,
    },
    Drain {
        gpu: u8,
    },
    Undrain {
        gpu: u8,
    },
    Rules(Rules),
    /// The broker is killed after so many microseconds.
    Kill {
        after: u32,
    },
    /// The broker is killed the next time that it makes this call of NVML.
    KillAt {
        call: &'static str,
    },
    /// It is started again.
    Up,
    /// A client that waits for an answer is killed.
    KillClient {
        which: u8,
    },
    /// A user who waits, hangs up and waits again, so many times.
    Rejoin {
        who: u32,
        what: What,
        times: u8,
    },
    Disk {
        place: Place,
        disk: Disk,
    },
    /// The machine boots.
    Boot,
    Pause {
        milliseconds: u16,
    },
    /// `tranche reserve`: from so many slots ahead on, for so many.
    Promise {
        who: u32,
        what: What,
        ahead: u8,
        lasts: u8,
        killed: Killed,
    },
    /// `tranche reserve cancel`.
    Cancel {
        who: u32,
        which: u8,
        killed: Killed,
    },
    /// The clock jumps by so many slots.
    Clock {
        slots: i8,
    },
    /// Everything that does not wait is answered, and what is waited for is looked at.
    Rest,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) act: Act,
    /// The next one begins before this one is answered.
    pub(crate) overlaps: bool,
}

impl Act {
    /// Its row in the table.
    pub(crate) fn row(&self) -> &'static str {
        match self {
            Self::Create {
                who: ROOT,
                what: What::Instance(_),
                ..
            } => "root: claim create --mig",
            Self::Create { who: ROOT, wait: 0, .. } => "root: claim create",
            Self::Create { who: ROOT, .. } => "root: claim create --wait",
            Self::Create {
                what: What::Instance(_),
                ..
            } => "user: claim create --mig",
            Self::Create { wait: 0, .. } => "user: claim create",
            Self::Create { .. } => "user: claim create --wait",
            Self::Release { who: ROOT, .. } => "root: claim release",
            Self::Release { .. } => "user: claim release",
            Self::Run { who: ROOT, .. } => "root: run",
            Self::Run { .. } => "user: run",
            Self::Start { elsewhere: true, .. } => "root: container, from another time namespace",
            Self::Start { who: ROOT, .. } => "root: container",
            Self::Start { .. } => "user: container",
            Self::End { .. } => "a container or program ends",
            Self::Reserve { .. } => "pod: reserve",
            Self::GiveUp { .. } => "pod: give up",
            Self::Prepare { .. } => "resource claim: prepare",
            Self::Unprepare { .. } => "resource claim: unprepare",
            Self::Drain { .. } => "drain",
            Self::Undrain { .. } => "undrain",
            Self::Rules(_) => "policy changes",
            Self::Kill { .. } => "broker killed",
            Self::KillAt { .. } => "broker killed at a call of NVML",
            Self::Up => "broker started",
            Self::KillClient { .. } => "client killed",
            Self::Rejoin { .. } => "user: waits, hangs up and waits again",
            Self::Disk { disk: Disk::Full, .. } => "disk full",
            Self::Disk {
                disk: Disk::ReadOnly, ..
            } => "disk read-only",
            Self::Disk { .. } => "disk well again",
            Self::Boot => "boot",
            Self::Pause { .. } => "pause",
            Self::Promise { who: ROOT, .. } => "root: reserve",
            Self::Promise { .. } => "user: reserve",
            Self::Cancel { .. } => "reserve cancel",
            Self::Clock { .. } => "the clock jumps",
            Self::Rest => "rest, and look",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let overlaps = if self.overlaps { " &" } else { "" };
        write!(f, "{:?}{overlaps}", self.act)
    }
}
