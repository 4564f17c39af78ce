//! A machine with one GPU, a policy, a ledger, and what changes them.

use crate::support::fake_host::{self, Host};
use crate::support::fake_mps::FakeMps;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tranche_broker::control::nvml::ResidentDriver;
use tranche_broker::control::{Control, ControlOptions, MachineControl};
use tranche_broker::facts::{Facts, HostFacts};
use tranche_core::claims::{ClaimEntry, Claims};
use tranche_core::ledger::{Bounds, ContainerName, Holder};
use tranche_core::types::{DeviceKey, HostPath, Part, Subject};
use tranche_host::{DiscoveryOptions, RootPaths, Roots, discover};
use tranche_plan::inventory::DriverFile;
use tranche_plan::policy::read;
use tranche_plan::share::{Plan, plan};
use tranche_state::controlled::ControlledDevice;

/// Two unequal shares, of 24564 MiB.
pub(crate) const UNEQUAL: &str = "version: v1
sharing:
  mps:
    grace: 0
    resources:
      - name: nvidia.com/gpu
        shares:
          - {name: big, memory: 80%, compute: 80%}
          - {name: small, memory: 20%, compute: 20%}
";

pub(crate) struct Bed {
    top: tempfile::TempDir,
    pub(crate) host: Host,
    pub(crate) fake: FakeMps,
    facts: Arc<Mutex<Arc<Facts>>>,
    key: DeviceKey,
    containers: Mutex<BTreeMap<String, Child>>,
    /// The name of the state directory.
    pub(crate) state: String,
    /// How long the driver's library may take: a minute, unless a test has one that hangs.
    pub(crate) nvml_patience: Duration,
    /// The program that asks NVML.
    pub(crate) driver: PathBuf,
}

/// The facts as a test changes them.
struct FactsOfBed(Arc<Mutex<Arc<Facts>>>);

impl HostFacts for FactsOfBed {
    fn now(&self) -> tranche_core::error::Result<Arc<Facts>> {
        Ok(Arc::clone(&self.0.lock().unwrap()))
    }
}

impl Bed {
    /// A workstation with this policy.
    pub(crate) fn new(policy: &str) -> Self {
        Self::of("workstation-rtx4090", policy)
    }

    pub(crate) fn of(host: &str, policy: &str) -> Self {
        let made = tempfile::Builder::new().prefix("control").tempdir().unwrap();
        let host = fake_host::build(host, &made.path().join("host")).unwrap();
        Self::on(made, host, policy)
    }

    /// A workstation whose driver can limit the memory of cgroups of version 2, which it has.
    pub(crate) fn with_cgroup_limits(policy: &str) -> Self {
        Self::upgraded("615.71.09", policy)
    }

    /// A workstation with this driver and with cgroups of version 2.
    pub(crate) fn upgraded(driver: &str, policy: &str) -> Self {
        let made = tempfile::Builder::new().prefix("control").tempdir().unwrap();
        let at = made.path().join("host");
        let host = fake_host::build_with_driver("workstation-rtx4090", driver, &at).unwrap();
        fs::create_dir_all(host.path("/sys/fs/cgroup")).unwrap();
        fs::write(host.path("/sys/fs/cgroup/cgroup.controllers"), "memory pids\n").unwrap();
        Self::on(made, host, policy)
    }

    fn on(made: tempfile::TempDir, host: Host, policy: &str) -> Self {
        let fake = FakeMps::install(&host.root);
        host.nvml(|config| config["record"] = fake.record().to_str().unwrap().into())
            .unwrap();
        let facts = facts(&host.root, policy);
        let key = facts.plan.devices[0].key.clone();
        Self {
            top: made,
            host,
            fake,
            facts: Arc::new(Mutex::new(Arc::new(facts))),
            key,
            containers: Mutex::default(),
            state: "state".to_owned(),
            nvml_patience: Duration::from_secs(60),
            driver: env!("CARGO_BIN_EXE_tranche-driver").into(),
        }
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.at(&self.state)
    }

    pub(crate) fn pipe(&self) -> PathBuf {
        self.state().join("mps/0")
    }

    pub(crate) fn key(&self) -> &DeviceKey {
        &self.key
    }

