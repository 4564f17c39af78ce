//! Runs what `tranche bench` measures on this machine, and puts everything back. What the figures mean is in
//! [`tranche_bench`].
//!
//! ```text
//! tranche bench ──▶ guard (holds the device, is the broker of the room, puts back)
//!       └─ for each cell ─▶ tranche run --share … ─▶ tranche-load
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`room`] | the directory with a ledger, a policy and a broker of its own |
//! | [`guard`](mod@guard) | the process that holds the device, and puts everything back |
//! | [`guarded`] | the guard, as the process that measures sees it |
//! | [`run`](mod@run) | runs the cells |
//! | `layout` | changes the layout of MIG for a way, and puts it back |
//! | [`keep`](mod@keep) | keeps the verdicts of a run on this machine |
//! | [`search`] | searches the best split between two workloads |
//! | [`workload`] | the two workloads of a search |
//! | [`turn_try`] | suspends a program on the device and resumes it, for `tranche turns try` |
//! | [`as_user`] | runs a program as a user, and ends all that it leaves |

pub mod as_user;
mod calibration;
mod clock;
mod command;
pub mod guard;
pub mod guarded;
pub mod keep;
mod layout;
mod load;
mod machine;
pub mod room;
pub mod run;
pub mod search;
mod site;
mod tenant;
pub mod turn_try;
pub mod workload;
