//! The driver's library, which `tranche list` opens in a child process: it may be anything, and costs its answer at
//! most.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::run::{Ended, said};
use crate::stage::temporary;
use crate::subject::Subject;
use crate::support::skip;
use crate::trial::{Attack, Trial};

/// A host with a GPU in /proc, and a driver's library made of this text of C.
struct Host {
    top: tempfile::TempDir,
    subject: Subject,
}

impl Host {
    fn new(source: &str) -> Option<Host> {
        let host = Host {
            top: temporary(),
            subject: Subject::current(),
        };
        let write = |path: &str, text: &str| {
            let file = host.at(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n",
        );
        write(
            "proc/driver/nvidia/gpus/0000:41:00.0/information",
            "Model: \t\t NVIDIA L4\nIRQ:   \t\t 1\nGPU UUID: \t GPU-11111111-2222-3333-4444-555555555555\nVideo BIOS: \t x\n\
             Bus Type: \t PCIe\nBus Location: \t 0000:41:00.0\nDevice Minor: \t 0\n",
        );
        write("dev/nvidia0", "");
        write("dev/nvidiactl", "");
        write("library.c", source);
        let library = host.at("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1");
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o"]);
        let made = cc.arg(library).arg(host.at("library.c")).output();
        made.is_ok_and(|output| output.status.success()).then_some(host)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    fn run(&self) -> (Ended, String) {
        let mut command = Command::new(self.subject.command_line());
        command
            .args(["list", "--nvml-deadline=1", "--root"])
            .arg(self.top.path());
        command.args(self.subject.arguments(&[self.top.path()])).env_clear();
        let start = Instant::now();
        let (code, text) = said(command, &self.subject);
        let mut wrong = Vec::new();
        if code == -1 {
            wrong.push("it hangs".to_owned());
        }
        if text.len() > 16 << 10 {
            wrong.push(format!("it says {} bytes", text.len()));
        }
        if !text.contains("L4") && !text.contains("libnvidia-ml") {
            wrong.push(format!("no result: {code} {text:.300}"));
        }
        let ended = Ended {
            code,
            took: start.elapsed(),
            wrong,
            ..Ended::default()
        };
        (ended, text)
    }
}

const HARMLESS: &str = "int nvmlInit_v2(void) { return 9; }\n";

/// Whether the machine has a compiler for such a library; says so if not.
fn can_compile(test: &str) -> bool {
    let can = Host::new(HARMLESS).is_some();
    if !can {
        skip::not_run(&format!("attacks::library::{test}"), "no cc");
    }
    can
}

fn twin(trial: &mut Trial) {
    let (ended, _) = Host::new(HARMLESS).unwrap().run();
    trial.record_twin("list", &ended.wrong);
}

/// The processes that have `file` open. Their numbers are those of this machine, also where a process itself sees
/// others because it is in a pid namespace.
fn holders(file: &Path) -> Vec<Pid> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let entry = entry.unwrap();
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let open = fs::read_dir(entry.path().join("fd")).ok()?;
        let holds = |entry: io::Result<fs::DirEntry>| fs::read_link(entry?.path());
        open.map(holds)
            .any(|path| path.is_ok_and(|path| path == file))
            .then(|| Pid::from_raw(pid))
    });
    pids.collect()
}

#[test]
fn that_leaves_processes() {
    if !can_compile("that_leaves_processes") {
        return;
    }
    Attack::new(
        "library::that_leaves_processes",
        "the driver's library makes processes of its own, which stay when the command has ended",
    )
    .run_one_way(|trial| {
        twin(trial);
        for how in ["", "setsid();", "setsid(); if (fork()) _exit(0);"] {
            let file = temporary();
            let note = file.path().join("open");
            let source = format!(
                "#include <unistd.h>\n#include <stdio.h>\n#include <signal.h>\n{HARMLESS}\
                 __attribute__((constructor)) static void run(void) {{\n  if (fork()) {{ usleep(200000); return; }}\n  {how}\n\
                 signal(SIGTERM, SIG_IGN); signal(SIGHUP, SIG_IGN);\n  for (int n = 0; n < 64; n++) close(n);\n  FILE *f = fopen(\"{}\", \"w\");\n\
                 fprintf(f, \"here\"); fflush(f);\n  for (int n = 0; n < 600; n++) sleep(1);\n  _exit(0);\n}}\n",
                note.display()
            );
            let host = Host::new(&source).unwrap();
            let (mut ended, _) = host.run();
            // A program that must fail need not be waited for.
            let patience = if trial.subject.is_real() { 60 } else { 3 };
            let end = Instant::now() + Duration::from_secs(patience);
            while !holders(&note).is_empty() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
            for left in holders(&note) {
                // One that this test's library has made.
                kill(left, Signal::SIGKILL).unwrap();
                ended.wrong.push("a process of the library stays".to_owned());
            }
            if fs::read_to_string(&note).unwrap_or_default() != "here" {
                ended.wrong.push("the library's process never ran".to_owned());
            }
            trial.record(&format!("fork, {how}"), &ended);
        }
    });
}

#[test]
fn that_writes_without_end() {
    if !can_compile("that_writes_without_end") {
        return;
    }
    Attack::new(
        "library::that_writes_without_end",
        "the driver's library writes megabytes to standard output and standard error",
    )
    .run_one_way(|trial| {
        twin(trial);
        for to in [1, 2] {
            let source = format!(
                "#include <unistd.h>\nint nvmlInit_v2(void) {{ for (int n = 0; n < 4000000; n++) if (write({to}, \"of the library\\n\", 15) < 0) break; return 9; }}\n"
            );
            let (ended, _) = Host::new(&source).unwrap().run();
            trial.record(&format!("to {to}"), &ended);
        }
    });
}

#[test]
fn that_closes_everything() {
    if !can_compile("that_closes_everything") {
        return;
    }
    Attack::new(
        "library::that_closes_everything",
        "the driver's library closes every file of its process, or writes nonsense to them",
    )
    .run_one_way(|trial| {
        twin(trial);
        for act in ["close(n)", "write(n, \"\\377\\377\\377\\377\\377\\377\\377\\377{]\", 10)"] {
            let source = format!(
                "#include <unistd.h>\nint nvmlInit_v2(void) {{ for (int n = 0; n < 1024; n++) (void)!{act}; return 9; }}\n"
            );
            let (mut ended, text) = Host::new(&source.replace("(void)!close", "(void)close")).unwrap().run();
            // What the library writes is no result.
            if text.contains('\u{fffd}') {
                ended.wrong.push("what the library writes is shown".to_owned());
            }
            trial.record(act, &ended);
        }
    });
}

#[test]
fn that_does_not_end() {
    if !can_compile("that_does_not_end") {
        return;
    }
    Attack::new(
        "library::that_does_not_end",
        "the driver's library ignores every signal and does not answer, or kills its process's group",
    )
    .run_one_way(|trial| {
        twin(trial);
        for act in [
            "for (int n = 1; n < 32; n++) signal(n, SIG_IGN); for (;;) pause();",
            "for (int n = 1; n < 32; n++) signal(n, SIG_IGN); for (;;) ;",
            "kill(0, SIGTERM); kill(getppid(), SIGTERM);",
            "abort();",
        ] {
            let source = format!(
                "#include <unistd.h>\n#include <signal.h>\n#include <stdlib.h>\nint nvmlInit_v2(void) {{ {act} return 9; }}\n"
            );
            let (ended, _) = Host::new(&source).unwrap().run();
            trial.record(act, &ended);
        }
    });
}
