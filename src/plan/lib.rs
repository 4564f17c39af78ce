//! From a host and a policy to shares, and from shares to specifications. Nothing here asks a GPU or changes a machine.
//!
//! ```text
//! Inventory ── policy ──▶ Plan ── derive ──▶ Edits ── cdi ──▶ specification
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`yaml`] | YAML files with the line and column of each value |
//! | [`digest`] | SHA-256 digests of what a specification was made from, as text |
//! | [`inventory`] | what a host has, as data |
//! | [`edits`] | what is done to a container, as data |
//! | [`sim`] | the built-in inventories |
//! | [`sources`] | opens an inventory from a file, standard input or the built-in ones |
//! | [`policy`] | the configuration file: how devices are shared |
//! | [`share`] | policy and inventory to a plan: which shares there are, and what each guarantees |
//! | [`access`] | who may open which device node |
//! | [`guarded`] | devices that a container gets only with a claim, by their device numbers |
//! | [`hold`] | what users hold for longer than the policy lets them |
//! | [`idle`] | for how long what users hold has done nothing |
//! | [`host_file`] | what the host has and the plan for it, in a file for programs that never query the GPU |
//! | [`mig`] | the division of GPUs by MIG: what is offered, what exists, what is wanted, and the steps between |
//! | [`calendar`] | what may be reserved for later |
//! | [`queue`] | who of the waiting users is served next |
//! | [`turns`] | whose turn it is on a device that its holders have one after another, and the steps of a change |
//! | [`reserve`] | reserves shares of a plan, and says what of the held shares a plan does not know |
//! | [`advise`](mod@advise) | a policy for what people want of a machine, and why it is this one |
//! | [`derive`](mod@derive) | inventory and plan to edits |
//! | [`difference`] | what changes with a plan: names, sizes, and what is refused because of what is held |
//! | [`cdi`] | CDI specifications: builds, reads, checks and writes them |
//! | [`engines`] | what tranche knows of each engine |

pub mod access;
pub mod advise;
pub mod calendar;
pub mod cdi;
pub mod derive;
pub mod difference;
pub mod digest;
pub mod edits;
pub mod engines;
pub mod guarded;
pub mod hold;
pub mod host_file;
pub mod idle;
pub mod inventory;
pub mod mig;
pub mod policy;
pub mod queue;
pub mod reserve;
pub mod share;
pub mod sim;
pub mod sources;
pub mod turns;
pub mod yaml;
