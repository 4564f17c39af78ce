//! A broker in a state directory of its own, and users who ask it.

use crate::support::{installed, programs, rights, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use tranche_core::ledger::{Book, Claim, Ledger};

/// GPU 0 in ten turns, GPU 1 under MPS with a daemon of the operator.
pub(crate) const POLICY: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 10}
  mps:
    daemon: external
    resources:
    - {name: nvidia.com/gpu, devices: [1], replicas: 2}
  quota: {shares: 3}
";

/// Two users, as every system has them or can have them.
pub(crate) const ANN: u32 = 65534;
pub(crate) const BOB: u32 = 65533;

/// The key of GPU 0 of the built-in host.
pub(crate) const GPU_0: &str = "GPU-da1435d3-36d6-f363-f134-290ab6a9a640";
/// The key of GPU 1.
pub(crate) const GPU_1: &str = "GPU-a1b03828-f799-fc30-d8ce-9f496f164106";

pub(crate) struct Scene {
    top: tempfile::TempDir,
    broker: Option<Child>,
}

impl Scene {
    /// A scene with a broker that runs, or `None` where this process cannot be several users.
    pub(crate) fn new(test: &str) -> Option<Scene> {
        let mut scene = Scene::without_broker(test)?;
        scene.start();
        Some(scene)
    }

    pub(crate) fn without_broker(test: &str) -> Option<Scene> {
        if !rights::owns_machine(&format!("broker::{test}")) {
            return None;
        }
        let top = tempfile::tempdir().unwrap();
        fs::set_permissions(top.path(), Permissions::from_mode(0o755)).unwrap();
        let scene = Scene { top, broker: None };
        fs::write(scene.at("policy.yaml"), POLICY).unwrap();
        installed::command_line(&scene.at(""));
        programs::install(env!("CARGO_BIN_EXE_tranche-oci"), scene.at("tranche-oci"));
        Some(scene)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    pub(crate) fn option(&self, name: &str, path: &str) -> String {
        format!("--{name}={}", self.at(path).display())
    }

    /// The broker's command line.
    pub(crate) fn command(&self) -> Command {
        let mut command = rights::broker(self.at("tranche"));
        command.args(["broker", "--inventory=sim:t4x2"]);
        for (option, path) in [("state-dir", "state"), ("spec-dir", "cdi"), ("config", "policy.yaml")] {
            command.arg(self.option(option, path));
        }
        command.env_clear().stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&mut self) {
        self.watch(self.command().spawn().unwrap());
    }

    /// The beginning of a command for which these files have these texts.
    pub(crate) fn with_files(&self, files: &[(&str, &str)]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=private", "sh", "-c"]);
        command
            .arg("while [ \"$1\" != -- ]; do mount --bind \"$1\" \"$2\" || exit 9; shift 2; done; shift; exec \"$@\"");
        command.arg("sh");
        for (number, (file, text)) in files.iter().enumerate() {
            let own = self.at(&format!("file-{number}"));
            programs::write(&own, text);
            command.arg(own).arg(file);
        }
        command
            .arg("--")
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        command
    }

    /// Starts a broker for which these files have these texts.
    pub(crate) fn start_with(&mut self, files: &[(&str, &str)]) {
        let broker = self.command();
        let mut command = self.with_files(files);
        command.arg(broker.get_program()).args(broker.get_args());
        self.watch(command.spawn().unwrap());
    }

    /// Runs `tranche` as root, on the broker's host.
    pub(crate) fn tranche_of_root(&self, arguments: &[&str]) -> Output {
        self.command_of_root(arguments).output().unwrap()
    }

    /// The same command, which is not started.
    pub(crate) fn command_of_root(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.at("tranche"));
        command.args(arguments).arg("--inventory=sim:t4x2");
        for (option, path) in [("state-dir", "state"), ("config", "policy.yaml")] {
            command.arg(self.option(option, path));
        }
        command.env_clear().env("TRANCHE_SPEC_DIR", self.at("cdi"));
        command
    }

