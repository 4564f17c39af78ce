//! A driver for dynamic resource allocation (DRA) of Kubernetes (`resource.k8s.io/v1`).
//!
//! The devices of the broker become ResourceSlices, from which the scheduler allocates devices to claims. The kubelet
//! asks for each claim of a pod, and the broker reserves what was allocated and makes it ready.
//!
//! | module | what it does |
//! |---|---|
//! | `attributes`, `quantity` | pure: values of the API |
//! | `devices`, [`slices`] | pure: the slices of a node |
//! | `difference`, `pace` | pure: what has to be sent, and when |
//! | `probe` | whether the API server keeps all fields |
//! | [`publish`] | keeps the slices at the API server as they should be |
//! | [`allocation`], `result`, [`opaque`] | pure: what the scheduler has allocated to a claim, and how it is configured |
//! | [`authority`] | makes the requests of a kubelet acceptable to tonic |
//! | [`handler`] | what is done for a claim, as a trait |
//! | [`driver`] | what is done for a claim here |
//! | [`health`] | the health of the devices, as a stream |
//! | [`server`] | both sockets, from the start to the end |
//! | `listening` | one socket, which is made anew when it is gone |
//! | `registration` | what the kubelet asks before it uses the driver |
//! | `claims` | the calls about claims, in both versions of the interface |
//! | `routes` | which service a call is for |
//! | `labels` | labels of the node, for Node Feature Discovery |
//! | `status` | what claims were given, written into their status |
//! | `node` | asks the broker, and passes on what it answers |
//! | `start` | the driver from its start to its end |

pub mod allocation;
pub mod attributes;
pub mod authority;
mod claims;
pub mod devices;
pub mod difference;
pub mod driver;
pub mod handler;
pub mod health;
mod label_value;
mod labels;
mod listening;
mod node;
pub mod opaque;
pub mod pace;
pub mod probe;
pub mod publish;
pub mod quantity;
mod registration;
mod result;
mod routes;
pub mod server;
pub mod slices;
mod start;
mod status;

pub use handler::{ClaimHandler, PreparedDevice};
pub use health::{DeviceHealth, Health};
pub use server::{DraSettings, DraTimes, serve};
pub use start::{Running, start};
