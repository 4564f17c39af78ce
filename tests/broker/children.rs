//! What the programs that the broker executes get of the one who started it: a person at a terminal, with open files
//! and ignored signals, or cron, without a terminal or a standard input.
//!
//! Programs that write down what they are stand in for podman and for getent.

use crate::scene::{BOB, GPU_0, POLICY, Scene, Sleeper};
use crate::support::{programs, skip, typist, until};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A user with a group besides that of the account.
const ACCOUNT: &str = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\nbob:x:65533:65532::/tmp:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nbob:x:65532:\nphd:x:65000:bob\nnogroup:x:65534:\n";

/// Writes down what the process of a script is.
const WITNESS: &str = r#"seen() {
    (
        echo "stat $(cat /proc/$$/stat)"
        cat /proc/$$/status
        echo "cwd $(readlink /proc/$$/cwd)"
        for fd in /proc/$$/fd/*; do echo "fd ${fd##*/} $(readlink "$fd")"; done
        echo "files $(ulimit -Sn) $(ulimit -Hn)"
        echo "score $(cat /proc/$$/oom_score_adj)"
        echo "nice $(nice)"
        echo "umask $(umask)"
        env | sed 's/^/env /'
    ) > "$1.new" 2>&1
    mv "$1.new" "$1"
}
"#;

/// A program of perl that executes its arguments with SIGUSR2 blocked. A shell would unblock it.
const BLOCKING: &str = "sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR2)); exec @ARGV";

/// A broker whose podman and getent are scripts, and a directory into which everybody may write.
struct Bed {
    scene: Scene,
}

impl Bed {
    fn new(test: &str, podman: &str) -> Option<Self> {
        let scene = Scene::without_broker(test)?;
        for program in ["script", "perl", "getent"] {
            if !Path::new("/usr/bin").join(program).exists() {
                skip::not_run(&format!("broker::{test}"), &format!("/usr/bin/{program}: not found"));
                return None;
            }
        }
        let users = "  users:\n    default: {maxHold: 1s, atLimit: end, grace: 1s}\n";
        fs::write(scene.at("policy.yaml"), format!("{POLICY}{users}")).unwrap();
        fs::create_dir(scene.at("seen")).unwrap();
        fs::set_permissions(scene.at("seen"), Permissions::from_mode(0o1777)).unwrap();
        programs::install("/usr/bin/getent", scene.at("real-getent"));
        let seen = |name: &str| {
            let file = scene.at("seen").join(name).display().to_string();
            // Once, because getent has a deadline.
            format!("{WITNESS}[ -e {file} ] || seen {file}\n")
        };
        let getent = format!("{}exec {} \"$@\"", seen("getent"), scene.at("real-getent").display());
        programs::script(scene.at("getent"), &getent);
        programs::script(scene.at("podman"), &format!("{}{podman}", seen("podman")));
        Some(Self { scene })
    }

    /// The words that start the broker in a mount namespace in which its programs are the scripts.
    fn broker(&self) -> String {
        let at = |name: &str| self.scene.at(name).display().to_string();
        let inside = format!(
            "mount -t tmpfs none /run && mount --bind {getent} /usr/bin/getent && if [ -e /usr/bin/podman ]; then mount \
             --bind {podman} /usr/bin/podman; else mkdir -p /run/current-system/sw/bin && cp {podman} \
             /run/current-system/sw/bin/podman; fi && exec perl -MPOSIX -e '{BLOCKING}' \"$@\"",
            getent = at("getent"),
            podman = at("podman"),
        );
        let files = self
            .scene
            .with_files(&[("/etc/passwd", ACCOUNT), ("/etc/group", GROUPS)]);
        let broker = self.scene.command();
        let words = [files.get_program()].into_iter().chain(files.get_args());
        let words = words.map(|word| word.to_str().unwrap().to_owned());
        let inner = ["sh".to_owned(), "-c".to_owned(), inside, "sh".to_owned()];
        let broker = [broker.get_program()].into_iter().chain(broker.get_args());
        let broker = broker.map(|word| word.to_str().unwrap().to_owned());
        let quoted = words
            .chain(inner)
            .chain(broker)
            .map(|word| format!("'{}'", word.replace('\'', r"'\''")));
        quoted.collect::<Vec<_>>().join(" ")
    }

    /// The number of the process that serves the socket.
    fn pid(&self) -> u32 {
        let stream = UnixStream::connect(self.scene.at("state/broker.sock")).unwrap();
        getsockopt(&stream, PeerCredentials).unwrap().pid().cast_unsigned()
    }

    /// Lets a container of BOB's be held for too long, and returns what podman was.
    fn end_a_container(&self) -> Seen {
        let id = "0123456789abcdef".repeat(4);
        let container = json!({"id": id, "bundle": format!("/home/bob/overlay-containers/{id}/userdata")});
        let init = Sleeper::new(BOB);
        let fields = json!({"device": GPU_0, "share": "any", "container": container, "pid": init.pid()});
        self.scene.ask(BOB, "enter", fields).unwrap();
        self.seen("podman")
    }

