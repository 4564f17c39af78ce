//! Makes a test host: `fake-host NAME DIRECTORY`, with another version of the driver after `--driver VERSION`, or says
//! which there are: `fake-host --list`. `fake-host --cuda FILE` makes a `libcuda.so.1` of `examples/fake-cuda`. With
//! `fake-host --facts SPEC.json` it prints what a CDI specification does, as the lists in `tests/parity/` have it.
//!
//! What could not be made (device nodes, without root) goes to stderr, one line each; the rest of the host is there.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the tests and the demonstration"
)]

use std::process::ExitCode;

use tranche_test_support::{facts_of_spec, fake_host, fake_library};

const USAGE: &str = "usage: fake-host [--driver VERSION] NAME DIRECTORY | --cuda FILE | --list | --facts SPEC.json";

fn show(host: &fake_host::Host) {
    for missing in &host.not_made {
        eprintln!("not made: {}: {}", missing.path.display(), missing.why);
    }
    println!("{}", host.root.display());
}

fn run(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [list] if list == "--list" => {
            for name in fake_host::names()? {
                println!("{name:22} {}", fake_host::about(&name)?);
            }
            Ok(())
        }
        [option, spec] if option == "--facts" => {
            let text = std::fs::read_to_string(spec).map_err(|e| format!("{spec}: {e}"))?;
            let spec = serde_json::from_str(&text).map_err(|e| format!("{spec}: {e}"))?;
            for fact in facts_of_spec::facts(&spec) {
                println!("{fact}");
            }
            Ok(())
        }
        [option, library] if option == "--cuda" => fake_library::CUDA.install(library.as_ref(), &[]),
        [option, version, name, directory] if option == "--driver" => {
            show(&fake_host::build_with_driver(name, version, directory.as_ref())?);
            Ok(())
        }
        [name, directory] => {
            show(&fake_host::build(name, directory.as_ref())?);
            Ok(())
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fake-host: {why}");
            ExitCode::FAILURE
        }
    }
}
