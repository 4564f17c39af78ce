//! A machine with GPUs that have MIG, and a broker that changes them.

use crate::support::failing_disk::FailingDisk;
use crate::support::fake_host::{self, Host};
use crate::support::on_host::on_host;
use crate::support::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

pub(crate) struct Bed {
    top: tempfile::TempDir,
    pub(crate) host: Host,
    broker: Option<Child>,
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Bed {
    /// A host of `tests/hosts` with a broker that runs.
    pub(crate) fn new(host: &str) -> Self {
        let mut bed = Self::without_broker(host);
        bed.start();
        bed
    }

    pub(crate) fn without_broker(host: &str) -> Self {
        // Short, because the path of the broker's socket has a limit.
        let top = tempfile::Builder::new().prefix("mig").tempdir_in("/var/tmp").unwrap();
        let host = fake_host::build(host, &top.path().join("host")).unwrap();
        let bed = Self {
            top,
            host,
            broker: None,
        };
        bed.policy("version: v1\n");
        bed
    }

    pub(crate) fn policy(&self, text: &str) {
        fs::write(self.at("policy.yaml"), text).unwrap();
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// `tranche` on this machine.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        command.args(arguments).env_clear().stdin(Stdio::null());
        on_host(&mut command, self.top.path());
        for variable in ["TRANCHE_OUTPUT_DIR", "TRANCHE_SPEC_DIR"] {
            command.env(variable, self.at("cdi"));
        }
        command
    }

    pub(crate) fn tranche(&self, arguments: &[&str]) -> Said {
        self.command(arguments).output().unwrap().into()
    }

    /// Starts a broker and waits until it answers.
    pub(crate) fn start(&mut self) {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.at("broker.log"))
            .unwrap();
        let mut command = self.command(&["broker"]);
        self.broker = Some(command.stderr(log).spawn().unwrap());
        let socket = self.at("state/broker.sock");
        until("the broker answers", || UnixStream::connect(&socket).is_ok());
    }

    /// Starts a broker whose writes are on `disk`.
    pub(crate) fn start_on(&mut self, disk: &FailingDisk) -> std::io::Result<()> {
        let mut command = self.command(&["broker"]);
        let log = fs::File::create(self.at("broker.log"))?;
        self.broker = Some(disk.spawn(command.stderr(log))?);
        let socket = self.at("state/broker.sock");
        until("the broker answers", || UnixStream::connect(&socket).is_ok());
        Ok(())
    }

    /// Kills the broker, while others still ask it. [`Bed::end`] waits for its end.
    pub(crate) fn kill_broker(&self) {
        self.signal_broker(Signal::SIGKILL);
    }

    /// Sends the broker a signal.
    pub(crate) fn signal_broker(&self, signal: Signal) {
        if let Some(broker) = &self.broker {
            kill(Pid::from_raw(broker.id() as i32), signal).unwrap();
        }
    }

    /// Whether the driver has an instance of this profile that was made by now, with a MIG device on it.
    pub(crate) fn driver_has(&self, profile: &str) -> bool {
        let text = fs::read(self.at("host/fake-nvml.mig.json")).unwrap_or_default();
        let Ok(state) = serde_json::from_slice::<Value>(&text) else {
            return false;
        };
        let gpus = state.as_object().unwrap().values();
        let mut instances = gpus
            .filter(|gpu| gpu["made"].as_u64() > Some(0))
            .flat_map(|gpu| gpu["instances"].as_array().unwrap());
        instances.any(|one| one["profile"] == profile && one["compute"][0].is_object())
    }

    /// Destroys the instances that were made by now, as an administrator does with nvidia-smi.
    pub(crate) fn destroy_by_hand(&self) {
        let file = self.at("host/fake-nvml.mig.json");
        let mut state: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for gpu in state
            .as_object_mut()
            .unwrap()
            .values_mut()
            .filter(|gpu| gpu["made"].as_u64() > Some(0))
        {
            gpu["instances"] = json!([]);
        }
        fs::write(&file, state.to_string()).unwrap();
    }

    /// The number of the broker's process.
    pub(crate) fn pid(&self) -> u32 {
        self.broker.as_ref().unwrap().id()
    }