    pub(crate) fn uuid(&self) -> String {
        self.facts.lock().unwrap().plan.devices[0].uuid.clone().unwrap()
    }

    pub(crate) fn journal(&self) -> Option<Value> {
        let text = fs::read(self.state().join("control/0.json")).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }

    /// Changes the journal.
    pub(crate) fn edit_journal(&self, edit: impl FnOnce(&mut Value)) {
        let mut journal = self.journal().unwrap();
        // That of another content. A file of an earlier version has none.
        journal.as_object_mut().unwrap().remove("checksum");
        edit(&mut journal);
        fs::write(self.state().join("control/0.json"), journal.to_string()).unwrap();
    }

    /// Another policy, or another driver.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts.lock().unwrap();
        let mut new = Facts::clone(&facts);
        change(&mut new);
        *facts = Arc::new(new);
    }

    /// What a broker that starts now has.
    pub(crate) fn control(&self) -> Control {
        self.control_with(None)
    }

    /// The same, with a program that stands in for systemctl.
    pub(crate) fn control_with(&self, systemctl: Option<PathBuf>) -> Control {
        let options = ControlOptions {
            state_dir: HostPath::new(self.state()).unwrap(),
            root: self.host.root.clone(),
            program: PathBuf::from(env!("CARGO_BIN_EXE_tranche-broker")),
            driver: Arc::new(ResidentDriver::new(Some(self.driver.clone()))),
            systemctl,
            nvml_patience: self.nvml_patience,
        };
        Control::open(options, Arc::new(FactsOfBed(Arc::clone(&self.facts)))).unwrap()
    }

    /// Examines the host again, under this policy.
    pub(crate) fn discover(&self, policy: &str) {
        *self.facts.lock().unwrap() = Arc::new(facts(&self.host.root, policy));
    }

    /// Claims a share for a container whose init sleeps until [`Bed::stop`].
    pub(crate) fn claim(&self, share: &str) {
        self.claim_in(share, None);
    }

    /// The same, for a container in this cgroup.
    pub(crate) fn claim_in(&self, share: &str, cgroup: Option<&TestCgroup>) {
        let mut sleep = Command::new("sleep");
        sleep
            .arg("600")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let init = sleep.spawn().unwrap();
        if let Some(cgroup) = cgroup {
            cgroup.add(init.id());
        }
        self.claim_by(share, init.id());
        let before = self.containers.lock().unwrap().insert(share.to_owned(), init);
        assert!(before.is_none(), "{share} has a container");
    }

    /// Claims a share for a container with this init.
    pub(crate) fn claim_by(&self, share: &str, init: u32) {
        let facts = Arc::clone(&self.facts.lock().unwrap());
        let split = &facts.plan.devices[0];
        let name = share.parse().unwrap();
        let promise = split.promise(split.share(&name).unwrap());
        let entry = ClaimEntry {
            device: self.key.clone(),
            subject: Subject::Part(Part::Share(name), promise),
            replicas: split.replicas(),
            bounds: split.bounds(),
            asked_as: None,
            alone: true,
        };
        let claims = Claims::open(&self.state()).unwrap();
        claims
            .enter(&entry, Holder::Container(self.container(share)), Some(init))
            .unwrap();
    }

    /// Makes a bundle for the container of a share, whose processes run as this user.
    pub(crate) fn set_user(&self, share: &str, uid: u32) {
        let bundle = self.bundles().join(share);
        fs::create_dir_all(&bundle).unwrap();
        let config = serde_json::json!({"process": {"user": {"uid": uid, "gid": uid}}});
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
    }

    fn bundles(&self) -> PathBuf {
        self.at("bundles")
    }

    /// The container that holds a share.
    pub(crate) fn container(&self, share: &str) -> ContainerName {
        let bundle = self.bundles().join(share);
        match bundle.exists() {
            true => ContainerName {
                bundle: bundle.to_str().unwrap().to_owned(),
                ..container(share)
            },
            false => container(share),
        }
    }

    /// Claims the whole device for a container.
    pub(crate) fn claim_whole(&self) {
        let entry = ClaimEntry {
            device: self.key.clone(),
            subject: Subject::WHOLE,
            replicas: 0,
            bounds: Bounds::default(),
            asked_as: None,
            alone: true,
        };
        let claims = Claims::open(&self.state()).unwrap();
        let holder = Holder::Container(container("whole"));
        claims.enter(&entry, holder, Some(std::process::id())).unwrap();
    }

    /// The host and the plan, as they were found last.
    pub(crate) fn facts(&self) -> Arc<Facts> {
        Arc::clone(&self.facts.lock().unwrap())
    }

    /// The files of the driver.
    pub(crate) fn files(&self) -> Vec<DriverFile> {
        self.facts
            .lock()
            .unwrap()
            .inventory
            .driver
            .as_ref()
            .unwrap()
            .files
            .clone()
    }

    /// Ends the container and releases its share, as its last hook does.
    pub(crate) fn stop(&self, share: &str) {
        self.kill(share);
        let claims = Claims::open(&self.state()).unwrap();
        let holder = Holder::Container(self.container(share));
        let problems = claims.release(&holder, Some(&self.key), None).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
    }

    fn kill(&self, share: &str) {
        let mut init = self.containers.lock().unwrap().remove(share).unwrap();
        init.kill().unwrap();
        init.wait().unwrap();
    }

    /// Claims a share and prepares it, as a container's first hook does.
    pub(crate) fn start(&self, control: &Control, share: &str) {
        self.claim(share);
        control.prepare(&self.key).unwrap();
    }

    /// Why a share is refused, whose claim is released then.
    pub(crate) fn refused(&self, control: &Control, share: &str) -> String {
        self.refused_in(control, share, None)
    }

    /// The same, for a container in this cgroup.
    pub(crate) fn refused_in(&self, control: &Control, share: &str, cgroup: Option<&TestCgroup>) -> String {
        self.claim_in(share, cgroup);
        let error = control.prepare(&self.key).unwrap_err().to_string();
        let claims = Claims::open(&self.state()).unwrap();
        claims
            .release_failed_start(&Holder::Container(self.container(share)), &self.key)
            .unwrap();
        self.kill(share);
        error
    }

    /// The compute mode of the GPU that was set, by NVML's number; `None` if none was.
    pub(crate) fn mode(&self) -> Option<u64> {
        let text = fs::read(self.host.root.join("fake-nvml.state.json")).ok()?;
        let modes: Value = serde_json::from_slice(&text).unwrap();
        modes[self.key.gpu().as_str()].as_u64()
    }

    /// Sets the compute mode as another program does.
    pub(crate) fn set_mode(&self, mode: u64) {
        let modes = serde_json::json!({ self.key.gpu().as_str(): mode });
        fs::write(self.host.root.join("fake-nvml.state.json"), modes.to_string()).unwrap();
    }

    /// The limits of memory that NVML has for cgroups that exist, in MiB, by the cgroup's name.
    pub(crate) fn cgroup_limits(&self) -> BTreeMap<String, u64> {
        let text = fs::read(self.host.root.join("fake-nvml.cgroups.json")).unwrap_or_else(|_| b"{}".to_vec());
        let limits: BTreeMap<String, Value> = serde_json::from_slice(&text).unwrap();
        let existing = limits.into_iter().filter_map(|(key, limit)| {
            let path = Path::new(limit["path"].as_str().unwrap());
            let inode = fs::metadata(path).ok()?.ino();
            key.ends_with(&format!(" {inode}")).then(|| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, limit["hard"].as_u64().unwrap() >> 20)
            })
        });
        existing.collect()
    }

    /// The only device that is changed.
    pub(crate) fn device(&self, control: &Control) -> ControlledDevice {
        let devices = control.devices();
        assert_eq!(devices.len(), 1, "{devices:?}");
        devices[0].clone()
    }

    /// The number of the daemon's process.
    pub(crate) fn pid(&self, control: &Control) -> u32 {
        self.device(control).daemon.unwrap().pid.unwrap()
    }

    /// Asserts that nothing of the machine is changed any more.
    #[track_caller]
    pub(crate) fn assert_as_it_was(&self, control: &Control) {
        assert_eq!(control.devices(), []);
        assert_eq!(self.journal(), None);
        assert!(matches!(self.mode(), None | Some(0)), "mode {:?}", self.mode());
        let entries = |path: &Path| fs::read_dir(path).map_or(0, Iterator::count);
        assert_eq!(
            entries(&self.pipe()),
            0,
            "{:?}",
            fs::read_dir(self.pipe()).unwrap().collect::<Vec<_>>()
        );
        assert!(!self.state().join("mps-daemon/0").exists());
        assert_eq!(self.daemons(), Vec::<u32>::new());
        assert_eq!(self.cgroup_limits(), BTreeMap::new());
    }

    /// The processes of every daemon of this test, servers too.
    pub(crate) fn daemons(&self) -> Vec<u32> {
        let root = self.host.root.join("usr/bin");
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let exe = fs::read_link(entry.path().join("exe"));
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let is_zombie = stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"));
            if exe.is_ok_and(|exe| exe.starts_with(&root)) && !is_zombie {
                found.push(entry.file_name().to_str().unwrap().parse().unwrap());
            }
        }
        found
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for pid in self.daemons() {
            let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        for init in self.containers.lock().unwrap().values_mut() {
            let _ = init.kill();
            let _ = init.wait();
        }
    }
}

