//! What looks at a machine and says what it sees: what is wrong, who uses what, which engines there are and what their
//! configuration should be.
//!
//! | module | what it does |
//! |---|---|
//! | [`policy_change`] | what would change if another file became the policy |
//! | [`export`] | flags and lines that give a device to programs without CDI |
//! | [`engine_config`] | the configuration files of docker, containerd, CRI-O and podman |
//! | [`measured`] | what `tranche bench` has measured on this machine of the devices of a plan |
//! | [`observe`] | which claim each process on a GPU belongs to |
//! | [`observed`] | the state of the shares at one moment: what is held and free, who waits, what the GPUs do |
//! | [`verify`](mod@verify) | whether CUDA in a container gives what its share promises |
//! | [`doctor`] | what is wrong with a host, why it matters, and which command corrects it |

pub mod doctor;
pub mod engine_config;
pub mod export;
pub mod measured;
pub mod observe;
pub mod observed;
pub mod policy_change;
pub mod verify;
