//! A user for whom the broker acts: it executes programs that the user chooses, and lets the user wait for what others
//! hold.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

use nix::mount::{MsFlags, mount};
use tranche_core::ledger::{ContainerName, Holder};

use crate::acts::{HOSTILE, Hostile, Machine, TWIN, USER, try_one};
use crate::run::Ended;
use crate::support::changing::{Program, STUBBORN, setuid_program};
use crate::support::{programs, skip, typist};
use crate::trial::{Attack, Trial};

const ACCOUNTS: &str = "root:x:0:0::/root:/bin/sh\nbob:x:65533:65533::/tmp:/bin/sh\n";

/// A shell of root in a terminal of its own. What is written to its standard input is typed there.
struct Shell(Child);

impl Shell {
    fn new(directory: &Path) -> Self {
        let shown = directory.join("shown");
        Self(typist::in_terminal("exec /bin/sh -i", &shown).spawn().unwrap())
    }

    fn type_line(&mut self, line: &str) {
        let keys = self.0.stdin.as_mut().unwrap();
        keys.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command as a shell reads it.
fn quoted(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words = words.map(|word| format!("'{}'", word.to_str().unwrap()));
    words.collect::<Vec<_>>().join(" ")
}

/// Whether the attack `test` can be tried; says so if not.
fn can_run(test: &str, programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !Path::new(program).exists());
    if let Some(program) = missing {
        skip::not_run(&format!("attacks::served::{test}"), &format!("{program}: not found"));
    }
    missing.is_none() && crate::owns_machine(&format!("served::{test}"))
}

/// A directory into which everybody may write.
fn open_directory(machine: &Machine) -> PathBuf {
    let directory = machine.at("open");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o1777)).unwrap();
    directory
}

#[test]
fn at_the_terminal_of_root() {
    if !can_run("at_the_terminal_of_root", &["/usr/bin/podman", "/usr/bin/script"]) {
        return;
    }
    Attack::new(
        "served::at_the_terminal_of_root",
        "the broker is started in a terminal of root, and the program that it executes for a user types there",
    )
    .run_one_way(|trial| {
        for (name, starts) in [
            ("in the background", "BROKER &"),
            ("as what the shell becomes", "exec BROKER"),
        ] {
            at_a_terminal(trial, name, starts);
        }
    });
}

fn at_a_terminal(trial: &mut Trial, name: &str, starts: &str) {
    let machine = Machine::new();
    let open = open_directory(&machine);
    let (found, owned) = (open.join("found"), open.join("owned"));
    let conmon = typist::types(&format!("touch {}", owned.display()), &found);
    programs::script(machine.at("podman"), &conmon);
    programs::write(machine.at("passwd"), ACCOUNTS);
    for (own, file) in [("podman", "/usr/bin/podman"), ("passwd", "/etc/passwd")] {
        mount(
            Some(&machine.at(own)),
            file,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .unwrap();
    }
    let (mut twin, init) = (Program::new(USER, STUBBORN), Program::new(USER, STUBBORN));
    machine.hold(TWIN, twin.pid(), None);
    let id = "0123456789abcdef".repeat(4);
    let bundle = format!("/home/bob/overlay-containers/{id}/userdata");
    let name_of = ContainerName { bundle, id };
    let holder = Holder::Rootless {
        user: USER,
        name: name_of,
    };
    machine.hold_as(HOSTILE, holder, init.pid(), None);

    let begun = Instant::now();
    let mut shell = Shell::new(&open);
    // What is typed for the shell must not be what the program types.
    let log = machine.at("log");
    let broker = format!("{} 2> {}", quoted(&machine.broker()), log.display());
    shell.type_line(&starts.replace("BROKER", &broker));
    machine.until(begun, || !twin.lives() && found.exists());
    drop(shell);
    stop_broker(&machine);
    let took = begun.elapsed();
    for file in ["/usr/bin/podman", "/etc/passwd"] {
        nix::mount::umount(file).unwrap();
    }
    let said = fs::read_to_string(&log).unwrap_or_default();
    let not_served = twin
        .lives()
        .then(|| format!("a program that is held for too long is not ended: {said}"));
    let mut wrong = Vec::new();
    match fs::read_to_string(&found) {
        Err(_) => wrong.push(format!("podman was not executed: {said}")),
        Ok(files) if files != "[]\n" => wrong.push(format!("the user's program has a terminal of root: {files}")),
        Ok(_) => {}
    }
    if owned.exists() {
        wrong.push("root's shell executed what the user's program typed".to_owned());
    }
    trial.record_twin("broker", &not_served.into_iter().collect::<Vec<_>>());
    trial.record(
        name,
        &Ended {
            took,
            wrong,
            ..Ended::default()
        },
    );
}

/// Ends the broker, which does not end with its terminal.
fn stop_broker(machine: &Machine) {
    let state = machine.at("state");
    let of_machine = |entry: &fs::DirEntry| {
        let text = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = text.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        words
            .skip(1)
            .take(3)
            .any(|word| word == format!("--state-dir={}", state.display()))
    };
    for entry in fs::read_dir("/proc").unwrap().flatten().filter(of_machine) {
        let pid = entry.file_name().to_str().unwrap().parse().unwrap();
        // It may have ended by now.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

#[test]
fn by_a_wait_of_a_program_that_changes() {
    if !can_run("by_a_wait_of_a_program_that_changes", &[]) {
        return;
    }
    Attack::new(
        "served::by_a_wait_of_a_program_that_changes",
        "a program waits for a device, and is root's when its turn comes, or when its time is over",
    )
    .naive_passes("it lets nobody wait")
    .run_one_way(|trial| {
        // Who waits is served, and ended. The naive program serves nobody who waits.
        if trial.subject.is_real() {
            try_one(trial, "it stays the user's", |machine| {
                let waits = waiting(machine, STUBBORN);
                Hostile {
                    own: vec![holding(machine), waits],
                    ..Hostile::default()
                }
            });
        }
        for (name, first) in [
            ("it is root's before", ""),
            ("it is root's afterwards", "sysread($s, our $answer, 4000);"),
        ] {
            try_one(trial, name, |machine| {
                let rises = setuid_program(machine.at("").as_path());
                let rises = format!(
                    "exec '{}', qw(--reuid=0 --regid=0 --clear-groups sleep 10000)",
                    rises.display()
                );
                let risen = waiting(machine, &format!("{first} {rises}"));
                Hostile {
                    own: vec![holding(machine)],
                    risen: Some(risen),
                    ..Hostile::default()
                }
            });
        }
    });
}

/// A program that holds the device for which others wait.
fn holding(machine: &Machine) -> Program {
    let holder = Program::new(USER, STUBBORN);
    machine.hold(HOSTILE, holder.pid(), None);
    holder
}

/// A program that asks the broker for the device as soon as there is one, and then runs `script`.
fn waiting(machine: &Machine, script: &str) -> Program {
    let request = format!(
        r#"{{"version":1,"command":"enter","device":"{HOSTILE}","whole":true,"container":{{"id":"c","bundle":"/c"}},"wait":"1m","pid":$$}}"#
    );
    let asks = format!(
        "print 1; use Socket; socket(our $s, AF_UNIX, SOCK_STREAM, 0); $^F = 100; \
         select(undef, undef, undef, 0.02) until connect($s, sockaddr_un('{socket}')); \
         use Fcntl; fcntl($s, F_SETFD, 0); syswrite($s, qq({request}\n)); {script}",
        socket = machine.at("state/broker.sock").display(),
    );
    Program::new(USER, &asks)
}
