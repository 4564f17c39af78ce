//! Many claims of a user whose processes change what they are while the broker ends them, and a broker that is killed
//! again and again, most often while it has frozen something.
//!
//! `TRANCHE_TEST_LIVES` sets their number.

use crate::acts::enter;
use crate::chance::Chance;
use crate::scene::{BOB, Scene};
use crate::support::changing::{BECOME, Canary, Program, becomes_root, setuid_program};
use crate::support::test_cgroup::TestCgroup;
use crate::support::{skip, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// So many claims are ended at once.
const AT_ONCE: usize = 40;

/// How often the broker is killed meanwhile.
const KILLS: usize = 3;

const EVE: u32 = 65_532;

/// One claim, with what is in its cgroup.
struct Life {
    kind: u64,
    program: Program,
    canary: Option<Canary>,
    cgroup: Option<TestCgroup>,
}

impl Life {
    fn new(scene: &Scene, setuid: &Path, number: usize, chance: &mut Chance) -> Life {
        let kind = chance.below(8);
        let has_cgroup = matches!(kind, 4..=6) || chance.below(3) > 0;
        let cgroup = has_cgroup.then(|| TestCgroup::version_2(&format!("life-{number}")).unwrap());
        let ignores = "$SIG{TERM} = 'IGNORE'; print 1;";
        let script = match kind {
            0 => "print 1; sleep 1000 while 1".to_owned(),
            1 => format!("{ignores} sleep 1000 while 1"),
            2 => becomes_root(setuid),
            // It makes a namespace, in which root gives it another number.
            3 => format!("{ignores} <STDIN>; sleep 1000 while 1"),
            4 => format!("{ignores} <STDIN>; for (1..5) {{ fork or last }} sleep 1000 while 1"),
            // It is another process all the time.
            5 => format!("{ignores} <STDIN>; while (1) {{ exit if fork; select(undef, undef, undef, 0.01) }}"),
            6 => format!("{ignores} <STDIN>; for (1..3) {{ fork or last }} sleep 1000 while 1"),
            _ => format!("{ignores} kill 'STOP', $$ while 1"),
        };
        let mut program = match kind {
            3 => Program::in_namespace(BOB, &script.replace("sleep 1000", &format!("{BECOME} sleep 1000"))),
            _ => Program::new(BOB, &script),
        };
        if let Some(cgroup) = &cgroup {
            cgroup.add(program.pid());
        }
        enter(scene, &format!("life-{number}"), program.pid()).unwrap();
        let canary = (has_cgroup && chance.below(3) == 0).then(|| {
            let name = format!("canary-{number}");
            match chance.below(3) {
                0 => Canary::of_user(&scene.at(""), &name, 0),
                1 => Canary::of_user(&scene.at(""), &name, EVE),
                _ => Canary::in_namespace(&scene.at(""), &name, "0 0 65536\n"),
            }
        });
        if let (Some(canary), Some(cgroup)) = (&canary, &cgroup) {
            cgroup.add(canary.program.pid());
        }
        if kind == 3 {
            fs::write(format!("/proc/{}/uid_map", program.pid()), "0 200000 1000\n").unwrap();
        }
        if let (6, Some(cgroup)) = (kind, &cgroup) {
            let below = (0..chance.below(30)).fold(cgroup.0.clone(), |path, _| path.join("x"));
            fs::create_dir_all(&below).unwrap();
            fs::write(below.join("cgroup.procs"), program.pid().to_string()).unwrap();
        }
        program.line();
        Life {
            kind,
            program,
            canary,
            cgroup,
        }
    }

    /// Whether nothing of the user's is left that could be ended.
    fn is_over(&mut self) -> bool {
        if self.kind == 2 {
            return true;
        }
        let canary = self.canary.as_ref().map(|canary| canary.program.pid());
        let is_left = |pid: &u32| Some(*pid) != canary;
        !self.program.lives() && !self.processes().iter().any(is_left)
    }

    fn processes(&self) -> Vec<u32> {
        let Some(cgroup) = &self.cgroup else { return Vec::new() };
        let directories = walkdir::WalkDir::new(&cgroup.0).into_iter().flatten();
        let lists = directories.filter(|entry| entry.file_name() == "cgroup.procs");
        let texts = lists.filter_map(|list| fs::read_to_string(list.path()).ok());
        texts
            .flat_map(|text| text.lines().map(|line| line.parse().unwrap()).collect::<Vec<u32>>())
            .collect()
    }

    /// What is wrong with it after its end, if anything is.
    fn wrong(&mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        let cgroup = self.cgroup.as_ref();
        if cgroup.is_some_and(|cgroup| fs::read_to_string(cgroup.0.join("cgroup.freeze")).unwrap() != "0\n") {
            wrong.push("its cgroup is frozen".to_owned());
        }
        if self.canary.as_mut().is_some_and(|canary| !canary.is_untouched()) {
            wrong.push("a process of another user in its cgroup was signalled".to_owned());
        }
        if self.kind == 2 && !self.program.lives() {
            wrong.push("a program that is root's was killed".to_owned());
        }
        if !self.is_over() {
            wrong.push("it could be ended and was not".to_owned());
        }
        wrong.iter().map(|what| format!("kind {}: {what}", self.kind)).collect()
    }
}

impl Drop for Life {
    /// Nothing of it outlives a test that fails.
    fn drop(&mut self) {
        if let Some(cgroup) = &self.cgroup {
            let _ = fs::write(cgroup.0.join("cgroup.kill"), "1");
        }
    }
}

/// Kills the broker `pid` while something is frozen, after a time of chance, or when `most` is over. Returns whether
/// something was frozen then.
fn hunt(state: &Path, pid: u32, chance: &mut Chance, most: Duration) -> bool {
    let until = Instant::now() + most;
    let journal = state.join("frozen.json");
    while Instant::now() < until && !journal.exists() {
        sleep(Duration::from_micros(100));
    }
    sleep(Duration::from_micros(chance.below(4000)));
    let was_frozen = journal.exists();
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
    was_frozen
}

#[test]
fn whatever_processes_become_and_whenever_the_broker_is_killed_nobody_else_s_are_signalled_and_nothing_is_frozen() {
    let test =
        "whatever_processes_become_and_whenever_the_broker_is_killed_nobody_else_s_are_signalled_and_nothing_is_frozen";
    let lives: usize = std::env::var("TRANCHE_TEST_LIVES").map_or(40, |number| number.parse().unwrap());
    let Some(mut scene) = Scene::without_broker(&format!("lives::{test}")) else {
        return;
    };
    if let Err(why) = TestCgroup::version_2("lives") {
        return skip::not_run(&format!("broker::lives::{test}"), &why);
    }
    let policy = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 90}\n  \
                  quota: {shares: 80, all: 80}\n  users:\n    default: {maxShares: 80, maxHold: 1s, atLimit: end, grace: 1s}\n";
    fs::write(scene.at("policy.yaml"), policy).unwrap();
    let setuid = setuid_program(&scene.at(""));
    let mut chance = Chance::new();
    let (mut done, mut killed, mut frozen, mut wrong) = (0, 0, 0, Vec::new());
    while done < lives {
        scene.start();
        let now = AT_ONCE.min(lives - done);
        let mut all: Vec<Life> = (done..done + now)
            .map(|n| Life::new(&scene, &setuid, n, &mut chance))
            .collect();
        for _ in 0..KILLS {
            frozen += usize::from(hunt(
                &scene.at("state"),
                scene.pid(),
                &mut chance,
                Duration::from_secs(12),
            ));
            scene.stop(Signal::SIGKILL);
            killed += 1;
            scene.start();
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline && !all.iter_mut().all(Life::is_over) {
            sleep(Duration::from_millis(100));
        }
        // The last look is over.
        scene.stop(Signal::SIGTERM);
        assert!(!scene.at("state/frozen.json").exists());
        wrong.extend(all.iter_mut().flat_map(Life::wrong));
        done += now;
        for life in &all {
            if let Some(cgroup) = &life.cgroup {
                fs::write(cgroup.0.join("cgroup.kill"), "1").unwrap();
                let mut below: Vec<_> = walkdir::WalkDir::new(&cgroup.0)
                    .min_depth(1)
                    .into_iter()
                    .flatten()
                    .collect();
                below.retain(|entry| entry.file_type().is_dir());
                for directory in below.iter().rev() {
                    until("it is empty", || fs::remove_dir(directory.path()).is_ok());
                }
            }
        }
        drop(all);
        println!("{done} lives, the broker killed {killed} times, {frozen} times while something was frozen");
    }
    assert!(wrong.is_empty(), "seed {}: {}", chance.seed(), wrong.join("\n"));
    assert!(frozen > 0, "the broker was never killed while something was frozen");
}
