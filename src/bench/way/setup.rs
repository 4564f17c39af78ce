//! What a way needs on a device of this machine: the policy, the layout, and the two shares that the planner makes.

use super::{Split, Way};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tranche_core::error::{Error, Kind, Result, line, parts};
use tranche_core::types::{
    ComputeInstanceId, Device, DeviceSelector, GpuInstanceId, Interval, MemorySize, MigIndex, Percent, ShareName,
};
use tranche_plan::inventory::{ComputeMode, Gpu, HostDevice, Inventory, MigDevice, MigMode, MigState};
use tranche_plan::mig::{InstanceProfile, MigGpu, WantedInstance, described, place};
use tranche_plan::policy::read;
use tranche_plan::share::{Guarantees, Plan, plan};

/// What a person allowed `tranche bench` to change for a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The compute mode and the length of turns (`--change-modes`).
    pub modes: bool,
    /// The layout of MIG, and whether MIG is on (`--change-layout`).
    pub layout: bool,
}

/// What a way needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// The way.
    pub way: Way,
    /// What has to be done to the GPU first, as `tranche mig apply --layout` takes it. Afterwards, [`setup`] has to be
    /// called again with the inventory of that time: the policy then has the UUIDs of the instances.
    pub layout: Option<String>,
    /// The text of the policy.
    pub policy: String,
    /// The share of the process that is measured, then that of its neighbour, if the way has one.
    pub seats: Vec<Seat>,
}

/// A way that was not possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedWay {
    /// The way.
    pub way: Way,
    /// Why.
    pub why: String,
}

/// A share, and what it promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Its device.
    pub device: Device,
    /// Its name.
    pub share: ShareName,
    /// Its limit of memory: for an instance of MIG all of its memory; `None` if nothing limits it.
    pub memory: Option<MemorySize>,
    /// Its ceiling of compute; `None` if it has none.
    pub compute: Option<Percent>,
    /// Multiprocessors of its device, if that is an instance of MIG and the driver reports them.
    pub instance_sms: Option<u32>,
    /// What the plan promises.
    pub guarantees: Guarantees,
}

/// What each way of [`Way::ALL`] needs on a device, as [`setup`] says it, and the ways that are not possible, with the
/// reason.
///
/// # Errors
/// Returns a usage error if the device is unknown.
pub fn setups(
    device: &str,
    inventory: &Inventory,
    mig: &[MigGpu],
    allowed: Allowed,
) -> Result<(Vec<Setup>, Vec<RefusedWay>)> {
    let (mut possible, mut refused) = (Vec::new(), Vec::new());
    for way in Way::ALL {
        match setup(way, device, inventory, mig, allowed) {
            Ok(setup) => possible.push(setup),
            Err(error) if error.kind() == Kind::Found => refused.push(RefusedWay {
                way,
                why: parts(&error).1,
            }),
            Err(error) => return Err(error),
        }
    }
    Ok((possible, refused))
}

/// What `way` needs on the device with this UUID: a GPU, or an instance of MIG. `mig` has the GPUs with MIG as the
/// driver describes them.
///
/// # Errors
/// Returns an error of [`Kind::Found`] with the reason if the way is not possible on this machine, or not allowed, and
/// a usage error if the device is unknown.
pub fn setup(way: Way, device: &str, inventory: &Inventory, mig: &[MigGpu], allowed: Allowed) -> Result<Setup> {
    let selector: DeviceSelector = device.parse()?;
    let device = inventory.catalogue().get(&selector)?;
    let refused = |why: String| Error::new(Kind::Found, way, why);
    if let Some(why) = mode_refuses(way, device.gpu) {
        return Err(refused(why));
    }
    if matches!(way, Way::TimeSlicing(interval) if interval != Interval::Default) && !allowed.modes {
        let why = "changes the length of turns of the whole GPU, which --change-modes allows";
        return Err(refused(why.to_owned()));
    }
    let mut future = inventory.clone();
    let layout = match device.mig {
        None => layout(way, device.gpu, &mut future, mig, allowed).map_err(&refused)?,
        Some(_) if way.is_mig() => return Err(refused(format!("{device} is an instance of MIG already"))),
        Some(_) => None,
    };
    let catalogue = future.catalogue();
    let devices: Vec<HostDevice<'_>> = match way.is_mig() {
        true => catalogue
            .all()
            .filter(|one| one.mig.is_some() && one.gpu.uuid == device.gpu.uuid)
            .collect(),
        false => catalogue.all().filter(|one| one.key() == device.key()).collect(),
    };
    let try_policy = |has_memory| {
        let text = policy(way, &devices, has_memory, allowed);
        planned(&text, &future).map(|plan| (text, plan))
    };
    // MPS of old drivers has no limits of memory, and the planner refuses a policy with them.
    let tried = try_policy(true).or_else(|why| try_policy(false).map_err(|_| why));
    let (policy, plan) = tried.map_err(refused)?;
    let seats = seats(way, &plan, &devices);
    Ok(Setup {
        way,
        layout,
        policy,
        seats,
    })
}

