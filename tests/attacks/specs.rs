//! Directories of specifications that belong to another user, listed and validated by root's own `tranche cdi`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;

use crate::run::{Ended, is_bidirectional, said};
use crate::stage::temporary;
use crate::subject::Subject;
use crate::trial::{Attack, Trial};

const GOOD: &str =
    "cdiVersion: 0.6.0\nkind: example.com/good\ndevices:\n- name: one\n  containerEdits:\n    env: [A=b]\n";
/// The first line of a file that its owner alone may read.
const SECRET: &str = "root:$y$j9T$tranche-secret:19000:0:99999:7:::";

/// A directory of a user's.
struct Place {
    top: tempfile::TempDir,
    subject: Subject,
}

impl Place {
    fn new() -> Place {
        let place = Place {
            top: temporary(),
            subject: Subject::current(),
        };
        fs::create_dir(place.at("cdi")).unwrap();
        fs::write(place.at("cdi/good.yaml"), GOOD).unwrap();
        fs::write(place.at("shadow"), format!("{SECRET}\ndaemon:*:1::\n")).unwrap();
        fs::set_permissions(place.at("shadow"), PermissionsExt::from_mode(0o600)).unwrap();
        place
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    /// Runs the command with no more memory than a gigabyte.
    fn run(&self, verb: &str) -> (Ended, String) {
        let mut command = Command::new("prlimit");
        command
            .args(["--as=1073741824", "--cpu=60"])
            .arg(self.subject.command_line());
        command.args(["cdi", verb, "--spec-dir"]).arg(self.at("cdi"));
        command.args(self.subject.arguments(&[self.top.path()])).env_clear();
        let start = Instant::now();
        let (code, text) = said(command, &self.subject);
        let mut wrong = Vec::new();
        if !(0..=4).contains(&code) {
            wrong.push(format!("exit code {code}"));
        }
        if text.contains("tranche-secret") {
            wrong.push(format!("a secret is shown: {text:.300}"));
        }
        if text
            .chars()
            .any(|c| (c.is_control() && c != '\n') || is_bidirectional(c))
        {
            wrong.push(format!("it acts on a terminal: {text:.300?}"));
        }
        if let Some(line) = text.lines().find(|line| line.len() > 8 << 10) {
            wrong.push(format!("a line of {} bytes", line.len()));
        }
        let ended = Ended {
            code,
            took: start.elapsed(),
            wrong,
            ..Ended::default()
        };
        (ended, text)
    }

    fn attack(&self, trial: &mut Trial, name: &str) {
        for verb in ["list", "validate"] {
            let (mut ended, text) = self.run(verb);
            // One bad file hides no other.
            if verb == "list" && !text.contains("example.com/good") {
                ended.wrong.push(format!("the good device is not listed: {text:.300}"));
            }
            trial.record(&format!("{verb}, {name}"), &ended);
        }
    }
}

fn twin(trial: &mut Trial) {
    let (ended, text) = Place::new().run("list");
    let mut wrong = ended.wrong;
    if !text.contains("example.com/good") {
        wrong.push(format!("the good device is not listed: {text}"));
    }
    trial.record_twin("cdi list", &wrong);
}

#[test]
fn files_that_wait() {
    Attack::new(
        "specs::files_that_wait",
        "a specification is a FIFO, a device, or a link to /proc/kmsg, and root's cdi list waits or acts",
    )
    .run_one_way(|trial| {
        twin(trial);
        for what in [
            "fifo",
            "/proc/kmsg",
            "/dev/zero",
            "/dev/tty",
            "/dev/console",
            "socket device",
            "directory",
        ] {
            let place = Place::new();
            let file = place.at("cdi/x.yaml");
            match what {
                "fifo" => mkfifo(&file, Mode::S_IRWXU).unwrap(),
                "directory" => fs::create_dir(&file).unwrap(),
                "socket device" if !crate::support::rights::is_root_of_machine() => continue,
                "socket device" => {
                    if mknod(&file, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 5)).is_err() {
                        continue;
                    }
                }
                path => symlink(path, &file).unwrap(),
            }
            place.attack(trial, what);
        }
    });
}

#[test]
fn a_file_that_is_exchanged_with_a_fifo() {
    Attack::new(
        "specs::a_file_that_is_exchanged_with_a_fifo",
        "a specification is exchanged with a FIFO between the look at it and its opening",
    )
    .run_one_way(|trial| {
        twin(trial);
        let place = Place::new();
        let (file, away) = (place.at("cdi/x.yaml"), place.at("cdi/.away"));
        fs::write(&file, GOOD.replace("good", "other")).unwrap();
        mkfifo(&away, Mode::S_IRWXU).unwrap();
        crate::races::exchange(&file, &away, || {
            let end = Instant::now() + crate::races::limits().1;
            for _ in 0..crate::races::limits().0.max(30) {
                let (ended, _) = place.run("list");
                let done = Instant::now() > end || !ended.wrong.is_empty();
                trial.record("exchanged", &ended);
                if done {
                    break;
                }
            }
        });
    });
}

#[test]
fn a_link_to_a_secret_file() {
    Attack::new(
        "specs::a_link_to_a_secret_file",
        "a specification is a link to a file with mode 0600, whose first line root's cdi list shows in an error",
    )
    .run_one_way(|trial| {
        twin(trial);
        for name in ["x.yaml", "x.json"] {
            let place = Place::new();
            symlink(place.at("shadow"), place.at("cdi").join(name)).unwrap();
            place.attack(trial, name);
        }
    });
}

#[test]
fn files_without_end() {
    Attack::new(
        "specs::files_without_end",
        "a specification has a terabyte, is nested without end, or expands itself by its anchors",
    )
    .run_one_way(|trial| {
        twin(trial);
        let sparse = |file: &Path| {
            let file = fs::File::create(file).unwrap();
            file.set_len(1 << 40).unwrap();
        };
        let bomb = (1..40).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
            let before = n - 1;
            format!("{text}a{n}: &a{n} [*a{before},*a{before},*a{before},*a{before},*a{before},*a{before}]\n")
        });
        for what in ["terabyte", "nested", "bomb"] {
            let place = Place::new();
            let file = place.at("cdi/x.yaml");
            match what {
                "terabyte" => sparse(&file),
                "nested" => fs::write(&file, "[".repeat(1 << 20)).unwrap(),
                _ => fs::write(&file, &bomb).unwrap(),
            }
            place.attack(trial, what);
        }
    });
}

#[test]
fn names_that_act_on_a_terminal() {
    Attack::new(
        "specs::names_that_act_on_a_terminal",
        "names of files, and kinds and devices in them, have escape sequences, line breaks and bidirectional marks",
    )
    .run_one_way(|trial| {
        twin(trial);
        for bad in ["\u{1b}[2J\u{1b}]0;x\u{7}", "\u{202e}gpj", "a\nb", "\r", "\u{9b}31m"] {
            let place = Place::new();
            fs::write(
                place.at("cdi").join(format!("x{bad}.yaml")),
                GOOD.replace("good", "other"),
            )
            .unwrap();
            fs::write(place.at("cdi").join(format!("y{bad}.yaml")), "nonsense: [").unwrap();
            let quoted = bad.escape_default().to_string().replace("\\u{", "\\U{");
            let quoted = quoted.replace("\\U{1b}", "\\x1b").replace("\\U{7}", "\\x07");
            let inside = GOOD
                .replace("good", "third")
                .replace("name: one", &format!("name: \"{quoted}\""));
            fs::write(place.at("cdi/z.yaml"), inside).unwrap();
            place.attack(trial, &format!("{bad:?}"));
        }
    });
}
