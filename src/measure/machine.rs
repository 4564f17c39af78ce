//! What of the machine is measured, and whether that may be done now.

use crate::room::Room;
use nix::sys::utsname::uname;
use std::path::Path;
use std::sync::Arc;
use tranche_bench::results::Host;
use tranche_bench::way::{Allowed, RefusedWay, Setup, Way, setup, setups};
use tranche_broker::control::{ControlOptions, DriverAccess};
use tranche_broker::facts::{Facts, HostFacts, HostNow};
use tranche_core::error::{Context, Error, Kind, Result};
use tranche_core::text::{shown, some};
use tranche_core::types::{DeviceKey, DeviceSelector, GpuUuid};
use tranche_driver_protocol::GpuClocks;
use tranche_inspect::observe::MPS_PROGRAM;
use tranche_inspect::observed::{ObserveOptions, Observed, ProcessRow};
use tranche_plan::inventory::{Gpu, HostDevice, Inventory};
use tranche_plan::mig::{ExactGpu, MigGpu};
use tranche_state::planning::PlanOptions;

/// The device that is measured, and how its driver is asked.
pub(crate) struct Measurable {
    pub(crate) facts: Arc<Facts>,
    /// The name by which everything names it from now on.
    pub(crate) uuid: String,
    pub(crate) key: DeviceKey,
    pub(crate) gpu: GpuUuid,
    pub(crate) access: DriverAccess,
    /// The machine.
    at: PlanOptions,
    /// The device as CDI names it.
    cdi: String,
}

impl Measurable {
    /// The device of this name.
    ///
    /// # Errors
    /// Returns an error if the host has no such device, or if somebody uses it.
    pub(crate) fn find(at: &PlanOptions, name: &str) -> Result<Self> {
        let facts = look(at)?;
        let selector: DeviceSelector = name.parse()?;
        let device = facts.inventory.catalogue().get(&selector)?;
        let uuid = device.uuid().map(|uuid| uuid.to_string());
        let uuid = uuid.ok_or_else(|| Error::failed(device, "has no UUID, by which a program finds it"))?;
        let (key, gpu) = (device.key(), device.gpu.uuid.clone());
        let cdi = format!("nvidia.com/gpu={}", device.device().cdi_name());
        refuse_users(&device, &processes(at, &cdi)?)?;
        let access = DriverAccess::find(&facts, &ControlOptions::of(at)?)?;
        Ok(Self {
            uuid,
            key,
            gpu,
            access,
            facts,
            cdi,
            at: at.clone(),
        })
    }

    /// What people read of the machine in a file of results. It names no machine, and no device but by its product.
    ///
    /// # Errors
    /// Returns an error if the device is gone.
    pub(crate) fn host(&self, machine: &str, sms: Option<u32>) -> Result<Host> {
        let inventory = &self.facts.inventory;
        let selector: DeviceSelector = self.uuid.parse()?;
        let device = inventory.catalogue().get(&selector)?;
        let driver = inventory.driver.as_ref();
        let gpu = device.gpu;
        let unknown = || "unknown".to_owned();
        let profile = device.mig.and_then(|mig| mig.profile.as_ref());
        let product = shown(&gpu.name);
        let kernel = uname().about("kernel", "does not say its release")?;
        Ok(Host {
            machine: shown(machine).into_owned(),
            product: match profile {
                Some(profile) => format!("{product} {profile}"),
                None => product.into_owned(),
            },
            driver: driver.map_or_else(unknown, |driver| driver.version.to_string()),
            cuda: driver
                .and_then(|driver| driver.cuda)
                .map_or_else(unknown, |cuda| cuda.to_string()),
            kernel: kernel.release().to_string_lossy().into_owned(),
            memory_mib: device.memory().map_or(0, |memory| memory.mib()),
            sms,
            compute_mode: gpu.compute_mode.map(|mode| mode.to_string()),
            mig: gpu.mig.map(|_| gpu.is_in_mig_mode()),
        })
    }

    /// What each way of sharing it needs, and the ways that are not possible.
    ///
    /// # Errors
    /// Returns an error if the device is unknown.
    pub(crate) fn setups(&self, allowed: Allowed) -> Result<(Vec<Setup>, Vec<RefusedWay>)> {
        setups(&self.uuid, &self.facts.inventory, &self.mig(), allowed)
    }

    /// What a way needs now, where layouts may have changed since the device was found.
    ///
    /// # Errors
    /// Returns why it is not possible any more.
    pub(crate) fn setup_now(&self, way: Way, allowed: Allowed) -> Result<Setup> {
        setup(way, &self.uuid, &look(&self.at)?.inventory, &self.mig(), allowed)
    }

    /// The GPUs with MIG, as the driver describes them; none if it does not answer.
    fn mig(&self) -> Vec<MigGpu> {
        self.access.nvml.mig_gpus().map(|(gpus, _)| gpus).unwrap_or_default()
    }

