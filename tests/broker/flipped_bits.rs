//! One bit that changes in a file of the ledger or of the broker: it is noticed and said, nothing is promised twice,
//! and nothing is lost without a word. `TRANCHE_TEST_EVERY_BYTE=1` does it in each byte (an hour).

use crate::scene::{ANN, BOB, GPU_0, GPU_1, Scene};
use crate::support::state_files::{self, Content};
use crate::support::until;
use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tranche_core::ledger::Ledger;
use tranche_core::sealed;
use tranche_core::types::{DeviceKey, GpuUuid};

const POLICY: &str = "\
version: v1
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0, 1], replicas: 10}]}
  quota: {shares: 20}
";

const UID: &str = "aaaaaaaa-0000-4000-8000-000000000001";

/// In how many bytes of a file a bit is changed.
const SAMPLES: usize = 12;

/// A scene in which a pod has a share of each GPU and Ann one of GPU 1, which is out of service now.
struct Bed {
    scene: Scene,
    /// The files as they were, without the broker.
    files: Vec<(PathBuf, Vec<u8>)>,
    claims: BTreeSet<String>,
}

fn held(scene: &Scene) -> (BTreeSet<String>, bool) {
    let ledger = Ledger::existing(&scene.at("state")).unwrap();
    let books = ledger.map(|ledger| ledger.books().unwrap()).unwrap_or_default();
    let claims = books
        .claims()
        .map(|claim| format!("{:?} {} {}", claim.name, claim.device, claim.part));
    (claims.collect(), books.damaged.is_empty())
}

impl Bed {
    fn new(test: &str) -> Option<Self> {
        let mut scene = Scene::without_broker(&format!("flipped_bits::{test}"))?;
        fs::write(scene.at("policy.yaml"), POLICY).unwrap();
        scene.start();
        let devices = [format!("{GPU_0}.0"), format!("{GPU_1}.0")];
        let pod = json!({"namespace": "shop", "name": "web-0"});
        scene
            .ask(0, "reserve", json!({"pod": pod, "devices": devices}))
            .unwrap();
        scene
            .ask(ANN, "claim", json!({"name": "held", "device": "1", "shares": 1}))
            .unwrap();
        assert!(scene.tranche_of_root(&["drain", "1"]).status.success());
        // Nothing of it is known.
        scene.ask(0, "unprepare-claim", json!({"uid": UID})).unwrap();
        scene.stop(Signal::SIGTERM);
        let claims = held(&scene).0;
        let mut bed = Self {
            scene,
            files: Vec::new(),
            claims,
        };
        bed.add();
        let found = state_files::of(&bed.scene.at("state"), &[Content::Json, Content::Book]);
        let read = |path: PathBuf| {
            let bytes = fs::read(bed.scene.at("state").join(&path)).unwrap();
            (path, bytes)
        };
        bed.files = found.into_iter().map(read).collect();
        Some(bed)
    }

    /// Files that are there in the middle of something.
    fn add(&self) {
        let state = self.scene.at("state");
        let write = |name: &str, value: Value| {
            fs::write(state.join(name), sealed::seal(&value.to_string()).as_bytes()).unwrap()
        };
        write(
            "frozen.json",
            json!({"version": 1, "path": "/no-such-cgroup", "inode": 5}),
        );
        let user = json!({"uid": ANN, "device_seconds": 7.5});
        write("used-lately.json", json!({"version": 1, "until": 1, "users": [user]}));
        write(
            "not-ended.json",
            json!({"version": 1, "claims": {"65534 held": "it is stopped"}}),
        );
        let gpu: GpuUuid = GPU_1.parse().unwrap();
        let outage = json!({"device": DeviceKey::whole(gpu), "from": 1, "reason": "its compute mode is PROHIBITED"});
        write("prohibited.json", json!({"version": 1, "devices": [outage]}));
        let wait = json!({"what": "claim 65534.more", "uid": ANN, "ahead": 0, "waited": 5});
        write("waiting.json", json!({"version": 1, "waiting": [wait]}));
    }

    fn status_of_root(&self) -> Output {
        let mut command = Command::new(self.scene.at("tranche"));
        command.args(["status", "--no-gpu", "--inventory=sim:t4x2"]);
        command.arg(self.scene.option("state-dir", "state"));
        command.env_clear().output().unwrap()
    }

    fn restore(&self) {
        let state = self.scene.at("state");
        for path in state_files::of(&state, &[Content::Json, Content::Book, Content::Foreign]) {
            fs::remove_file(state.join(path)).unwrap();
        }
        for (path, bytes) in &self.files {
            fs::write(state.join(path), bytes).unwrap();
        }
    }

