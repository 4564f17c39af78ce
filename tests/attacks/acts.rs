//! A user for whom the broker acts: it ends what the user holds for too long. The user's processes become something
//! else meanwhile, so that the broker would signal what the user may not, or would not find what it must end.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tranche_core::claims::{ClaimEntry, Claims};
use tranche_core::ledger::{Bounds, Cgroup, Change, Holder, Ledger};
use tranche_core::types::Subject as Part;

use crate::run::Ended;
use crate::subject::Subject;
use crate::support::changing::{BECOME, Canary, Program, STUBBORN, becomes_root, maps, setuid_program};
use crate::support::skip;
use crate::support::test_cgroup::TestCgroup;
use crate::trial::{Attack, Trial};

pub(crate) const USER: u32 = 65_533;
pub(crate) const TWIN: &str = "GPU-da1435d3-36d6-f363-f134-290ab6a9a640";
pub(crate) const HOSTILE: &str = "GPU-a1b03828-f799-fc30-d8ce-9f496f164106";
const POLICY: &str = "version: v1\nsharing:\n  dedicated: {devices: [0, 1]}\n  users:\n    \
                      default: {maxHold: 1s, atLimit: end, grace: 1s}\n";

/// A machine on which the user holds two devices: one as everybody does, and one with hostile processes.
pub(crate) struct Machine {
    top: tempfile::TempDir,
    subject: Subject,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let top = tempfile::tempdir().unwrap();
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(top.path().join("policy.yaml"), POLICY).unwrap();
        Machine {
            top,
            subject: Subject::current(),
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// As if the user had asked for the device with this process, whose container has the cgroup.
    pub(crate) fn hold(&self, device: &str, pid: u32, cgroup: Option<&Path>) {
        let (program, id) = ("train".to_owned(), pid.to_string());
        self.hold_as(device, Holder::Process { program, id }, pid, cgroup);
    }

    /// The same for a holder of any kind.
    pub(crate) fn hold_as(&self, device: &str, holder: Holder, pid: u32, cgroup: Option<&Path>) {
        let claims = Claims::open(&self.at("state")).unwrap();
        let entry = ClaimEntry {
            device: device.parse().unwrap(),
            subject: Part::WHOLE,
            replicas: 0,
            bounds: Bounds::default(),
            asked_as: None,
            alone: true,
        };
        claims.enter(&entry, holder, Some(pid)).unwrap();
        let recorded = cgroup.map(|path| Cgroup {
            path: path.to_str().unwrap().to_owned(),
            inode: fs::metadata(path).unwrap().st_ino(),
            top: None,
        });
        let ledger = Ledger::open(&self.at("state")).unwrap();
        let changed = ledger.lock().unwrap().change_each(|book| {
            for claim in &mut book.claims {
                claim.uid = USER;
                if let Some(process) = claim.process.as_mut().filter(|process| process.pid == pid) {
                    process.cgroup.clone_from(&recorded);
                }
            }
            Change::Made
        });
        assert!(changed.unwrap().is_empty());
    }

    /// The command that starts the broker.
    pub(crate) fn broker(&self) -> Command {
        let mut command = Command::new(self.subject.command_line());
        command.args(["broker", "--inventory=sim:t4x2"]);
        for (option, path) in [("state-dir", "state"), ("spec-dir", "cdi"), ("config", "policy.yaml")] {
            command.arg(format!("--{option}={}", self.at(path).display()));
        }
        command.args(self.subject.arguments(&[self.top.path()])).env_clear();
        command
    }

    /// Runs the broker until `is_done`, and for two more looks.
    pub(crate) fn serve(&self, is_done: impl FnMut() -> bool) -> Duration {
        let begun = Instant::now();
        let mut broker = self.broker();
        let mut broker = broker.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        self.until(begun, is_done);
        let _ = kill(Pid::from_raw(i32::try_from(broker.id()).unwrap()), Signal::SIGTERM);
        broker.wait().unwrap();
        begun.elapsed()
    }

    /// Waits until `is_done`, and for two more looks of the broker. It looks every five seconds, and ends a program in
    /// two looks. Most wait for two programs, of which the second has what the first held.
    pub(crate) fn until(&self, begun: Instant, mut is_done: impl FnMut() -> bool) {
        let patience = Duration::from_secs(if self.subject.is_real() { 45 } else { 15 });
        while !is_done() && begun.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(50));
        }
        if self.subject.is_real() {
            std::thread::sleep(Duration::from_secs(6));
        }
    }
}

