//! The layouts that tranche has made, which no instance survives a boot of: kept on disk, to be made again.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tranche_core::error::Result;
use tranche_core::ledger::kept_dir;
use tranche_core::types::{ComputeInstanceId, DeviceKey, GpuInstanceId, GpuUuid};
use tranche_plan::mig::{ExactGpu, GpuInstance, MigGpu, Placement};
use tranche_state::state_file::FileForm;

const FILE: &str = "mig-layout.json";

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not a valid layout",
    hint: "remove the file and apply the layout again: tranche mig apply",
};

/// The layouts of the GPUs that tranche has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLayouts {
    version: u32,
    /// What each GPU has.
    pub gpus: Vec<SavedGpu>,
    /// What the GPUs of the last change had before it.
    pub previous: Vec<ExactGpu>,
}

/// The layout of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedGpu {
    /// The layout.
    pub layout: ExactGpu,
    /// The instances as they were, with the driver's numbers, by which reservations that outlive a boot know them.
    pub instances: Vec<GpuInstance>,
}

impl SavedGpu {
    /// What `gpu` has now.
    pub fn of(gpu: &MigGpu) -> Self {
        Self {
            layout: ExactGpu::of(gpu),
            instances: gpu.instances.clone(),
        }
    }

    /// The MIG devices whose numbers are others on `now`, where the same layout was made again: old and new.
    pub fn renumbered(&self, now: &MigGpu) -> Vec<(DeviceKey, DeviceKey)> {
        let key = |(instance, compute)| DeviceKey::mig(self.layout.gpu.clone(), instance, compute);
        let new = places(&now.instances);
        let pairs = places(&self.instances).into_iter().filter_map(|(place, old)| {
            let (_, new) = new.iter().find(|(other, _)| *other == place)?;
            Some((old, *new))
        });
        pairs
            .filter(|(old, new)| old != new)
            .map(|(old, new)| (key(old), key(new)))
            .collect()
    }
}

/// Where a compute instance lies: the place of its GPU instance, and how many others of that come before it.
type Place = (Placement, usize);

/// Each compute instance by its place.
fn places(instances: &[GpuInstance]) -> Vec<(Place, (GpuInstanceId, ComputeInstanceId))> {
    let of = |one: &GpuInstance| {
        let mut compute: Vec<_> = one.compute.iter().map(|c| (c.placement, c.id)).collect();
        compute.sort();
        let (place, id) = (one.placement, one.id);
        let numbered = compute.into_iter().enumerate();
        numbered
            .map(move |(number, (_, compute))| ((place, number), (id, compute)))
            .collect::<Vec<_>>()
    };
    instances.iter().flat_map(of).collect()
}

impl Default for SavedLayouts {
    fn default() -> Self {
        Self {
            version: FORM.version,
            gpus: Vec::new(),
            previous: Vec::new(),
        }
    }
}

impl SavedLayouts {
    /// The file, of a node whose ledger is in `state_dir`.
    pub fn path(state_dir: &Path) -> PathBuf {
        kept_dir(state_dir).join(FILE)
    }

    /// What was saved; nothing if nothing was.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or was not written by this version of tranche.
    pub fn read(state_dir: &Path) -> Result<Self> {
        let read = FORM.read(&Self::path(state_dir), |saved: &Self| saved.version)?;
        Ok(read.unwrap_or_default())
    }

    /// The layout of a GPU.
    pub fn of(&self, gpu: &GpuUuid) -> Option<&SavedGpu> {
        self.gpus.iter().find(|saved| saved.layout.gpu == *gpu)
    }

    /// Records that `now` was made of `before`. Other GPUs stay as they are.
    pub fn record(&mut self, before: Vec<ExactGpu>, now: impl IntoIterator<Item = SavedGpu>) {
        for gpu in now {
            self.gpus.retain(|saved| saved.layout.gpu != gpu.layout.gpu);
            self.gpus.push(gpu);
        }
        self.gpus.sort_by(|a, b| a.layout.gpu.cmp(&b.layout.gpu));
        self.previous = before;
    }

