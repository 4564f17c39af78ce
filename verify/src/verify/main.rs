//! `tranche-verify` runs inside a container and prints what CUDA gives there: which devices, how many SMs, how much
//! memory, and whether it runs under MPS. `tranche verify` on the host copies it into the container, runs it, and
//! compares the result with what the container's share promises. It can also be mounted and run by hand.
//!
//! It has no standard library, because that needs a newer C library than some images have. See build.rs.

#![no_std]
#![no_main]

mod print;
mod report;

use inside::json::Output;
use inside::sys::deadline::{self, Last};
use inside::sys::{self, Stream, Strings};
use report::{Environment, Report};

inside::program!(run);

const HELP: &str = "\
Asks CUDA what it gives to processes of this container.

Usage: tranche-verify [OPTIONS]

      --json                Print one JSON object
      --largest-allocation  Also allocate the largest block of memory that CUDA gives, for a moment
      --deadline SECONDS    Give up after this time [default: 30]
      --remove              Remove this program's file, and do nothing else
      --version             Print the version
      --help                Print this help

Exit codes: 0 CUDA has answered, 1 it could not be asked, 2 usage.
";

static IN_JSON: Last = Last {
    stream: Stream::Output,
    before: b"{\"version\":1,\"error\":\"",
    after: b" has not answered in time\"}\n",
};
static IN_TEXT: Last = Last {
    stream: Stream::Output,
    before: b"",
    after: b" has not answered in time.\n",
};

/// What the arguments ask for.
struct Options {
    json: bool,
    largest_allocation: bool,
    deadline: u32,
}

/// Runs the program. Returns its exit code.
fn run(arguments: Strings, environment: Strings) -> i32 {
    let mut options = Options {
        json: false,
        largest_allocation: false,
        deadline: 30,
    };
    let mut arguments = arguments.skip(1);
    while let Some(argument) = arguments.next() {
        match argument {
            b"--json" => options.json = true,
            b"--largest-allocation" => options.largest_allocation = true,
            b"--deadline" => match arguments.next().and_then(number) {
                Some(seconds) => options.deadline = seconds,
                None => return usage(b"--deadline"),
            },
            b"--remove" => return i32::from(!sys::remove_own_file()),
            b"--version" => return print_text(concat!("tranche-verify ", env!("CARGO_PKG_VERSION"), "\n")),
            b"--help" | b"-h" => return print_text(HELP),
            other => return usage(other),
        }
    }
    // The report is printed after the last question, so nothing was printed before this.
    let last = match options.json {
        true => &IN_JSON,
        false => &IN_TEXT,
    };
    deadline::end_after(options.deadline, last);
    let report = Report::make(Environment(environment), options.largest_allocation);
    deadline::end_after(0, last);
    let mut output = Output::new();
    let is_printed = match options.json {
        true => report.json(&mut output),
        false => report.text(&mut output),
    };
    match is_printed.is_ok() && output.flush() && report.has_answer() {
        true => 0,
        false => 1,
    }
}

/// A positive number of seconds. `alarm` takes any number that fits into 32 bits.
fn number(text: &[u8]) -> Option<u32> {
    core::str::from_utf8(text)
        .ok()?
        .parse()
        .ok()
        .filter(|number| *number > 0)
}

fn print_text(text: &str) -> i32 {
    i32::from(!sys::write_all(Stream::Output, text.as_bytes()))
}

fn usage(argument: &[u8]) -> i32 {
    let parts: [&[u8]; 3] = [
        b"tranche-verify: invalid argument: ",
        argument,
        b"; --help lists the options\n",
    ];
    parts.into_iter().for_each(|part| {
        sys::write_all(Stream::Error, part);
    });
    2
}
