//! The devices of a specification of GPUs and MIG devices.

use super::hook::HookOptions;
use super::select;
use super::share::Claimer;
use super::{Derived, DerivedDevice, DeviceChoice, Options, coherence, device, files, hook, node};
use crate::edits::Edits;
use crate::inventory::{ControlRole, Driver, DriverFile, Gpu, HostDevice, Inventory};
use crate::policy::WholeDevice;
use crate::share::SplitDevice;
use tranche_core::call::ReleaseCall;
use tranche_core::error::{Error, Kind, Result};
use tranche_core::types::{CdiKind, ContainerPath, Device, DeviceName};

pub(super) fn derive(inventory: &Inventory, options: &Options, derived: &mut Derived) -> Result<()> {
    let driver = driver_of(inventory)?;
    let catalogue = inventory.catalogue();
    let gpus: Vec<&Gpu> = catalogue.gpus().collect();
    let devices = if options.devices.contains(&DeviceChoice::None) {
        // NVIDIA's generator writes only `none` then, whatever else is named.
        Vec::new()
    } else if options.devices.is_empty() {
        if gpus.is_empty() {
            return Err(Error::new(Kind::Nothing, "host", "there is a driver, but no GPU"));
        }
        catalogue.usable().collect()
    } else {
        select::chosen(&catalogue, &options.devices)?
    };
    // A GPU with instances that have no name is not empty. Discovery has warned that these are left out.
    let is_empty = |g: &&&Gpu| g.is_in_mig_mode() && g.mig_devices.is_empty() && g.unnamed_instances.is_empty();
    for gpu in gpus.iter().filter(is_empty) {
        let text = "is in MIG mode and has no instances, so there is no device for it";
        derived.warn(gpu.label(), text);
    }
    common(inventory, driver, &gpus, options, &mut derived.common);
    let programs = take_programs(&mut derived.common, options);

    let mut found = Vec::new();
    for one in devices {
        let text = "is left out, because one of its device nodes is missing and its number is unknown";
        match device::edits(one, options) {
            Some(edits) => found.push((one, edits)),
            None => derived.warn(one, text),
        }
    }
    for strategy in &options.names {
        for (one, edits) in &found {
            if let Some(name) = select::name(*one, *strategy, &mut derived.warnings) {
                named(*one, name, edits, &programs, options, derived)?;
            }
        }
    }
    let (plain_ones, claimed): (Vec<_>, Vec<_>) = found
        .iter()
        .partition(|(one, _)| split_of(*one, options).is_none() && !is_held(*one, options));
    if let Some(claimer) = Claimer::of(options).filter(|_| !claimed.is_empty()) {
        derived.common.hooks.push(claimer.release(ReleaseCall::default()));
    }
    // A container that asks for all devices asks for no claim, so it gets only the devices that need none.
    let plain_ones: Vec<_> = plain_ones
        .into_iter()
        .filter(|(one, _)| !is_out(*one, options))
        .map(|(one, edits)| (*one, with_in_service(*one, edits.clone(), options)))
        .collect();
    if select::wants_all(options) && !plain_ones.is_empty() {
        let mut all = Edits::default();
        for (_, edits) in &plain_ones {
            all.merge(edits)?;
            all.merge(&programs)?;
        }
        derived.devices.push(DerivedDevice::named("all", all)?);
    }
    if options.split_by_coherence {
        coherence::split(&plain_ones, inventory.source, &programs, options, derived)?;
    }
    if select::wants_none(options) {
        derived.devices.push(none()?);
    }
    Ok(())
}

