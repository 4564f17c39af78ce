//! The machine: GPUs of a fake driver, three small disks, and the programs of this repository. Everything of it is in
//! mounts of the test's own, and in one temporary directory.

use crate::draw::{DEDICATED, ON_DEMAND, SPLIT};
use crate::operation::{Disk, Place, ROOT, Rules};
use crate::support::fake_host::{self, Host};
use crate::support::on_host::on_host;
use crate::support::other_clock::OtherClock;
use crate::support::{installed, programs, until};
use crate::times::{BEFORE, FIRST, NO_SHOW, SLOT};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many parts a split GPU has.
pub(crate) const PARTS: u8 = 4;

/// What there is when nothing was changed.
pub(crate) const RULES: Rules = Rules {
    root_waits: false,
    reserve_for: 1,
    quota: 4,
};

/// What fills a disk.
const FILLER: &str = "filler";

pub(crate) struct Machine {
    top: tempfile::TempDir,
    host: Host,
    /// The driver's answers, as they were at first.
    nvml: Value,
    broker: Option<Child>,
    /// The numbers of all brokers that there were.
    brokers: Vec<u64>,
    keys: Vec<String>,
    /// The clock of all programs; `None` where there is no compiler to make it.
    clock: Option<OtherClock>,
    /// When slot 0 began, in seconds since 1970, and when the clock was set last.
    slot_zero: u64,
    clock_set: Instant,
}

