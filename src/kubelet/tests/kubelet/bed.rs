//! A node: a kubelet, a broker, and the plugin between them, as a part of the test or as a process.

use crate::fake_broker::FakeBroker;
use crate::fake_kubelet::FakeKubelet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tranche_kubelet::{ClusterSettings, Settings, Times};
use tranche_protocol::Offer;

/// The resource of most tests.
pub(crate) const GPU: &str = "nvidia.com/gpu";

/// The program: of this build, or the one that a package has.
pub(crate) fn program() -> Command {
    let packaged = std::env::var_os("TRANCHE_KUBELET");
    Command::new(packaged.unwrap_or_else(|| env!("CARGO_BIN_EXE_tranche-kubelet").into()))
}

/// How long a test waits for anything before it fails. It bounds a failure, and says nothing about what is quick:
/// beside other work, a test may get a tenth of a processor.
const PATIENCE: Duration = Duration::from_secs(180);

/// A directory whose path is short wherever the checkout is, because that of a socket has at most 107 bytes. It is on a
/// disk: file systems in memory never give a number of an inode twice.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

pub(crate) struct Bed {
    pub(crate) kubelet: FakeKubelet,
    pub(crate) broker: FakeBroker,
    top: TempDir,
}

impl Bed {
    /// A node whose kubelet and broker do not run yet.
    pub(crate) fn asleep(offers: Vec<Offer>) -> Self {
        let top = directory();
        let state_dir = top.path().join("run");
        fs::create_dir(&state_dir).unwrap();
        Self {
            kubelet: FakeKubelet::new(&top.path().join("kubelet")),
            broker: FakeBroker::new(&state_dir, offers),
            top,
        }
    }

    /// One whose kubelet and broker run.
    pub(crate) fn new(offers: Vec<Offer>) -> Self {
        let mut bed = Self::asleep(offers);
        bed.broker.listen();
        bed.kubelet.start();
        bed
    }

    /// What the plugin is started with: everything happens sooner than on a real node.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            kubelet_dir: self.top.path().join("kubelet"),
            state_dir: self.top.path().join("run"),
            placement: None,
            device_plugin: true,
            dra: None,
            cluster: ClusterSettings::default(),
            ready_file: None,
            times: Times {
                period: Duration::from_millis(50),
                look: Duration::from_millis(20),
                // On a slow machine, two checks may come before the kubelet has read the list.
                check: Duration::from_secs(3600),
                absent: Duration::from_millis(300),
                reconcile: Duration::from_millis(200),
                ..Times::default()
            },
        }
    }

    /// The plugin, in a runtime of this test.
    pub(crate) fn plugin(&self) -> Plugin {
        Plugin::start(self.settings())
    }

    /// The program, with its own times.
    pub(crate) fn process(&self) -> Process {
        self.process_with(&[], &[])
    }

    /// The program with more options and variables.
    pub(crate) fn process_with(&self, options: &[&str], variables: &[(&str, &Path)]) -> Process {
        Process::start(self.top.path(), options, variables)
    }

    /// A file or directory of this test.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// The socket of a resource.
    pub(crate) fn socket(&self, resource: &str) -> PathBuf {
        let name = tranche_kubelet::socket::name(resource);
        self.top.path().join("kubelet/device-plugins").join(name)
    }

    pub(crate) fn wait_allocatable(&self, count: usize) {
        until(&format!("{count} devices are allocatable"), || {
            self.kubelet.allocatable(GPU) == count
        });
    }

    /// The names of the files in the directory of plugins.
    pub(crate) fn sockets(&self) -> Vec<String> {
        let entries = fs::read_dir(self.top.path().join("kubelet/device-plugins")).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Waits until something is true.
#[track_caller]
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) struct Plugin {
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<tranche_core::error::Result<()>>>,
}

impl Plugin {
    pub(crate) fn start(settings: Settings) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = runtime.spawn(tranche_kubelet::run(settings, async {
            let _ = stopped.await;
        }));
        Self {
            runtime: Some(runtime),
            stop: Some(stop),
            task: Some(task),
        }
    }

    /// Ends it as SIGTERM does.
    pub(crate) fn stop(mut self) {
        drop(self.stop.take());
        let (runtime, task) = (self.runtime.take().unwrap(), self.task.take().unwrap());
        runtime.block_on(task).unwrap().unwrap();
        runtime.shutdown_background();
    }
}

impl Drop for Plugin {
    /// Ends it as SIGKILL does: its sockets stay, and nobody listens on them.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}

pub(crate) struct Process {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn start(top: &Path, options: &[&str], variables: &[(&str, &Path)]) -> Self {
        let mut command = program();
        // What this machine has of a cluster is not asked.
        for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HOME", "NOTIFY_SOCKET"] {
            command.env_remove(name);
        }
        let mut child = command
            .envs(variables.iter().copied())
            .args(options)
            .arg("device-plugin")
            .arg("--kubelet-dir")
            .arg(top.join("kubelet"))
            .arg("--state-dir")
            .arg(top.join("run"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let into = log.clone();
        thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| into.lock().unwrap().push(line))
        });
        Self { child, log }
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn wait_log(&self, part: &str) {
        until(part, || self.log().iter().any(|line| line.contains(part)));
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let killed = Command::new("kill").args(["-s", signal, &pid]).status().unwrap();
        assert!(killed.success());
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the program has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Its memory, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Process {
    /// Kills it. Where a test fails, what it said is the best hint.
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the log of tranche-kubelet: {:#?}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
