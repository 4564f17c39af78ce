//! A model of a GPU that refuses what the driver refuses, and that can fail or lose its caller at each call.

use crate::mig::{ChangeError, MigJournal, MigMachine, Record, SavedGpu, change};
use std::cell::RefCell;
use tranche_core::types::MemorySize;
use tranche_core::types::{ComputeInstanceId, GpuInstanceId, GpuUuid};
use tranche_plan::inventory::{MigMode, MigState};
use tranche_plan::mig::{
    ComputeInstance, ComputeProfile, ComputeProfileId, ComputeProfileIndex, Engines, ExactCompute, ExactGpu,
    ExactInstance, GpuInstance, InstanceProfile, MigChange, MigGpu, Placement, ProfileId, ProfileIndex,
};

pub(crate) const GPU: &str = "GPU-bb5d1807-35ed-1a19-3c32-147f9952a2da";

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

pub(crate) fn empty() -> MigGpu {
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

pub(crate) fn wanted(instances: &[(&str, u32, &[u32])]) -> ExactGpu {
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

/// What a journal says of it as it is now.
pub(crate) fn had(gpu: &MigGpu) -> SavedGpu {
    SavedGpu::of(gpu)
}

/// The journal of a change of one GPU.
pub(crate) fn journal(before: SavedGpu, target: ExactGpu) -> MigJournal {
    MigJournal::new(vec![before], vec![target], Record::Layout)
}

/// What a call does instead of what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails.
    Fails,
    /// The caller is killed before the driver does anything.
    KilledBefore,
    /// The caller is killed after the driver has done it.
    KilledAfter,
    /// It succeeds and does nothing.
    Lies,
    /// The GPU falls off the bus, and answers nothing any more.
    Lost,
}

pub(crate) struct Model {
    pub(crate) gpu: RefCell<MigGpu>,
    /// Which change has a fault; counted from 0.
    fault: Option<(usize, Fault)>,
    pub(crate) changes: RefCell<usize>,
    /// At which look at the GPU the caller is killed; counted from 0.
    pub(crate) killed_at_look: RefCell<Option<usize>>,
    looks: RefCell<usize>,
    pub(crate) is_lost: RefCell<bool>,
    last_id: RefCell<u32>,
    /// How often a destroyed instance is still in use.
    pub(crate) lag: RefCell<u32>,
}

impl Model {
    pub(crate) fn new(gpu: MigGpu, fault: Option<(usize, Fault)>) -> Self {
        let compute = gpu.instances.iter().flat_map(|one| &one.compute);
        let last_id = compute.map(|compute| compute.id.0).max().unwrap_or(20);
        Self {
            gpu: RefCell::new(gpu),
            fault,
            changes: RefCell::new(0),
            killed_at_look: RefCell::new(None),
            looks: RefCell::new(0),
            is_lost: RefCell::new(false),
            last_id: RefCell::new(last_id),
            lag: RefCell::new(0),
        }
    }

    /// One whose caller is killed when it looks at the GPU for this time, counted from 0.
    pub(crate) fn killed_at_look(gpu: MigGpu, look: usize) -> Self {
        Self {
            killed_at_look: RefCell::new(Some(look)),
            ..Self::new(gpu, None)
        }
    }

    /// One that has `exact`.
    pub(crate) fn with(exact: &ExactGpu, fault: Option<(usize, Fault)>) -> Self {
        let model = Self::new(empty(), None);
        let top = tempfile::tempdir().unwrap();
        let to_exact = journal(had(&model.gpu.borrow()), exact.clone());
        change(&model, top.path(), &to_exact, &mut |_, _| {}).unwrap();
        Self {
            fault,
            changes: RefCell::new(0),
            looks: RefCell::new(0),
            ..model
        }
    }

    pub(crate) fn has(&self) -> ExactGpu {
        ExactGpu::of(&self.gpu.borrow())
    }

    fn id(&self) -> u32 {
        *self.last_id.borrow_mut() += 1;
        *self.last_id.borrow()
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
                    uuid: format!("MIG-00000000-0000-4000-8000-{:012}", id.0).parse().ok(),
                });
            }
        }
        Ok(())
    }
}

fn lost<T>() -> Result<T, ChangeError> {
    Err(ChangeError::Other("the GPU is lost".to_owned()))
}

/// What a killed process leaves: nothing of it runs any more.
pub(crate) struct Killed;

impl MigMachine for Model {
    fn gpu(&self, _: &GpuUuid) -> Result<MigGpu, ChangeError> {
        let look = *self.looks.borrow();
        *self.looks.borrow_mut() += 1;
        if *self.killed_at_look.borrow() == Some(look) {
            std::panic::resume_unwind(Box::new(Killed));
        }
        match *self.is_lost.borrow() {
            true => lost(),
            false => Ok(self.gpu.borrow().clone()),
        }
    }

    fn change(&self, _: &GpuUuid, change: &MigChange) -> Result<(), ChangeError> {
        let number = *self.changes.borrow();
        *self.changes.borrow_mut() += 1;
        let fault = self.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        match fault {
            None => self.make(change),
            Some(Fault::Fails) => Err(ChangeError::Other("the driver has failed".to_owned())),
            Some(Fault::Lies) => Ok(()),
            Some(Fault::Lost) => {
                *self.is_lost.borrow_mut() = true;
                lost()
            }
            Some(Fault::KilledBefore) => std::panic::resume_unwind(Box::new(Killed)),
            Some(Fault::KilledAfter) => {
                let made = self.make(change);
                drop(made);
                std::panic::resume_unwind(Box::new(Killed))
            }
        }
    }

    fn pause(&self) {}

    fn await_starts(&self) {}
}