    /// Whether the broker has ended by itself, or was killed by another.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.broker.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Ends the broker by a signal.
    pub(crate) fn end(&mut self, signal: Signal) {
        let Some(mut broker) = self.broker.take() else { return };
        kill(Pid::from_raw(broker.id() as i32), signal).unwrap();
        broker.wait().unwrap();
    }

    /// The layout of each GPU as `tranche mig export` prints it, without its UUID, by index.
    pub(crate) fn layouts(&self) -> Vec<String> {
        let status: Value = serde_json::from_str(&self.tranche(&["mig", "status", "--json"]).out).unwrap();
        let gpus = status.as_array().unwrap();
        gpus.iter()
            .map(|gpu| format!("{}:{}", gpu["gpu"], gpu["layout"].as_str().unwrap()))
            .collect()
    }

    /// The UUID of GPU `index`.
    pub(crate) fn uuid(&self, index: usize) -> String {
        let status: Value = serde_json::from_str(&self.tranche(&["mig", "status", "--json"]).out).unwrap();
        status[index]["uuid"].as_str().unwrap().to_owned()
    }

    /// The layout of GPU `index`.
    pub(crate) fn layout(&self, index: u32) -> String {
        let start = format!("{index}:");
        let layouts = self.layouts();
        let found = layouts.iter().find_map(|layout| layout.strip_prefix(&start));
        found.unwrap_or_else(|| panic!("{layouts:?}")).to_owned()
    }

    /// No instance survives a boot. Of a GPU that was never changed, the instances are those of the host's files.
    pub(crate) fn lose_instances(&self) {
        let file = self.at("host/fake-nvml.mig.json");
        let mut state: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for gpu in state.as_object_mut().unwrap().values_mut() {
            gpu["instances"] = serde_json::json!([]);
        }
        fs::write(&file, state.to_string()).unwrap();
    }

    /// The machine boots: of tranche's directories, what is kept is left.
    pub(crate) fn boot(&self) {
        self.lose_instances();
        for entry in fs::read_dir(self.at("state")).unwrap() {
            let path = entry.unwrap().path();
            match path.file_name().is_some_and(|name| name == "kept") {
                true => {}
                false if path.is_dir() => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
        fs::remove_dir_all(self.at("cdi")).unwrap();
    }

    /// The answer of the broker to a request, or the text of its refusal.
    pub(crate) fn ask(&self, request: &Value) -> Result<Value, String> {
        let mut answer = String::new();
        BufReader::new(self.send(request)).read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        match answer.get("ok") {
            Some(ok) => Ok(ok.clone()),
            None => Err(answer["error"].to_string()),
        }
    }

    /// Sends the broker a request, whose answer nobody has read yet.
    pub(crate) fn send(&self, request: &Value) -> UnixStream {
        let mut request = request.clone();
        request["version"] = 1.into();
        let mut stream = UnixStream::connect(self.at("state/broker.sock")).unwrap();
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        stream
    }

    /// Whether the specifications have the device.
    pub(crate) fn offers(&self, name: &str) -> bool {
        let specification = fs::read_to_string(self.at("cdi/tranche.yaml")).unwrap_or_default();
        specification.contains(&format!("name: \"{name}\"\n"))
    }

    /// Applies these layouts to GPU 0, all at the same time.
    pub(crate) fn apply_at_once(&self, layouts: [&str; 2]) -> [Said; 2] {
        let applying = layouts.map(|layout| {
            let layout = format!("0:{layout}");
            let mut command = self.command(&["mig", "apply", "--yes", "--layout", &layout]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        });
        applying.map(|one| Said::from(one.wait_with_output().unwrap()))
    }

    /// Applies a layout that has to be applied, if it is not there.
    pub(crate) fn apply(&self, layout: &str) {
        let said = self.tranche(&["mig", "apply", "--yes", "--layout", layout]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.at("broker.log")).unwrap_or_default());
        }
        if let Some(mut broker) = self.broker.take() {
            let _ = broker.kill();
            let _ = broker.wait();
        }
    }
}