    fn seen(&self, name: &str) -> Seen {
        let path = self.scene.at("seen").join(name);
        until(&format!("{name} was executed"), || path.exists());
        Seen::of(&fs::read_to_string(path).unwrap())
    }
}

/// What a process was.
#[derive(Debug)]
struct Seen {
    stat: Vec<String>,
    status: BTreeMap<String, String>,
    fds: BTreeMap<u32, String>,
    lines: Vec<String>,
}

impl Seen {
    fn of(text: &str) -> Self {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let after = |begin: &str| -> Vec<String> {
            let found = lines.iter().filter_map(|line| line.strip_prefix(begin));
            found.map(str::to_owned).collect()
        };
        let stat = after("stat ").remove(0);
        let (pid, rest) = (stat.split_once(' ').unwrap().0, stat.rsplit_once(") ").unwrap().1);
        let stat = [pid].into_iter().chain(rest.split(' ')).map(str::to_owned).collect();
        let status = lines.iter().filter_map(|line| line.split_once(":\t"));
        let status = status
            .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
            .collect();
        let fds = after("fd ")
            .into_iter()
            .filter_map(|line| Some((line.split_once(' ')?.0.parse().ok()?, line)));
        let fds = fds
            .map(|(number, line)| (number, line.split_once(' ').unwrap().1.to_owned()))
            .collect();
        Self {
            stat,
            status,
            fds,
            lines,
        }
    }

    /// A file of `/proc/PID` of a process that still runs.
    fn now(pid: u32) -> Self {
        let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let mut text = format!("stat {}\n{}", file("stat"), file("status"));
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            let leads = fs::read_link(entry.path()).unwrap_or_default();
            text.push_str(&format!("fd {} {}\n", entry.file_name().display(), leads.display()));
        }
        Self::of(&text)
    }

    fn terminal(&self) -> &str {
        &self.stat[5]
    }

    /// Nothing of the one who started the broker: a session of its own without a terminal, no other descriptors, no
    /// signals that are blocked or ignored, and the environment that it was given.
    fn assert_clean(&self, script: &Path) {
        let [pid, session] = [&self.stat[0], &self.stat[4]];
        assert_eq!(pid, session, "a session of its own: {self:?}");
        assert_eq!(self.terminal(), "0", "{self:?}");
        // The shell has its script open.
        let others = self
            .fds
            .iter()
            .filter(|(fd, leads)| **fd > 2 && Path::new(leads).file_name() != script.file_name());
        assert_eq!(others.collect::<Vec<_>>(), [], "{self:?}");
        assert_eq!(self.fds[&0], "/dev/null", "{self:?}");
        for set in ["SigBlk", "SigIgn"] {
            assert_eq!(self.status[set], "0".repeat(16), "{set}: {self:?}");
        }
        assert!(self.lines.iter().any(|line| line == "cwd /"), "{self:?}");
        assert!(self.lines.iter().any(|line| line == "umask 0022"), "{self:?}");
        assert!(!self.lines.iter().any(|line| line.contains("SECRET")), "{self:?}");
    }

    /// What a login of the user would have, and nothing of root's.
    fn assert_is_bob(&self) {
        for (key, value) in [("Uid", "65533"), ("Gid", "65532")] {
            assert_eq!(self.status[key], [value; 4].join("\t"), "{self:?}");
        }
        assert_eq!(self.status["Groups"], "65000 65532", "{self:?}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(self.status[set], "0".repeat(16), "{set}: {self:?}");
        }
        let line = |begin: &str| self.lines.iter().find(|line| line.starts_with(begin)).unwrap().clone();
        assert!(line("files ").starts_with("files 1024 "), "{self:?}");
        assert_eq!((line("score ").as_str(), line("nice ").as_str()), ("score 0", "nice 0"));
    }
}

/// Ends the broker of a test with what started it.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `line` by sh in a terminal of its own. What is written to its standard input is typed there.
fn in_terminal(line: &str, shown: &Path) -> Started {
    let mut command = typist::in_terminal(line, shown);
    Started(command.env("SECRET", "of root").spawn().unwrap())
}

fn wait_for(bed: &Bed) {
    let socket = bed.scene.at("state/broker.sock");
    until("the broker listens", || UnixStream::connect(&socket).is_ok());
}

