//! The verbs about claims, each once. Root's command calls them in its own process, with or without a broker; the
//! broker calls them for a user, who cannot write the ledger. What differs between the two is [`Caller`].

mod calendar;
mod caller;
mod create;
mod list;
mod meant;
pub(crate) mod refusal;
mod release;
mod turn;

pub use calendar::{CalendarPlace, calendar, cancel_time, reserve_time};
pub use caller::Caller;
pub use create::{ClaimPlace, CreatedClaim, RootsTurn, Turn, create};
pub use list::{ListedClaims, list};
pub use release::{Released, UserClaims, WhatToRelease, release};
pub use turn::turn_holder;