    /// Takes the numbers that the instances of a GPU have now, if it has what was saved: what is put back has others.
    /// Returns whether they were others.
    pub fn take_numbers(&mut self, now: &MigGpu) -> bool {
        let has_it = |saved: &&mut SavedGpu| saved.layout == ExactGpu::of(now) && saved.instances != now.instances;
        let found = self.gpus.iter_mut().find(has_it);
        let is_found = found.is_some();
        if let Some(saved) = found {
            saved.instances.clone_from(&now.instances);
        }
        is_found
    }

    /// Writes it.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn write(&self, state_dir: &Path) -> Result<()> {
        FORM.write(&Self::path(state_dir), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_plan::inventory::MigMode;
    use tranche_plan::mig::{ComputeInstance, ComputeProfileId, ProfileId};
    use tranche_state::replace;

    const GPU: &str = "GPU-bb5d1807-35ed-1a19-3c32-147f9952a2da";

    fn instance(id: u32, start: u32, compute: &[(u32, u32)]) -> GpuInstance {
        let compute = compute.iter().map(|(id, start)| ComputeInstance {
            id: ComputeInstanceId(*id),
            profile: ComputeProfileId(0),
            placement: Some(Placement { start: *start, size: 1 }),
            uuid: None,
        });
        GpuInstance {
            id: GpuInstanceId(id),
            profile: ProfileId(19),
            placement: Placement { start, size: 1 },
            compute: compute.collect(),
        }
    }

    fn saved(gpu: &str, instances: Vec<GpuInstance>) -> SavedGpu {
        SavedGpu {
            layout: ExactGpu {
                gpu: gpu.parse().unwrap(),
                mode: MigMode::Enabled,
                instances: Vec::new(),
            },
            instances,
        }
    }

    #[test]
    fn devices_are_found_again_by_their_place() {
        let old = saved(GPU, vec![instance(7, 0, &[(0, 0), (1, 1)]), instance(9, 4, &[(0, 0)])]);
        let now = MigGpu {
            instances: vec![instance(9, 0, &[(1, 0), (0, 1)]), instance(7, 4, &[(0, 0)])],
            ..crate::mig::tests::model::empty()
        };
        let found: Vec<String> = old
            .renumbered(&now)
            .iter()
            .map(|(old, new)| format!("{old} {new}").replace(GPU, "G"))
            .collect();
        assert_eq!(found, ["G/7/0 G/9/1", "G/7/1 G/9/0", "G/9/0 G/7/0"]);
        let same = MigGpu {
            instances: old.instances.clone(),
            ..crate::mig::tests::model::empty()
        };
        assert_eq!(old.renumbered(&same), []);
    }

    #[test]
    fn a_change_of_one_gpu_leaves_the_others() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(SavedLayouts::read(top.path()).unwrap(), SavedLayouts::default());
        let other = "GPU-70a9ab33-5fdf-f872-2dd6-2a71f01faffb";
        let mut layouts = SavedLayouts::default();
        layouts.record(vec![], [saved(GPU, vec![]), saved(other, vec![])]);
        let before = saved(other, vec![]).layout;
        layouts.record(vec![before.clone()], [saved(other, vec![instance(7, 0, &[])])]);
        layouts.write(top.path()).unwrap();
        let read = SavedLayouts::read(top.path()).unwrap();
        assert_eq!(read.of(&GPU.parse().unwrap()).unwrap().instances, []);
        assert_eq!(
            read.of(&other.parse().unwrap()).unwrap().instances,
            [instance(7, 0, &[])]
        );
        assert_eq!(read.previous, [before]);
    }

    #[test]
    fn a_file_of_another_version_is_named() {
        let top = tempfile::tempdir().unwrap();
        let path = SavedLayouts::path(top.path());
        for (text, expected) in [
            ("{", "is not a valid layout"),
            (r#"{"version": 2, "gpus": [], "previous": []}"#, "another version"),
        ] {
            replace::write(&path, text).unwrap();
            let error = SavedLayouts::read(top.path()).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("mig-layout.json"), "{error}");
        }
    }
}