/// Adds a device under one of its names. A device that the policy splits is added as a whole and as its shares.
fn named(
    one: HostDevice<'_>,
    name: DeviceName,
    edits: &Edits,
    programs: &Edits,
    options: &Options,
    derived: &mut Derived,
) -> Result<()> {
    let split = split_of(one, options);
    let is_held = is_held(one, options);
    if split.is_some() && !one.gpu.index_is_known {
        // The directory of its MPS daemon and its claims are named by its index, which is not known.
        let text = "is left out, because the policy splits it and its index is not known without NVML";
        derived.warn(one, text);
        return Ok(());
    }
    let claimer = Claimer::of(options);
    if claimer.is_none() && (split.is_some() || is_held) {
        let text = match split {
            Some(_) => "is left out, because the policy splits it and only the hook of tranche can claim a share",
            None => "is left out, because something of it is held and only the hook of tranche can claim it",
        };
        derived.warn(format_args!("device {name}"), text);
        return Ok(());
    }
    if claimer.is_none() && is_out(one, options) {
        derived.warn(
            format_args!("device {name}"),
            "is left out, because it is out of service",
        );
        return Ok(());
    }
    let asked_as = format!("{}={name}", derived.kind);
    if let Some(edits) = whole(one, asked_as, edits, programs, options)? {
        let name = name.clone();
        derived.devices.push(DerivedDevice { name, edits });
    }
    if let (Some(claimer), Some(split)) = (claimer, split) {
        for (kind, device) in claimer.shares(&name, edits, split)? {
            derived.add(kind, device);
        }
    }
    Ok(())
}

/// The edits of a container that asks for all of a device, with the hook that claims it where it must be claimed;
/// `None` if the policy splits the device and hides it as a whole. `edits` are those of the device without a claim, and
/// `asked_as` is its name for engines.
///
/// # Errors
/// Returns an error if the device must be claimed and the hook is not tranche's.
pub(super) fn whole(
    one: HostDevice<'_>,
    asked_as: String,
    edits: &Edits,
    programs: &Edits,
    options: &Options,
) -> Result<Option<Edits>> {
    let claimer = || {
        let error = || Error::usage(one, "must be claimed, and only the hook of tranche can claim it");
        Claimer::of(options).ok_or_else(error)
    };
    let Some(split) = split_of(one, options) else {
        let mut edits = edits.clone();
        edits.merge(programs)?;
        if is_held(one, options) {
            edits.hooks.push(claimer()?.whole_of(asked_as, one));
            return Ok(Some(edits));
        }
        return Ok(Some(with_in_service(one, edits, options)));
    };
    let mut whole = claimer()?.whole(asked_as, edits, split);
    let whole_device = options.sharing.as_ref().map(|sharing| sharing.plan.whole_device);
    if whole_device == Some(WholeDevice::Open) && !split.method.is_whole() {
        whole = whole.map(|edits| with_in_service(one, edits, options));
    }
    if let Some(edits) = whole.as_mut().filter(|_| split.method.is_whole()) {
        edits.merge(programs)?;
    }
    Ok(whole)
}

fn split_of<'a>(one: HostDevice<'_>, options: &'a Options) -> Option<&'a SplitDevice> {
    options.sharing.as_ref()?.plan.split(one.device())
}

fn is_held(one: HostDevice<'_>, options: &Options) -> bool {
    options.sharing.as_ref().is_some_and(|sharing| sharing.is_held(one))
}

fn is_out(one: HostDevice<'_>, options: &Options) -> bool {
    options.sharing.as_ref().is_some_and(|sharing| sharing.is_out(one))
}

/// `edits` of a device without a claim, with the hook that refuses it if it is, or will be, out of service.
fn with_in_service(one: HostDevice<'_>, mut edits: Edits, options: &Options) -> Edits {
    let hook = Claimer::of(options).and_then(|claimer| claimer.in_service(one));
    edits.hooks.extend(hook);
    edits
}

/// Removes the programs from `common` that a container with a share must not have, and returns them for the containers
/// that have a device to themselves.
fn take_programs(common: &mut Edits, options: &Options) -> Edits {
    let is_withheld = |program: &ContainerPath| {
        let sharing = options.sharing.as_ref();
        sharing.is_some_and(|sharing| sharing.withholds(program.file_name()))
    };
    let mounts = std::mem::take(&mut common.mounts);
    let (withheld, rest) = mounts.into_iter().partition(|(path, _)| is_withheld(path));
    common.mounts = rest;
    Edits {
        mounts: withheld,
        ..Edits::default()
    }
}

