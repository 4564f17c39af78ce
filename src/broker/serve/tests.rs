//! A broker that runs in a thread, with a machine that records what is asked of it.

use super::*;
use crate::control::DriverAccess;
use crate::facts::Facts;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tranche_core::broker::{BrokerError, SOCKET, send};
use tranche_core::error::{Error, Kind};
use tranche_core::ledger::ContainerName;
use tranche_core::types::{DeviceKey, HostPath};
use tranche_plan::reserve::{Reservation, Unoffered};
use tranche_plan::share::Wish;
use tranche_protocol::Request;
use tranche_state::accounts::AccountSources;
use tranche_state::controlled::ControlledDevice;
use tranche_state::public_status::{PublicStatus, STATUS_FILE};

/// GPU 0 in four turns, GPU 1 under MPS.
const POLICY: &str = "sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 4}
  mps:
    resources:
    - {name: nvidia.com/gpu, devices: [1], replicas: 2}
";

/// Records what it is asked, and refuses the device of another host.
#[derive(Default)]
struct Recorded {
    said: Mutex<Vec<String>>,
    ticks: AtomicUsize,
    /// How often it still has to look before nothing is managed.
    busy: AtomicUsize,
}

impl Recorded {
    fn say(&self, what: String, device: &DeviceKey) -> Result<()> {
        self.said.lock().unwrap().push(what);
        match device.to_string().starts_with("GPU-bad") {
            true => Err(Error::new(Kind::Nothing, device, "is broken").hint("mend it")),
            false => Ok(()),
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.said.lock().unwrap())
    }
}

impl MachineControl for Recorded {
    fn blockers(&self) -> Vec<Claim> {
        Vec::new()
    }

    fn prepare(&self, device: &DeviceKey) -> Result<()> {
        self.say(format!("prepare {device}"), device)
    }

    fn end_clients(&self, container: &ContainerName) -> Result<usize> {
        self.said
            .lock()
            .unwrap()
            .push(format!("end clients of {} in {}", container.id, container.bundle));
        Ok(3)
    }

    fn tick(&self) -> Option<Duration> {
        self.ticks.fetch_add(1, Ordering::SeqCst);
        let left = self
            .busy
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.is_ok().then_some(Duration::from_millis(10))
    }

    fn start(&self, device: &DeviceKey) -> Result<()> {
        self.say(format!("start {device}"), device)
    }

    fn stop(&self, device: &DeviceKey, force: bool) -> Result<()> {
        self.say(format!("stop {device} {force}"), device)
    }

    fn restart(&self, device: &DeviceKey) -> Result<()> {
        self.say(format!("restart {device}"), device)
    }

    fn devices(&self) -> Vec<ControlledDevice> {
        Vec::new()
    }

    fn driver(&self) -> Result<DriverAccess> {
        Err(Error::failed("NVML", "is not there"))
    }

    fn unreadable(&self) -> Vec<String> {
        Vec::new()
    }
}

struct Host(Arc<Facts>);

impl HostFacts for Host {
    fn now(&self) -> Result<Arc<Facts>> {
        Ok(Arc::clone(&self.0))
    }
}

fn facts() -> Arc<Facts> {
    let policy = tranche_plan::policy::read::parse("c.yaml", POLICY).unwrap().policy;
    let inventory = tranche_plan::sim::open("t4x2").unwrap();
    let plan = tranche_plan::share::plan(&policy, &inventory).unwrap();
    let hook = HostPath::root().join("usr/bin/tranche-oci");
    Arc::new(Facts::new(inventory, Arc::new(plan), hook))
}

/// A broker in a state directory of its own.
struct Scene {
    top: tempfile::TempDir,
    control: Recorded,
    host: Host,
}

impl Scene {
    fn new() -> Self {
        Self {
            top: tempfile::tempdir().unwrap(),
            control: Recorded::default(),
            host: Host(facts()),
        }
    }

    /// Serves until `client` is done, or by itself if `idle` is over. Returns how it ended.
    fn serve(&self, idle: Option<Duration>, client: impl FnOnce(&Scene)) -> Result<()> {
        let (stop, end) = UnixStream::pair().unwrap();
        let socket = Socket::open(self.top.path())?;
        thread::scope(|threads| {
            let options = ServeOptions {
                host: HostOptions::default(),
                refresh: Vec::new(),
                state_dir: self.top.path().to_owned(),
                policy: PolicyOptions::of(None, None, self.top.path()),
                spec_dir: self.top.path().join("cdi"),
                accounts: AccountSources::default(),
                idle,
            };
            let broker = threads.spawn(move || serve(&socket, &options, &self.control, &self.host, stop.as_fd()));
            client(self);
            drop(end);
            broker.join().unwrap()
        })
    }

