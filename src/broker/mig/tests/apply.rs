//! Orders, with holders in the way.

use super::model::{GPU, Model, empty, had, journal, wanted};
use crate::control::{DriverAccess, MachineControl};
use crate::mig::{DevicesHeld, MigOrder, MigTools, SavedLayouts};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use tranche_core::claims::{ClaimPart, Claims};
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Bounds, ContainerName, HeldPart, KubernetesObject};
use tranche_core::types::{DeviceKey, GpuInstanceId};
use tranche_plan::inventory::{MigMode, VirtualizationMode};
use tranche_plan::mig::{ExactGpu, MigClient};
use tranche_state::controlled::ControlledDevice;
use tranche_state::node_users::NodeUser;

const OLD: &[(&str, u32, &[u32])] = &[("3g.20gb", 0, &[3]), ("2g.10gb", 4, &[2])];
const NEW: &[(&str, u32, &[u32])] = &[("3g.20gb", 0, &[3]), ("3g.20gb", 4, &[3])];

/// The daemons on the GPU, and which of them were stopped.
#[derive(Default)]
pub(super) struct Daemons {
    on: Vec<DeviceKey>,
    stopped: Mutex<Vec<DeviceKey>>,
}

impl MachineControl for Daemons {
    fn blockers(&self) -> Vec<tranche_core::ledger::Claim> {
        Vec::new()
    }