    /// Changes one bit of `bytes` and returns what all programs said.
    fn try_with(&mut self, file: &Path, bytes: &[u8], boots: bool) -> Vec<String> {
        self.restore();
        let path = self.scene.at("state").join(file);
        let mut wrong = Vec::new();
        let mut said = String::new();
        if boots {
            for (path, _) in &self.files {
                if !path.starts_with("kept") {
                    fs::remove_file(self.scene.at("state").join(path)).unwrap();
                }
            }
            // It does not exist while something that was kept cannot be read.
            let _ = fs::remove_file(self.scene.at("state/ledger/kept-was-read"));
        }
        fs::write(&path, bytes).unwrap();
        // As root sees it before a broker has written anything anew, and as everybody does.
        let outputs = [
            self.status_of_root(),
            self.scene.tranche(BOB, &["status", "--no-gpu"]),
            self.scene.of_root(&["claim", "list"]),
        ];
        let log = self.scene.at("log");
        let broker = self
            .scene
            .command()
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        self.scene.watch(broker);
        // What another pod has, and what is out of service.
        let pod = json!({"namespace": "shop", "name": "web-1"});
        let of_another = self
            .scene
            .ask(0, "reserve", json!({"pod": pod, "devices": [format!("{GPU_0}.0")]}));
        let drained = self
            .scene
            .ask(BOB, "claim", json!({"name": "new", "device": "1", "shares": 1}));
        let of_nobody = self.scene.ask(
            0,
            "prepare-claim",
            json!({"claim": {"namespace": "lab", "name": "train", "uid": UID},
            "devices": [{"device": "gpu-0", "share_id": "a", "shares": 1}], "asked_at": 1}),
        );
        for (what, answer) in [
            ("of another", of_another),
            ("out of service", drained),
            ("given up", of_nobody),
        ] {
            match answer {
                Ok(granted) => wrong.push(format!("granted {what}: {granted}")),
                Err(refused) => said.push_str(&refused),
            }
        }
        if let Err(error) = self.scene.ask(0, "list", json!({})) {
            said.push_str(&error);
        }
        let name = file.file_name().unwrap().to_str().unwrap();
        if name == "used-lately.json" && !means_the_same(&self.files, file, bytes) {
            // It is read when somebody waits for the first time.
            let mut waiting = self.scene.connect(ANN);
            let request =
                json!({"version": 1, "command": "claim", "name": "more", "device": "0", "shares": 10, "wait": "1m"});
            waiting.write_all(format!("{request}\n").as_bytes()).unwrap();
            until("it is said", || fs::read_to_string(&log).unwrap().contains(name));
        }
        if self.scene.stop(Signal::SIGTERM) != Some(0) {
            wrong.push("the broker did not end as it should".to_owned());
        }
        let logged = fs::read_to_string(&log).unwrap();
        for output in outputs {
            let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            if !matches!(output.status.code(), Some(0 | 1)) {
                wrong.push(format!("{:?}: {text}", output.status));
            }
            said.push_str(&text);
        }
        said.push_str(&logged);
        if said.contains("panicked") {
            wrong.push("a program panicked".to_owned());
        }
        let is_said = said.contains(name);
        let lines = logged.lines().filter(|line| line.contains(name)).collect::<Vec<_>>();
        if lines.len() > 3 {
            wrong.push(format!("the broker says it {} times: {lines:#?}", lines.len()));
        }
        let (claims, is_whole) = held(&self.scene);
        let lost: Vec<&String> = self.claims.difference(&claims).collect();
        let may_lose = |claim: &&&String| boots && claim.contains("held");
        if lost.iter().any(|claim| !may_lose(&claim)) && (is_whole && !boots || !is_said) {
            wrong.push(format!("lost without a word: {lost:?}"));
        }
        if claims.difference(&self.claims).next().is_some() {
            wrong.push(format!("there is {claims:?}"));
        }
        if !is_said && !means_the_same(&self.files, file, bytes) {
            wrong.push(format!("nobody says it: {said}"));
        }
        wrong
    }
}

/// Whether the content is the same: white space, and the name of the checksum.
fn means_the_same(files: &[(PathBuf, Vec<u8>)], file: &Path, bytes: &[u8]) -> bool {
    let (_, before) = files.iter().find(|(path, _)| path == file).unwrap();
    let parse = |bytes: &[u8]| sealed::parse::<Map<String, Value>>(bytes).ok();
    let (Some(before), Some(mut after)) = (parse(before), parse(bytes)) else {
        return false;
    };
    after.retain(|name, _| before.contains_key(name));
    before == after
}

fn each(test: &str, kind: fn(&Path) -> bool, boots: bool) {
    let Some(mut bed) = Bed::new(test) else { return };
    let files = bed.files.clone();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (file, bytes) in files.iter().filter(|(path, _)| kind(path)) {
        let step = match std::env::var_os("TRANCHE_TEST_EVERY_BYTE") {
            Some(_) => 1,
            None => bytes.len().div_ceil(SAMPLES),
        };
        for at in (0..bytes.len()).step_by(step) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            tried += 1;
            let found = bed.try_with(file, &changed, boots);
            wrong.extend(
                found
                    .into_iter()
                    .map(|what| format!("{} byte {at}: {what}", file.display())),
            );
        }
        println!("{}: {} bytes", file.display(), bytes.len());
    }
    println!("{tried} bits, {} times wrong", wrong.len());
    assert!(tried > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_book(path: &Path) -> bool {
    path.starts_with("ledger")
}

fn is_kept(path: &Path) -> bool {
    path.starts_with("kept")
}

#[test]
fn a_bit_of_a_book() {
    each("a_bit_of_a_book", is_book, false);
}

#[test]
fn a_bit_of_what_is_kept_over_a_boot() {
    each("a_bit_of_what_is_kept_over_a_boot", is_kept, true);
}

#[test]
fn a_bit_of_what_is_kept_without_a_boot() {
    each("a_bit_of_what_is_kept_without_a_boot", is_kept, false);
}

#[test]
fn a_bit_of_another_file() {
    each("a_bit_of_another_file", |path| !is_book(path) && !is_kept(path), false);
}
