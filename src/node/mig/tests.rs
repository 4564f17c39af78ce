//! Changes on a model of a GPU that refuses what the driver refuses, and that can fail or lose its caller at each call.

use super::{ChangeError, MigJournal, MigMachine, change, finish};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tranche_core::types::MemorySize;
use tranche_core::types::{ComputeInstanceId, GpuInstanceId, GpuUuid};
use tranche_plan::inventory::{MigMode, MigState};
use tranche_plan::mig::{
    ComputeInstance, ComputeProfile, ComputeProfileId, ComputeProfileIndex, Engines, ExactCompute, ExactGpu,
    ExactInstance, GpuInstance, InstanceProfile, MigChange, MigGpu, Placement, ProfileId, ProfileIndex,
};

const GPU: &str = "GPU-bb5d1807-35ed-1a19-3c32-147f9952a2da";

fn compute(slices: u32) -> ComputeProfile {
    ComputeProfile {
        index: ComputeProfileIndex(slices),
        id: ComputeProfileId(slices),
        slices,
        sms: 14 * slices,
        most: 7 / slices,
    }
}

fn profile(id: u32, name: &str, slices: u32, size: u32, starts: &[u32]) -> InstanceProfile {
    InstanceProfile {
        index: ProfileIndex(id + 100),
        id: ProfileId(id),
        name: name.parse().unwrap(),
        slices,
        memory: MemorySize::from_mib(u64::from(size) * 4864),
        sms: 14 * slices,
        engines: Engines::default(),
        most: starts.len() as u32,
        placements: starts.iter().map(|start| Placement { start: *start, size }).collect(),
        compute: [1, 2, 3, 7].into_iter().filter(|n| *n <= slices).map(compute).collect(),
    }
}

pub(super) fn empty() -> MigGpu {
    MigGpu {
        uuid: GPU.parse().unwrap(),
        index: "0".parse().unwrap(),
        pci: "0000:07:00.0".parse().unwrap(),
        pci_device: 0x20b0_10de,
        pci_subsystem: 0,
        product: "NVIDIA A100-SXM4-40GB".into(),
        mode: MigState {
            current: MigMode::Enabled,
            pending: MigMode::Enabled,
        },
        resetless: Some(true),
        virtualization: None,
        profiles: vec![
            profile(19, "1g.5gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
            profile(14, "2g.10gb", 2, 2, &[0, 2, 4]),
            profile(9, "3g.20gb", 3, 4, &[0, 4]),
            profile(0, "7g.40gb", 7, 8, &[0]),
        ],
        instances: Vec::new(),
        clients: Vec::new(),
    }
}

fn wanted(instances: &[(&str, u32, &[u32])]) -> ExactGpu {
    let gpu = empty();
    let exact = |(name, start, compute): &(&str, u32, &[u32])| {
        let profile = gpu
            .profiles
            .iter()
            .find(|profile| profile.name.to_string() == *name)
            .unwrap();
        let mut next = 0;
        ExactInstance {
            profile: profile.id,
            name: profile.name.clone(),
            placement: *profile.placements.iter().find(|place| place.start == *start).unwrap(),
            compute: compute
                .iter()
                .map(|slices| {
                    let start = Some(next);
                    next += slices;
                    ExactCompute { start, slices: *slices }
                })
                .collect(),
        }
    };
    ExactGpu {
        gpu: gpu.uuid.clone(),
        mode: MigMode::Enabled,
        instances: instances.iter().map(exact).collect(),
    }
}

/// What a call does instead of what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It fails.
    Fails,
    /// The caller is killed before the driver does anything.
    KilledBefore,
    /// The caller is killed after the driver has done it.
    KilledAfter,
    /// It succeeds and does nothing.
    Lies,
}

struct Model {
    gpu: RefCell<MigGpu>,
    /// Which change has a fault; counted from 0.
    fault: Option<(usize, Fault)>,
    changes: RefCell<usize>,
    next_id: RefCell<u32>,
    /// How often a destroyed instance is still in use.
    lag: RefCell<u32>,
}

impl Model {
    fn new(gpu: MigGpu, fault: Option<(usize, Fault)>) -> Self {
        Self {
            gpu: RefCell::new(gpu),
            fault,
            changes: RefCell::new(0),
            next_id: RefCell::new(20),
            lag: RefCell::new(0),
        }
    }

    /// One that has `exact`.
    fn with(exact: &ExactGpu, fault: Option<(usize, Fault)>) -> Self {
        let model = Self::new(empty(), None);
        let top = tempfile::tempdir().unwrap();
        change(
            &model,
            top.path(),
            &[wanted(&[])],
            std::slice::from_ref(exact),
            &mut |_, _| {},
        )
        .unwrap();
        Self {
            fault,
            changes: RefCell::new(0),
            ..model
        }
    }