/// A cgroup of version 2 of this machine, for one container. It is removed at the end.
pub(crate) struct TestCgroup(pub(crate) PathBuf);

impl TestCgroup {
    /// A new one; `Err` says why this machine has none.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let mount = mounts
            .into_iter()
            .find(|mount| mount.join("cgroup.controllers").exists());
        let mount = mount.ok_or("no cgroups of version 2")?;
        let own = mount.join(format!("tranche-test-{}-{name}", std::process::id()));
        fs::create_dir(&own).map_err(|e| format!("{}: {e}", own.display()))?;
        Ok(Self(own))
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    pub(crate) fn name(&self) -> String {
        self.0.file_name().unwrap().to_str().unwrap().to_owned()
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // A process that was killed leaves its cgroup a moment later.
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while fs::remove_dir(&self.0).is_err_and(|e| e.kind() != std::io::ErrorKind::NotFound) {
            if std::time::Instant::now() > until {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A CUDA process that is attached to the daemon, until it is dropped.
pub(crate) struct Client {
    process: Child,
    output: BufReader<ChildStdout>,
    /// What the daemon gave it.
    pub(crate) limits: String,
}

impl Client {
    pub(crate) fn attach(bed: &Bed) -> Self {
        let mut command = Command::new(bed.fake.program("nvidia-cuda-mps-control"));
        command.arg("client").env("CUDA_MPS_PIPE_DIRECTORY", bed.pipe());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut limits = String::new();
        output.read_line(&mut limits).unwrap();
        Self {
            process,
            output,
            limits,
        }
    }

    /// The server that serves it.
    pub(crate) fn server(&self) -> u32 {
        self.limits.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it says at its end, which is waited for.
    pub(crate) fn end(&mut self) -> String {
        let mut last = String::new();
        self.output.read_to_string(&mut last).unwrap();
        last.trim().to_owned()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The container that holds a share.
pub(crate) fn container(share: &str) -> ContainerName {
    ContainerName {
        bundle: format!("/bundles/{share}"),
        id: format!("container-{share}"),
    }
}

/// The host at `root` under `policy`.
pub(crate) fn facts(root: &Path, policy: &str) -> Facts {
    let paths = RootPaths {
        root: Some(root.to_owned()),
        ..RootPaths::default()
    };
    let options = DiscoveryOptions {
        program: Some(env!("CARGO_BIN_EXE_tranche-driver").into()),
        ..DiscoveryOptions::default()
    };
    let inventory = discover(&Roots::new(&paths).unwrap(), &options);
    let plan = planned(&inventory, policy);
    let hook = HostPath::new("/usr/bin/tranche-oci").unwrap();
    Facts::new(inventory, Arc::new(plan), hook)
}

pub(crate) fn planned(inventory: &tranche_plan::inventory::Inventory, policy: &str) -> Plan {
    let policy = read::parse("policy.yaml", policy).unwrap().policy;
    plan(&policy, inventory).unwrap()
}
