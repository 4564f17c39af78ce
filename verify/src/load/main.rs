//! `tranche-load` loads a GPU from inside a container in one of several ways, and prints what it got. `tranche bench`
//! on the host starts such processes in shares and compares them; one can also be started by hand.
//!
//! It prints one JSON object a line: `ready` when everything is made, then it waits for its input, which says when to
//! begin and to end, and at the end it prints each piece of work that it did. All times are those of CLOCK_MONOTONIC
//! in nanoseconds. It ends when its input ends, so it does not outlive the process that started it.
//!
//! Like `tranche-verify` it has no standard library. See build.rs.

#![no_std]
#![no_main]

mod arguments;
mod calibrate;
mod failure;
mod gpu;
mod input;
mod roles;

use arguments::{Arguments, Options};
use failure::Failure;
use gpu::Gpu;
use inside::json::Output;
use inside::sys::cuda::Cuda;
use inside::sys::deadline::{self, Last};
use inside::sys::{Stream, Strings, write_all};

inside::program!(run);

const HELP: &str = "\
Loads a GPU, and prints what it got, one JSON object a line.

Usage: tranche-load ROLE [OPTIONS]

Roles:
  calibrate  Find how many iterations a request has that takes a given time
  serve      Serve requests at given times; without times, one after another
  batch      Do requests one after another
  hog-sm     Hold all SMs with kernels of 100 ms
  hog-dram   Copy more than the L2 cache holds
  hog-l2     Copy as much as the L2 cache holds
  hog-pcie   Copy between the memory of the host and that of the device
  greedy     Allocate memory until CUDA refuses, and hold it
  fault      Make a kernel fail
  probe      See which SMs there are
  keep       Fill memory, and compare each byte of it at the begin

Options:
  --fma N             Iterations of a request: serve and batch need it
  --bytes N           What a copy touches, half of it read and half of it written
                      [default: 32 MiB for requests, 4 times the L2 cache or 256 MiB for hog-dram,
                      the L2 cache for hog-l2, 128 MiB for hog-pcie, 100 MiB for keep]
  --target-us N       How long a request takes alone, for calibrate [default: 3000]
  --kind KIND         How a kernel fails: trap, address [default: trap]
  --deadline SECONDS  Give up after this time
  --version           Print the version
  --help              Print this help

Input, one line each, in nanoseconds:
  at OFFSET           For serve: a request is intended at this time after the begin
  start BEGIN END     Begin and end at these times of CLOCK_MONOTONIC

Exit codes: 0 the run was complete, 1 it was not, 2 usage.
";

static LAST: Last = Last {
    stream: Stream::Error,
    before: b"tranche-load: ",
    after: b" has not ended in time\n",
};

/// Runs the program. Returns its exit code.
fn run(arguments: Strings, _: Strings) -> i32 {
    let mut out = Output::new();
    let print = |text: &str| i32::from(!write_all(Stream::Output, text.as_bytes()));
    let options = match arguments::parse(arguments.skip(1)) {
        Ok(Arguments::Run(options)) => options,
        Ok(Arguments::Help) => return print(HELP),
        Ok(Arguments::Version) => return print(concat!("tranche-load ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(failure) => return failure.report(None, &mut out),
    };
    if let Some(seconds) = options.deadline {
        deadline::end_after(seconds, &LAST);
    }
    let cuda = match Cuda::open() {
        Ok(cuda) => cuda,
        Err(text) => return Failure::NoLibrary(text).report(None, &mut out),
    };
    match load(&cuda, &options, &mut out) {
        Ok(()) => 0,
        Err(failure) => failure.report(Some(&cuda), &mut out),
    }
}

fn load(cuda: &Cuda, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let mut gpu = Gpu::open(cuda, options)?;
    roles::run(&mut gpu, options, out)
}
