//! A machine with claims, and the program that keeps its history.

use crate::support::until::until;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const TRANCHE: &str = env!("CARGO_BIN_EXE_tranche");
const WEB: &str = env!("CARGO_BIN_EXE_tranche-web");

/// How many shares the device has.
pub(crate) const SHARES: usize = 10;

const POLICY: &str = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}\n";

/// It is ended when it is dropped.
pub(crate) struct Scene {
    pub(crate) top: TempDir,
    web: Option<Child>,
}

impl Scene {
    /// A machine that records events. The program does not run yet.
    pub(crate) fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        // Other users ask, and so have to reach the socket.
        fs::set_permissions(top.path(), Permissions::from_mode(0o755)).unwrap();
        let scene = Self { top, web: None };
        for directory in ["state", "state/events", "data"] {
            fs::create_dir(scene.at(directory)).unwrap();
        }
        fs::write(scene.at("policy.yaml"), POLICY).unwrap();
        scene
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn option(&self, option: &str, name: &str) -> String {
        format!("--{option}={}", self.at(name).display())
    }

    /// Makes the claim `name` of one share.
    pub(crate) fn claim(&self, name: &str) {
        let output = self.claim_command(name).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The command that makes it.
    pub(crate) fn claim_command(&self, name: &str) -> Command {
        let mut command = Command::new(TRANCHE);
        let options = ["--inventory=sim:hgx-h200", "--shares=1", "--device=0", "--name", name];
        command.args(["claim", "create"]).args(options);
        command.args([
            self.option("config", "policy.yaml"),
            self.option("state-dir", "state"),
            self.option("spec-dir", "cdi"),
        ]);
        command.env_clear();
        command
    }

    pub(crate) fn release(&self, name: &str) {
        let output = Command::new(TRANCHE)
            .args(["claim", "release", name])
            .arg(self.option("state-dir", "state"))
            .env_clear()
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    pub(crate) fn web_command(&self) -> Command {
        let mut command = Command::new(WEB);
        let options = [
            ("state-dir", "state"),
            ("data-dir", "data"),
            ("socket", "socket"),
            ("page-socket", "page"),
        ];
        command.args(options.map(|(option, name)| self.option(option, name)));
        command.env_clear().stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts the program, and waits until it answers.
    pub(crate) fn start(&mut self) {
        self.start_with(&[]);
    }

    /// As [`Scene::start`], with these words as well.
    pub(crate) fn start_with(&mut self, words: &[&str]) {
        self.web = Some(self.web_command().args(words).stderr(Stdio::null()).spawn().unwrap());
        until("tranche-web answers", || UnixStream::connect(self.at("socket")).is_ok());
    }

    /// Starts the program, whose log is written to `journal`, and waits until it answers.
    pub(crate) fn start_logging(&mut self, journal: &Path) {
        let journal = fs::File::create(journal).unwrap();
        self.web = Some(self.web_command().stderr(journal).spawn().unwrap());
        until("tranche-web answers", || UnixStream::connect(self.at("socket")).is_ok());
    }

    /// Ends it by SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut web) = self.web.take() {
            web.kill().unwrap();
            web.wait().unwrap();
        }
    }

    /// `tranche` with these words and the socket, as a user.
    pub(crate) fn tranche_as(&self, uid: u32, words: &[&str]) -> Output {
        let mut command = Command::new(TRANCHE);
        command
            .args(words)
            .arg(self.option("socket", "socket"))
            .env_clear()
            .stdin(Stdio::null());
        if uid != 0 {
            command.uid(uid);
        }
        command.output().unwrap()
    }

    /// What `tranche` prints as JSON.
    pub(crate) fn json_as(&self, uid: u32, words: &[&str]) -> Value {
        let output = self.tranche_as(uid, &[words, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// All spans of the timeline that root sees.
    pub(crate) fn spans(&self) -> Vec<Value> {
        let timeline = self.json_as(0, &["history"]);
        let lanes = timeline["lanes"].as_array().unwrap().clone();
        lanes
            .iter()
            .flat_map(|lane| lane["spans"].as_array().unwrap().clone())
            .collect()
    }

    /// The answer to a line that `tranche` would not send.
    pub(crate) fn answer(&self, line: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.at("socket")).unwrap();
        // It may have enough before the end.
        let _ = stream.write_all(line);
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.kill();
    }
}
