//! What the kubelet asks a driver for dynamic resource allocation (DRA): its registration, resource claims, the health
//! of devices. What is done for a claim is not here: see [`ClaimHandler`].
//!
//! | module | what it does |
//! |---|---|
//! | [`authority`] | makes the requests of a kubelet acceptable to tonic |
//! | [`handler`] | what is done for a claim, as a trait |
//! | [`health`] | the health of the devices, as a stream |
//! | [`server`] | both sockets, from the start to the end |
//! | `listening` | one socket, which is made anew when it is gone |
//! | `registration` | what the kubelet asks before it uses the driver |
//! | `claims` | the calls about claims, in both versions of the interface |
//! | `routes` | which service a call is for |

pub mod authority;
mod claims;
pub mod handler;
pub mod health;
mod listening;
mod registration;
mod routes;
pub mod server;

pub use handler::{ClaimHandler, PreparedDevice};
pub use health::{DeviceHealth, Health};
pub use server::{DraSettings, DraTimes, serve};
