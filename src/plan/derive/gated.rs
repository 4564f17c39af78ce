//! Devices that a container gets only by name: management of the host, storage, RDMA, NVSwitches and IMEX channels.

use super::gpu::{driver_files, no_driver};
use super::{Derived, DerivedDevice, DeviceChoice, Mode, Options, files, hook, node};
use crate::edits::Edits;
use crate::inventory::{Driver, DriverCapability, DriverFile, FileKind, Inventory};
use tranche_core::error::{Error, Kind, Result};
use tranche_core::text::some;
use tranche_core::types::{Device, DeviceSelector, ImexChannelId};

/// One device `all` with every node of the mode.
pub(super) fn single(mode: Mode, inventory: &Inventory, options: &Options, derived: &mut Derived) -> Result<()> {
    let there = &inventory.nodes;
    let (nodes, looked_for) = match mode {
        Mode::Gds => (&there.gds, "/dev/nvidia-fs*"),
        Mode::Mofed => (&there.mofed, "/dev/infiniband/uverbs* or rdma_cm"),
        Mode::Gdrcopy => (&there.gdrcopy, "/dev/gdrdrv"),
        _ => (&there.nvswitch, "/dev/nvidia-nvswitch*"),
    };
    only_all(options)?;
    if nodes.is_empty() {
        return Err(Error::new(Kind::Nothing, "host", format!("no {looked_for} found")));
    }
    let mut all = Edits::default();
    for one in nodes {
        node::add(&mut all, one, node::ANYBODY, options);
    }
    if mode == Mode::Gds {
        for mount in &there.gds_mounts {
            all.mounts
                .insert(mount.container.clone(), files::read_only(&mount.host));
        }
    }
    derived.devices.push(DerivedDevice::named("all", all)?);
    Ok(())
}

/// One device `all` with every NVIDIA node of the host, and the driver's files for a container that manages the host.
pub(super) fn management(inventory: &Inventory, options: &Options, derived: &mut Derived) -> Result<()> {
    only_all(options)?;
    let there = &inventory.nodes;
    let mut all = Edits::default();
    let control = there.control.iter().map(|control| &control.node);
    let of_gpus = inventory.gpus.iter().filter_map(|gpu| gpu.node.as_ref());
    let channels = there.imex_channels.iter().map(|channel| &channel.node);
    for one in control.chain(of_gpus).chain(&there.orphans).chain(channels) {
        node::add(&mut all, one, node::ANYBODY, options);
    }
    let of_migs = inventory.mig_devices();
    let of_migs = of_migs.flat_map(|(_, mig)| [&mig.gpu_instance_cap, &mig.compute_instance_cap]);
    let of_migs = of_migs.chain([&there.mig_config, &there.mig_monitor]).flatten();
    for one in there.caps.iter().chain(of_migs) {
        node::add(&mut all, one, node::READ_ONLY, options);
    }
    if all.nodes.is_empty() {
        let e = Error::new(Kind::Nothing, "host", "no NVIDIA device nodes found");
        return Err(e.hint("is the driver's module loaded?"));
    }
    derived.devices.push(DerivedDevice::named("all", all)?);

    // A host may have nodes and no libraries: the driver's files may be in a container that has not started yet.
    if let Some(driver) = &inventory.driver {
        let files: Vec<DriverFile> = files::wanted(driver, options)
            .into_iter()
            .filter(|f| looks_after(driver, f))
            .map(without_links_of_graphics)
            .collect();
        let files: Vec<&DriverFile> = files.iter().collect();
        driver_files(&mut derived.common, driver, &files, options);
        if let Some(hook) = &options.hook {
            let work = hook::Work {
                driver,
                files: &files,
                gpus: &[],
                management: true,
            };
            hook::add(&mut derived.common, hook, &work);
        }
    }
    Ok(())
}

