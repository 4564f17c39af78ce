//! Starts of containers as a container runtime makes them: each is a process that reserves shares, in the order of
//! their coming where it must wait, and that may be killed at any moment.

use super::killed::at_each_step_of;
use super::*;
use crate::support::{seconds_waited, until};
use std::fs::OpenOptions;
use std::io::Write;
use std::process::Child;
use std::time::Duration;
use tranche_core::claims::Claims;
use tranche_core::ledger::{ContainerName, Holder};
use tranche_plan::reserve::{Offer, Reservation, ReserveError, Unoffered};
use tranche_plan::share::{self, Fit, Plan, Wish};
use tranche_plan::{policy, sim};

/// What a process of this test binary is to do: `STATE_DIR NUMBER WHAT`.
const TASK: &str = "TRANCHE_TEST_START";

/// The test that such a process runs.
const NAME: &str = "claim_verbs::starts::one_start";

/// GPU 0 in two turns, GPU 1 whole.
const TWO: &str = "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 2}\n";

fn plan(yaml: &str) -> Plan {
    let policy = policy::read::parse("policy.yaml", yaml).unwrap().policy;
    share::plan(&policy, &sim::open("t4x2").unwrap()).unwrap()
}

fn start(number: usize, wish: Wish) -> Reservation {
    let holder = Holder::Container(ContainerName {
        bundle: "/bundle".into(),
        id: number.to_string(),
    });
    Reservation::for_start(wish, holder, Some(std::process::id())).unwrap()
}

/// Notes the number of a start at the moment at which it gets its share: the ledger is locked then.
struct Served<'a> {
    number: usize,
    state_dir: &'a Path,
}

impl Offer for Served<'_> {
    fn publish(&self, _: &Fit) -> Result<Option<String>, tranche_core::error::Error> {
        let file = self.state_dir.join("served");
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        // In one call: another start may write at the same time.
        file.write_all(format!("{}\n", self.number).as_bytes()).unwrap();
        Ok(None)
    }
}

/// Two shares of GPU 0 and the share `big`, which GPU 1 has.
fn two_gpus(number: usize) -> [Reservation; 2] {
    let big = Wish {
        names: vec!["big".parse().unwrap()],
        ..Wish::default()
    };
    let two = Wish {
        device: Some(plan(POLICY).devices[0].device),
        ..Wish::shares(2)
    };
    [two, big].map(|wish| start(number, wish))
}

/// The process of a start. It does nothing in a run of all tests, where nobody gives it a task.
#[test]
fn one_start() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let mut words = task.split(' ');
    let state_dir = PathBuf::from(words.next().unwrap());
    let number: usize = words.next().unwrap().parse().unwrap();
    let claims = Claims::open(&state_dir).unwrap();
    let wait = Duration::from_secs(200);
    match words.next().unwrap() {
        task @ ("two-gpus" | "in-vain") => {
            let wishes = two_gpus(number);
            let wait = if task == "in-vain" {
                Duration::from_nanos(1)
            } else {
                Duration::ZERO
            };
            match plan(POLICY).reserve_all_waiting(&claims, &wishes, &Unoffered, wait) {
                Ok(reserved) => assert_eq!((task, reserved.len()), ("two-gpus", 2)),
                Err(error) => assert!(
                    task == "in-vain" && matches!(error, ReserveError::TimedOut { .. }),
                    "{error}"
                ),
            }
        }
        holds => {
            let offer = Served {
                number,
                state_dir: &state_dir,
            };
            let wish = [start(number, Wish::shares(1))];
            plan(TWO).reserve_all_waiting(&claims, &wish, &offer, wait).unwrap();
            let books = claims.books().unwrap();
            let held: Vec<String> = books.claims().map(|claim| claim.who()).collect();
            assert!(
                held.len() <= 2 && held.contains(&format!("container {number}")),
                "{held:?}"
            );
            // It ends without giving anything back, as a process that is killed.
            std::thread::sleep(match holds {
                "long" => Duration::from_secs(200),
                _ => Duration::from_millis(10),
            });
        }
    }
}

