//! What of the machine is measured, and whether that may be done now.

use crate::room::Room;
use nix::sys::utsname::uname;
use std::path::Path;
use std::sync::Arc;
use tranche_bench::measured::{Sample, Throttle};
use tranche_bench::results::Host;
use tranche_broker::control::nvml::Nvml;
use tranche_broker::control::{ControlOptions, DriverAccess};
use tranche_broker::facts::{Facts, HostFacts, HostNow};
use tranche_core::error::{Context, Error, Kind, Result};
use tranche_core::text::{shown, some};
use tranche_core::types::{DeviceKey, DeviceSelector, GpuUuid};
use tranche_driver_protocol::Slowed;
use tranche_inspect::observed::{ObserveOptions, Observed};
use tranche_plan::inventory::HostDevice;
use tranche_state::planning::PlanOptions;

/// The device that is measured, and how its driver is asked.
pub(crate) struct Measurable {
    pub(crate) facts: Arc<Facts>,
    /// The name by which everything names it from now on.
    pub(crate) uuid: String,
    pub(crate) key: DeviceKey,
    gpu: GpuUuid,
    nvml: Nvml,
}

impl Measurable {
    /// The device of this name.
    ///
    /// # Errors
    /// Returns an error if the host has no such device, or if somebody uses it.
    pub(crate) fn find(at: &PlanOptions, name: &str) -> Result<Self> {
        // The policy of the machine may be wrong: it is not what is measured.
        let facts = HostNow::new(Room::of(at).inside_without_policy()).now()?;
        let selector: DeviceSelector = name.parse()?;
        let device = facts.inventory.catalogue().get(&selector)?;
        let uuid = device.uuid().map(|uuid| uuid.to_string());
        let uuid = uuid.ok_or_else(|| Error::failed(device, "has no UUID, by which a program finds it"))?;
        let (key, gpu) = (device.key(), device.gpu.uuid.clone());
        refuse_users(at, &device)?;
        let nvml = DriverAccess::find(&facts, &ControlOptions::of(at)?)?.nvml;
        Ok(Self {
            uuid,
            key,
            gpu,
            nvml,
            facts,
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

    /// What the sensors of the GPU say now; `None` if it has none, or if the driver does not answer.
    pub(crate) fn sample(&self) -> Option<Sample> {
        let clocks = self.nvml.clocks(&self.gpu).ok()?;
        let throttle = |why| match why {
            Slowed::Power => Throttle::Power,
            Slowed::Heat => Throttle::Heat,
            Slowed::Other => Throttle::Hardware,
        };
        Some(Sample {
            clock_mhz: clocks.sm_mhz?,
            celsius: clocks.celsius?,
            throttled: clocks.slowed.unwrap_or_default().into_iter().map(throttle).collect(),
        })
    }
}

/// Refuses a device beside whose processes nothing would be measured, and which would be slower themselves.
fn refuse_users(at: &PlanOptions, device: &HostDevice<'_>) -> Result<()> {
    let options = ObserveOptions {
        state_dir: at.state_dir.clone(),
        host: at.host.clone(),
    };
    let observed = Observed::look(&options, true)?;
    let name = device.name();
    let cdi = format!("nvidia.com/gpu={name}");
    // Another instance of the GPU shares its power and its bus, and nothing else.
    let of_it = observed.processes.iter().filter(|process| process.device == cdi);
    let processes: Vec<String> = of_it
        .map(|process| {
            let command = process.command.as_deref().unwrap_or("a process");
            format!("{} ({})", shown(command), process.pid)
        })
        .collect();
    if processes.is_empty() {
        return Ok(());
    }
    let what = format!("is used by {}", some(&processes));
    let hint = match Path::new("/usr/bin/nvidia-smi").exists() {
        true => "end them, or measure another device; nvidia-smi and tranche top show them",
        false => "end them, or measure another device; tranche top shows them",
    };
    Err(Error::new(Kind::Failed, device, what).hint(hint))
}
