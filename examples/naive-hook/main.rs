//! A hook that trusts the image: what the attack suite needs to know that it can tell safe from unsafe.
//!
//! It does the work of `tranche-oci hook VERB` with paths that are joined as text, follows every link, opens whatever
//! is there, and runs the image's `ldconfig`. Each attack of `tests/attacks` must catch it. It is never built into a
//! package.
//!
//! `--naive-faults` takes a list of further faults, each of which can be switched on alone:
//!
//! | fault | what is wrong |
//! |---|---|
//! | `capabilities` | every capability is kept, new privileges are allowed, other processes may trace the hook |
//! | `modes` | files are written with mode 04777 |
//! | `cover` | a mount that covers a file of a read-only root stays writable |
//! | `umask` | the engine's umask applies to what is made |
//! | `undo` | links stay when the hook fails |
//! | `temporary` | a temporary file has a known name, and is written through a link |
//! | `reopening` | a file that is opened again through /proc is not compared with the one that was looked at |
//!
//! Because it runs as root, it changes nothing outside the directories of `--naive-fence`, which it requires.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that is meant to be wrong"
)]

mod broker;
mod claims;
mod fence;
mod files;
mod loader;
mod outside;
mod runtime;
mod verbs;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use caps::{CapSet, Capability};
use fence::Fence;

/// What went wrong, for one line.
type Wrong = String;

/// What to do wrong, and how far.
struct Naive {
    faults: Vec<String>,
    fence: Fence,
}

impl Naive {
    fn has(&self, fault: &str) -> bool {
        self.faults.iter().any(|f| f == fault)
    }
}

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut take = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.remove(at);
        Some(arguments.remove(at))
    };
    let faults = take("--naive-faults").unwrap_or_default();
    let Some(fence) = take("--naive-fence") else {
        let _ = std::io::stderr().write_all(b"naive-hook: --naive-fence is missing\n");
        return ExitCode::from(2);
    };
    let naive = Naive {
        faults: faults.to_string_lossy().split(',').map(str::to_owned).collect(),
        fence: Fence::new(
            fence
                .as_bytes()
                .split(|b| *b == b':')
                .map(|b| PathBuf::from(std::ffi::OsStr::from_bytes(b))),
        ),
    };
    let (first, second) = (arguments.first().cloned(), arguments.get(1).cloned());
    let words = (first.unwrap_or_default(), second.unwrap_or_default());
    let rest = arguments.get(2..).unwrap_or_default();
    let done = match (words.0.to_str(), words.1.to_str()) {
        (Some("hook"), Some("precreate")) => runtime::precreate(rest),
        (Some("--state-dir"), _) => runtime::run(&arguments, &naive),
        (Some("hook"), Some(verb @ ("claim" | "release"))) => claims::run(verb, rest, &naive),
        (Some("hook"), Some(verb)) => hook(verb, rest, &naive),
        (Some("cdi"), Some(_)) => outside::specs(rest),
        (Some("broker"), _) => broker::run(&arguments, &naive),
        (Some("inventory" | "list"), _) => outside::library(&arguments),
        _ => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            let _ = std::io::stderr().write_all(format!("tranche-oci: hook: {wrong}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn hook(verb: &str, arguments: &[OsString], naive: &Naive) -> Result<(), Wrong> {
    if !naive.has("umask") {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    }
    if !naive.has("capabilities") {
        confine().map_err(|e| e.to_string())?;
    }
    verbs::run(verb, arguments, naive)
}

fn confine() -> Result<(), Box<dyn std::error::Error>> {
    nix::sys::prctl::set_dumpable(false)?;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0)?;
    nix::sys::prctl::set_no_new_privs()?;
    let have = caps::read(None, CapSet::Permitted)?;
    let keep = [
        Capability::CAP_DAC_OVERRIDE,
        Capability::CAP_SYS_ADMIN,
        Capability::CAP_FOWNER,
    ];
    let keep = keep
        .into_iter()
        .filter(|capability| have.contains(capability))
        .collect();
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)?;
    Ok(())
}

/// The state on standard input, read whole.
fn state() -> Result<serde_json::Value, Wrong> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).map_err(|e| e.to_string())?;
    serde_json::from_slice(&text).map_err(|e| format!("state: {e}"))
}

/// The values of `--name VALUE` and `--name=VALUE`.
fn values(arguments: &[OsString], name: &str) -> Vec<OsString> {
    let mut found = Vec::new();
    let prefix = format!("{name}=");
    for (at, argument) in arguments.iter().enumerate() {
        if argument == name {
            found.extend(arguments.get(at + 1).cloned());
        } else if let Some(value) = argument.as_bytes().strip_prefix(prefix.as_bytes()) {
            found.push(std::ffi::OsStr::from_bytes(value).to_owned());
        }
    }
    found
}