    fn has(&self) -> ExactGpu {
        ExactGpu::of(&self.gpu.borrow())
    }

    fn id(&self) -> u32 {
        *self.next_id.borrow_mut() += 1;
        *self.next_id.borrow()
    }

    fn make(&self, change: &MigChange) -> Result<(), ChangeError> {
        let refused = |why: &str| Err(ChangeError::Other(why.to_owned()));
        let mut gpu = self.gpu.borrow_mut();
        match change {
            MigChange::SetMode(mode) if gpu.instances.is_empty() => {
                gpu.mode.current = *mode;
                gpu.mode.pending = *mode;
            }
            MigChange::SetMode(_) => return Err(ChangeError::InUse),
            MigChange::DestroyCompute(instance, compute) => {
                let Some(one) = gpu.instances.iter_mut().find(|one| one.id == *instance) else {
                    return refused("no such GPU instance");
                };
                one.compute.retain(|one| one.id != *compute);
            }
            MigChange::Destroy(instance) => {
                if *self.lag.borrow() > 0 {
                    *self.lag.borrow_mut() -= 1;
                    return Err(ChangeError::InUse);
                }
                let is_used = |one: &GpuInstance| one.id == *instance && !one.compute.is_empty();
                if gpu.instances.iter().any(is_used) {
                    return Err(ChangeError::InUse);
                }
                gpu.instances.retain(|one| one.id != *instance);
            }
            MigChange::Create { profile, placement, .. } => {
                if gpu.instances.iter().any(|one| one.placement.overlaps(placement)) {
                    return refused("insufficient resources");
                }
                let id = GpuInstanceId(self.id());
                gpu.instances.push(GpuInstance {
                    id,
                    profile: *profile,
                    placement: *placement,
                    compute: Vec::new(),
                });
            }
            MigChange::CreateCompute {
                instance,
                profile,
                start,
            } => {
                let id = ComputeInstanceId(self.id());
                let one = gpu.instances.iter_mut().find(|one| one.id == *instance).unwrap();
                one.compute.push(ComputeInstance {
                    id,
                    profile: profile.id,
                    placement: start.map(|start| Placement {
                        start,
                        size: profile.slices,
                    }),
                    uuid: None,
                });
            }
        }
        Ok(())
    }
}

/// What a killed process leaves: nothing of it runs any more.
struct Killed;

impl MigMachine for Model {
    fn gpu(&self, _: &GpuUuid) -> Result<MigGpu, ChangeError> {
        Ok(self.gpu.borrow().clone())
    }

    fn change(&self, _: &GpuUuid, change: &MigChange) -> Result<(), ChangeError> {
        let number = *self.changes.borrow();
        *self.changes.borrow_mut() += 1;
        let fault = self.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        match fault {
            None => self.make(change),
            Some(Fault::Fails) => Err(ChangeError::Other("the driver has failed".to_owned())),
            Some(Fault::Lies) => Ok(()),
            Some(Fault::KilledBefore) => std::panic::resume_unwind(Box::new(Killed)),
            Some(Fault::KilledAfter) => {
                let made = self.make(change);
                drop(made);
                std::panic::resume_unwind(Box::new(Killed))
            }
        }
    }

    fn pause(&self) {}
}

const OLD: &[(&str, u32, &[u32])] = &[("3g.20gb", 0, &[1, 2]), ("2g.10gb", 4, &[2]), ("1g.5gb", 6, &[1])];
const NEW: &[(&str, u32, &[u32])] = &[("3g.20gb", 0, &[3]), ("3g.20gb", 4, &[1, 1, 1])];

fn changed(model: &Model, state_dir: &Path) -> Result<(), String> {
    let (before, target) = (model.has(), wanted(NEW));
    change(model, state_dir, &[before], &[target], &mut |_, _| {}).map_err(|error| error.to_string())
}

#[test]
fn a_layout_is_reached_and_leaves_no_journal() {
    let top = tempfile::tempdir().unwrap();
    let model = Model::with(&wanted(OLD), None);
    assert_eq!(model.has(), wanted(OLD));
    let kept = model.gpu.borrow().instances[0].id;
    changed(&model, top.path()).unwrap();
    assert_eq!(model.has(), wanted(NEW));
    assert_eq!(MigJournal::read(top.path()).unwrap(), None);
    // The GPU instance that both layouts have is the same one.
    assert!(model.gpu.borrow().instances.iter().any(|one| one.id == kept));
    // There is nothing left to do.
    *model.changes.borrow_mut() = 0;
    changed(&model, top.path()).unwrap();
    assert_eq!(*model.changes.borrow(), 0);
}