/// What every container gets, without devices, and the programs that a container with a share must not have.
pub(super) fn without_devices(inventory: &Inventory, options: &Options) -> Result<(Derived, Edits)> {
    let driver = driver_of(inventory)?;
    let gpus: Vec<&Gpu> = inventory.catalogue().gpus().collect();
    let mut derived = Derived::new(CdiKind::nvidia_gpu());
    common(inventory, driver, &gpus, options, &mut derived.common);
    let programs = take_programs(&mut derived.common, options);
    Ok((derived, programs))
}

/// The edits of one device, without a claim.
pub(super) fn nodes_of(inventory: &Inventory, options: &Options, device: Device) -> Result<Edits> {
    let one = inventory.catalogue().at(device);
    let edits = one.and_then(|one| device::edits(one, options));
    edits.ok_or_else(|| Error::failed(device, "a device node of it is missing"))
}

/// The driver's files and no device. CDI requires that a device has edits, so it sets the variable that NVIDIA's
/// generator sets there.
fn none() -> Result<DerivedDevice> {
    let mut edits = Edits::default();
    edits.env.insert("NVCT_EMPTY_DEVICE".into(), String::new());
    DerivedDevice::named("none", edits)
}

/// The driver of `inventory`.
///
/// # Errors
/// Returns an error if the host has none, or none of its libraries: a container would start with the nodes of its GPU,
/// and its programs would compute without it.
fn driver_of(inventory: &Inventory) -> Result<&Driver> {
    let driver = inventory.driver.as_ref().ok_or_else(no_driver)?;
    // Modules of an X server and VDPAU's back end, which programs open by their paths, use other libraries of the
    // driver.
    let is_library =
        |file: &DriverFile| files::is_for_loader(file) && !file.container.file_name().starts_with("libvdpau_");
    if !driver.files.iter().any(is_library) {
        let what = format!(
            "driver {} has no libraries, so there is no device to offer",
            driver.version
        );
        let hint = "install the driver's libraries, or name their directory with --library-search-path";
        return Err(Error::failed("host", what).hint(hint));
    }
    Ok(driver)
}

pub(super) fn no_driver() -> Error {
    Error::new(Kind::Nothing, "host", "no NVIDIA driver found").hint("tranche list -v shows where tranche searched")
}

fn common(inventory: &Inventory, driver: &Driver, gpus: &[&Gpu], options: &Options, edits: &mut Edits) {
    for control in &inventory.nodes.control {
        let wanted = match control.role {
            ControlRole::Ctl | ControlRole::Uvm => true,
            // CUDA runs without these nodes, and a rootless engine, which binds nodes, fails if one is missing. So
            // those that the driver has not created are left out. Only programs that draw use the mode-setting node.
            ControlRole::UvmTools => control.node.present,
            ControlRole::Modeset => control.node.present && options.draws(),
        };
        if wanted {
            node::add(edits, &control.node, node::ANYBODY, options);
        }
    }
    let files = files::wanted(driver, options);
    driver_files(edits, driver, &files, options);
    if let Some(hook) = &options.hook {
        let drawing = if options.draws() { gpus } else { &[] };
        let work = hook::Work {
            driver,
            files: &files,
            gpus: drawing,
            management: false,
        };
        hook::add(edits, hook, &work);
    }
}

/// Mounts and environment for `files`.
pub(super) fn driver_files(edits: &mut Edits, driver: &Driver, wanted: &[&DriverFile], options: &Options) {
    let by_hook = options.hook.as_ref().is_some_and(HookOptions::mounts_sockets);
    files::mount(edits, wanted, by_hook);
    if options.hook.is_none() {
        files::mount_links(edits, wanted);
    }
    if let Some(dirs) = files::libcuda_dir(driver, wanted) {
        edits.env.insert("NVIDIA_CTK_LIBCUDA_DIR".into(), dirs);
    }
}