impl Machine {
    pub(crate) fn new() -> Self {
        // Short, because the path of the broker's socket has a limit.
        let top = tempfile::Builder::new().prefix("model").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(top.path(), Permissions::from_mode(0o755)).unwrap();
        let host = fake_host::build("dgx-a100-mig", &top.path().join("host")).unwrap();
        let mut keys = Vec::new();
        host.nvml(|config| {
            let gpus = config["gpus"].as_array_mut().unwrap();
            gpus[usize::from(ON_DEMAND)]["mig"]["instances"] = json!([]);
            let off = gpus[7]["mig"].clone();
            for gpu in SPLIT.into_iter().chain(DEDICATED) {
                gpus[usize::from(gpu)]["mig"] = off.clone();
            }
            keys = gpus
                .iter()
                .map(|gpu| gpu["uuid"].as_str().unwrap().to_owned())
                .collect();
        })
        .unwrap();
        // As the kernel shows GPUs without MIG.
        for gpu in [4, 6] {
            fs::remove_dir_all(host.path(&format!("/proc/driver/nvidia/capabilities/gpu{gpu}/mig"))).unwrap();
        }
        let nvml = serde_json::from_slice(&fs::read(host.path("/fake-nvml.json")).unwrap()).unwrap();
        installed::command_line(top.path());
        programs::install(programs::built("tranche-oci"), top.path().join("tranche-oci"));
        for directory in ["state", "kept-disk", "cdi", "said"] {
            fs::create_dir(top.path().join(directory)).unwrap();
        }
        let clock = OtherClock::new(top.path()).ok();
        Self {
            clock,
            slot_zero: now() / SLOT * SLOT - u64::from(FIRST) * SLOT,
            clock_set: Instant::now(),
            top,
            host,
            nvml,
            broker: None,
            brokers: Vec::new(),
            keys,
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    pub(crate) fn key(&self, gpu: u8) -> &str {
        &self.keys[usize::from(gpu)]
    }

    /// The GPU that a device of this key is on.
    pub(crate) fn gpu(&self, key: &str) -> u8 {
        let gpu = key.split('/').next().unwrap();
        self.keys.iter().position(|key| key == gpu).unwrap() as u8
    }

    /// Makes everything as it is on a machine on which nothing has happened.
    pub(crate) fn fresh(&mut self) {
        self.kill();
        // Their numbers are given to other processes in the course of an hour.
        self.brokers.clear();
        for directory in ["state/kept", "state", "cdi", "kept-disk"] {
            unmount(&self.at(directory));
        }
        self.disk_of("kept-disk", 512);
        self.disks();
        self.kill_at(None);
        self.slot_zero = now() / SLOT * SLOT - u64::from(FIRST) * SLOT;
        self.set_clock(FIRST);
        let _ = fs::remove_file(self.at("host/fake-nvml.mig.json"));
        self.policy(RULES);
        let _ = fs::remove_file(self.at("broker.log"));
        fs::remove_dir_all(self.at("said")).unwrap();
        fs::create_dir(self.at("said")).unwrap();
        self.up();
    }

    fn disk_of(&self, directory: &str, kibibytes: u32) {
        let options = format!("mode=755,size={kibibytes}k");
        let path = self.at(directory);
        mount(
            Some("tmpfs"),
            &path,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .unwrap();
    }

    /// The disks of which nothing is left after a boot, and the place of the other one.
    fn disks(&self) {
        self.disk_of("state", 4096);
        self.disk_of("cdi", 1024);
        let place = self.at("state/kept");
        fs::create_dir(&place).unwrap();
        let bind = MsFlags::MS_BIND;
        fs::set_permissions(self.at("kept-disk"), Permissions::from_mode(0o700)).unwrap();
        mount(Some(&self.at("kept-disk")), &place, None::<&str>, bind, None::<&str>).unwrap();
    }

    /// The machine loses its power and comes back. Nobody has started anything.
    pub(crate) fn boot(&mut self) {
        self.kill();
        for directory in ["state/kept", "state", "cdi"] {
            unmount(&self.at(directory));
        }
        self.disks();
        // No instance survives.
        let file = self.at("host/fake-nvml.mig.json");
        if let Ok(text) = fs::read(&file) {
            let mut state: Value = serde_json::from_slice(&text).unwrap();
            for gpu in state.as_object_mut().unwrap().values_mut() {
                gpu["instances"] = json!([]);
            }
            fs::write(&file, state.to_string()).unwrap();
        }
    }

    pub(crate) fn policy(&self, rules: Rules) {
        let Rules {
            root_waits,
            reserve_for,
            quota,
        } = rules;
        let [before, no_show] = [BEFORE, NO_SHOW].map(|slots| u64::from(slots) * SLOT / 60);
        let text = format!(
            "version: v1\n\
             kubernetes: {{door: none, devices: [{{devices: [4, 5], door: device-plugin}}, {{devices: [0, 7], door: dra}}]}}\n\
             mig: {{onDemand: {{devices: [{ON_DEMAND}]}}}}\n\
             sharing:\n  \
               timeSlicing: {{resources: [{{name: nvidia.com/gpu, devices: {SPLIT:?}, replicas: {PARTS}}}]}}\n  \
               dedicated: {{devices: {DEDICATED:?}}}\n  \
               quota: {{shares: {quota}, all: 64}}\n  \
               calendar: {{before: {before}m, noShow: {no_show}m, open: 9}}\n  \
               users: {{default: {{waits: 9}}}}\n  \
               queue: {{rootWaits: {root_waits}, reserveFor: {reserve_for}s, reserveAtMost: {reserve_for}s}}\n"
        );
        let new = self.at("policy.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.at("policy.yaml")).unwrap();
    }

    /// `tranche` on this machine, run by `who`.
    pub(crate) fn command(&self, who: u32, arguments: &[&str]) -> Command {
        self.program(who, &self.at("tranche"), arguments)
    }

    /// A program on this machine, run by `who`.
    pub(crate) fn program(&self, who: u32, program: &Path, arguments: &[&str]) -> Command {
        let mut command = match who {
            ROOT => Command::new(program),
            user => {
                let mut command = Command::new("/usr/bin/setpriv");
                command.args([
                    format!("--reuid={user}"),
                    format!("--regid={user}"),
                    "--clear-groups".into(),
                ]);
                command.arg(program);
                command
            }
        };
        command.args(arguments).env_clear().stdin(Stdio::null());
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        if let Some(clock) = &self.clock {
            clock.show(&mut command);
        }
        on_host(&mut command, self.top.path());
        for variable in ["TRANCHE_OUTPUT_DIR", "TRANCHE_SPEC_DIR"] {
            command.env(variable, self.at("cdi"));
        }
        command
    }

    /// Whether the clock can be set.
    pub(crate) fn has_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// When a slot begins, in seconds since 1970.
    pub(crate) fn time(&self, slot: u32) -> u64 {
        self.slot_zero + u64::from(slot) * SLOT
    }

    /// Sets the clock to the middle of a slot.
    pub(crate) fn set_clock(&mut self, slot: u32) {
        if let Some(clock) = &self.clock {
            let wanted = self.time(slot) + SLOT / 2;
            clock.set(wanted.cast_signed() - now().cast_signed());
        }
        self.clock_set = Instant::now();
    }

    /// Keeps the clock in the slot, whatever time passes.
    pub(crate) fn keep_slot(&mut self, slot: u32) {
        if self.clock_set.elapsed() > Duration::from_secs(SLOT / 5) {
            self.set_clock(slot);
        }
    }

    /// Starts the broker, and waits until it answers or has ended: on a disk that is full it may.
    pub(crate) fn up(&mut self) -> bool {
        if self
            .broker
            .as_mut()
            .is_some_and(|broker| broker.try_wait().unwrap().is_none())
        {
            return true;
        }
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.at("broker.log"))
            .unwrap();
        let broker = self.command(ROOT, &["broker"]).stderr(log).spawn().unwrap();
        let socket = self.at("state/broker.sock");
        self.brokers.push(broker.id().into());
        let broker = self.broker.insert(broker);
        let mut ended = false;
        until("the broker answers", || {
            ended = broker.try_wait().unwrap().is_some();
            ended || UnixStream::connect(&socket).is_ok()
        });
        if ended {
            self.broker = None;
            return false;
        }
        // As a unit of systemd does it at boot, and another one when the policy has changed.
        self.refresh()
    }

    /// Writes the specifications.
    pub(crate) fn refresh(&self) -> bool {
        let refresh = self
            .command(ROOT, &["cdi", "refresh"])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .status();
        matches!(refresh.unwrap().code(), Some(0 | 3))
    }

    pub(crate) fn is_up(&mut self) -> bool {
        self.broker
            .as_mut()
            .is_some_and(|broker| broker.try_wait().unwrap().is_none())
    }

    /// Whether this is, or was, the broker.
    pub(crate) fn broker_was(&self, pid: u64) -> bool {
        self.brokers.contains(&pid)
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            let _ = broker.kill();
            broker.wait().unwrap();
        }
        self.kill_at(None);
    }

    /// Lets the broker be killed when it makes this call.
    pub(crate) fn kill_at(&self, call: Option<&str>) {
        let mut config = self.nvml.clone();
        let calls = self.at("calls");
        let _ = fs::remove_file(&calls);
        let kill = call.map(|function| json!({"calls": calls, "function": function, "spared": 0}));
        config["faults"] = json!({"kills_parent": kill});
        // Replaced, because programs read it meanwhile.
        let new = self.at("fake-nvml.new");
        fs::write(&new, config.to_string()).unwrap();
        fs::rename(new, self.host.path("/fake-nvml.json")).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.at("broker.log")).unwrap_or_default()
    }

    /// The numbers of the instances that the driver has on the GPU on which they are made.
    pub(crate) fn instances(&self) -> Vec<u64> {
        let Ok(text) = fs::read(self.at("host/fake-nvml.mig.json")) else {
            return Vec::new();
        };
        let Ok(state) = serde_json::from_slice::<Value>(&text) else {
            return Vec::new();
        };
        let all = state[self.key(ON_DEMAND)]["instances"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.iter().map(|instance| instance["id"].as_u64().unwrap()).collect()
    }

    /// Changes a disk. `None` if it cannot be changed now, because a program writes on it.
    pub(crate) fn disk(&self, place: Place, disk: Disk) -> Option<()> {
        let path = self.place(place);
        let filler = path.join(FILLER);
        let read_only = |read_only: bool| {
            let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND;
            let flags = if read_only { flags | MsFlags::MS_RDONLY } else { flags };
            mount(None::<&str>, &path, None::<&str>, flags, None::<&str>).ok()
        };
        match disk {
            Disk::ReadOnly => read_only(true),
            Disk::Full => {
                read_only(false)?;
                let mut file = fs::File::create(filler).unwrap();
                while file.write_all(&[0; 1024]).is_ok() {}
                Some(())
            }
            Disk::Well => {
                read_only(false)?;
                let _ = fs::remove_file(filler);
                Some(())
            }
        }
    }

    fn place(&self, place: Place) -> PathBuf {
        self.at(match place {
            Place::State => "state",
            Place::Kept => "state/kept",
            Place::Specs => "cdi",
        })
    }

    /// Files of replacements that were not finished.
    pub(crate) fn left_over(&self) -> Vec<PathBuf> {
        let all = ["state", "state/kept", "cdi"].map(|directory| self.at(directory));
        let all = all
            .iter()
            .flat_map(|directory| walkdir::WalkDir::new(directory).into_iter().flatten());
        let is_new = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name == "new" || name.ends_with(".new") || name.starts_with(".tmp") || name.ends_with(".tmp")
        };
        let mut all: Vec<PathBuf> = all
            .map(walkdir::DirEntry::into_path)
            .filter(|path| is_new(path))
            .collect();
        all.sort();
        all.dedup();
        all
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            let _ = broker.kill();
            let _ = broker.wait();
        }
        for directory in ["state/kept", "state", "cdi", "kept-disk"] {
            unmount(&self.at(directory));
        }
    }
}

/// A process that was killed a moment ago may still have a file of it open.
fn unmount(directory: &Path) {
    let _ = umount2(directory, MntFlags::MNT_DETACH);
}

/// The time, in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Waits, as a person does who looks again.
pub(crate) fn pause(milliseconds: u64) {
    thread::sleep(Duration::from_millis(milliseconds));
}
