//! Programs of `tranche run` by turns.

use super::*;
use std::path::Path;
use std::process::Command;

/// Who holds it keeps it, however little it does.
pub(super) const KEPT: &str = "\
version: v1
sharing:
  access: enforce
  turns:
    assumeTested: true
    resources:
    - {name: nvidia.com/gpu, holders: 3, turn: 1h, idle: 1h, hostMemory: 100Mi}
  quota: {shares: 2}
";

/// A program of `tranche run`. What the command says is in a file.
pub(super) struct Run {
    pub(super) program: TurnsClient,
    said: PathBuf,
}

impl Run {
    /// Starts one in a share that is free.
    pub(super) fn new(turns: &Turns, name: &str, options: &[&str]) -> Self {
        let mut words = vec!["run", "--share", "0.any"];
        words.extend(options);
        Self::by(turns, name, turns.bed.command(&words, &[]))
    }

    pub(super) fn by(turns: &Turns, name: &str, mut command: Command) -> Self {
        let said = turns.bed.scene.at(name);
        command.arg("--").stderr(fs::File::create(&said).unwrap());
        let program = TurnsClient::by(command, &turns.library());
        Self { program, said }
    }

    /// What the command has said.
    pub(super) fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Waits until the program has begun, and returns its number.
    fn begun(&mut self, turns: &Turns) -> i32 {
        assert!(
            self.said().is_empty() || self.said().contains("waiting"),
            "{}",
            self.said()
        );
        let says = self.program.says_something_in(Duration::from_secs(60));
        assert!(says, "{} {:?}\n{}", self.said(), turns.record(), turns.logged());
        let line = self.program.read();
        line.strip_prefix("ready ")
            .unwrap_or_else(|| panic!("{line}"))
            .parse()
            .unwrap()
    }

    fn open(&mut self, turns: &Turns) -> String {
        let node = turns.bed.scene.at("host/dev/nvidia0");
        self.program.ask(&format!("open {}", node.display()))
    }
}

/// Why `tranche run` has no cgroup of its own here; `None` if it has.
pub(super) fn without_cgroup() -> Option<String> {
    let name = format!("look-runs-{:?}", std::thread::current().id());
    TestCgroup::version_2(&name.replace(['(', ')'], "")).err()
}

/// The share of the program with this number.
fn share_of(turns: &Turns, pid: i32) -> u32 {
    let list = turns.bed.scene.ask(0, "list", json!({})).unwrap();
    let claims = list["claims"].as_array().unwrap().clone();
    let claim = claims.iter().find(|claim| claim["process"]["pid"] == pid);
    let share = claim.unwrap_or_else(|| panic!("{list}"))["shares"][0]
        .as_str()
        .unwrap()
        .to_owned();
    share.parse().unwrap()
}

/// How long it takes from a call of a program that is away until it is known, in one of some tries.
fn shortest_wish(turns: &Turns, programs: [(&mut Run, u32); 2]) -> Duration {
    let mut shortest = Duration::MAX;
    let [(first, of_first), (second, of_second)] = programs;
    for round in 0..4 {
        let (away, number) = match round % 2 {
            0 => (&mut *first, of_first),
            _ => (&mut *second, of_second),
        };
        // The one who has it is idle by then, so that a wish begins a change.
        std::thread::sleep(Duration::from_millis(1500));
        let is_known =
            || turns.record().is_some_and(|record| !record["change"].is_null()) || turns.resident() == Some(number);
        assert!(!is_known(), "{:?}", turns.record());
        let began = Instant::now();
        away.program.tell(if round < 2 { "call" } else { "thread" });
        while !is_known() {
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", turns.record());
        }
        shortest = shortest.min(began.elapsed());
        assert_eq!(away.program.read(), if round < 2 { "called" } else { "threaded" });
        turns.await_resident(number);
        assert_eq!(away.program.ask("check"), "good");
    }
    shortest
}