#[test]
fn from_a_terminal_programs_get_nothing_of_its_user() {
    let Some(bed) = Bed::new("children::from_a_terminal_programs_get_nothing_of_its_user", "") else {
        return;
    };
    // Descriptors that are open, signals that are ignored or blocked, little to be killed, and much to be opened.
    let code = bed.scene.at("code");
    let line = format!(
        "trap : INT; trap '' USR1 HUP QUIT TERM; exec 7</etc/shadow 8<>/dev/tty; echo -500 > /proc/self/oom_score_adj; \
         ulimit -n 4000; umask 0; nice -n -5 {}; echo code $? > {}",
        bed.broker(),
        code.display()
    );
    let mut started = in_terminal(&line, &bed.scene.at("terminal"));
    wait_for(&bed);
    let pid = bed.pid();
    let broker = Seen::now(pid);
    assert_eq!(broker.terminal(), "0", "{broker:?}");
    assert_eq!(broker.fds[&0], "/dev/null", "{broker:?}");
    // Otherwise the test shows nothing.
    assert!(broker.fds.values().any(|leads| leads == "/etc/shadow"), "{broker:?}");
    let set = |name: &str| u64::from_str_radix(&broker.status[name], 16).unwrap();
    let has = |set: u64, signal: Signal| set & 1 << (signal as i32 - 1) != 0;
    assert!(
        has(set("SigIgn"), Signal::SIGUSR1) && has(set("SigBlk"), Signal::SIGUSR2),
        "{broker:?}"
    );
    let podman = bed.end_a_container();
    podman.assert_clean(&bed.scene.at("podman"));
    podman.assert_is_bob();
    let getent = bed.seen("getent");
    getent.assert_clean(&bed.scene.at("getent"));
    assert_eq!(getent.status["Uid"], ["0"; 4].join("\t"));
    // Ctrl-C still ends it, and its exit code is still seen.
    started.0.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    until("it has ended", || code.exists() && !fs::read(&code).unwrap().is_empty());
    assert_eq!(fs::read_to_string(&code).unwrap(), "code 0\n");
}

/// The kernel then takes the terminal from the whole session, and Ctrl-C is nobody's.
#[test]
fn the_leader_of_a_terminal_s_session_gives_it_up_too_and_lives() {
    let Some(bed) = Bed::new(
        "children::the_leader_of_a_terminal_s_session_gives_it_up_too_and_lives",
        "",
    ) else {
        return;
    };
    let mut started = in_terminal(&format!("exec {}", bed.broker()), &bed.scene.at("terminal"));
    wait_for(&bed);
    let pid = bed.pid();
    let broker = Seen::now(pid);
    assert_eq!(
        (&broker.stat[0], broker.terminal()),
        (&broker.stat[4], "0"),
        "{broker:?}"
    );
    bed.end_a_container().assert_clean(&bed.scene.at("podman"));
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(started.0.wait().unwrap().code(), Some(0));
}

#[test]
fn from_cron_it_serves_and_programs_are_as_from_a_terminal() {
    let Some(bed) = Bed::new("children::from_cron_it_serves_and_programs_are_as_from_a_terminal", "") else {
        return;
    };
    let mut command = Command::new("setsid");
    let log = bed.scene.at("log");
    command.args([
        "--wait",
        "sh",
        "-c",
        &format!("exec {} <&- >>{} 2>&1", bed.broker(), log.display()),
    ]);
    let mut started = Started(command.stdin(Stdio::null()).spawn().unwrap());
    wait_for(&bed);
    let pid = bed.pid();
    let podman = bed.end_a_container();
    podman.assert_clean(&bed.scene.at("podman"));
    podman.assert_is_bob();
    bed.seen("getent").assert_clean(&bed.scene.at("getent"));
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(started.0.wait().unwrap().code(), Some(0));
}

/// BOB's podman executes what BOB's containers.conf names as conmon. It tries to type into root's terminal, and to read
/// what root types there.
#[test]
fn a_program_of_a_user_reaches_no_terminal_of_root() {
    let test = "children::a_program_of_a_user_reaches_no_terminal_of_root";
    let Some(bed) = Bed::new(test, "") else { return };
    let (attacked, owned) = (bed.scene.at("seen/attacked"), bed.scene.at("seen/owned"));
    let podman = typist::types(&format!("touch {}", owned.display()), &attacked);
    programs::script(bed.scene.at("podman"), &podman);
    let shown = bed.scene.at("terminal");
    let mut shell = in_terminal("exec /bin/sh -i", &shown);
    let mut type_line = |line: &str| {
        let keys = shell.0.stdin.as_mut().unwrap();
        keys.write_all(format!("{line}\n").as_bytes()).unwrap();
    };
    type_line(&format!("{} &", bed.broker()));
    wait_for(&bed);
    let pid = bed.pid();
    let id = "0123456789abcdef".repeat(4);
    let container = json!({"id": id, "bundle": format!("/home/bob/overlay-containers/{id}/userdata")});
    let init = Sleeper::new(BOB);
    let fields = json!({"device": GPU_0, "share": "any", "container": container, "pid": init.pid()});
    bed.scene.ask(BOB, "enter", fields).unwrap();
    until("the user's program has tried", || attacked.exists());
    // The shell executes what was typed before this.
    let alive = bed.scene.at("seen/alive");
    type_line(&format!("touch {}", alive.display()));
    until("root's shell still reads what root types", || alive.exists());
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    assert!(!owned.exists(), "BOB's program typed into root's terminal");
    assert_eq!(fs::read_to_string(&attacked).unwrap(), "[]\n");
}
