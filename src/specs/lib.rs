//! Specifications of a host and its policy, and `host.json`: what they are made from, how they are written, and how
//! they are kept current. The broker has none of this: it executes `tranche cdi refresh`.
//!
//! | module | what it does |
//! |---|---|
//! | [`digests`] | the digests of a host and of a policy |
//! | [`nvidia_config`] | the configuration file of NVIDIA's container toolkit |
//! | [`generate`] | specifications of a host and its policy, and whether they are stale |
//! | [`refresh`] | keeps the specifications and `host.json` current |
//! | [`installed`] | the engines that are installed, and their versions |
//! | [`device_files`] | the driver's device nodes and the links in `/dev/char`, and how they are made |

pub mod device_files;
pub mod digests;
pub mod generate;
pub mod installed;
pub mod nvidia_config;
pub mod refresh;
