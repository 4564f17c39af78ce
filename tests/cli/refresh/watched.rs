//! `tranche cdi watch`: a refresh at the start and after each change, until it is asked to end.

use super::*;
use crate::support::fake_host::{self, Host};
use crate::support::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Long enough for a slow machine. Nothing waits as long as this if all is well.
const PATIENCE: Duration = Duration::from_secs(120);

/// A watch that runs, and the lines that it prints.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    fn start(bed: &Bed, host: &Host, more: &[&str]) -> Self {
        let root = host.root.display();
        let bin = bed.at("bin");
        fs::create_dir_all(&bin).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        command.args(["cdi", "watch"]).args(more).env_clear();
        for (option, path) in [("state-dir", "state"), ("output-dir", "cdi"), ("config", "config.yaml")] {
            command.arg(format!("--{option}={}", bed.at(path).display()));
        }
        command
            .arg(format!("--driver-root={root}"))
            .arg(format!("--dev-root={root}"));
        command
            .arg(format!("--proc-root={root}/proc"))
            .arg(format!("--sys-root={root}/sys"));
        command.arg(format!("--engine-dir={}", bin.display()));
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Self { child, lines }
    }

    /// The next line, which has this text.
    fn says(&self, text: &str) -> String {
        let line = self
            .lines
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|error| panic!("no \"{text}\": {error}"));
        assert!(line.contains(text), "{line}, and not {text}");
        line
    }

    /// Ends it as a service manager does, and returns its exit code and what it still printed.
    fn end(mut self) -> (Option<i32>, Vec<String>) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, self.lines.iter().collect())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_change_is_one_line_and_term_ends_it_with_success() {
    let bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("root")).unwrap();
    // The interval is so long that files are seen by inotify alone.
    let watch = Watch::start(&bed, &host, &["--interval=1h"]);
    watch.says("started: ");
    until("host.json", || HostFile::read(&bed.state()).is_ok());
    bed.share(RENAMED);
    // A change before the first refresh has ended is found by its last look, whose line has the same words.
    let line = watch.says("config.yaml has changed");
    assert!(line.contains("tranche-gpu.shared.yaml has "), "{line}");
    fs::remove_file(bed.spec("tranche.yaml")).unwrap();
    watch.says("tranche.yaml");
    until("the file is back", || HostFile::read(&bed.state()).is_ok());
    // Another program's file, in a directory that is made for it.
    fs::create_dir_all(bed.at("etc")).unwrap();
    fs::write(bed.at("etc/nvidia.yaml"), others::nvidia(&["0", "1", "all"])).unwrap();
    watch.says("defines the plain devices");
    let (code, rest) = watch.end();
    assert_eq!((code, rest), (Some(0), vec![]));
}

#[test]
fn what_the_kernel_does_not_report_is_found_at_an_interval() {
    let bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("root")).unwrap();
    let watch = Watch::start(&bed, &host, &["--interval=200ms"]);
    watch.says("started: ");
    let (away, root) = (bed.at("away"), &host.root);
    // The driver goes, and comes back.
    fs::create_dir(bed.at("empty")).unwrap();
    for dir in ["proc", "sys", "dev"] {
        fs::create_dir_all(bed.at("empty").join(dir)).unwrap();
    }
    fs::write(bed.at("empty/proc/devices"), "Character devices:\n  1 mem\n").unwrap();
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        root,
        rustix::fs::CWD,
        bed.at("empty"),
        rustix::fs::RenameFlags::EXCHANGE,
    )
    .unwrap();
    let line = watch.says("was removed, because it is no longer true");
    assert!(line.contains("there is no device to offer"), "{line}");
    assert_eq!(bed.names(), "");
    fs::rename(root, &away).unwrap();
    fs::rename(bed.at("empty"), root).unwrap();
    watch.says("host.json: written");
    assert_eq!(watch.end().0, Some(0));
}

#[test]
fn a_watch_that_waits_for_a_silent_driver_ends_at_once() {
    let bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("root")).unwrap();
    host.nvml(|config| config["faults"]["init"] = "hang".into()).unwrap();
    let watch = Watch::start(&bed, &host, &["--nvml-deadline=3600"]);
    watch.says("waiting for NVML");
    assert_eq!(watch.end().0, Some(0));
}

#[test]
fn options_that_cannot_work_are_an_error_at_the_start() {
    for (option, what) in [
        ("--interval=0s", "--interval: is zero"),
        ("--driver-root=/nowhere", "driver root not found"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
            .args(["cdi", "watch", option])
            .env_clear()
            .output()
            .unwrap();
        let said = said(&output);
        assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{said:?}");
        assert!(said.err.contains(what), "{said:?}");
    }
}
