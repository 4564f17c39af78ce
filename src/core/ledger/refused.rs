//! Why a rule of the ledger refuses a claim.

use super::calendar::ReservedTime;
use super::claim::Claim;
use super::fit::Misfit;
use super::out_of_service::WhyOut;
use super::utc;
use crate::text::some;
use crate::types::HeldPart;

/// Why a claim was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another claim holds a part that cannot be held twice.
    #[error("{}", taken(by, *elsewhere))]
    Taken {
        /// The other claim.
        by: Box<Claim>,
        /// Whether it is on another device than the one asked for: on the GPU that a MIG device is on, or the reverse.
        elsewhere: bool,
    },
    /// It and all held claims together are more than the device has.
    #[error("{misfit}: by {}", some(&beside.iter().map(Claim::who).collect::<Vec<_>>()))]
    Misfit {
        /// What does not fit.
        misfit: Misfit,
        /// The claims that hold the rest.
        beside: Vec<Claim>,
    },
    /// The holder holds another part of this device, and may hold one.
    #[error("this container holds {part} of this device already, and can hold nothing else of it")]
    Another {
        /// What it holds.
        part: HeldPart,
    },
    /// Every share that would do is held.
    #[error("no share of it is free")]
    NoneFree,
    /// It is free, and left to those who have waited for it.
    #[error("{} for it and {} served first", waits(*waiting), if *waiting == 1 { "is" } else { "are" })]
    Waiting {
        /// How many wait.
        waiting: usize,
    },
    /// It is reserved for another user, now or soon.
    #[error("{0}")]
    Reserved(Box<ReservedTime>),
    /// The device is out of service: nothing new is given of it.
    #[error("{0}")]
    OutOfService(WhyOut),
    /// No claim has that name.
    #[error("there is no claim {0}")]
    NoSuchClaim(String),
    /// It belongs to another user.
    #[error("{} belongs to another user", .0.who())]
    NotYours(Box<Claim>),
    /// It belongs to a user who has not allowed engines of root to use it.
    #[error("{} belongs to uid {}, who has not allowed engines that run as root to use it", .0.who(), .0.uid)]
    NotForRoot(Box<Claim>),
    /// Another claim has that name.
    #[error("exists already")]
    NameTaken(String),
    /// The claim of that name was promised something else than the specification that names it says.
    #[error("claim {0} is not the one that this specification was written for")]
    OtherPromise(String),
    /// A container uses it.
    #[error("{} {} using it", claim.who(), if *runs { "is" } else { "may be" })]
    InUse {
        /// The claim.
        claim: Box<Claim>,
        /// Whether the container certainly runs. Otherwise it cannot be seen from here, and may run.
        runs: bool,
    },
    /// It may be held: the line of the claim that holds it is damaged.
    #[error("the ledger's line of the claim that holds {0} is damaged")]
    Unreadable(HeldPart),
}

fn waits(waiting: usize) -> String {
    match waiting {
        1 => "another start waits".to_owned(),
        _ => format!("{waiting} other starts wait"),
    }
}

fn taken(by: &Claim, elsewhere: bool) -> String {
    let device = if elsewhere {
        format!(" {}", by.device)
    } else {
        String::new()
    };
    format!("{} holds {}{device} since {}", by.who(), by.part, utc(by.since))
}