#[test]
fn programs_have_the_gpu_by_turns_and_begin_when_they_have_it() {
    let test = "programs_have_the_gpu_by_turns_and_begin_when_they_have_it";
    if let Some(why) = without_cgroup() {
        return skip::not_run(&format!("broker::turns::runs::{test}"), &why);
    }
    let Some(turns) = Turns::new(test) else { return };
    let mut first = Run::new(&turns, "first", &[]);
    let pid = first.begun(&turns);
    let of_first = share_of(&turns, pid);
    assert_eq!(first.program.ask(&format!("take {}", 40 * MIB)), "taken");
    let mut second = Run::new(&turns, "second", &[]);
    let of_second = second.begun(&turns);
    let of_second = share_of(&turns, of_second);
    assert_eq!(
        (second.open(&turns).as_str(), first.open(&turns).as_str()),
        ("error 6", "error 1")
    );
    assert_eq!(second.program.ask(&format!("take {}", 40 * MIB)), "taken");
    // It waited, and says for whom.
    let said = second.said();
    let expected = "gpu 0 share 1: waiting for its first turn: program fake-cuda-client has had the device for";
    assert_eq!(said.lines().filter(|line| line.contains(expected)).count(), 1, "{said}");
    let shortest = shortest_wish(&turns, [(&mut first, of_first), (&mut second, of_second)]);
    println!("the shortest time from a call to the change: {shortest:?}");
    // The shortest: others may use this machine.
    assert!(shortest < Duration::from_millis(50), "{shortest:?}");
    // One that never calls has its turn, and is in nobody's way.
    let mut silent = Run::new(&turns, "silent", &[]);
    silent.begun(&turns);
    first.program.tell("call");
    assert_eq!(first.program.read(), "called");
    turns.await_resident(of_first);
    second.program.tell("call");
    assert_eq!(second.program.read(), "called");
    assert_eq!(second.program.ask("check"), "good");
    // The program ends, and so does its claim.
    silent.program.end();
    until("its claim has ended", || {
        let list = turns.bed.scene.ask(0, "list", json!({})).unwrap();
        list["claims"].as_array().unwrap().len() == 2
    });
}

/// A command of BOB in a cgroup below which BOB may make others.
fn command_of_bob(turns: &Turns, cgroup: &Path, words: &[&str]) -> Command {
    let of_bob = turns.bed.command(words, &[]);
    let mut command = Command::new("sh");
    let script =
        "echo $$ > \"$1/cgroup.procs\"; shift; exec setpriv --reuid=\"$0\" --regid=\"$0\" --clear-groups \"$@\"";
    command.args(["-c", script, &BOB.to_string()]).arg(cgroup);
    command.arg(of_bob.get_program()).args(of_bob.get_args());
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command
}

#[test]
fn who_does_not_wait_is_refused_and_who_leaves_leaves_nothing() {
    let test = "who_does_not_wait_is_refused_and_who_leaves_leaves_nothing";
    if let Some(why) = without_cgroup() {
        return skip::not_run(&format!("broker::turns::runs::{test}"), &why);
    }
    let Some(mut turns) = Turns::with(test, DRIVER, KEPT) else {
        return;
    };
    let container = turns.start(0);
    turns.await_resident(0);
    let claims = |turns: &Turns| {
        let list = turns.bed.scene.ask(0, "list", json!({})).unwrap();
        list["claims"].as_array().unwrap().len()
    };
    for (wait, waited) in [("0s", ""), ("2s", "; waited 2 s for it")] {
        let words = ["run", "--share", "0.any", "--wait", wait];
        let mut command = turns.bed.command(&words, &[]);
        let output = command.args(["--", "echo", "run"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(1), &b""[..]),
            "{said}"
        );
        let last = said.lines().last().unwrap_or_default();
        let expected = "its first turn has not come: container c0 has had the device for";
        assert!(
            last.contains(expected) && last.ends_with(&format!("s{waited}")),
            "{said}"
        );
        assert_eq!(claims(&turns), 1, "{said}");
    }
    // One who is interrupted while it waits.
    let waiting = Run::new(&turns, "interrupted", &[]);
    until("it says for whom it waits", || {
        waiting.said().contains("container c0 has had the device")
    });
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(waiting.program.pid()), Signal::SIGTERM).unwrap();
    until("its claim has ended", || claims(&turns) == 1);
    // A user is not told who else has it.
    let cgroup = TestCgroup::version_2("turns-of-bob").unwrap();
    for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
        std::os::unix::fs::chown(cgroup.0.join(file), Some(BOB), Some(BOB)).unwrap();
    }
    let mut command = command_of_bob(&turns, &cgroup.0, &["run", "--share", "0.any", "--wait", "1s"]);
    let output = command.args(["--", "echo", "run"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("another holder has had the device") && !said.contains("c0"),
        "{said}"
    );
    let command = command_of_bob(&turns, &cgroup.0, &["run", "--share", "0.any"]);
    let mut of_bob = Run::by(&turns, "of-bob", command);
    until("it says that it waits", || of_bob.said().contains("another holder"));
    // The broker is stopped and another one is started, while it waits.
    turns.bed.scene.stop(Signal::SIGTERM);
    turns.bed.start();
    assert!(!of_bob.program.says_something_in(Duration::from_secs(2)));
    drop(container);
    of_bob.begun(&turns);
    assert_eq!(of_bob.open(&turns), "error 6", "{}", of_bob.said());
    of_bob.program.end();
}