    /// The layout of its GPU now, as `tranche mig apply --layout` takes it.
    ///
    /// # Errors
    /// Returns an error if the driver does not say it.
    pub(crate) fn layout(&self) -> Result<String> {
        let gpu = self.access.nvml.mig_gpu(&self.gpu);
        let gpu = gpu.map_err(|error| Error::failed(&self.uuid, "its layout is unknown").from_source(error))?;
        Ok(ExactGpu::of(&gpu).layout().to_string())
    }

    /// Has this process let go of the GPU, which nobody may use while its MIG mode changes.
    pub(crate) fn let_go(&self) {
        self.access.nvml.let_go();
    }

    /// What the sensors of the GPU say now; `None` if the driver does not answer.
    pub(crate) fn clocks(&self) -> Option<GpuClocks> {
        self.access.nvml.clocks(&self.gpu).ok()
    }

    /// The memory of the GPU in MiB that NVML reports of MPS servers on the device; `None` if it reports none.
    pub(crate) fn mps_server_mib(&self) -> Option<u64> {
        let processes = processes(&self.at, &self.cdi).ok()?;
        // The server of the room belongs to the guard, which holds the device.
        let is_server = |process: &&ProcessRow| process.command.as_deref() == Some(MPS_PROGRAM);
        let servers = processes.iter().filter(is_server);
        servers
            .filter_map(|server| server.memory_mib)
            .reduce(u64::saturating_add)
    }

    /// What of the GPU is not as it was when the device was found.
    ///
    /// # Errors
    /// Returns an error if the machine cannot be looked at.
    pub(crate) fn leftovers(&self) -> Result<Vec<String>> {
        let now = look(&self.at)?;
        let [before, after] = [&self.facts, &now].map(|facts| state(&facts.inventory, &self.gpu));
        let mut left = Vec::new();
        for (what, before, after) in [("compute mode", &before.0, &after.0), ("MIG", &before.1, &after.1)] {
            if before != after {
                left.push(format!("{what} {after}, was {before}"));
            }
        }
        left.extend(named(&processes(&self.at, &self.cdi)?).map(|one| format!("{one} uses the device")));
        Ok(left)
    }
}

/// The machine as it is. Its policy may be wrong: it is not what is measured.
fn look(at: &PlanOptions) -> Result<Arc<Facts>> {
    HostNow::new(Room::of(at).inside_without_policy()).now()
}

/// What a run may change of a GPU, in words: its compute mode, and its instances.
fn state(inventory: &Inventory, gpu: &GpuUuid) -> (String, String) {
    let gpu = inventory.gpus.iter().find(|one| one.uuid == *gpu);
    let mode = gpu.and_then(|gpu| gpu.compute_mode);
    let profiles = gpu.iter().flat_map(|gpu| &gpu.mig_devices);
    let profiles = profiles.filter_map(|one| Some(one.profile.as_ref()?.to_string()));
    let profiles: Vec<String> = profiles.collect();
    let mig = match gpu.is_some_and(Gpu::is_in_mig_mode) {
        true if profiles.is_empty() => "on".to_owned(),
        true => format!("on with {}", some(&profiles)),
        false => "off".to_owned(),
    };
    (mode.map_or("unknown".to_owned(), |mode| mode.to_string()), mig)
}

/// The processes that use the device with this name, or an instance of it. Another instance of its GPU shares power
/// and bus with it, and nothing else.
fn processes(at: &PlanOptions, cdi: &str) -> Result<Vec<ProcessRow>> {
    let options = ObserveOptions {
        state_dir: at.state_dir.clone(),
        host: at.host.clone(),
    };
    let mut processes = Observed::look(&options, true)?.processes;
    let is_of = |device: &str| {
        device
            .strip_prefix(cdi)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    processes.retain(|process| is_of(&process.device));
    Ok(processes)
}

/// `python3 (4711)`
fn named(processes: &[ProcessRow]) -> impl Iterator<Item = String> {
    processes.iter().map(|process| {
        let command = process.command.as_deref().unwrap_or("a process");
        format!("{} ({})", shown(command), process.pid)
    })
}

/// Refuses a device beside whose processes nothing would be measured, and which would be slower themselves.
fn refuse_users(device: &HostDevice<'_>, processes: &[ProcessRow]) -> Result<()> {
    if processes.is_empty() {
        return Ok(());
    }
    let processes: Vec<String> = named(processes).collect();
    let what = format!("is used by {}", some(&processes));
    let hint = match Path::new("/usr/bin/nvidia-smi").exists() {
        true => "end them, or measure another device; nvidia-smi and tranche top show them",
        false => "end them, or measure another device; tranche top shows them",
    };
    Err(Error::new(Kind::Failed, device, what).hint(hint))
}