/// Why the compute mode of the GPU does not let the way's processes run. tranche changes it for MPS alone.
fn mode_refuses(way: Way, gpu: &Gpu) -> Option<String> {
    let mode = gpu.compute_mode?;
    let is_exclusive = matches!(mode, ComputeMode::ExclusiveProcess | ComputeMode::ExclusiveThread);
    let is_refused = match way {
        _ if mode == ComputeMode::Prohibited => true,
        Way::TimeSlicing(_) => is_exclusive,
        _ => false,
    };
    let hint = format!("set it with nvidia-smi -i {} -c DEFAULT", gpu.uuid);
    is_refused.then(|| format!("the compute mode of {} is {mode}; {hint}", gpu.label()))
}

/// What has to be done to `gpu`, which is then done in `future`; `None` if it is as the way needs it.
fn layout(
    way: Way,
    gpu: &Gpu,
    future: &mut Inventory,
    mig: &[MigGpu],
    allowed: Allowed,
) -> Result<Option<String>, String> {
    let on = |current| MigState {
        current,
        pending: current,
    };
    let (layout, mode, devices) = match way.is_mig() {
        false if gpu.is_in_mig_mode() => (format!("{}:off", gpu.uuid), MigMode::Disabled, Vec::new()),
        false => return Ok(None),
        true => {
            let half = half(gpu, future, mig)?;
            let is_half = |device: &MigDevice| device.profile.as_ref() == Some(&half.name);
            if gpu.mig_devices.len() == 2 && gpu.mig_devices.iter().all(is_half) {
                return Ok(None);
            }
            let devices = [0, 1].map(|number| instance(number, &half)).to_vec();
            (format!("{}:2x{}", gpu.uuid, half.name), MigMode::Enabled, devices)
        }
    };
    if !allowed.layout {
        return Err(format!("needs the layout {layout}, which --change-layout allows"));
    }
    if let Some(changed) = future.gpus.iter_mut().find(|one| one.uuid == gpu.uuid) {
        changed.mig = Some(on(mode));
        changed.mig_devices = devices;
        changed.unnamed_instances.clear();
    }
    Ok(Some(layout))
}

/// The largest profile of which `gpu` can have two instances.
fn half(gpu: &Gpu, inventory: &Inventory, mig: &[MigGpu]) -> Result<InstanceProfile, String> {
    let said = mig.iter().find(|one| one.uuid == gpu.uuid).cloned();
    if said.as_ref().is_some_and(MigGpu::is_piece) || gpu.mig.is_none() {
        return Err(format!("{} cannot be divided by MIG", gpu.label()));
    }
    // Some drivers list no profiles while MIG mode is off; the tables of products have them.
    let said = said.filter(|one| !one.profiles.is_empty());
    let table = || described(inventory).0.into_iter().find(|one| one.uuid == gpu.uuid);
    let said = said
        .or_else(table)
        .ok_or_else(|| format!("the driver lists no profiles of {}", gpu.label()))?;
    let empty = MigGpu {
        instances: Vec::new(),
        mode: MigState {
            current: MigMode::Enabled,
            pending: MigMode::Enabled,
        },
        ..said
    };
    let mut profiles: Vec<&InstanceProfile> = empty.profiles.iter().collect();
    profiles.retain(|one| one.name.attributes.is_empty());
    profiles.sort_by_key(|one| std::cmp::Reverse((one.slices, one.memory)));
    let fits_twice = |one: &&InstanceProfile| {
        let wanted = WantedInstance {
            profile: one.id,
            start: None,
            compute: vec![one.slices],
        };
        one.most > 1 && place(&empty, &[wanted.clone(), wanted], &BTreeSet::new()).is_some()
    };
    let found = profiles.into_iter().find(fits_twice).cloned();
    found.ok_or_else(|| format!("{} has no two equal instances", gpu.label()))
}

