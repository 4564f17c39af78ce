//! What `tranche runtime configure` says about annotations: whether the engine keeps those of images out.

use tranche_inject::CallingEngine;
use tranche_plan::engines::{Engine, oldest_podman};
use tranche_plan::policy::read::DEFAULT_FILE;
use tranche_specs::installed::EngineDirs;

/// The line about `engine`. podman is asked for its version. At a start of a container, what `tranche cdi refresh`
/// recorded counts.
pub(super) fn line(engine: Engine) -> String {
    let installed = match engine {
        Engine::Podman => EngineDirs::default().installed_podman(),
        _ => Vec::new(),
    };
    let what = match CallingEngine::Known(engine).doubt(oldest_podman(&installed)) {
        None => "annotations may ask for devices, because no image can write them with this engine".to_owned(),
        Some(doubt) => format!("annotations may not ask for devices, because {doubt}"),
    };
    let recorded = match engine {
        Engine::Podman => "; run tranche cdi refresh to record it",
        _ => "",
    };
    format!("{engine}: {what}{recorded}; runtime.acceptAnnotations in {DEFAULT_FILE} decides otherwise")
}
