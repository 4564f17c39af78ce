//! The instances that were made, in a file beside the configuration: the next process that opens the library finds
//! them.

use super::files;
use super::rules::Refusal;
use crate::config::{self, Config, Gpu, Mig};
use crate::state::World;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// The state of each GPU that was changed, by UUID.
type Changed = BTreeMap<String, Mig>;

/// The file with them.
pub(crate) fn path() -> Option<PathBuf> {
    // Beside the file itself where the configuration is a link: what is lost at a boot is not on the disk.
    let config = fs::canonicalize(config::find()?).ok()?;
    Some(config.with_extension("mig.json"))
}

fn read() -> Changed {
    let text = path().and_then(|path| fs::read(path).ok());
    text.and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default()
}

/// Gives the GPUs of the configuration what was made by earlier processes.
pub(crate) fn overlay(config: &mut Config) {
    let mut changed = read();
    for gpu in &mut config.gpus {
        if let Some(mig) = changed.remove(&gpu.uuid) {
            gpu.mig = Some(mig);
        }
    }
}

/// Changes a GPU by `change`, with what earlier processes have made of it. One change is made at a time.
pub(super) fn change(
    world: &World,
    gpu: &Gpu,
    change: impl FnOnce(&mut Mig) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let path = path().ok_or(Refusal::Invalid)?;
    let lock = File::create(path.with_extension("lock")).map_err(|_| Refusal::Invalid)?;
    lock.lock().map_err(|_| Refusal::Invalid)?;
    let mut all = read();
    let before = all.get(&gpu.uuid).or(gpu.mig.as_ref()).ok_or(Refusal::Invalid)?.clone();
    let mut after = before.clone();
    // The UUIDs of two GPUs' instances begin at different numbers.
    if after.made == 0 {
        let mut hasher = DefaultHasher::new();
        gpu.uuid.hash(&mut hasher);
        after.made = hasher.finish() >> 32;
    }
    change(&mut after)?;
    files::follow(gpu.minor, &before, &after);
    let names = |mig: &Mig| {
        mig.instances
            .iter()
            .map(|one| format!("{}@{}", one.profile, one.start))
            .collect::<Vec<_>>()
    };
    let event = json!({"event": "mig", "gpu": gpu.uuid, "instances": names(&after), "current": after.current});
    all.insert(gpu.uuid.clone(), after);
    let text = serde_json::to_vec(&all).map_err(|_| Refusal::Invalid)?;
    let new = path.with_extension("new");
    fs::write(&new, text).map_err(|_| Refusal::Invalid)?;
    fs::rename(&new, &path).map_err(|_| Refusal::Invalid)?;
    world.record(&event).map_err(|_| Refusal::Invalid)
}
