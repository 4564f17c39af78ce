//! Why a rule of the ledger refuses a claim.

use super::claim::{Claim, HeldPart};
use super::fit::Misfit;
use crate::text::some;
use std::fmt;

/// Why a claim was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Another claim holds a part that cannot be held twice.
    Taken {
        /// The other claim.
        by: Box<Claim>,
        /// Whether it is on another device than the one asked for: on the GPU that a MIG device is on, or the reverse.
        elsewhere: bool,
    },
    /// It and all held claims together are more than the device has.
    Misfit {
        /// What does not fit.
        misfit: Misfit,
        /// The claims that hold the rest.
        beside: Vec<Claim>,
    },
    /// The holder holds another part of this device, and may hold one.
    Another {
        /// What it holds.
        part: HeldPart,
    },
    /// Every share that would do is held.
    NoneFree,
    /// There is no claim of that name.
    NoSuchClaim(String),
    /// It belongs to another user.
    NotYours(Box<Claim>),
    /// There is a claim of that name already.
    NameTaken(String),
    /// The claim of that name was promised something else than the specification that names it says.
    OtherPromise(String),
    /// A container uses it.
    InUse {
        /// The claim.
        claim: Box<Claim>,
        /// Whether the container certainly runs. Otherwise it cannot be seen from here, and may run.
        runs: bool,
    },
    /// It may be held: the line of the claim that holds it is damaged.
    Unreadable(HeldPart),
}

impl std::error::Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Taken { by, elsewhere } => {
                write!(f, "{} holds {}", by.who(), by.part)?;
                if *elsewhere {
                    write!(f, " {}", by.device)?;
                }
                write!(f, " since {}", super::utc(by.since))
            }
            Refused::Misfit { misfit, beside } => {
                let who: Vec<String> = beside.iter().map(Claim::who).collect();
                write!(f, "{misfit}: by {}", some(&who))
            }
            Refused::Another { part } => {
                write!(
                    f,
                    "this container holds {part} of this device already, and can hold nothing else of it"
                )
            }
            Refused::NoneFree => write!(f, "no share of it is free"),
            Refused::NoSuchClaim(name) => write!(f, "there is no claim {name}"),
            Refused::NotYours(claim) => write!(f, "{} belongs to another user", claim.who()),
            Refused::NameTaken(_) => write!(f, "exists already"),
            Refused::OtherPromise(name) => {
                write!(f, "claim {name} is not the one that this specification was written for")
            }
            Refused::InUse { claim, runs: true } => write!(f, "{} is using it", claim.who()),
            Refused::InUse { claim, runs: false } => write!(f, "{} may be using it", claim.who()),
            Refused::Unreadable(part) => write!(f, "the ledger's line of the claim that holds {part} is damaged"),
        }
    }
}