#[test]
fn a_change_that_fails_anywhere_leaves_what_there_was() {
    let changes = {
        let model = Model::with(&wanted(OLD), None);
        changed(&model, tempfile::tempdir().unwrap().path()).unwrap();
        *model.changes.borrow()
    };
    assert!(changes > 6, "{changes}");
    for fault in [Fault::Fails, Fault::Lies] {
        for at in 0..changes {
            let top = tempfile::tempdir().unwrap();
            let model = Model::with(&wanted(OLD), Some((at, fault)));
            let error = changed(&model, top.path()).unwrap_err();
            assert!(
                error.ends_with("everything was put back as it was"),
                "{fault:?} {at}: {error}"
            );
            assert_eq!(model.has(), wanted(OLD), "{fault:?} {at}");
            assert_eq!(MigJournal::read(top.path()).unwrap(), None);
        }
    }
}

#[test]
fn a_process_that_is_killed_anywhere_leaves_what_there_was_or_what_is_wanted() {
    for fault in [Fault::KilledBefore, Fault::KilledAfter] {
        let mut kills = 0;
        for at in 0.. {
            let top = tempfile::tempdir().unwrap();
            let model = Model::with(&wanted(OLD), Some((at, fault)));
            let ended = catch_unwind(AssertUnwindSafe(|| changed(&model, top.path())));
            let Err(killed) = ended else { break };
            assert!(killed.is::<Killed>());
            kills += 1;
            let was_done = model.has() == wanted(NEW);
            let put_back = finish(&model, top.path(), &mut |_, _| {}).unwrap();
            assert_eq!(put_back, [GPU.parse().unwrap()]);
            let expected = if was_done { NEW } else { OLD };
            assert_eq!(model.has(), wanted(expected), "{fault:?} {at}");
            // The next one has nothing to do.
            assert_eq!(finish(&model, top.path(), &mut |_, _| {}).unwrap(), []);
        }
        assert!(kills > 6, "{kills}");
    }
}

#[test]
fn a_journal_stays_until_a_gpu_is_put_back() {
    let top = tempfile::tempdir().unwrap();
    MigJournal::new(vec![wanted(OLD)], vec![wanted(NEW)])
        .write(top.path())
        .unwrap();
    let model = Model::new(empty(), Some((2, Fault::Fails)));
    let error = finish(&model, top.path(), &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("the driver has failed"), "{error}");
    assert!(MigJournal::read(top.path()).unwrap().is_some());
    finish(&model, top.path(), &mut |_, _| {}).unwrap();
    assert_eq!(model.has(), wanted(OLD));
    assert_eq!(MigJournal::read(top.path()).unwrap(), None);
}

#[test]
fn a_driver_that_is_slow_to_see_an_end_is_waited_for() {
    let top = tempfile::tempdir().unwrap();
    let model = Model::with(&wanted(OLD), None);
    *model.lag.borrow_mut() = 5;
    changed(&model, top.path()).unwrap();
    assert_eq!(model.has(), wanted(NEW));
    *model.lag.borrow_mut() = 1000;
    let again = change(&model, top.path(), &[wanted(NEW)], &[wanted(OLD)], &mut |_, _| {}).unwrap_err();
    assert!(
        again.to_string().contains("the driver says that it is in use"),
        "{again}"
    );
}

#[test]
fn the_mode_changes_without_instances_only() {
    let top = tempfile::tempdir().unwrap();
    let off = ExactGpu {
        mode: MigMode::Disabled,
        ..wanted(&[])
    };
    let model = Model::with(&wanted(OLD), None);
    change(
        &model,
        top.path(),
        &[wanted(OLD)],
        std::slice::from_ref(&off),
        &mut |_, _| {},
    )
    .unwrap();
    assert_eq!(model.has(), off);
    change(&model, top.path(), &[off], &[wanted(NEW)], &mut |_, _| {}).unwrap();
    assert_eq!(model.has(), wanted(NEW));
}

#[test]
fn a_mode_that_waits_for_a_reset_is_an_error() {
    let top = tempfile::tempdir().unwrap();
    let mut gpu = empty();
    gpu.mode = MigState {
        current: MigMode::Disabled,
        pending: MigMode::Enabled,
    };
    let model = Model::new(gpu, None);
    let before = model.has();
    let error = change(&model, top.path(), &[before], &[wanted(NEW)], &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("with the next reset"), "{error}");
}
