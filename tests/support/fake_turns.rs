//! A host whose `libcuda.so.1` can suspend processes, and programs that use it (`examples/fake-cuda`,
//! `examples/fake-cuda-client.rs`).

use crate::fake_host::Host;
use crate::{fake_library, programs};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// The UUID of the GPU.
pub const GPU: &str = "GPU-8188460b-0e3a-9d61-0000-000000000000";

/// The library, in a directory of its own.
pub struct FakeTurns {
    directory: tempfile::TempDir,
}

/// The UUID of the GPU of the host `h200-in-vm`.
pub const GPU_OF_HOST: &str = "GPU-7a3c5e10-2b4d-4f68-8a9c-0d1e2f304152";

/// What the driver says once it was loaded with the option of `tranche system protect`.
pub const PROTECTED: &str = "DeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\nModifyDeviceFiles: 0\n";

/// A policy for that host. `work` in one piece is shorter than a turn.
pub const POLICY: &str = "\
version: v1
sharing:
  access: enforce
  turns:
    assumeTested: true
    resources:
    - {name: nvidia.com/gpu, holders: 3, turn: 4s, idle: 1s, hostMemory: 100Mi}
";

/// Makes the `libcuda.so.1` of the host `h200-in-vm`, at `library`, one that can suspend processes, which meet in
/// `meeting`, and gives the GPU of that host so much memory.
pub fn install(host: &Host, library: &Path, meeting: &Path, memory_mib: u64) {
    let gpu = GPU_OF_HOST;
    fake_library::CUDA.install(library, &[]).unwrap();
    fs::create_dir(meeting).unwrap();
    // Programs of users meet here too.
    fs::create_dir(meeting.join(gpu)).unwrap();
    fs::write(meeting.join("lock"), "").unwrap();
    for path in [meeting, &meeting.join(gpu), &meeting.join("lock")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let mut config = config(meeting, memory_mib, None);
    config["gpus"][0]["uuid"] = gpu.into();
    fs::write(library.with_file_name("cuda.json"), config.to_string()).unwrap();
    host.nvml(|config| {
        config["gpus"][0]["memory_mib"] = memory_mib.into();
        config["gpus"][0]["turns"] = serde_json::json!(meeting);
    })
    .unwrap();
}

/// Adds what the tests of turns share to a configuration of `fake-cuda`.
fn config(meeting: &Path, memory_mib: u64, node: Option<&Path>) -> serde_json::Value {
    serde_json::json!({
        "version": 12080,
        "gpus": [{"uuid": GPU, "name": "Tesla T4", "sms": 40, "memory_mib": memory_mib}],
        "turns": {"directory": meeting, "node": node},
    })
}

impl FakeTurns {
    /// A GPU with so much memory. A context has `node` open.
    pub fn new(memory_mib: u64, node: Option<&Path>, missing: &[&str]) -> Self {
        let fake = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        fs::set_permissions(fake.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fake_library::CUDA.install(&fake.library(), missing).unwrap();
        fs::set_permissions(fake.library(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(fake.meeting()).unwrap();
        let config = config(&fake.meeting(), memory_mib, node);
        fs::write(fake.directory.path().join("cuda.json"), config.to_string()).unwrap();
        fake
    }

    /// The library.
    pub fn library(&self) -> PathBuf {
        self.directory.path().join("libcuda.so.1")
    }

    /// Where the processes meet.
    pub fn meeting(&self) -> PathBuf {
        self.directory.path().join("turns")
    }

    /// Lets calls go wrong from now on: `{"lock": "hang"}`.
    pub fn fail(&self, faults: &str) {
        fs::write(self.meeting().join("faults"), faults).unwrap();
    }

    /// Whether a process was killed after a restore. The next process that looks at the others finds it.
    pub fn host_hangs(&self) -> bool {
        self.meeting().join("host-hung").exists()
    }

    /// Bytes of the GPU that are allocated.
    pub fn used(&self) -> u64 {
        let blocks = fs::read_dir(self.meeting().join(GPU)).into_iter().flatten().flatten();
        blocks
            .filter_map(|block| block.metadata().ok())
            .map(|data| data.len())
            .sum()
    }

    /// Starts a program that has so many bytes of GPU memory.
    pub fn client(&self, bytes: u64) -> TurnsClient {
        TurnsClient::start(&self.library(), bytes, None, 0)
    }

    /// The same, with faults of its own.
    pub fn faulty_client(&self, bytes: u64, faults: &str) -> TurnsClient {
        TurnsClient::start(&self.library(), bytes, Some(faults), 0)
    }
}

/// A program that uses the GPU. It is killed when this is dropped.
pub struct TurnsClient {
    child: Child,
    words: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl TurnsClient {
    /// Starts a program that uses this library and has no context yet.
    pub fn without_context(library: &Path) -> Self {
        Self::start(library, 0, None, 0)
    }

    /// The same, as this user.
    pub fn of_user(library: &Path, uid: u32) -> Self {
        Self::start(library, 0, None, uid)
    }

    /// Starts a program that uses this library by `command`, which passes on what it reads and writes. It has said
    /// nothing yet.
    pub fn by(mut command: Command, library: &Path) -> Self {
        command.arg(program()).arg(library).arg("0");
        Self::spawn(command)
    }

    fn start(library: &Path, bytes: u64, faults: Option<&str>, uid: u32) -> Self {
        let mut command = Command::new(program());
        command.arg(library).arg(bytes.to_string());
        if uid != 0 {
            command.uid(uid).gid(uid);
        }
        if let Some(faults) = faults {
            command.env("TRANCHE_FAKE_TURNS_FAULTS", faults);
        }
        let mut client = Self::spawn(command);
        assert_eq!(client.read(), format!("ready {}", client.pid()));
        client
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let words = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, words, lines }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Tells it something, and returns what it says.
    pub fn ask(&mut self, words: &str) -> String {
        self.tell(words);
        self.read()
    }

    /// Tells it something.
    pub fn tell(&mut self, words: &str) {
        writeln!(self.words, "{words}").unwrap();
    }

    /// What it says next.
    pub fn read(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Whether it says something within this time.
    pub fn says_something_in(&self, limit: std::time::Duration) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd;
        let mut fds = [PollFd::new(self.lines.get_ref().as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(limit).unwrap()).unwrap() > 0
    }

    /// Lets it end by itself.
    pub fn end(&mut self) {
        self.tell("end");
        assert!(self.child.wait().unwrap().success());
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for TurnsClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that uses the GPU.
fn program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let directory = BUILT.get_or_init(|| fake_library::build("fake-cuda-client").unwrap());
    directory.join("fake-cuda-client")
}

/// The program that asks the library.
pub fn driver_program() -> PathBuf {
    programs::built("tranche-driver")
}