    /// Runs `tranche` as root, on the ledger alone.
    pub(crate) fn of_root(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.at("tranche"));
        command.args(arguments).arg(self.option("state-dir", "state"));
        command.env_clear().output().unwrap()
    }

    /// Takes over a broker that was started, and waits until it answers.
    pub(crate) fn watch(&mut self, broker: Child) {
        self.broker = Some(broker);
        for _ in 0..3000 {
            if UnixStream::connect(self.at("state/broker.sock")).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the broker does not listen");
    }

    /// Ends the broker with `signal`. Returns its exit code; `None` if the signal killed it.
    pub(crate) fn stop(&mut self, signal: Signal) -> Option<i32> {
        let mut broker = self.broker.take().unwrap();
        // It may have been killed before, and is not waited for yet.
        kill(Pid::from_raw(broker.id().try_into().unwrap()), signal).unwrap();
        broker.wait().unwrap().code()
    }

    /// The number of the broker's process.
    pub(crate) fn pid(&self) -> u32 {
        self.broker.as_ref().unwrap().id()
    }

    /// Whether the broker still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.broker.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// A connection of `uid`.
    pub(crate) fn connect(&self, uid: u32) -> UnixStream {
        let socket = self.at("state/broker.sock");
        as_user(uid, || UnixStream::connect(socket)).unwrap()
    }

    /// What the broker answers `uid`: the value of `ok`, or the text of the error.
    pub(crate) fn ask(&self, uid: u32, command: &str, mut fields: Value) -> Result<Value, String> {
        fields["version"] = json!(1);
        fields["command"] = json!(command);
        let socket = self.at("state/broker.sock");
        let mut stream = as_user(uid, || UnixStream::connect(socket)).map_err(|e| e.to_string())?;
        // The broker may have refused the connection by now.
        let _ = stream.write_all(format!("{fields}\n").as_bytes());
        answer(&mut stream)
    }

    /// Lets `uid` reserve a share of GPU 0 under `name`.
    pub(crate) fn claim(&self, uid: u32, name: &str) -> Result<Value, String> {
        self.ask(uid, "claim", json!({"name": name, "device": "0", "shares": 1}))
    }

    /// The names of the claims that `uid` sees, in their order; empty for one without a name.
    pub(crate) fn seen(&self, uid: u32) -> Vec<String> {
        let list = self.ask(uid, "list", json!({})).unwrap();
        let claims = list["claims"].as_array().unwrap().iter();
        let mut names: Vec<String> = claims
            .map(|claim| claim["name"].as_str().unwrap_or("").to_owned())
            .collect();
        names.sort();
        names
    }

    /// All claims on disk.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let Some(ledger) = Ledger::existing(&self.at("state")).unwrap() else {
            return Vec::new();
        };
        let all = ledger.books().unwrap();
        assert!(all.damaged.is_empty() && all.books.iter().all(Book::is_sound));
        all.books.into_iter().flat_map(|book| book.claims).collect()
    }

    /// The names of all claims on disk.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.claims().into_iter().filter_map(|claim| claim.name).collect();
        names.sort();
        names
    }

    /// The specifications of claims.
    pub(crate) fn specs(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.at("cdi")) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Puts directories in the place of what is kept of GPU 0 over a boot, so that nothing of it can be written. There
    /// is room again when they are removed.
    pub(crate) fn let_nothing_be_kept(&self) -> [PathBuf; 2] {
        let kept = self.at("state/kept/ledger");
        let name = fs::read_dir(self.at("state/ledger"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .find(|name| name.contains(GPU_0))
            .unwrap();
        let places = [kept.join(&name), kept.join(format!("{name}.damaged"))];
        for place in &places {
            let _ = fs::remove_file(place);
            fs::create_dir_all(place.join("x")).unwrap();
        }
        fs::set_permissions(kept, PermissionsExt::from_mode(0o700)).unwrap();
        places
    }

    /// Runs `tranche` with the scene's directories as `uid`.
    pub(crate) fn tranche(&self, uid: u32, arguments: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={uid}"),
            format!("--regid={uid}"),
            "--clear-groups".into(),
        ]);
        command.arg(self.at("tranche")).args(arguments);
        command.arg(self.option("state-dir", "state"));
        command.env_clear().env("PATH", "/usr/bin:/bin").output().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(broker) = &mut self.broker {
            let _ = broker.kill();
            let _ = broker.wait();
        }
    }
}

/// The answer on `stream`: the value of `ok`, or the text of the error.
pub(crate) fn answer(stream: &mut UnixStream) -> Result<Value, String> {
    let mut text = String::new();
    // A connection that the broker refuses is reset if the request was not read.
    let _ = stream.read_to_string(&mut text);
    let answer: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text:?}"))?;
    match answer.get("ok") {
        Some(ok) => Ok(ok.clone()),
        None => {
            let error = &answer["error"];
            let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
            Err(format!("{}: {}; {}", text("object"), text("what"), text("hint")))
        }
    }
}

/// Runs `what` in a thread that belongs to `uid`: the kernel keeps the user of each thread (setresuid(2), "C
/// library/kernel differences").
pub(crate) fn as_user<T: Send>(uid: u32, what: impl FnOnce() -> T + Send) -> T {
    thread::scope(|threads| {
        let thread = threads.spawn(|| {
            if uid != 0 {
                let uid = Uid::from_raw(uid);
                set_thread_res_uid(uid, uid, uid).unwrap();
            }
            what()
        });
        thread.join().unwrap()
    })
}

/// A process of `uid` that sleeps until it is dropped.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn new(uid: u32) -> Sleeper {
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={uid}"),
            format!("--regid={uid}"),
            "--clear-groups".into(),
        ]);
        let child = command.args(["sleep", "1000"]).stdin(Stdio::null()).spawn().unwrap();
        // setpriv changes its user before it becomes sleep.
        let comm = format!("/proc/{}/comm", child.id());
        until("setpriv has become sleep", || {
            fs::read_to_string(&comm).unwrap().trim_end() == "sleep"
        });
        Sleeper(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a hook of a user's engine says of its container.
pub(crate) fn container(id: &str) -> Value {
    json!({"id": id, "bundle": "/home/user/bundle"})
}