/// Whether a container that manages the host gets `file`. It gets all of the driver's own libraries, because tests of a
/// driver load them, but no module of an X server, no program that draws and no configuration of graphics.
fn looks_after(driver: &Driver, file: &DriverFile) -> bool {
    match &file.kind {
        FileKind::Library { soname, .. } => {
            let name = file.container.file_name();
            // Some packages install a library under its SONAME alone. One of graphics may be another project's.
            let is_under_soname = soname.as_deref().is_some_and(|soname| name.starts_with(soname))
                && ![DriverCapability::Graphics, DriverCapability::Compat32].contains(&file.capability);
            (name.ends_with(&format!(".so.{}", driver.version)) || is_under_soname)
                && !file.container.as_str().split('/').any(|part| part == "xorg")
        }
        FileKind::Binary => ![DriverCapability::Graphics, DriverCapability::Display].contains(&file.capability),
        FileKind::Config => false,
        FileKind::Firmware | FileKind::Socket => true,
    }
}

/// Links by which GBM, Vulkan and the X server find their parts of the driver. NVIDIA's generator writes them together
/// with the files of graphics, which a container that manages the host does not get.
const LINKS_OF_GRAPHICS: [&str; 3] = [
    "nvidia-drm_gbm.so",
    "libnvidia-vulkan-producer.so",
    "libglxserver_nvidia.so",
];

fn without_links_of_graphics(file: &DriverFile) -> DriverFile {
    let mut file = file.clone();
    file.links
        .retain(|link| !LINKS_OF_GRAPHICS.contains(&link.path.file_name()));
    file
}

/// The capability nodes with which a process may change (`config`) or watch (`monitor`) MIG instances.
///
/// # Errors
/// Returns an error if the host does not have the node.
pub fn mig_access(inventory: &Inventory, options: &Options, config: bool, monitor: bool) -> Result<Edits> {
    let mut edits = Edits::default();
    let there = &inventory.nodes;
    for (wanted, node, name) in [
        (config, &there.mig_config, "config"),
        (monitor, &there.mig_monitor, "monitor"),
    ] {
        if wanted {
            let missing = || Error::failed(format!("MIG {name} capability"), "this host has no device node for it");
            node::add(&mut edits, node.as_ref().ok_or_else(missing)?, node::READ_ONLY, options);
        }
    }
    Ok(edits)
}

/// A device for each IMEX channel, by number, and `all`.
pub(super) fn imex(inventory: &Inventory, options: &Options, derived: &mut Derived) -> Result<()> {
    if inventory.driver.is_none() && inventory.nodes.imex_channels.is_empty() {
        return Err(no_driver());
    }
    let mut channels: Vec<_> = inventory.nodes.imex_channels.iter().collect();
    channels.sort_by_key(|c| c.id);
    channels.dedup_by_key(|c| c.id);
    let mut wanted = Vec::new();
    for choice in &options.devices {
        match choice {
            DeviceChoice::All => {}
            DeviceChoice::Device(DeviceSelector::Index(Device { gpu, mig: None })) => wanted.push(ImexChannelId(gpu.0)),
            DeviceChoice::Channel(id) => wanted.push(*id),
            other => {
                let error = other.error("is not a valid IMEX channel");
                return Err(error.hint("expected 0, channel0 or all"));
            }
        }
    }
    let every = options.devices.is_empty() || options.devices.contains(&DeviceChoice::All);
    if let Some(missing) = wanted.iter().find(|id| !channels.iter().any(|c| c.id == **id)) {
        let there: Vec<String> = channels.iter().map(|c| c.id.to_string()).collect();
        let there = match &there[..] {
            [] => "this host has no IMEX channels".to_owned(),
            there => format!("this host has {}", some(there)),
        };
        return Err(Error::usage(format!("IMEX channel {missing}"), "not found").hint(there));
    }
    channels.retain(|c| every || wanted.contains(&c.id));
    if channels.is_empty() {
        return Err(Error::new(Kind::Nothing, "host", "no IMEX channels found")
            .hint("nvidia-modprobe -c 0 creates the first one"));
    }
    let mut all = Edits::default();
    for channel in &channels {
        let mut edits = Edits::default();
        node::add(&mut edits, &channel.node, node::ANYBODY, options);
        all.merge(&edits)?;
        let device = DerivedDevice::named(&channel.id.to_string(), edits)?;
        derived.devices.push(device);
    }
    if options.all_device {
        derived.devices.push(DerivedDevice::named("all", all)?);
    }
    Ok(())
}

fn only_all(options: &Options) -> Result<()> {
    match options.devices.iter().find(|choice| **choice != DeviceChoice::All) {
        None => Ok(()),
        Some(choice) => Err(choice.error("not found").hint("this mode has only the device all")),
    }
}
