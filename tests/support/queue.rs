//! Devices and people who wait for them, for the tests and the benchmark of the rule who is next.

mod invariants;
mod month;
mod world;

pub use invariants::Watch;
pub use month::{Month, MonthOutcome, curve_of_months, months, table_of_months};
pub use world::{ForBoth, ServedRequest, Wanted, World, request_for_both, user_of};