fn words(state_dir: &Path, number: usize, what: &str) -> Vec<String> {
    let exe = std::env::current_exe().unwrap();
    let task = format!("{TASK}={} {number} {what}", state_dir.display());
    let exe = exe.to_str().unwrap();
    let words = ["/usr/bin/env", &task, exe, "--exact", NAME];
    words.map(str::to_owned).to_vec()
}

fn spawn(state_dir: &Path, number: usize, what: &str) -> Child {
    let words = words(state_dir, number, what);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdout(Stdio::null());
    command.spawn().unwrap()
}

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

fn served(state_dir: &Path) -> Vec<usize> {
    let text = fs::read_to_string(state_dir.join("served")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Of fifty that wait for two shares, a third are killed while they wait, and some while they hold a share.
#[test]
fn fifty_starts_that_wait_for_two_shares_get_one_in_their_order_and_none_is_lost() {
    let top = tempfile::tempdir().unwrap();
    let state_dir = top.path();
    let queue = state_dir.join("ledger/queue");
    let mut holders: Vec<Child> = (0..2).map(|number| spawn(state_dir, number, "long")).collect();
    until("two hold a share", || served(state_dir).len() == 2);
    let is_killed_later = |number: usize| number.is_multiple_of(7);
    let mut waiting: Vec<(usize, Child)> = Vec::new();
    for number in 2..52 {
        let what = if is_killed_later(number) { "long" } else { "short" };
        waiting.push((number, spawn(state_dir, number, what)));
        until("it waits", || count(&queue) == waiting.len());
    }
    assert_eq!(
        served(state_dir).len(),
        2,
        "nobody is served while both shares are held"
    );
    let (mut killed, mut rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(number, _)| number % 3 == 2);
    assert_eq!((killed.len(), rest.len()), (17, 33));
    for (_, child) in &mut killed {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for child in &mut holders {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for (number, child) in &mut rest {
        if is_killed_later(*number) {
            until("it holds a share", || served(state_dir).contains(number));
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            assert!(child.wait().unwrap().success(), "start {number}");
        }
    }
    let expected: Vec<usize> = rest.iter().map(|(number, _)| *number).collect();
    assert_eq!(
        served(state_dir)[2..],
        expected,
        "each once, in the order of their coming"
    );
    let claims = Claims::open(state_dir).unwrap();
    claims.lock().unwrap().collect().unwrap();
    assert_eq!((claims.books().unwrap().claims().count(), count(&queue)), (0, 0));
}

/// A start that reserves on two GPUs, as a command that can be killed.
fn call(scene: &Scene, what: &str) -> Call {
    Call {
        words: words(&scene.at("state"), 1, what),
        input: None,
    }
}

/// Calls that the test harness, in which these processes run, does not make itself.
const CALLS: &[&str] = &["flock", "mkdirat", "renameat", "unlinkat"];

#[test]
fn a_start_that_is_killed_at_any_step_holds_nothing() {
    at_each_step_of("a_start", CALLS, 4, |scene| (call(scene, "two-gpus"), ()));
}

#[test]
fn a_start_that_waits_and_is_killed_at_any_step_is_in_nobodys_way() {
    at_each_step_of("a_start_that_waits", CALLS, 8, |scene| {
        let inits: Vec<Init> = (0..3)
            .map(|n| scene.start(&format!("nvidia.com/gpu=0.{n}"), &format!("other{n}")))
            .collect();
        (call(scene, "in-vain"), inits)
    });
}

#[test]
fn a_claim_waits_for_what_others_hold_and_says_so_in_the_end() {
    let Some(scene) = Scene::new("starts::a_claim_waits") else {
        return;
    };
    scene
        .create(&["--name=other", "--share=2", "--share=0", "--of=0"])
        .run()
        .ok();
    let held: Vec<Value> = scene.json(&["claim", "list"]).as_array().unwrap().clone();
    assert_eq!(held[0]["shares"], json!(["0", "2"]), "exactly those that were named");
    let line = scene
        .create(&["--name=one", "--shares=3", "--of=0", "--wait=1"])
        .run()
        .failed(1);
    let expected = "3 shares: no device can give it now; gpu 0 has 2 of 4 shares free; held: nvidia.com/claim=other by";
    assert!(line.contains(expected) && seconds_waited(&line) >= Some(1), "{line}");
    let never = scene
        .create(&["--name=one", "--shares=5", "--of=0", "--wait=60"])
        .run()
        .failed(2);
    assert!(
        never.contains("5 shares: no device") && !never.contains("waited"),
        "{never}"
    );
    std::thread::scope(|scope| {
        let create = scene.create(&["--name=one", "--shares=3", "--of=0", "--wait=60"]);
        let waits = scope.spawn(move || create.run().ok());
        until("it waits", || count(&scene.at("state/ledger/queue")) == 1);
        // A start that does not wait gets no share that another one waits for, by whatever way it comes.
        let init = Init::new();
        let hook = scene.hook("createRuntime", "nvidia.com/gpu=0.3", "c", init.pid());
        let refused = hook.run().failed(1);
        assert!(
            refused.contains("gpu 0 share 3: another start waits for it and is served first"),
            "{refused}"
        );
        let refused = scene.create(&["--name=two", "--shares=1", "--of=0"]).run().failed(1);
        assert!(
            refused.contains("1 share: another start waits for it and is served first"),
            "{refused}"
        );
        scene.tranche(&["claim", "release", "other"]).run().ok();
        waits.join().unwrap();
        hook.run().ok();
    });
    assert_eq!(scene.claims(), ["one"]);
    let name = scene.create(&["--name=start-0123456789abcdef"]).run().failed(2);
    assert!(name.contains("is a name that starts of containers use"), "{name}");
}

#[test]
fn what_a_start_reserved_is_shown_and_released_as_its_containers() {
    let Some(scene) = Scene::new("starts::shown") else {
        return;
    };
    let claims = Claims::open(&scene.at("state")).unwrap();
    let reserved = plan(POLICY).reserve(&claims, &two_gpus(7)[0], &Unoffered).unwrap();
    assert_eq!(scene.claims(), [""; 0], "nobody made a claim");
    let status = scene.json(&["status"]);
    let [claim] = &status["claims"].as_array().unwrap()[..] else {
        panic!("{status}");
    };
    let shown = ["name", "state", "cdi", "once"].map(|field| claim[field].clone());
    assert_eq!(
        shown,
        [
            Value::Null,
            json!("reserved"),
            json!("nvidia.com/gpu=0.0, nvidia.com/gpu=0.1"),
            json!(true)
        ]
    );
    assert_eq!(claim["container"]["id"], "7");
    let one = scene.tranche(&["claim", "release", "0.1"]).run().failed(2);
    assert!(one.contains("is one of several shares of container 7"), "{one}");
    // This process creates the container.
    let running = scene.tranche(&["claim", "release", "7"]).run().failed(1);
    assert!(
        running.contains("is held since") && running.contains("by container 7, which is being created"),
        "{running}"
    );
    scene.tranche(&["claim", "release", "--force", "7"]).run().ok();
    assert_eq!(scene.json(&["status"])["claims"], json!([]));
    // Its hook then says so, and the name of the claim is nothing for people.
    let name = reserved.1.name.unwrap();
    let mut hook = scene.hook("createRuntime", "nvidia.com/gpu=0.0", "7", std::process::id());
    hook.words
        .retain(|word| !word.starts_with("--share=") && !word.starts_with("--size="));
    hook.words.push(format!("--claim={name}"));
    let gone = hook.run().failed(1);
    assert!(
        gone.contains("gpu 0: what was reserved for this start is not reserved any more"),
        "{gone}"
    );
}