/// An instance that does not exist yet: its UUID is unknown.
fn instance(number: u32, profile: &InstanceProfile) -> MigDevice {
    MigDevice {
        index: MigIndex(number),
        uuid: None,
        gpu_instance: GpuInstanceId(number),
        compute_instance: ComputeInstanceId(0),
        profile: Some(profile.name.clone()),
        memory: Some(profile.memory),
        gpu_slices: Some(profile.slices),
        compute_slices: Some(profile.slices),
        sms: Some(profile.sms),
        engines: Some(profile.engines),
        gpu_instance_cap: None,
        compute_instance_cap: None,
    }
}

/// The text of the policy for a way. `has_memory`: shares under MPS have a limit of memory.
fn policy(way: Way, devices: &[HostDevice<'_>], has_memory: bool, allowed: Allowed) -> String {
    let quoted = |device: &HostDevice<'_>| format!("\"{}\"", device.uuid().unwrap_or_else(|| device.name()));
    let all: Vec<String> = devices.iter().map(quoted).collect();
    let first = all.first().cloned().unwrap_or_default();
    let class = devices.first().and_then(|device| device.mig?.profile.as_ref());
    let class = class.map_or("gpu".to_owned(), |profile| format!("mig-{profile}").replace('+', "."));
    let mps = |shares: String| {
        let mode = match allowed.modes {
            true => "exclusive",
            false => "keep",
        };
        let entry = format!("    - name: nvidia.com/{class}\n      devices: [{first}]\n      shares:\n{shares}");
        format!("  mps:\n    computeMode: {mode}\n    resources:\n{entry}")
    };
    let share = |name: &str, percent: u32| {
        // A tenth stays free: what the driver itself needs of the device's memory is in no share.
        let memory = match has_memory {
            true => format!(", memory: {}%", (percent * 9 / 10).max(1)),
            false => String::new(),
        };
        format!("      - {{name: {name}, compute: {percent}%{memory}}}\n")
    };
    let split = |split: Split| mps(share("first", split.first()) + &share("second", split.second()));
    let sharing = match way {
        Way::Solo | Way::MigHalves => format!("  dedicated: {{devices: [{}]}}\n", all.join(", ")),
        Way::TimeSlicing(interval) => format!(
            "  timeSlicing:\n    interval: {interval}\n    resources:\n    - {{name: nvidia.com/{class}, devices: [{first}], \
             replicas: 2}}\n"
        ),
        Way::MpsFree => mps("      - {name: first}\n      - {name: second}\n".to_owned()),
        Way::Mps(split_at) => split(split_at),
        Way::MpsInMig => split(Split(50)),
    };
    format!("version: v1\nsharing:\n{sharing}")
}

/// The plan of a policy, or why it is refused.
fn planned(text: &str, inventory: &Inventory) -> Result<Plan, String> {
    let planned = read::parse("policy", text).and_then(|read| plan(&read.policy, inventory));
    // The place is in a policy that nobody has seen.
    let plan = planned.map_err(|error| {
        let line = line(&error);
        let what = line
            .strip_prefix("policy:")
            .and_then(|rest| Some(rest.split_once(": ")?.1));
        what.unwrap_or(&line).to_owned()
    })?;
    match plan.absent.first() {
        Some(absent) => Err(absent.why.clone()),
        None => Ok(plan),
    }
}

/// The shares of the first and of the second process.
fn seats(way: Way, plan: &Plan, devices: &[HostDevice<'_>]) -> Vec<Seat> {
    let count = match way {
        Way::Solo => 1,
        _ => 2,
    };
    let mut seats = Vec::new();
    for device in devices {
        let Some(split) = plan.split(device.device()) else {
            continue;
        };
        for name in split.shares.names() {
            let Some(share) = split.share(&name) else { continue };
            seats.push(Seat {
                device: device.device(),
                share: name,
                memory: share.memory.or(device.mig.and_then(|mig| mig.memory)),
                compute: share.compute,
                instance_sms: device.mig.and_then(|mig| mig.sms),
                guarantees: share.guarantees.clone(),
            });
        }
    }
    seats.truncate(count);
    seats
}
