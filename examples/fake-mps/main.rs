//! A fake of the driver's programs that change a machine: `nvidia-cuda-mps-control`, `nvidia-cuda-mps-server` and
//! `nvidia-smi compute-policy`. Which of them it is follows from the name of its file.
//!
//! The control program takes the command line and the commands of the real one, so that a test sees what a machine with
//! a GPU would get: which commands, in which order, with which environment and by which user. [`config`] says what it
//! records, how it fails and of which driver it is. It is compared with NVIDIA's own programs (tests/mps): options,
//! answers, exit codes, files and their modes, packets and the log. What differs on purpose is listed there.
//!
//! `fake-mps client [COMMAND…]` stands in for a CUDA process: it connects to the daemon of `CUDA_MPS_PIPE_DIRECTORY`,
//! prints the limits that it got, runs the command if there is one, and stays connected until its standard input ends
//! or the daemon ends the connection. [`daemon`] describes the packets.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a stand-in for programs that print"
)]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a stand-in for tests"
)]

mod client;
mod commands;
mod config;
mod daemon;
mod limits;
mod log;
mod policy;
mod protocol;
mod scan;
mod server;
mod start;
mod usage;
mod watch;

use config::Config;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let config = Config::read();
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let arguments: Vec<String> = words.collect();
    let name = Path::new(&program).file_name().unwrap_or_default();
    match name.to_str().unwrap_or_default() {
        "nvidia-cuda-mps-server" => server::wait(&config),
        server::MISSING => ExitCode::FAILURE,
        "nvidia-smi" => policy::run(&config, &arguments),
        _ => match arguments.split_first() {
            Some((first, rest)) if first == "client" => client::run(rest),
            _ => start::run(&config, &arguments),
        },
    }
}