    fn prepare(&self, _: &DeviceKey) -> Result<()> {
        Ok(())
    }
    fn end_clients(&self, _: &ContainerName) -> Result<usize> {
        Ok(0)
    }
    fn tick(&self) -> Option<Duration> {
        None
    }
    fn start(&self, _: &DeviceKey) -> Result<()> {
        Ok(())
    }
    fn stop(&self, device: &DeviceKey, force: bool) -> Result<()> {
        assert!(!force);
        self.stopped.lock().unwrap().push(device.clone());
        Ok(())
    }
    fn restart(&self, _: &DeviceKey) -> Result<()> {
        Ok(())
    }
    fn devices(&self) -> Vec<ControlledDevice> {
        let daemon = |key: &DeviceKey| ControlledDevice {
            device: "nvidia.com/gpu=0:0".into(),
            key: key.clone(),
            daemon: None,
            compute_mode_before: None,
            time_slice: None,
            cgroup_limits: Vec::new(),
            idle_since: None,
            problems: Vec::new(),
        };
        self.on.iter().map(daemon).collect()
    }
    fn driver(&self) -> Result<DriverAccess> {
        Err(Error::failed("NVML", "is not there"))
    }
    fn unreadable(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The answer to an order for `target`, with `users` of the GPU's nodes.
fn apply(
    model: &Model,
    daemons: &Daemons,
    users: &[NodeUser],
    state_dir: &Path,
    order: &MigOrder,
) -> Result<usize, String> {
    let claims = Claims::open(state_dir).unwrap();
    let tools = MigTools {
        machine: model,
        control: daemons,
        claims: &claims,
        state_dir,
        users: &|_| Ok(users.to_vec()),
        systemctl: None,
    };
    tools
        .apply(order)
        .map(|changed| changed.len())
        .map_err(|error| error.to_string())
}

pub(super) fn order(target: ExactGpu) -> MigOrder {
    MigOrder {
        target: vec![target],
        ..MigOrder::default()
    }
}

pub(super) fn user(pid: u32, command: &str, unit: Option<&str>) -> NodeUser {
    NodeUser {
        pid,
        command: command.into(),
        uid: 0,
        gids: BTreeSet::new(),
        unit: unit.map(str::to_owned),
        is_of_system: unit.is_some(),
        nodes: BTreeSet::new(),
    }
}

/// Reserves a device for a resource claim of Kubernetes, which outlives a boot.
pub(super) fn reserve(claims: &Claims, device: &DeviceKey, number: u32) {
    let claim = KubernetesObject {
        namespace: "lab".into(),
        name: format!("train-{number}"),
        uid: format!("8a1c2d3e-0000-4000-8000-{number:012}"),
    };
    let part = ClaimPart {
        device: device.clone(),
        part: HeldPart::Whole,
        bounds: Bounds::default(),
        name: claim.claim_on("gpu-0"),
        asked_as: "nvidia.com/claim=x".into(),
    };
    claims.lock().unwrap().reserve_for(&claim, &[part]).unwrap();
}

/// The ids of the instance at `start`.
pub(super) fn key(model: &Model, start: u32) -> DeviceKey {
    let gpu = model.gpu.borrow();
    let one = gpu.instances.iter().find(|one| one.placement.start == start).unwrap();
    DeviceKey::mig(GPU.parse().unwrap(), one.id, one.compute[0].id)
}

#[test]
fn a_layout_is_applied_saved_and_nothing_is_done_twice() {
    let top = tempfile::tempdir().unwrap();
    let model = Model::with(&wanted(OLD), None);
    let kept = key(&model, 0);
    let daemons = Daemons {
        on: vec![kept, key(&model, 4)],
        ..Daemons::default()
    };
    let order = order(wanted(NEW));
    assert_eq!(apply(&model, &daemons, &[], top.path(), &order), Ok(1));
    assert_eq!(model.has(), wanted(NEW));
    let saved = SavedLayouts::read(top.path()).unwrap();
    assert_eq!(saved.gpus[0].layout, wanted(NEW));
    assert_eq!(saved.gpus[0].instances, model.gpu.borrow().instances);
    assert_eq!(saved.previous, [wanted(OLD)]);
    // Only the daemon of the instance that was destroyed was stopped.
    assert_eq!(*daemons.stopped.lock().unwrap(), daemons.on[1..]);
    // Nothing is held any more, and nothing is left to do.
    assert_eq!(Claims::open(top.path()).unwrap().books().unwrap().claims().count(), 0);
    *model.changes.borrow_mut() = 0;
    assert_eq!(apply(&model, &daemons, &[], top.path(), &order), Ok(0));
    assert_eq!(*model.changes.borrow(), 0);
}

#[test]
fn what_is_claimed_is_not_destroyed_and_its_holder_is_named() {
    let top = tempfile::tempdir().unwrap();
    let model = Model::with(&wanted(OLD), None);
    let claims = Claims::open(top.path()).unwrap();
    let held = DevicesHeld::take(&claims, "tranche mig", [key(&model, 4)]).unwrap();
    let error = apply(&model, &Daemons::default(), &[], top.path(), &order(wanted(NEW))).unwrap_err();
    assert!(error.contains("tranche mig holds the whole device"), "{error}");
    assert_eq!(model.has(), wanted(OLD));
    drop(held);
    // What is on the instance that stays is not in the way.
    let _held = DevicesHeld::take(&claims, "tranche mig", [key(&model, 0)]).unwrap();
    assert_eq!(
        apply(&model, &Daemons::default(), &[], top.path(), &order(wanted(NEW))),
        Ok(1)
    );
}

#[test]
fn a_process_on_an_instance_is_in_the_way_and_one_beside_it_is_not() {
    let client = |instance: Option<GpuInstanceId>| MigClient {
        pid: 812,
        gpu_instance: instance,
        compute_instance: None,
    };
    let users = [user(812, "python3", None)];
    for (start, in_the_way) in [(Some(4), true), (Some(0), false), (None, true)] {
        let top = tempfile::tempdir().unwrap();
        let model = Model::with(&wanted(OLD), None);
        let instance = start.map(|start| key(&model, start).instance().unwrap().0);
        model.gpu.borrow_mut().clients = vec![client(instance)];
        let applied = apply(&model, &Daemons::default(), &users, top.path(), &order(wanted(NEW)));
        match in_the_way {
            true => {
                let error = applied.unwrap_err();
                assert!(
                    error.starts_with("gpu 0: python3 (pid 812) uses what would be destroyed"),
                    "{error}"
                );
                assert_eq!(model.has(), wanted(OLD));
            }
            false => assert_eq!(applied, Ok(1)),
        }
    }
}

#[test]
fn the_mode_changes_only_when_it_is_asked_for_and_nobody_has_the_gpu_open() {
    let top = tempfile::tempdir().unwrap();
    let model = Model::with(&wanted(OLD), None);
    let off = ExactGpu {
        mode: MigMode::Disabled,
        ..wanted(&[])
    };
    let daemons = Daemons::default();
    let error = apply(&model, &daemons, &[], top.path(), &order(off.clone())).unwrap_err();
    assert!(
        error.contains("has another MIG mode than the layout; give --mode"),
        "{error}"
    );
    let order = MigOrder {
        may_change_mode: true,
        ..order(off.clone())
    };
    let users = [user(7, "nv-hostengine", Some("nvidia-dcgm.service"))];
    let error = apply(&model, &daemons, &users, top.path(), &order).unwrap_err();
    let expected =
        "nv-hostengine (pid 7, nvidia-dcgm.service) uses what would be destroyed; stop nvidia-dcgm.service first";
    assert!(error.contains(expected), "{error}");
    assert_eq!(model.has(), wanted(OLD));
    assert_eq!(apply(&model, &daemons, &[], top.path(), &order), Ok(1));
    assert_eq!(model.has(), off);
}

#[test]
fn gpus_of_virtual_machines_are_refused_first() {
    for (mode, expected) in [
        (VirtualizationMode::Vgpu, "is a vGPU"),
        (VirtualizationMode::HostVgpu, "is divided among virtual machines"),
    ] {
        let top = tempfile::tempdir().unwrap();
        let mut gpu = empty();
        gpu.virtualization = Some(mode);
        let model = Model::new(gpu, None);
        let error = apply(&model, &Daemons::default(), &[], top.path(), &order(wanted(NEW))).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert_eq!(*model.changes.borrow(), 0);
    }
    // On a GPU that was passed to this machine, instances may change, and the mode may not.
    let top = tempfile::tempdir().unwrap();
    let model = Model::with(&wanted(OLD), None);
    model.gpu.borrow_mut().virtualization = Some(VirtualizationMode::Passthrough);
    assert_eq!(
        apply(&model, &Daemons::default(), &[], top.path(), &order(wanted(NEW))),
        Ok(1)
    );
    let off = MigOrder {
        may_change_mode: true,
        ..order(ExactGpu {
            mode: MigMode::Disabled,
            ..wanted(&[])
        })
    };
    let error = apply(&model, &Daemons::default(), &[], top.path(), &off).unwrap_err();
    assert!(error.contains("would wait for a reset for ever"), "{error}");
}

#[test]
fn a_layout_that_cannot_be_finished_is_put_back_by_the_next_order() {
    let top = tempfile::tempdir().unwrap();
    let before = had(&Model::with(&wanted(OLD), None).gpu.borrow());
    journal(before, wanted(NEW)).write(top.path()).unwrap();
    let model = Model::new(empty(), None);
    // An order for what the GPU had before: the journal alone leads there.
    let applied = apply(&model, &Daemons::default(), &[], top.path(), &order(wanted(OLD)));
    assert_eq!(applied, Ok(0));
    assert_eq!(model.has(), wanted(OLD));
}

/// A boot turns MIG mode off on Hopper and ends every instance; the driver numbers the new ones differently.
#[test]
fn what_is_reserved_follows_to_the_instance_that_is_made_again() {
    let top = tempfile::tempdir().unwrap();
    let model = Model::with(&wanted(OLD), None);
    assert_eq!(
        apply(&model, &Daemons::default(), &[], top.path(), &order(wanted(NEW))),
        Ok(1)
    );
    let claims = Claims::open(top.path()).unwrap();
    let old = key(&model, 4);
    reserve(&claims, &old, 1);
    {
        let mut gpu = model.gpu.borrow_mut();
        gpu.instances.clear();
        gpu.mode.current = MigMode::Disabled;
        gpu.mode.pending = MigMode::Disabled;
    }
    let restore = MigOrder {
        may_change_mode: true,
        ..order(wanted(NEW))
    };
    assert_eq!(apply(&model, &Daemons::default(), &[], top.path(), &restore), Ok(1));
    let new = key(&model, 4);
    assert_ne!(old, new);
    let books = claims.books().unwrap();
    let reserved: Vec<&DeviceKey> = books.claims().map(|claim| &claim.device).collect();
    assert_eq!(reserved, [&new]);
}