    fn ask(&self, request: Value) -> Result<Value, BrokerError> {
        send(&self.top.path().join(SOCKET), &request, Duration::from_secs(60))
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.top.path().join(SOCKET)).unwrap()
    }

    fn status(&self) -> Option<PublicStatus> {
        serde_json::from_slice(&std::fs::read(self.top.path().join(STATUS_FILE)).ok()?).ok()
    }
}

/// Waits until `is_so`, for longer than any machine needs.
fn until(is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it never happened");
}

#[test]
fn the_owner_changes_the_machine() {
    let scene = Scene::new();
    let served = scene.serve(None, |scene| {
        let device = "GPU-11111111";
        let mps = |action: &str, force: bool| {
            scene.ask(json!({"version": 1, "command": "mps", "action": action, "device": device, "force": force}))
        };
        let prepare = |device: &str| scene.ask(json!({"version": 1, "command": "prepare", "device": device}));
        assert_eq!(prepare(device).unwrap(), json!({}));
        let container = json!({"id": "c", "bundle": "/b"});
        let ended = scene.ask(json!({"version": 1, "command": "end-clients", "container": container}));
        assert_eq!(ended.unwrap(), json!({"clients": 3}));
        for (action, force) in [("start", false), ("stop", false), ("stop", true), ("restart", false)] {
            mps(action, force).unwrap();
        }
        let expected = [
            "prepare GPU-11111111",
            "end clients of c in /b",
            "start GPU-11111111",
            "stop GPU-11111111 false",
            "stop GPU-11111111 true",
            "restart GPU-11111111",
        ];
        assert_eq!(scene.control.take(), expected);
        let Err(BrokerError::Refused(error)) = prepare("GPU-bad00000") else {
            panic!("a failure is an error");
        };
        assert_eq!(
            (error.to_string().as_str(), error.kind()),
            ("GPU-bad00000: is broken; mend it", Kind::Nothing)
        );
    });
    served.unwrap();
    assert!(
        !scene.top.path().join(SOCKET).exists(),
        "nothing that nobody serves is left"
    );
}

#[test]
fn each_change_of_the_ledger_is_looked_at_and_shown_to_everybody() {
    let scene = Scene::new();
    let served = scene.serve(None, |scene| {
        let held = |scene: &Scene| scene.status().map(|status| status.devices[0].claims.len());
        until(|| held(scene) == Some(0));
        let ticks = || scene.control.ticks.load(Ordering::SeqCst);
        let before = ticks();
        let claims = Claims::open(scene.top.path()).unwrap();
        let wish = Wish {
            shares: Some(2),
            ..Wish::default()
        };
        let plan = &scene.host.0.plan;
        plan.reserve(&claims, &Reservation::of("mine", wish), &Unoffered)
            .unwrap();
        until(|| held(scene) == Some(1) && ticks() > before);
        let status = scene.status().unwrap();
        assert_eq!(status.devices[0].device, "nvidia.com/gpu=0");
        assert_eq!(status.devices[0].claims[0].shares.len(), 2);
        let text = std::fs::read_to_string(scene.top.path().join(STATUS_FILE)).unwrap();
        assert!(!text.contains("mine"), "{text}");
        use std::os::unix::fs::MetadataExt;
        let mode = std::fs::metadata(scene.top.path().join(STATUS_FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o644);
        // A file that somebody removed is written again before it is pointed to.
        std::fs::remove_file(scene.top.path().join(STATUS_FILE)).unwrap();
        scene.ask(json!({"version": 1, "command": "status"})).unwrap();
        assert_eq!(scene.status().unwrap().devices, status.devices);
    });
    served.unwrap();
}

#[test]
fn it_ends_when_it_is_idle_and_nothing_is_managed() {
    let scene = Scene::new();
    scene.control.busy.store(20, Ordering::SeqCst);
    let served = scene.serve(Some(Duration::from_millis(200)), |scene| {
        // A connection that is open counts, and so does what is managed.
        let open = scene.connect();
        thread::sleep(Duration::from_millis(400));
        assert!(scene.top.path().join(SOCKET).exists());
        drop(open);
        until(|| !scene.top.path().join(SOCKET).exists());
    });
    served.unwrap();
    assert_eq!(
        scene.control.busy.load(Ordering::SeqCst),
        0,
        "it waited until nothing was managed"
    );
}

#[test]
fn a_line_that_is_too_long_or_does_not_end_gets_an_error_or_nothing() {
    let scene = Scene::new();
    let served = scene.serve(None, |scene| {
        let mut long = scene.connect();
        // The broker may have seen enough before all is written.
        let _ = long.write_all(&vec![b' '; tranche_core::broker::MOST_BYTES + 1]);
        let mut answer = String::new();
        let _ = long.read_to_string(&mut answer);
        assert!(
            answer.is_empty() || answer.contains("is longer than 16384 bytes"),
            "{answer}"
        );
        let mut half = scene.connect();
        half.write_all(b"{\"version\":1,").unwrap();
        half.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        half.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "");
        let Err(BrokerError::Refused(error)) = scene.ask(json!({"version": 9, "command": "list"})) else {
            panic!("a newer client is refused");
        };
        assert!(error.to_string().contains("the request has version 9"), "{error}");
    });
    served.unwrap();
}

