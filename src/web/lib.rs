//! The history of a machine: who held which part of which device, and when.
//!
//! `tranche-web` contains it. It runs as a user of its own, reads the event files that the writers of the ledger leave
//! ([`tranche_core::ledger::events`]) and answers questions over a Unix socket. It has no right to change anything but
//! its database.
//!
//! - [`database`]: the SQLite file, its form, and what happens to a damaged one
//! - [`intake`]: from the event files into the database, each line once
//! - [`report`] and [`timeline`]: the answers
//! - [`viewer`]: who may see which rows
//! - [`service`]: the sockets and the program, with the page and the metrics

mod content;
pub mod database;
mod http;
pub mod intake;
mod metrics;
mod now;
mod page;
mod public;
pub mod report;
pub mod service;
mod spans;
pub mod timeline;
pub mod viewer;