/// The hostile side of a run.
#[derive(Default)]
pub(crate) struct Hostile {
    pub(crate) cgroup: Option<TestCgroup>,
    /// What the user may not have signalled.
    pub(crate) canaries: Vec<Canary>,
    /// What is root's by now, and must live.
    pub(crate) risen: Option<Program>,
    /// What must be ended.
    pub(crate) own: Vec<Program>,
}

/// Tries one variation, beside a harmless program.
pub(crate) fn try_one(trial: &mut Trial, name: &str, set_up: impl FnOnce(&Machine) -> Hostile) {
    let machine = Machine::new();
    let mut twin = Program::new(USER, STUBBORN);
    machine.hold(TWIN, twin.pid(), None);
    let mut hostile = set_up(&machine);
    let took = machine.serve(|| !twin.lives() && hostile.own.iter_mut().all(|own| !own.lives()));
    let not_served = twin
        .lives()
        .then(|| "a program that is held for too long is not ended".to_owned());
    let mut wrong = Vec::new();
    if hostile.canaries.iter_mut().any(|canary| !canary.is_untouched()) {
        wrong.push("a process of another user was signalled".to_owned());
    }
    if hostile.risen.as_mut().is_some_and(|program| !program.lives()) {
        wrong.push("a program that had become root's was killed".to_owned());
    }
    if hostile.own.iter_mut().any(Program::lives) {
        wrong.push("a process of the user was not ended".to_owned());
    }
    let is_frozen =
        |cgroup: &TestCgroup| fs::read_to_string(cgroup.0.join("cgroup.freeze")).is_ok_and(|text| text == "1\n");
    if hostile.cgroup.as_ref().is_some_and(is_frozen) {
        wrong.push("the cgroup is frozen".to_owned());
    }
    let ended = Ended {
        took,
        wrong,
        ..Ended::default()
    };
    // Its processes first: they are in the cgroup.
    hostile.canaries.clear();
    (hostile.risen, hostile.own) = (None, Vec::new());
    if let Some(cgroup) = &hostile.cgroup {
        let below = || {
            Command::new("find")
                .arg(&cgroup.0)
                .args(["-mindepth", "1", "-depth", "-type", "d", "-delete"])
                .status()
        };
        while !below().unwrap().success() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    trial.record_twin("broker", &not_served.into_iter().collect::<Vec<_>>());
    trial.record(name, &ended);
}

/// Whether there are users and cgroups for it; says so if not.
fn can_run(test: &str) -> bool {
    let is_ready = crate::owns_machine(&format!("acts::{test}"));
    match TestCgroup::version_2(&format!("attack-{test}")) {
        Err(why) if is_ready => {
            skip::not_run(&format!("attacks::acts::{test}"), &why);
            false
        }
        _ => is_ready,
    }
}

#[test]
fn with_a_process_of_another_namespace() {
    if !can_run("with_a_process_of_another_namespace") {
        return;
    }
    Attack::new(
        "acts::with_a_process_of_another_namespace",
        "what is ended is a process of root's or of LXC's container, in whose user namespace the user has a number",
    )
    .run_one_way(|trial| {
        for (name, map) in maps() {
            try_one(trial, name, |machine| {
                let canary = Canary::in_namespace(machine.top.path(), name, &map);
                machine.hold(HOSTILE, canary.program.pid(), None);
                Hostile {
                    canaries: vec![canary],
                    ..Hostile::default()
                }
            });
        }
        try_one(trial, "root's own", |machine| {
            let canary = Canary::of_user(machine.top.path(), "root", 0);
            machine.hold(HOSTILE, canary.program.pid(), None);
            Hostile {
                canaries: vec![canary],
                ..Hostile::default()
            }
        });
    });
}

#[test]
fn with_a_program_that_rises() {
    if !can_run("with_a_program_that_rises") {
        return;
    }
    Attack::new(
        "acts::with_a_program_that_rises",
        "between SIGTERM and SIGKILL, the user's program executes one with the setuid bit, which is root's then",
    )
    .run_one_way(|trial| {
        try_one(trial, "at SIGTERM", |machine| {
            let program = Program::new(USER, &becomes_root(&setuid_program(machine.top.path())));
            machine.hold(HOSTILE, program.pid(), None);
            Hostile {
                risen: Some(program),
                ..Hostile::default()
            }
        });
    });
}

#[test]
fn with_others_in_the_cgroup() {
    if !can_run("with_others_in_the_cgroup") {
        return;
    }
    Attack::new(
        "acts::with_others_in_the_cgroup",
        "the recorded cgroup has processes of other users, which are killed with it or stay frozen",
    )
    .run_one_way(|trial| {
        for version in [1, 2] {
            try_one(trial, &format!("version {version}"), |machine| {
                let cgroup = match version {
                    1 => TestCgroup::new("others-1"),
                    _ => TestCgroup::version_2("others-2"),
                }
                .unwrap();
                let own = Program::new(USER, STUBBORN);
                let top = machine.top.path();
                let [all, lxc] = maps().map(|(name, map)| Canary::in_namespace(top, name, &map));
                let canaries = vec![
                    all,
                    lxc,
                    Canary::of_user(top, "root", 0),
                    Canary::of_user(top, "eve", 65_532),
                ];
                cgroup.add(own.pid());
                canaries.iter().for_each(|canary| cgroup.add(canary.program.pid()));
                machine.hold(HOSTILE, own.pid(), Some(&cgroup.0));
                Hostile {
                    cgroup: Some(cgroup),
                    canaries,
                    own: vec![own],
                    ..Hostile::default()
                }
            });
        }
    });
}

#[test]
fn with_processes_that_hide() {
    if !can_run("with_processes_that_hide") {
        return;
    }
    Attack::new(
        "acts::with_processes_that_hide",
        "processes of the user become a subordinate uid, or are far below the recorded cgroup, and outlive the claim",
    )
    .run_one_way(|trial| {
        try_one(trial, "as a subordinate uid", |machine| {
            let script = format!("$SIG{{TERM}} = 'IGNORE'; print 1; <STDIN>; {BECOME} print 2; sleep 1000 while 1");
            let mut own = Program::in_namespace(USER, &script);
            machine.hold(HOSTILE, own.pid(), None);
            fs::write(format!("/proc/{}/uid_map", own.pid()), "0 200000 1000\n").unwrap();
            own.go_on();
            Hostile {
                own: vec![own],
                ..Hostile::default()
            }
        });
        for depth in [20, 60] {
            try_one(trial, &format!("{depth} levels below"), |machine| {
                let cgroup = TestCgroup::version_2("hides").unwrap();
                let own = vec![Program::new(USER, STUBBORN), Program::new(USER, STUBBORN)];
                cgroup.add(own[0].pid());
                let deepest = (0..depth).fold(cgroup.0.clone(), |path, _| path.join("x"));
                fs::create_dir_all(&deepest).unwrap();
                fs::write(deepest.join("cgroup.procs"), own[1].pid().to_string()).unwrap();
                machine.hold(HOSTILE, own[0].pid(), Some(&cgroup.0));
                Hostile {
                    cgroup: Some(cgroup),
                    own,
                    ..Hostile::default()
                }
            });
        }
    });
}