#[test]
fn many_who_say_nothing_do_not_hold_up_the_owner() {
    let scene = Scene::new();
    let served = scene.serve(None, |scene| {
        // More than the broker accepts in all: the last ones get a line, and are closed.
        let silent: Vec<UnixStream> = (0..700).map(|_| scene.connect()).collect();
        scene.ask(json!({"version": 1, "command": "list"})).unwrap();
        drop(silent);
    });
    served.unwrap();
}

/// A line that is nearly a request: a valid one of which parts are replaced.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let device = facts().plan.devices[0].key.to_string();
    let word = prop_oneof![
        Just(json!(1)),
        Just(json!(null)),
        Just(json!(-1)),
        Just(json!(18_446_744_073_709_551_615u64)),
        Just(json!({"id": "c", "bundle": "/b"})),
        Just(json!(device)),
        Just(json!("any")),
        Just(json!("0")),
        Just(json!("1/4")),
        Just(json!(true)),
        Just(json!("start-0123456789abcdef")),
        Just(json!("../../etc/passwd")),
        Just(json!(["0", "1"])),
        any::<String>().prop_map(|text| json!(text)),
        any::<u32>().prop_map(|number| json!(number)),
    ];
    let key = prop::sample::select(vec![
        "version",
        "command",
        "device",
        "container",
        "share",
        "whole",
        "claim",
        "size",
        "as",
        "pid",
        "name",
        "memory",
        "compute",
        "shares",
        "ttl",
        "once",
        "cdi_version",
        "what",
        "force",
        "action",
        "id",
        "bundle",
    ]);
    let command = prop::sample::select(Request::COMMANDS);
    let full = (command, prop::collection::vec((key, word), 0..8)).prop_map(|(command, fields)| {
        let mut request = json!({"version": 1, "command": command, "container": {"id": "c", "bundle": "/b"}, "pid": 1});
        for (key, value) in fields {
            request[key] = value;
        }
        request.to_string().into_bytes()
    });
    let cut = (full, any::<prop::sample::Index>(), any::<u8>(), 0..4u8).prop_map(|(mut line, at, byte, how)| {
        let at = at.index(line.len());
        match how {
            0 => line.truncate(at),
            1 => line[at] = byte,
            2 => line.insert(at, byte),
            _ => {}
        }
        line
    });
    prop_oneof![4 => cut, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

/// Whatever a client sends, it gets one line of JSON, and the broker serves the next one.
#[test]
fn any_line_gets_one_answer() {
    let scene = Scene::new();
    let count = AtomicUsize::new(0);
    let seconds = std::env::var("TRANCHE_TEST_FUZZ_SECONDS")
        .ok()
        .map(|text| text.parse().unwrap());
    let end = seconds.map(|seconds: u64| Instant::now() + Duration::from_secs(seconds));
    let served = scene.serve(None, |scene| {
        let config = || ProptestConfig {
            cases: 300,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let try_all = || {
            // A runner stops when it has had so many cases.
            let mut runner = proptest::test_runner::TestRunner::new(config());
            runner.run(&nearly(), |line| {
                count.fetch_add(1, Ordering::SeqCst);
                let mut stream = scene.connect();
                stream.write_all(&line).unwrap();
                // The line may have ended before.
                let _ = stream.write_all(b"\n");
                let mut answer = String::new();
                // What is left unread of a line with breaks in it resets the connection after the answer.
                let _ = stream.read_to_string(&mut answer);
                let Some(answer) = answer.strip_suffix('\n') else {
                    return Err(TestCaseError::fail(format!(
                        "{answer:?} to {:?}",
                        String::from_utf8_lossy(&line)
                    )));
                };
                let answer: Value = serde_json::from_str(answer).unwrap();
                prop_assert_eq!(answer["version"].as_u64(), Some(1));
                prop_assert!(answer.get("ok").is_some() != answer.get("error").is_some());
                // What it did is undone, so that the next case finds room.
                Claims::open(scene.top.path())
                    .unwrap()
                    .lock()
                    .unwrap()
                    .collect()
                    .unwrap();
                Ok(())
            })
        };
        // TRANCHE_TEST_FUZZ_SECONDS searches for so long.
        loop {
            if let Err(error) = try_all() {
                panic!("{error}");
            }
            if end.is_none_or(|end| Instant::now() > end) {
                break;
            }
        }
        scene.ask(json!({"version": 1, "command": "list"})).unwrap();
    });
    served.unwrap();
    println!("{} lines were sent", count.load(Ordering::SeqCst));
}
